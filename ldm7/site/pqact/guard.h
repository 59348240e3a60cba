/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines of PIPE and EXEC into which text of an identifier is put: that text comes from the
 * network. It may be an argument; it must not choose the program, nor be read as a program by a
 * shell or another interpreter.
 */
#ifndef PQACT_GUARD_H
#define PQACT_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* foreign[i]: text of the identifier gets into words[i]. NULL if the command is safe; else why it
 * is not, and *at is the word to blame. */
const char *guard_command(char *const *words, const bool *foreign, size_t n, size_t *at);

#endif

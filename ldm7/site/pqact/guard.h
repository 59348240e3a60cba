/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks command lines of PIPE and EXEC that include text of an identifier: that text comes from
 * the network. It may be an argument; it must not choose the program, nor be read as a program by a
 * shell or another interpreter.
 */
#ifndef PQACT_GUARD_H
#define PQACT_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* foreign[i]: words[i] contains text of the identifier. Returns NULL if the command is safe;
 * otherwise why it is not, and *at is the word at fault. */
const char *guard_command(char *const *words, const bool *foreign, size_t n, size_t *at);

#endif

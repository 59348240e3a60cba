/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parsers of configuration files share: reading a file, and the format of messages.
 */
#ifndef LDM_CONFTEXT_H
#define LDM_CONFTEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#define CONFTEXT_BYTES_MAX (1u << 20)

/* Returns the text of a file, which the caller frees; NULL with why if it cannot be read, is longer
 * than CONFTEXT_BYTES_MAX, or has a NUL byte. */
char *conftext_read(const char *path, const char **why);

/* Writes one line `name:line: found "...": why; valid: ...`, without `: why` if that is empty.
 * Shows unprintable characters in `found` as ?. errors may be NULL. */
void conftext_complain(FILE *errors, const char *name, unsigned line, const char *found,
                       const char *valid, const char *why, va_list ap)
    __attribute__((format(printf, 6, 0)));

#endif

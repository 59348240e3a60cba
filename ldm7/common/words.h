/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits the command lines of configuration files (EXEC, PIPE, ...) into words. There is no shell:
 * no variables, no patterns, no redirection; the words go to exec as they are.
 */
#ifndef LDM_WORDS_H
#define LDM_WORDS_H

#include <stddef.h>

#define WORDS_MAX 64u

/* Words are separated by blanks and tabs. "..." and '...' keep blanks (also in the middle of a
 * word, also empty words); within "..." a backslash before " or \ takes that character; elsewhere a
 * backslash is a character like others. At most WORDS_MAX words.
 * NULL, with a reason in err, if there is no word, a quote is not closed or there are too many.
 * The list ends with a NULL; words_free gives it back. */
char **words_split(const char *text, size_t *n, char *err, size_t err_bytes);
/* words may be NULL. */
void words_free(char **words);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits the command lines of configuration files (EXEC, PIPE, ...) into words. There is no shell:
 * no variables, no patterns, no redirection; the words go to exec unchanged.
 */
#ifndef LDM_WORDS_H
#define LDM_WORDS_H

#include <stddef.h>

#define WORDS_MAX 64u

/* Words are separated by blanks and tabs. "..." and '...' preserve blanks (also in the middle of a
 * word, and for empty words); within "..." a backslash before " or \ yields that character;
 * elsewhere a backslash is an ordinary character. At most WORDS_MAX words. Returns NULL, with a
 * reason in err, if there is no word, a quote is not closed or there are too many words. The list
 * ends with a NULL; free it with words_free(). */
char **words_split(const char *text, size_t *n, char *err, size_t err_bytes);
/* words may be NULL. */
void words_free(char **words);

#endif

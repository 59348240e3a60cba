/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

/* Takes one word from *in to *out, where there is always enough room. Returns false on an open
 * quote. */
static bool take(const char **in, char **out)
{
    const char *p = *in;
    char *o = *out, quote = 0;

    for (; *p != '\0' && (quote || !strchr(" \t", *p)); p++) {
        if (quote == 0 && (*p == '"' || *p == '\'')) {
            quote = *p;
        } else if (quote && *p == quote) {
            quote = 0;
        } else {
            if (quote == '"' && *p == '\\' && (p[1] == '"' || p[1] == '\\'))
                p++;
            *o++ = *p;
        }
    }
    *o++ = '\0';
    *in = p;
    *out = o;
    return quote == 0;
}

char **words_split(const char *text, size_t *n, char *err, size_t err_bytes)
{
    size_t list_bytes = (WORDS_MAX + 1) * sizeof(char *);
    char **words = xcalloc(1, list_bytes + strlen(text) + 2);
    const char *why = NULL;

    char *out = (char *)words + list_bytes;
    *n = 0;
    for (const char *p = text; *(p += strspn(p, " \t")) != '\0' && !why;) {
        if (*n == WORDS_MAX) {
            why = "more than 64 words";
            break;
        }
        words[(*n)++] = out;
        if (!take(&p, &out))
            why = "a quote is not closed";
    }
    if (!why && *n == 0)
        why = "no word";
    if (!why)
        return words;
    snprintf(err, err_bytes, "%s", why);
    free(words);
    *n = 0;
    return NULL;
}
_Static_assert(WORDS_MAX == 64, "the text above");

void words_free(char **words)
{
    free(words);
}

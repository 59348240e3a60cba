/* SPDX-License-Identifier: Apache-2.0 */
#include "conftext.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"

char *conftext_read(const char *path, const char **why)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;

    if (!f) {
        *why = strerror(errno);
        return NULL;
    }
    text = xcalloc(1, CONFTEXT_BYTES_MAX + 2);
    size_t n = fread(text, 1, CONFTEXT_BYTES_MAX + 1, f);
    if (ferror(f))
        *why = strerror(errno);
    else if (n > CONFTEXT_BYTES_MAX)
        *why = "longer than 1 MiB";
    else if (memchr(text, '\0', n))
        *why = "contains a NUL byte";
    else {
        text[n] = '\0';
        fclose(f);
        return text;
    }
    fclose(f);
    free(text);
    return NULL;
}

void conftext_complain(FILE *errors, const char *name, unsigned line, const char *found,
                       const char *valid, const char *why, va_list ap)
{
    if (!errors)
        return;
    char text[1024];
    vsnprintf(text, sizeof text, why, ap);
    fprintf(errors, "%s:%u: found \"", name, line);
    for (const char *s = found; *s != '\0'; s++)
        fputc(isprint((unsigned char)*s) ? *s : '?', errors);
    fprintf(errors, "\"%s%s; valid: %s\n", text[0] != '\0' ? ": " : "", text, valid);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/alloc.h"
#include "common/new_file.h"
#include "common/product_line.h"
#include "match.h"

#define LAST "Last Multicast Product Signature: "
#define MISSED "Missed Product Indexes:"
#define ITEM "  - "

void session_set_last(struct session *s, const struct pq_signature *sig)
{
    if (s->has_last && memcmp(&s->last, sig, sizeof *sig) == 0)
        return;
    s->last = *sig;
    s->has_last = true;
    s->dirty = true;
}

bool session_has_missed(const struct session *s, uint32_t index)
{
    for (size_t i = s->nmissed; i > 0; i--)
        if (s->missed[i - 1] == index)
            return true;
    return false;
}

bool session_add_missed(struct session *s, uint32_t index)
{
    if (session_has_missed(s, index))
        return false;
    if (s->nmissed == SESSION_MISSED_MAX) {
        s->dropped++;
        return false;
    }
    if (s->nmissed == s->cap) {
        size_t cap = s->cap == 0 ? 64 : 2 * s->cap;
        s->missed = xreallocarray(s->missed, cap, sizeof *s->missed);
        s->cap = cap;
    }
    s->missed[s->nmissed++] = index;
    s->dirty = true;
    return true;
}

bool session_remove_missed(struct session *s, uint32_t index)
{
    for (size_t i = 0; i < s->nmissed; i++)
        if (s->missed[i] == index) {
            memmove(s->missed + i, s->missed + i + 1, (s->nmissed - i - 1) * sizeof *s->missed);
            s->nmissed--;
            s->dirty = true;
            return true;
        }
    return false;
}

bool session_path(char *out, size_t out_bytes, const char *queue, const char *host, uint16_t port,
                  const char *feed)
{
    const char *slash = strrchr(queue, '/');
    int dir = !slash ? 1 : (int)(slash - queue);
    int n =
        snprintf(out, out_bytes, "%.*s/%s:%u_%s.yaml", dir, !slash ? "." : queue, host, port, feed);

    return n > 0 && (size_t)n < out_bytes && !strchr(host, '/');
}

void session_load(struct session *s, const char *path)
{
    FILE *f = fopen(path, "re");

    if (!f)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\r\n")] = '\0';
        if (strncmp(line, LAST, strlen(LAST)) == 0 &&
            signature_parse(line + strlen(LAST), &s->last))
            s->has_last = true;
        else if (strncmp(line, ITEM, strlen(ITEM)) == 0)
            session_add_missed(s, (uint32_t)strtoul(line + strlen(ITEM), NULL, 10));
    }
    fclose(f);
    s->dirty = false;
}

int session_save(struct session *s, const char *path)
{
    struct new_file file;
    if (new_file_begin(&file, path) < 0)
        return -1;
    FILE *f = file.stream;
    fputs("---\n", f);
    char hex[33];
    if (s->has_last)
        fprintf(f, LAST "%s\n", signature_format(&s->last, hex));
    if (s->nmissed > 0)
        fputs(MISSED "\n", f);
    for (size_t i = 0; i < s->nmissed; i++)
        fprintf(f, ITEM "%u\n", s->missed[i]);
    fputs("...\n", f);
    if (new_file_end(&file) < 0)
        return -1;
    s->dirty = false;
    return 0;
}

void session_free(struct session *s)
{
    free(s->missed);
    *s = (struct session){0};
}

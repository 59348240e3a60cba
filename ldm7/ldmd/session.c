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

/* Indices are in the order of their age, in serial arithmetic (RFC 1982): they wrap. */
static bool is_older(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* Returns where the index is or belongs. */
static size_t place_of(const struct session *s, uint32_t index)
{
    size_t low = 0, high = s->nmissed;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (is_older(s->missed[middle], index))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct session *s, size_t place, uint32_t index)
{
    return place < s->nmissed && s->missed[place] == index;
}

bool session_has_missed(const struct session *s, uint32_t index)
{
    return is_at(s, place_of(s, index), index);
}

/* Returns whether the index has an order among the others. Else half of all numbers lie between
 * two of them: their file was damaged. */
static bool fits(const struct session *s, uint32_t index)
{
    if (!s->nmissed)
        return true;
    uint32_t oldest = s->missed[0], newest = s->missed[s->nmissed - 1];
    bool before = is_older(index, oldest), after = is_older(newest, index);
    return !(before && after) &&
           (after ? index : newest) - (before ? index : oldest) <= (uint32_t)INT32_MAX;
}

bool session_add_missed(struct session *s, uint32_t index)
{
    if (!fits(s, index)) {
        s->dropped += s->nmissed;
        s->nmissed = 0;
    }
    size_t n = s->nmissed;
    size_t at = place_of(s, index);
    if (is_at(s, at, index))
        return false;
    if (n == SESSION_MISSED_MAX) {
        s->dropped++;
        return false;
    }
    if (n == s->cap) {
        size_t cap = s->cap == 0 ? 64 : 2 * s->cap;
        s->missed = xreallocarray(s->missed, cap, sizeof *s->missed);
        s->cap = cap;
    }
    memmove(s->missed + at + 1, s->missed + at, (n - at) * sizeof *s->missed);
    s->missed[at] = index;
    s->nmissed++;
    s->dirty = true;
    return true;
}

bool session_remove_missed(struct session *s, uint32_t index)
{
    size_t at = place_of(s, index);

    if (!is_at(s, at, index))
        return false;
    memmove(s->missed + at, s->missed + at + 1, (s->nmissed - at - 1) * sizeof *s->missed);
    s->nmissed--;
    s->dirty = true;
    return true;
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

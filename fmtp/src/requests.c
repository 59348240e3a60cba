/* SPDX-License-Identifier: Apache-2.0 */
#include "requests.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

void fmtp_requests_init(struct fmtp_requests *q, size_t limit_bytes)
{
    *q = (struct fmtp_requests){.limit = FIRST_CAPACITY};
    while (q->limit <= SIZE_MAX / 64 && q->limit * 2 * sizeof *q->ring <= limit_bytes)
        q->limit *= 2;
}

void fmtp_requests_free(struct fmtp_requests *q)
{
    free(q->ring);
    *q = (struct fmtp_requests){0};
}

static int grow(struct fmtp_requests *q)
{
    size_t capacity = q->capacity ? q->capacity * 2 : FIRST_CAPACITY;

    if (capacity > q->limit)
        return -1;
    struct fmtp_request *ring = malloc(capacity * sizeof *ring);
    if (!ring)
        return -1;
    for (size_t i = 0; i < q->count; i++)
        ring[i] = *fmtp_requests_at(q, i);
    free(q->ring);
    q->ring = ring;
    q->capacity = capacity;
    q->head = 0;
    return 0;
}

int fmtp_requests_push(struct fmtp_requests *q, const struct fmtp_request *r, size_t locked)
{
    if (q->count > locked) {
        struct fmtp_request *last = fmtp_requests_at(q, q->count - 1);
        bool same = last->flags == r->flags && last->index == r->index;
        bool joins = r->flags == FMTP_RETX_DATA ? last->end == r->seq
                                                : r->flags != FMTP_NOT_YET || last->end == r->end;
        if (same && joins) {
            last->end = r->end;
            return 0;
        }
    }
    if (q->count == q->capacity && grow(q) < 0)
        return -1;
    q->count++;
    *fmtp_requests_at(q, q->count - 1) = *r;
    return 0;
}

void fmtp_requests_pop(struct fmtp_requests *q)
{
    q->head = (q->head + 1) & (q->capacity - 1);
    q->count--;
}

size_t fmtp_requests_purge(struct fmtp_requests *q, size_t from, uint32_t index, bool reject)
{
    size_t kept = from, found = 0;

    for (size_t i = from; i < q->count; i++) {
        struct fmtp_request r = *fmtp_requests_at(q, i);
        if (r.index == index && (r.flags == FMTP_RETX_DATA || r.flags == FMTP_RETX_BOP)) {
            if (found++ || !reject)
                continue;
            r = (struct fmtp_request){.index = index, .flags = FMTP_RETX_REJ};
        }
        *fmtp_requests_at(q, kept++) = r;
    }
    if (q->count > kept)
        q->count = kept;
    return found;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "requests.h"

#include <stdlib.h>

enum {
    FIRST_CAPACITY = 64,
    SHORT = 1024,   /* a queue that may be compacted at any time */
    WORTHWHILE = 16 /* else this part of it must have been purged */
};

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

void fmtp_requests_list(struct fmtp_requests *q, size_t i, uint64_t *last)
{
    uint64_t after = q->popped + i + 1;

    fmtp_requests_at(q, i)->back = *last > q->popped ? (uint32_t)(after - *last) : 0;
    *last = after;
}

int fmtp_requests_push(struct fmtp_requests *q, const struct fmtp_request *r, size_t locked,
                       uint64_t *last)
{
    if (q->count > locked) {
        struct fmtp_request *tail = fmtp_requests_at(q, q->count - 1);
        bool same = tail->flags == r->flags && tail->index == r->index;
        bool joins = r->flags == FMTP_RETX_DATA ? tail->end == r->seq
                                                : r->flags != FMTP_NOT_YET || tail->end == r->end;
        if (same && joins) {
            tail->end = r->end;
            return 0;
        }
    }
    if (q->count == q->capacity && grow(q) < 0)
        return -1;
    q->count++;
    *fmtp_requests_at(q, q->count - 1) = *r;
    if (fmtp_requests_of_data(r) && last)
        fmtp_requests_list(q, q->count - 1, last);
    else if (fmtp_requests_of_data(r))
        q->unlisted = true;
    return 0;
}

/* Removes the purged entries at both ends. */
static void trim(struct fmtp_requests *q)
{
    for (; q->count && !fmtp_requests_at(q, 0)->flags; q->purged--, q->popped++, q->count--)
        q->head = (q->head + 1) & (q->capacity - 1);
    for (; q->count && !fmtp_requests_at(q, q->count - 1)->flags; q->purged--)
        q->count--;
    if (!q->count)
        q->unlisted = false;
}

void fmtp_requests_pop(struct fmtp_requests *q)
{
    q->head = (q->head + 1) & (q->capacity - 1);
    q->count--;
    q->popped++;
    trim(q);
}

/* Purges all entries about the product's data, without their list. */
static size_t purge_unlisted(struct fmtp_requests *q, uint32_t index, struct fmtp_request **first)
{
    size_t found = 0;

    q->looks += q->count;
    for (size_t i = q->count; i-- > 0;) {
        struct fmtp_request *r = fmtp_requests_at(q, i);
        if (r->index != index || !fmtp_requests_of_data(r))
            continue;
        r->flags = 0;
        found++;
        *first = r;
    }
    return found;
}

static size_t purge_list(struct fmtp_requests *q, uint64_t last, struct fmtp_request **first)
{
    size_t found = 0;

    while (last > q->popped) {
        struct fmtp_request *r = fmtp_requests_at(q, (size_t)(last - 1 - q->popped));
        q->looks++;
        r->flags = 0;
        found++;
        *first = r;
        if (!r->back)
            break;
        last -= r->back;
    }
    return found;
}

size_t fmtp_requests_purge(struct fmtp_requests *q, uint32_t index, uint64_t *last, bool reject)
{
    struct fmtp_request *first = NULL;
    size_t found = 0;

    if (q->unlisted)
        found = purge_unlisted(q, index, &first);
    else if (last)
        found = purge_list(q, *last, &first);
    if (last)
        *last = 0;
    q->purged += found;
    if (first && reject) {
        *first = (struct fmtp_request){.index = index, .flags = FMTP_RETX_REJ};
        q->purged--;
    }
    trim(q);
    return found;
}

bool fmtp_requests_compact(struct fmtp_requests *q)
{
    size_t kept = 0;

    if (!q->purged || (q->count > SHORT && q->purged < q->count / WORTHWHILE))
        return false;
    q->looks += q->count;
    for (size_t i = 0; i < q->count; i++)
        if (fmtp_requests_at(q, i)->flags)
            *fmtp_requests_at(q, kept++) = *fmtp_requests_at(q, i);
    q->popped += q->count - kept; /* what is last keeps its number */
    q->count = kept;
    q->purged = 0;
    return true;
}

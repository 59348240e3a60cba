/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sender must still answer to one peer: a bounded FIFO of ranges and control messages. A
 * range takes 20 bytes whatever its length; its bytes are produced when the peer can accept them.
 */
#ifndef FMTP_REQUESTS_H
#define FMTP_REQUESTS_H

#include "wire.h"

struct fmtp_request {
    uint32_t index;
    /* RETX_DATA: bytes [seq, end) of the product; NOT_YET: the next index, and the flags of the
     * message it answers; else 0. */
    uint32_t seq, end;
    uint32_t flags; /* RETX_DATA, RETX_BOP, RETX_EOP, RETX_REJ or NOT_YET; 0: purged */
    uint32_t back;  /* entries back to the product's entry before this one; 0: there is none */
};

struct fmtp_requests {
    struct fmtp_request *ring;
    size_t head, count, capacity; /* capacity: a power of two, grown on demand */
    size_t limit;                 /* capacity never exceeds it */
    size_t purged;                /* entries that are; never the first or the last */
    uint64_t popped;              /* entries removed from the head so far */
    uint64_t looks;               /* entries that purges and compactions have looked at */
    bool unlisted;                /* some entry of a product is in no list */
};

/* Makes an empty queue of at most limit_bytes. */
void fmtp_requests_init(struct fmtp_requests *q, size_t limit_bytes);
/* Frees the ring. */
void fmtp_requests_free(struct fmtp_requests *q);
/* Returns entry i < count from the head. */
static inline struct fmtp_request *fmtp_requests_at(const struct fmtp_requests *q, size_t i)
{
    return &q->ring[(q->head + i) & (q->capacity - 1)];
}
/* Returns whether the entry is about a product's data: only that can be purged. */
static inline bool fmtp_requests_of_data(const struct fmtp_request *r)
{
    return r->flags == FMTP_RETX_DATA || r->flags == FMTP_RETX_BOP;
}
/* Appends a request; -1: full. Merges a range that continues the last entry, and drops a control
 * message equal to it, unless that entry is number `locked` or below (its message may be half
 * sent). `last` heads the list of the entries about the data of the product, 0 at first; NULL:
 * there is no memory for it. */
int fmtp_requests_push(struct fmtp_requests *q, const struct fmtp_request *r, size_t locked,
                       uint64_t *last);
/* Adds entry i to the list of its product. */
void fmtp_requests_list(struct fmtp_requests *q, size_t i, uint64_t *last);
/* Removes the head; there must be one. */
void fmtp_requests_pop(struct fmtp_requests *q);
/* Purges what is listed, the product's RETX_DATA and RETX_BOP; with reject, one RETX_REJ replaces
 * the first of them. Returns how many were found. It takes time for these alone. */
size_t fmtp_requests_purge(struct fmtp_requests *q, uint32_t index, uint64_t *last, bool reject);
/* Makes room of what was purged, if it is enough to pay for the time; then returns true, and the
 * caller lists all entries afresh. */
bool fmtp_requests_compact(struct fmtp_requests *q);

#endif

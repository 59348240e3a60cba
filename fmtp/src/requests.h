/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sender still has to answer one peer: a bounded FIFO of ranges and control messages.
 * A range costs 16 bytes whatever its length; its bytes are produced when the peer can take them.
 */
#ifndef FMTP_REQUESTS_H
#define FMTP_REQUESTS_H

#include "wire.h"

struct fmtp_request {
    uint32_t index;
    uint32_t seq, end; /* RETX_DATA: bytes [seq, end) of the product; NOT_YET: the next index, and
                          the flags of what it answers; else 0 */
    uint32_t flags;    /* RETX_DATA, RETX_BOP, RETX_EOP, RETX_REJ or NOT_YET */
};

struct fmtp_requests {
    struct fmtp_request *ring;
    size_t head, count, capacity; /* capacity: a power of two, grown on demand */
    size_t limit;                 /* capacity never exceeds it */
};

/* An empty queue of at most limit_bytes. */
void fmtp_requests_init(struct fmtp_requests *q, size_t limit_bytes);
/* Frees the ring. */
void fmtp_requests_free(struct fmtp_requests *q);
/* Number i < count from the head. */
static inline struct fmtp_request *fmtp_requests_at(const struct fmtp_requests *q, size_t i)
{
    return &q->ring[(q->head + i) & (q->capacity - 1)];
}
/* -1: full. A range that continues the last one is merged with it, a control message equal to it is
 * not repeated, unless that one is number `locked` or below it (its message may be half sent). */
int fmtp_requests_push(struct fmtp_requests *q, const struct fmtp_request *r, size_t locked);
/* Takes the head out; there must be one. */
void fmtp_requests_pop(struct fmtp_requests *q);
/* Takes out RETX_DATA and RETX_BOP of the product from number `from` on; if reject, one RETX_REJ
 * stands where the first of them stood. Returns how many were found. */
size_t fmtp_requests_purge(struct fmtp_requests *q, size_t from, uint32_t index, bool reject);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sender must still answer to one peer: a bounded FIFO of ranges and control messages. A
 * range takes 16 bytes whatever its length; its bytes are produced when the peer can accept them.
 */
#ifndef FMTP_REQUESTS_H
#define FMTP_REQUESTS_H

#include "wire.h"

struct fmtp_request {
    uint32_t index;
    /* RETX_DATA: bytes [seq, end) of the product; NOT_YET: the next index, and the flags of the
     * message it answers; else 0. */
    uint32_t seq, end;
    uint32_t flags; /* RETX_DATA, RETX_BOP, RETX_EOP, RETX_REJ or NOT_YET */
};

struct fmtp_requests {
    struct fmtp_request *ring;
    size_t head, count, capacity; /* capacity: a power of two, grown on demand */
    size_t limit;                 /* capacity never exceeds it */
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
/* Appends a request; -1: full. Merges a range that continues the last entry, and drops a control
 * message equal to it, unless that entry is number `locked` or below (its message may be half
 * sent). */
int fmtp_requests_push(struct fmtp_requests *q, const struct fmtp_request *r, size_t locked);
/* Removes the head; there must be one. */
void fmtp_requests_pop(struct fmtp_requests *q);
/* Removes RETX_DATA and RETX_BOP of the product from entry `from` on; with reject, one RETX_REJ
 * replaces the first of them. Returns how many were found. */
size_t fmtp_requests_purge(struct fmtp_requests *q, size_t from, uint32_t index, bool reject);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams of products whose BOP is not known yet: a ring that forgets the oldest.
 */
#ifndef FMTP_REORDER_H
#define FMTP_REORDER_H

#include "wire.h"

struct fmtp_reordered {
    bool used;
    struct fmtp_header h;
    uint8_t *payload; /* in memory */
};

struct fmtp_reorder {
    struct fmtp_reordered *ring;
    size_t capacity, next; /* the slot that is filled next: the oldest */
    size_t count;          /* slots in use */
    size_t block_bytes;
    uint8_t *memory; /* capacity * block_bytes, allocated when first used */
};

/* Room for capacity datagrams (0: none) of at most block_bytes each; -1: no memory. */
int fmtp_reorder_init(struct fmtp_reorder *s, size_t capacity, size_t block_bytes);
/* Frees the ring and what it holds. */
void fmtp_reorder_free(struct fmtp_reorder *s);
/* Keeps a copy. False: no room or memory at all, nothing was kept. *forgot: another one, the
 * oldest, went for it. */
bool fmtp_reorder_put(struct fmtp_reorder *s, const struct fmtp_header *h, const uint8_t *payload,
                      bool *forgot);
/* The next datagram of the product in the order they came, taken out; NULL: no more. *cursor is 0
 * at first. Valid until the next put. */
const struct fmtp_reordered *fmtp_reorder_take(struct fmtp_reorder *s, uint32_t index,
                                               size_t *cursor);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams of products whose BOP is not known yet: a ring that discards the oldest.
 */
#ifndef FMTP_REORDER_H
#define FMTP_REORDER_H

#include "wire.h"

struct fmtp_reordered {
    bool used;
    struct fmtp_header h;
    uint8_t *payload; /* within memory */
};

struct fmtp_reorder {
    struct fmtp_reordered *ring;
    size_t capacity, next; /* the next slot to fill: the oldest */
    size_t count;          /* slots in use */
    size_t block_bytes;
    uint8_t *memory; /* capacity * block_bytes, allocated on first use */
};

/* Makes room for capacity datagrams (0: none) of at most block_bytes each. Returns -1 without
 * memory. */
int fmtp_reorder_init(struct fmtp_reorder *s, size_t capacity, size_t block_bytes);
/* Frees the ring and its content. */
void fmtp_reorder_free(struct fmtp_reorder *s);
/* Keeps a copy. Returns false if there is no room or memory; nothing was kept then. *forgot: the
 * oldest datagram was discarded for it. */
bool fmtp_reorder_put(struct fmtp_reorder *s, const struct fmtp_header *h, const uint8_t *payload,
                      bool *forgot);
/* Removes and returns the product's next datagram in order of arrival; NULL: no more. *cursor
 * starts at 0. The result is valid until the next put. */
const struct fmtp_reordered *fmtp_reorder_take(struct fmtp_reorder *s, uint32_t index,
                                               size_t *cursor);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * An application for the receiver core that checks the core's guarantees: buffers of exactly the
 * announced size, each index begun at most once and completed exactly once (with all its bytes
 * stored), consistent bookkeeping, memory within its bounds.
 */
#ifndef FMTP_FUZZ_RX_H
#define FMTP_FUZZ_RX_H

#include "receiver.h"

enum { RX_PRODUCTS = 8, RX_DONE = 1024, RX_BLOCK = 64, RX_SYMBOLS = 20, RX_REORDER = 6 };

struct rx {
    struct rx_product {
        uint32_t index, size;
        void *data;
        /* Of rx_new_storing(): */
        uint8_t *written; /* the bytes that data shows, in another mapping */
        bool *has;        /* which of them have been stored */
        bool fails;       /* nothing can be stored */
    } open[RX_PRODUCTS];
    struct {
        uint32_t index;
        bool used;
    } done[RX_DONE]; /* of the session, by the low bits of the index */
    uint32_t newest; /* newest index seen */
    bool storing;
};

struct fmtp_receiver *rx_new(struct rx *rx, enum fmtp_layout layout);
/* Likewise with rx_store(): the core cannot write to what begun() returns. */
struct fmtp_receiver *rx_new_storing(struct rx *rx, enum fmtp_layout layout);
fmtp_store_fn rx_store;
/* Abandons the products that cannot be stored. */
void rx_abandon(struct rx *rx, struct fmtp_receiver *r);
/* Begins another connection: extended with blocks of RX_BLOCK and groups of at most 3, or
 * ordinary. */
void rx_session(struct rx *rx, struct fmtp_receiver *r, bool extended, uint32_t next_index,
                uint64_t id);
/* Frees the receiver; every product that began must have ended or been missed. */
void rx_free(struct rx *rx, struct fmtp_receiver *r);
/* Takes up to n bytes of the output for the sender. */
void rx_drain(struct fmtp_receiver *r, size_t n);
/* Delivers a datagram, in the place predicted for it if there is one; overwrites other predicted
 * places with junk. */
void rx_datagram(struct fmtp_receiver *r, const uint8_t *bytes, size_t len, uint64_t now_ns);
/* Aborts if the receiver's bookkeeping is inconsistent. */
void rx_check(const struct fmtp_receiver *r);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * An application for the receiver core that checks its promises: buffers of exactly the announced
 * size, each index begun at most once and ended or missed exactly once.
 */
#ifndef FMTP_FUZZ_RX_H
#define FMTP_FUZZ_RX_H

#include "receiver.h"

enum { RX_PRODUCTS = 8 };

struct rx {
    struct { uint32_t index; void *data; } open[RX_PRODUCTS];
};

struct fmtp_receiver *rx_new(struct rx *rx, enum fmtp_layout layout);
/* Ends the receiver; everything that was begun must have been ended or missed. */
void rx_free(struct rx *rx, struct fmtp_receiver *r);
/* Takes out up to n bytes of what goes to the sender. */
void rx_drain(struct fmtp_receiver *r, size_t n);

#endif

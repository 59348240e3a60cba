/* SPDX-License-Identifier: Apache-2.0
 *
 * A multicast rate that the receivers set: as fast as the slowest of them takes datagrams without
 * losing many. Extended receivers report what they lack per FEC group; where they lose more than a
 * path does by itself, the sender is too fast for a queue or a receiver. Sans I/O: loss and time in,
 * a rate out.
 */
#ifndef FMTP_ADAPT_H
#define FMTP_ADAPT_H

#include <stdbool.h>
#include <stdint.h>

struct fmtp_adapt {
    uint64_t rate_bps;
    uint64_t next_ns, hold_ns;        /* next look; no look before (reports of old losses come in) */
    bool steady;                      /* the first overrun was seen: no more doubling */
};

void fmtp_adapt_init(struct fmtp_adapt *a);
/* loss: share of blocks that the receiver worst off lacked of late; busy: the rate was made use of.
 * Returns the rate. */
uint64_t fmtp_adapt_rate(struct fmtp_adapt *a, double loss, bool busy, uint64_t now_ns);

#endif

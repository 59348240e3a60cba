/* SPDX-License-Identifier: Apache-2.0
 *
 * A multicast rate that the receivers determine: as fast as they can take datagrams without losing
 * many. Extended receivers report what they lack; if they lose more than the path alone does, the
 * sender is too fast for a queue or for them. Sans I/O: it takes what was sent and requested, and
 * returns a rate.
 */
#ifndef FMTP_RATE_CONTROL_H
#define FMTP_RATE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

struct fmtp_rate_control {
    uint64_t rate_bps;
    /* Next look; no second cut before hold_ns unless all is calm: reports of losses before the cut
     * are still arriving. */
    uint64_t next_ns, hold_ns;
    uint64_t sent, asked;             /* at the last look */
    double lately_sent, lately_asked; /* decaying sums */
    bool steady;                      /* after the first overrun: growth is no longer fast */
};

/* Initializes the state of a sender that has sent nothing yet. */
void fmtp_rate_control_init(struct fmtp_rate_control *a);
/* Returns whether it is time to look. */
static inline bool fmtp_rate_control_due(const struct fmtp_rate_control *a, uint64_t now_ns)
{
    return now_ns >= a->next_ns;
}
/* Sets rate_bps. sent: datagrams so far; asked: symbols requested per receiver so far; held: the
 * pace limits the sender. */
void fmtp_rate_control_look(struct fmtp_rate_control *a, uint64_t sent, uint64_t asked, bool held,
                            uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A multicast rate that the receivers set: as fast as they take datagrams without losing many.
 * Extended receivers report what they lack; where they lose more than the path alone does, the
 * sender is too fast for a queue or for them. Sans I/O: what was sent and asked for goes in, a rate
 * comes out.
 */
#ifndef FMTP_RATE_CONTROL_H
#define FMTP_RATE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

struct fmtp_rate_control {
    uint64_t rate_bps;
    uint64_t next_ns, hold_ns; /* next look; no second cut before, unless all is calm: reports
                                  of losses before the cut come in */
    uint64_t sent, asked;      /* at the last look */
    double lately_sent, lately_asked; /* forgetting old ones */
    bool steady;                      /* the first overrun was seen: no more fast growth */
};

/* The state of a sender that has sent nothing yet. */
void fmtp_rate_control_init(struct fmtp_rate_control *a);
/* True if it is time to look. */
static inline bool fmtp_rate_control_due(const struct fmtp_rate_control *a, uint64_t now_ns)
{
    return now_ns >= a->next_ns;
}
/* sent: datagrams so far; asked: symbols that the receivers asked for so far, per receiver; held:
 * the pace is made use of. Sets rate_bps. */
void fmtp_rate_control_look(struct fmtp_rate_control *a, uint64_t sent, uint64_t asked, bool held,
                            uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A multicast rate that the receivers determine: as fast as they can take datagrams without losing
 * many. Extended receivers report what they lack; if they lose more than the path alone does, the
 * sender is too fast for a queue or for them. If they also report what they have read, the rate
 * first grows by large steps, each after all have read something sent at the previous rate. Sans
 * I/O: it takes what was sent, read and requested, and returns a rate.
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
    uint64_t step_blocks;             /* multicast when the rate last grew by a step */
    uint64_t step_ns; /* when it did, or when the pace last did not limit the sender */
};

/* What the sender observes. */
struct fmtp_rate_seen {
    uint64_t sent;         /* datagrams so far */
    uint64_t asked;        /* symbols requested per receiver so far */
    bool held;             /* the pace limits the sender */
    bool full;             /* a receiver's buffer was full recently */
    bool reports;          /* all receivers report what they have read: */
    uint64_t blocks, read; /* multicast so far; read by all of them */
};

/* Initializes the state of a sender that has sent nothing yet. */
void fmtp_rate_control_init(struct fmtp_rate_control *a);
/* Returns whether it is time to look. */
static inline bool fmtp_rate_control_due(const struct fmtp_rate_control *a, uint64_t now_ns)
{
    return now_ns >= a->next_ns;
}
/* Sets rate_bps. */
void fmtp_rate_control_look(struct fmtp_rate_control *a, const struct fmtp_rate_seen *seen,
                            uint64_t now_ns);

#endif

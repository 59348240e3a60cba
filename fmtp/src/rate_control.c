/* SPDX-License-Identifier: Apache-2.0 */
#include "rate_control.h"

#define LOOK_NS UINT64_C(10000000)
/* Time for full receive buffers to drain, and for the reports about them to arrive. */
#define HOLD_NS UINT64_C(1000000000)
#define FIRST_BPS UINT64_C(300000000)
#define LEAST_BPS UINT64_C(100000000) /* slower paths need a configured rate */
#define MOST_BPS UINT64_C(100000000000)
#define OVERRUN 0.08 /* paths lose less than this; above it the sender is too fast */
#define CALM 0.06
#define KEEP 0.8 /* share of the history kept at each look */

void fmtp_rate_control_init(struct fmtp_rate_control *a)
{
    *a = (struct fmtp_rate_control){.rate_bps = FIRST_BPS};
}

void fmtp_rate_control_look(struct fmtp_rate_control *a, uint64_t sent, uint64_t asked, bool held,
                            uint64_t now_ns)
{
    a->next_ns = now_ns + LOOK_NS;
    a->lately_sent = a->lately_sent * KEEP + (double)(sent - a->sent);
    a->lately_asked = a->lately_asked * KEEP + (double)(asked - a->asked);
    a->sent = sent;
    a->asked = asked;
    double loss = a->lately_sent > 0 ? a->lately_asked / a->lately_sent : 0;
    if (loss > OVERRUN) {
        if (now_ns < a->hold_ns)
            return;
        a->rate_bps = a->rate_bps / 10 * 6;
        a->hold_ns = now_ns + HOLD_NS;
        a->steady = true;
    } else if (loss < CALM) {
        a->hold_ns = 0;
        if (held)
            a->rate_bps += a->steady ? a->rate_bps / 50 : a->rate_bps / 25;
    }
    if (a->rate_bps < LEAST_BPS)
        a->rate_bps = LEAST_BPS;
    if (a->rate_bps > MOST_BPS)
        a->rate_bps = MOST_BPS;
}

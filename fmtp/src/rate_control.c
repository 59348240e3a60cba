/* SPDX-License-Identifier: Apache-2.0 */
#include "rate_control.h"

#define LOOK_NS UINT64_C(10000000)
/* Time for full receive buffers to drain, and for the reports about them to arrive. */
#define HOLD_NS UINT64_C(1000000000)
#define STEPPED_HOLD_NS UINT64_C(200000000) /* after steps, several of which may be too many */
#define STEP_WAIT_NS UINT64_C(200000000)    /* then growth goes on without what was read */
#define FIRST_BPS UINT64_C(300000000)
#define LEAST_BPS UINT64_C(100000000)  /* slower paths need a configured rate */
#define STEPS_BPS UINT64_C(1500000000) /* below it the rate may grow by half at once */
#define MOST_BPS UINT64_C(100000000000)
#define OVERRUN 0.08 /* paths lose less than this; above it the sender is too fast */
#define CALM 0.06
#define KEEP 0.8 /* share of the history kept at each look */

void fmtp_rate_control_init(struct fmtp_rate_control *a)
{
    *a = (struct fmtp_rate_control){.rate_bps = FIRST_BPS};
}

static void cut(struct fmtp_rate_control *a, bool stepped, uint64_t now_ns)
{
    a->rate_bps = a->rate_bps / 10 * (stepped ? 4 : 6);
    a->hold_ns = now_ns + (stepped ? STEPPED_HOLD_NS : HOLD_NS);
    a->steady = true;
}

static void grow(struct fmtp_rate_control *a, const struct fmtp_rate_seen *seen, uint64_t now_ns)
{
    if (a->steady) {
        a->rate_bps += a->rate_bps / 50;
    } else if (!seen->reports || a->rate_bps >= STEPS_BPS || now_ns - a->step_ns > STEP_WAIT_NS) {
        a->rate_bps += a->rate_bps / 25;
    } else if (seen->read > a->step_blocks) {
        a->rate_bps += a->rate_bps / 2;
        a->step_blocks = seen->blocks;
        a->step_ns = now_ns;
    }
}

void fmtp_rate_control_look(struct fmtp_rate_control *a, const struct fmtp_rate_seen *seen,
                            uint64_t now_ns)
{
    if (!a->next_ns || !seen->held)
        a->step_ns = now_ns; /* a step waits for reports only while the pace limits the sender */
    a->next_ns = now_ns + LOOK_NS;
    a->lately_sent = a->lately_sent * KEEP + (double)(seen->sent - a->sent);
    a->lately_asked = a->lately_asked * KEEP + (double)(seen->asked - a->asked);
    a->sent = seen->sent;
    a->asked = seen->asked;
    double loss = a->lately_sent > 0 ? a->lately_asked / a->lately_sent : 0;
    if (loss > OVERRUN) {
        if (now_ns < a->hold_ns)
            return;
        cut(a, a->step_blocks && !a->steady, now_ns);
    } else if (loss < CALM) {
        a->hold_ns = 0;
        a->steady |= seen->full;
        if (seen->held && !seen->full)
            grow(a, seen, now_ns);
    }
    if (a->rate_bps < LEAST_BPS)
        a->rate_bps = LEAST_BPS;
    if (a->rate_bps > MOST_BPS)
        a->rate_bps = MOST_BPS;
}

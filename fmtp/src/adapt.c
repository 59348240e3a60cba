/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt.h"

#define LOOK_NS UINT64_C(10000000)
#define HOLD_NS UINT64_C(100000000)    /* full receive buffers are worked off, their reports with them */
#define FIRST_BPS UINT64_C(500000000)
#define LEAST_BPS UINT64_C(1000000)
#define MOST_BPS UINT64_C(100000000000)
#define OVERRUN 0.08                  /* paths lose less; beyond it we are too fast */
#define CALM 0.06

void fmtp_adapt_init(struct fmtp_adapt *a)
{
    *a = (struct fmtp_adapt){.rate_bps = FIRST_BPS};
}

uint64_t fmtp_adapt_rate(struct fmtp_adapt *a, double loss, bool busy, uint64_t now_ns)
{
    if (now_ns < a->next_ns)
        return a->rate_bps;
    a->next_ns = now_ns + LOOK_NS;
    if (loss > OVERRUN && now_ns >= a->hold_ns) {
        a->rate_bps = a->rate_bps / 10 * (loss > 0.25 ? 4 : 7);
        a->hold_ns = now_ns + HOLD_NS;
        a->steady = true;
    } else if (loss < CALM && busy) {
        a->rate_bps += a->steady ? a->rate_bps / 100 : a->rate_bps / 25;
    }
    if (a->rate_bps < LEAST_BPS)
        a->rate_bps = LEAST_BPS;
    if (a->rate_bps > MOST_BPS)
        a->rate_bps = MOST_BPS;
    return a->rate_bps;
}

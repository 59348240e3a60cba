/* SPDX-License-Identifier: Apache-2.0 */
#include "input_pause.h"

#define LONGEST_NS UINT64_C(2000000)    /* longer ones gain nothing */
#define SHORTEST_NS UINT64_C(500000)    /* shorter ones cost more than they save */
#define WINDOW_NS UINT64_C(1000000)     /* the least time that tells a rate from a burst */
#define FAST_BPS UINT64_C(250000000)    /* above this rate there are pauses */
#define EXPECT_BPS UINT64_C(1000000000) /* the rate may rise to this within a pause */
#define SECOND_NS UINT64_C(1000000000)
enum { BUFFER_PART = 8 /* of the buffer may fill in a pause */ };

static uint64_t length_ns(uint64_t rate_bps, size_t buffer_bytes)
{
    uint64_t most_bps = rate_bps > EXPECT_BPS ? rate_bps : EXPECT_BPS;
    uint64_t ns = buffer_bytes / BUFFER_PART * 8 * SECOND_NS / most_bps;

    if (rate_bps < FAST_BPS || ns < SHORTEST_NS)
        return 0;
    return ns < LONGEST_NS ? ns : LONGEST_NS;
}

void fmtp_input_drained(struct fmtp_input_pause *p, size_t datagram_bytes, size_t buffer_bytes,
                        uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - p->since_ns;

    if (passed_ns >= WINDOW_NS) {
        p->length_ns = length_ns(
            p->datagrams * datagram_bytes * 8 * 1000 / (passed_ns / 1000) * 1000, buffer_bytes);
        p->since_ns = now_ns;
        p->datagrams = 0;
    }
    p->until_ns = p->length_ns ? now_ns + p->length_ns : 0;
}

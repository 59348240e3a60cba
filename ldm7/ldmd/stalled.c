/* SPDX-License-Identifier: Apache-2.0 */
#include "stalled.h"

#define SILENT_NS UINT64_C(1000000000)   /* a lost segment is retransmitted sooner */
#define LONGEST_NS UINT64_C(10000000000) /* even if the peer sends a byte now and then */

bool stalled_must_go(struct stalled *s, bool asked, uint64_t last_in_ns, uint64_t now_ns)
{
    uint64_t since_ns = last_in_ns > s->began_ns ? last_in_ns : s->began_ns;

    s->asked = s->asked || asked;
    return s->asked && (now_ns >= since_ns + SILENT_NS || now_ns >= s->began_ns + LONGEST_NS);
}

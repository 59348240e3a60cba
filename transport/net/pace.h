/* SPDX-License-Identifier: Apache-2.0
 *
 * Paces datagrams to a rate: when the next one may be sent. Idle time earns no credit, except for a
 * little lateness of the loop.
 */
#ifndef TRANSPORT_NET_PACE_H
#define TRANSPORT_NET_PACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TP_PACE_BURST_NS UINT64_C(1000000)    /* datagrams worth 1 ms may be sent together */
#define TP_PACE_CATCH_UP_NS UINT64_C(5000000) /* the most lateness that is made up */

struct tp_pace {
    uint64_t rate_bps; /* 0: unlimited */
    unsigned overhead; /* bytes of IP and UDP headers, which count toward the rate */
    uint64_t next_ns;
};

/* Returns how long a datagram of len bytes takes. */
static inline uint64_t tp_pace_cost_ns(const struct tp_pace *p, size_t len)
{
    return p->rate_bps ? (len + p->overhead) * 8 * UINT64_C(1000000000) / p->rate_bps : 0;
}
/* Restarts the pace after a time with nothing to send. */
static inline void tp_pace_begin(struct tp_pace *p, uint64_t now_ns)
{
    if (p->next_ns < now_ns)
        p->next_ns = now_ns;
}
/* Forgives lateness beyond TP_PACE_CATCH_UP_NS. */
static inline void tp_pace_forgive(struct tp_pace *p, uint64_t now_ns)
{
    if (p->next_ns + TP_PACE_CATCH_UP_NS < now_ns)
        p->next_ns = now_ns - TP_PACE_CATCH_UP_NS;
}
/* Returns whether everything must wait. */
static inline bool tp_pace_holds(const struct tp_pace *p, uint64_t now_ns)
{
    return p->rate_bps && p->next_ns > now_ns;
}
/* Returns how many datagrams of len bytes may be sent now: at most n, at least 1. Call it only if
 * tp_pace_holds() is false. */
static inline uint64_t tp_pace_most(const struct tp_pace *p, size_t len, uint64_t n,
                                    uint64_t now_ns)
{
    uint64_t room_ns = now_ns + TP_PACE_BURST_NS - p->next_ns;

    return p->rate_bps && room_ns / tp_pace_cost_ns(p, len) < n
               ? 1 + room_ns / tp_pace_cost_ns(p, len)
               : n;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp.h"

#include <math.h>

static const double RTO_LEAST_S = 0.2, RTO_MOST_S = 60; /* as in Linux */
enum { DUPLICATES = 3, FIRST_WINDOW = 10, OLD_FIRST_WINDOW = 3 };

static struct tcp_segment *at(struct tcp *t, uint32_t segment)
{
    return &t->segments[segment % TCP_WINDOW_MAX];
}

void tcp_init(struct tcp *t, bool is_old)
{
    *t = (struct tcp){.cwnd = is_old ? OLD_FIRST_WINDOW : FIRST_WINDOW,
                      .is_old = is_old,
                      .ssthresh = INFINITY,
                      .rto_s = 1,
                      .timeout_ns = UINT64_MAX};
}

static double under_way(struct tcp *t)
{
    double pipe = 0;

    for (uint32_t i = t->una; i != t->next; i++) {
        const struct tcp_segment *s = at(t, i);
        pipe += !s->is_sacked && (!s->is_lost || s->is_again);
    }
    return pipe;
}

static void arm(struct tcp *t, uint64_t now_ns)
{
    t->timeout_ns = t->una == t->next ? UINT64_MAX : now_ns + (uint64_t)(t->rto_s * 1e9);
}

bool tcp_send(struct tcp *t, uint64_t now_ns, uint32_t *segment)
{
    if (under_way(t) + 1 > t->cwnd)
        return false;
    uint32_t next = t->una;
    while (next != t->next && !(at(t, next)->is_lost && !at(t, next)->is_again))
        next++;
    struct tcp_segment *s = at(t, next);
    if (next == t->next) {
        if (t->next - t->una >= TCP_WINDOW_MAX)
            return false;
        *s = (struct tcp_segment){0};
        t->next++;
    } else {
        s->is_again = true;
        t->again++;
    }
    s->sent_ns = now_ns;
    s->times++;
    t->sent++;
    if (t->timeout_ns == UINT64_MAX)
        arm(t, now_ns);
    *segment = next;
    return true;
}

uint32_t tcp_receive(struct tcp *t, uint32_t segment)
{
    if (segment - t->expected < TCP_WINDOW_MAX)
        t->has[segment % TCP_WINDOW_MAX] = true;
    while (t->has[t->expected % TCP_WINDOW_MAX])
        t->has[t->expected++ % TCP_WINDOW_MAX] = false;
    return t->expected;
}

static void measure(struct tcp *t, double rtt_s)
{
    if (t->srtt_s == 0) {
        t->srtt_s = rtt_s;
        t->rttvar_s = rtt_s / 2;
    } else {
        t->rttvar_s += (fabs(t->srtt_s - rtt_s) - t->rttvar_s) / 4;
        t->srtt_s += (rtt_s - t->srtt_s) / 8;
    }
    t->rto_s = fmin(RTO_MOST_S, t->srtt_s + fmax(RTO_LEAST_S, 4 * t->rttvar_s));
}

/* Segments are lost if three later ones have been acknowledged; the loss of a retransmission is
 * therefore detected only by the timeout. */
static bool mark_lost(struct tcp *t)
{
    unsigned above = 0;
    bool is_any = false;

    for (uint32_t i = t->next; i-- != t->una;) {
        struct tcp_segment *s = at(t, i);
        if (s->is_sacked)
            above++;
        else if (above >= DUPLICATES && !s->is_lost)
            is_any = s->is_lost = true;
    }
    return is_any;
}

static bool has_recovered(const struct tcp *t)
{
    return t->una - t->recover < UINT32_MAX / 2;
}

/* Uses the window, as Linux does: while one segment is missing, many later ones can be
 * acknowledged, so the outstanding segments do not measure what the line holds. */
static void halve(struct tcp *t)
{
    t->ssthresh = fmax(fmin(t->cwnd, t->next - t->una) / 2, 2);
    t->recover = t->next;
}

static void grow(struct tcp *t, double segments)
{
    t->cwnd = t->cwnd < t->ssthresh ? fmin(t->cwnd + segments, t->ssthresh + 1)
                                    : t->cwnd + segments / t->cwnd;
}

void tcp_acknowledge(struct tcp *t, uint32_t all, uint32_t segment, uint64_t now_ns)
{
    const uint32_t fresh = all - t->una;

    if (segment - t->una < t->next - t->una) {
        struct tcp_segment *s = at(t, segment);
        if (s->times == 1)
            measure(t, (double)(now_ns - s->sent_ns) / 1e9);
        s->is_sacked = true;
    }
    if (fresh && fresh <= t->next - t->una) {
        t->una = all;
        if (t->is_recovering && has_recovered(t))
            t->is_recovering = false;
        else if (!t->is_recovering)
            grow(t, t->is_old ? 1 : fresh);
        arm(t, now_ns);
    }
    if (mark_lost(t) && !t->is_recovering && has_recovered(t)) {
        halve(t);
        t->cwnd = t->ssthresh;
        t->is_recovering = true;
    }
}

void tcp_time_out(struct tcp *t, uint64_t now_ns)
{
    if (has_recovered(t))
        halve(t); /* once per window */
    t->recover = t->next;
    t->cwnd = 1;
    t->is_recovering = false;
    t->timeouts++;
    for (uint32_t i = t->una; i != t->next; i++) {
        at(t, i)->is_lost = !at(t, i)->is_sacked;
        at(t, i)->is_again = false;
    }
    t->rto_s = fmin(RTO_MOST_S, 2 * t->rto_s);
    arm(t, now_ns);
}

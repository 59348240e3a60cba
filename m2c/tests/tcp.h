/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of TCP for simulations: NewReno (RFC 6582) with selective acknowledgements (RFC 6675) and
 * retransmission timeouts (RFC 6298). It counts in segments and always has data to send; its
 * acknowledgements are never lost.
 */
#ifndef M2C_TESTS_TCP_H
#define M2C_TESTS_TCP_H

#include <stdbool.h>
#include <stdint.h>

enum { TCP_WINDOW_MAX = 1024 };

struct tcp_segment {
    bool is_sacked, is_lost, is_again; /* again: retransmitted since it was lost */
    uint64_t sent_ns;
    unsigned times;
};

struct tcp {
    double cwnd, ssthresh;
    bool is_old;
    uint32_t una, next, recover;
    bool is_recovering;
    double srtt_s, rttvar_s, rto_s;
    uint64_t timeout_ns; /* UINT64_MAX: nothing is in flight */
    struct tcp_segment segments[TCP_WINDOW_MAX];
    uint64_t sent, again, timeouts;
    uint32_t expected; /* receiving side: first segment that has not arrived */
    bool has[TCP_WINDOW_MAX];
};

/* is_old: as Linux in 2010, the window begins with 3 segments instead of 10 and grows with each
 * acknowledgement instead of each acknowledged segment. */
void tcp_init(struct tcp *t, bool is_old);
/* Returns the segment to send now; false: the window is full. */
bool tcp_send(struct tcp *t, uint64_t now_ns, uint32_t *segment);
/* Receiving side: the segment has arrived. Returns the cumulative acknowledgement. */
uint32_t tcp_receive(struct tcp *t, uint32_t segment);
/* Processes an acknowledgement of everything below `all`, and of this segment. */
void tcp_acknowledge(struct tcp *t, uint32_t all, uint32_t segment, uint64_t now_ns);
/* Call this at timeout_ns. */
void tcp_time_out(struct tcp *t, uint64_t now_ns);

#endif

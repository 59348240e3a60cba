/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of TCP for simulations: NewReno (RFC 6582) with selective acknowledgements (RFC 6675) and
 * retransmission timeouts (RFC 6298). It counts in segments, always has something to send, and its
 * acknowledgements are not lost.
 */
#ifndef M2C_TESTS_TCP_H
#define M2C_TESTS_TCP_H

#include <stdbool.h>
#include <stdint.h>

enum { TCP_WINDOW_MAX = 1024 };

struct tcp_segment {
    bool is_sacked, is_lost, is_again; /* again: sent again since it was lost */
    uint64_t sent_ns;
    unsigned times;
};

struct tcp {
    double cwnd, ssthresh;
    uint32_t una, next, recover;
    bool is_recovering;
    double srtt_s, rttvar_s, rto_s;
    uint64_t timeout_ns; /* UINT64_MAX: nothing is under way */
    struct tcp_segment segments[TCP_WINDOW_MAX];
    uint64_t sent, again, timeouts;
    uint32_t expected; /* the receiving side: first that is not here */
    bool has[TCP_WINDOW_MAX];
};

void tcp_init(struct tcp *t);
/* The segment to send now; false: the window is full. */
bool tcp_send(struct tcp *t, uint64_t now_ns, uint32_t *segment);
/* The receiving side: the segment came. Returns the cumulative acknowledgement. */
uint32_t tcp_receive(struct tcp *t, uint32_t segment);
/* An acknowledgement came: all below `all`, and this segment. */
void tcp_acknowledge(struct tcp *t, uint32_t all, uint32_t segment, uint64_t now_ns);
/* Its time has come. */
void tcp_time_out(struct tcp *t, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated bottleneck in virtual time: sessions of layered multicast and TCP connections share
 * one queue. The router before it forwards a channel while a receiver has joined it; a leave takes
 * effect after the leave latency. The seed determines every moment.
 */
#ifndef M2C_TESTS_BOTTLENECK_H
#define M2C_TESTS_BOTTLENECK_H

#include <stdbool.h>

#include "congestion.h"

enum { BN_SESSIONS_MAX = 2, BN_RECEIVERS_MAX = 8, BN_TCP_MAX = 6 };

struct bn_config {
    double rate_bps;
    unsigned queue_packets;
    double delay_s; /* one way, without the queue */
    double leave_latency_s;
    enum m2c_cc_kind kind;
    unsigned sessions, receivers, tcp; /* receivers: per session */
    double slot_s;                     /* 0: 10 */
    double file_bytes;                 /* 0: no file; receivers stay */
    unsigned tcp_files;                /* TCP connections that end after a file of file_bytes */
    bool decodes;                      /* receivers decode the file */
    bool tcp_is_of_2010;               /* Linux until 4.0: acknowledges every other segment */
    double sent_s;                     /* age of the sessions when the simulation begins */
    double short_per_min;              /* TCP connections of 3.16 KB on average (M2C10 7.4) */
    double lost;                       /* share of packets dropped at random behind the queue */
    double from_s, to_s;               /* measured interval; to_s ends the simulation */
    double window_s;                   /* for which a variation is computed; 0: 1 */
    uint64_t seed;
};

struct bn_flow {
    double bps; /* delivered, IP packets */
    uint64_t arrived, dropped /* at the queue */;
    double time_s;    /* TCP: until its receiver has the file; 0: it does not have it */
    double variation; /* TCP: of the rate over windows, standard deviation by mean */
};

struct bn_receiver {
    double bps, variation;
    double time_s;              /* until it had the file; 0: it does not have it */
    uint64_t useful, redundant; /* symbols until that time */
    double gput_bps,
        tput_bps;         /* until that time: the file's bits; with all headers, Ethernet's too */
    double dup, sym, net; /* percent, as defined in M2C10 7.2 */
    struct m2c_cc_stats cc;
};

struct bn_result {
    struct bn_flow sessions[BN_SESSIONS_MAX], tcp[BN_TCP_MAX], shorts;
    struct bn_receiver receivers[BN_SESSIONS_MAX][BN_RECEIVERS_MAX];
    uint64_t tcp_timeouts;
};

enum {
    BN_PACKET_BYTES = 1500,
    BN_FRAME_BYTES = 1514,
    BN_SYMBOL_BYTES = 1436,
    BN_SEGMENT_BYTES = 1448
};

static inline double bn_percent_dropped(const struct bn_flow *f)
{
    return 100.0 * (double)f->dropped / (double)f->arrived;
}

/* Runs the simulation. Ends the program if memory runs out. */
void bn_run(const struct bn_config *cfg, struct bn_result *out);

#endif

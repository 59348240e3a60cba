/* SPDX-License-Identifier: Apache-2.0
 *
 * Congestion control of a receiver: which channels to join and to leave. Sans-I/O: it takes
 * packets' headers and the time, and returns joins and leaves.
 *
 * webrc: RFC 3738, section 3.2, to the letter, with its recommended values and rules.
 * m2c: our reading of M2C10, whose own algorithm (2009) was not available: additive increase,
 * multiplicative decrease and slow start of a fair rate, which the joined rate follows.
 * static: the same fair rate with layers whose rates do not fall, so it leaves the top layer when
 * packets are lost. For comparison.
 */
#ifndef M2C_CONGESTION_H
#define M2C_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "wave.h"

enum m2c_cc_kind { M2C_CC_WEBRC, M2C_CC_M2C, M2C_CC_STATIC };

/* Congestion control information of a packet, short format (RFC 3738, 5.1). */
struct m2c_cci {
    unsigned ctsi, channel; /* 8 bits each */
    uint32_t psn;           /* 16 bits */
};
struct m2c_cci m2c_cci_get(uint32_t word);
uint32_t m2c_cci_put(struct m2c_cci c);

struct m2c_cc_config {
    enum m2c_cc_kind kind;
    struct m2c_wave wave;      /* the session's; static if and only if kind is M2C_CC_STATIC */
    double most_packets_per_s; /* MRR; 0: the sender's rate */
};

/* Why a receiver must leave the session (RFC 3738, 3.2.3.8). */
enum m2c_cc_end {
    M2C_CC_GOES_ON,
    M2C_CC_SILENT, /* no packet for too long */
    M2C_CC_STUCK   /* packets arrive, but the time slot does not change */
};

struct m2c_change {
    bool joins; /* false: leaves */
    unsigned channel;
};

struct m2c_cc_stats {
    uint64_t received, lost, reordered,
        late; /* packets; late: on channels that the receiver has left */
    uint64_t loss_events, joins, leaves, join_timeouts, slots;
    unsigned layers;         /* joined layers above the base */
    bool is_slow_start;      /* webrc: start-up phase */
    double target_per_s;     /* packets/s: webrc: TRATE; m2c, static: the fair rate */
    double received_per_s;   /* average; webrc: TRR */
    double loss_probability; /* webrc: LOSSP */
    double rtt_s;            /* ARTT */
};

struct m2c_cc;

/* Starts by joining the base channel. cfg is copied. Returns NULL with errno: EINVAL, ENOMEM. */
struct m2c_cc *m2c_cc_new(const struct m2c_cc_config *cfg, uint64_t now_ns);
void m2c_cc_free(struct m2c_cc *cc);
/* Processes a packet of the session; ignores one with impossible numbers. */
void m2c_cc_packet(struct m2c_cc *cc, struct m2c_cci cci, uint64_t now_ns);
/* Call this no later than m2c_cc_deadline(). */
void m2c_cc_time(struct m2c_cc *cc, uint64_t now_ns);
uint64_t m2c_cc_deadline(const struct m2c_cc *cc);
/* Returns the next join or leave; false: none at present. */
bool m2c_cc_change(struct m2c_cc *cc, struct m2c_change *out);
/* Once the result is not M2C_CC_GOES_ON, no more channels are joined. */
enum m2c_cc_end m2c_cc_ended(const struct m2c_cc *cc);
void m2c_cc_get_stats(const struct m2c_cc *cc, struct m2c_cc_stats *out);

#endif

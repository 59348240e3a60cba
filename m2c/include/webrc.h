/* SPDX-License-Identifier: Apache-2.0
 *
 * What a WEBRC receiver computes from what it measures (RFC 3738, 3.2.2.1 to 3.2.2.3): the average
 * probability of loss, the average multicast round-trip time, and the rate that TCP would have.
 * Pure. When to join and leave is not here.
 */
#ifndef M2C_WEBRC_H
#define M2C_WEBRC_H

#include "wave.h"

#define M2C_WEBRC_EPOCH_S 0.5 /* EL: between decisions */

/* Two filters over packets and loss events: by time, as joins make loss come in bursts, and by
 * event. The letters are the RFC's. */
struct m2c_loss {
    double w, x, y, z;
    double g; /* G: how much an epoch moves from X and Y to Z */
};

/* Begins with this probability, of (0, 1]. */
void m2c_loss_reset(struct m2c_loss *l, const struct m2c_wave *w, double probability);
/* A packet came or is missing. */
void m2c_loss_packet(struct m2c_loss *l);
/* A packet is missing, and the last loss event is over: another begins. */
void m2c_loss_event(struct m2c_loss *l);
/* An epoch ends. The average probability of loss: LOSSP, of (0, 1]. */
double m2c_loss_epoch(struct m2c_loss *l);

/* Multicast round-trip times: from a join to the first packet. */
struct m2c_rtt {
    double average_s; /* ARTT */
    double square_s2; /* V: the average of the measurements' squares */
    unsigned count;   /* K: measurements at wave channels */
};

/* Half of the mean interval of a wave channel's packets, in the slot in which it is `layers`: how
 * long a receiver that joins waits for the first beyond the round trip. */
double m2c_wave_idle_s(const struct m2c_wave *w, unsigned layers);
/* The base channel's first packet came so long after its join, which is more than 0. */
void m2c_rtt_first(struct m2c_rtt *r, double waited_s);
/* The same of a wave channel; `layers`: NWC, wave channels joined, with this one. */
void m2c_rtt_wave(struct m2c_rtt *r, const struct m2c_wave *w, double waited_s, unsigned layers);

/* REQN: packets/s of TCP at this round-trip time and probability of loss. */
double m2c_tcp_rate(double rtt_s, double loss);
/* The probability at which the rate is this, or 1: it is lower even then. */
double m2c_tcp_loss(double rtt_s, double packets_per_s);

#endif

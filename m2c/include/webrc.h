/* SPDX-License-Identifier: Apache-2.0
 *
 * What a WEBRC receiver computes from its measurements (RFC 3738, 3.2.2.1 to 3.2.2.3): the average
 * probability of loss, the average multicast round-trip time, and the rate that TCP would reach.
 * Pure. congestion.h decides about joins and leaves.
 */
#ifndef M2C_WEBRC_H
#define M2C_WEBRC_H

#include "wave.h"

#define M2C_WEBRC_EPOCH_S 0.5 /* EL: time between decisions */

/* Two filters over packets and loss events: one by time, because joins cause loss in bursts, and
 * one by event. The letters are the RFC's. */
struct m2c_loss {
    double w, x, y, z;
    double g; /* G: the share of X and Y that each epoch moves to Z */
};

/* Starts with this probability, in (0, 1]. */
void m2c_loss_reset(struct m2c_loss *l, const struct m2c_wave *w, double probability);
/* A packet has arrived or is missing. */
void m2c_loss_packet(struct m2c_loss *l);
/* A packet is missing after the last loss event: a new event begins. */
void m2c_loss_event(struct m2c_loss *l);
/* Ends an epoch. Returns the average probability of loss, LOSSP, in (0, 1]. */
double m2c_loss_epoch(struct m2c_loss *l);

/* Multicast round-trip times: from a join to the first packet. */
struct m2c_rtt {
    double average_s; /* ARTT */
    double square_s2; /* V: average of the squared measurements */
    unsigned count;   /* K: measurements on wave channels */
};

/* Returns half the mean interval between a wave channel's packets in the slot in which it is layer
 * `layers`. A joining receiver waits this long for the first packet, in addition to the round
 * trip. */
double m2c_wave_idle_s(const struct m2c_wave *w, unsigned layers);
/* Takes the time from joining the base channel to its first packet, above 0. */
void m2c_rtt_first(struct m2c_rtt *r, double waited_s);
/* Does the same for a wave channel; `layers`: NWC, the wave channels joined, including this one. */
void m2c_rtt_wave(struct m2c_rtt *r, const struct m2c_wave *w, double waited_s, unsigned layers);

/* REQN: returns TCP's packets/s at this round-trip time and probability of loss. */
double m2c_tcp_rate(double rtt_s, double loss);
/* Returns the probability of loss that gives this rate, or 1 if even that gives less. */
double m2c_tcp_loss(double rtt_s, double packets_per_s);

#endif

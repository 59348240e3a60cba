/* SPDX-License-Identifier: Apache-2.0
 *
 * What a WEBRC receiver computes from what it measures (RFC 3738, 3.2.2.1 to 3.2.2.3): the average
 * probability of loss, the average multicast round-trip time, and the rate that TCP would have.
 * Pure. congestion.h decides about joins and leaves.
 */
#ifndef M2C_WEBRC_H
#define M2C_WEBRC_H

#include "wave.h"

#define M2C_WEBRC_EPOCH_S 0.5 /* EL: between decisions */

/* Two filters over packets and loss events: by time, as joins make loss come in bursts, and by
 * event. The letters are the RFC's. */
struct m2c_loss {
    double w, x, y, z;
    double g; /* G: the share of X and Y that an epoch moves to Z */
};

/* Begins with this probability, of (0, 1]. */
void m2c_loss_reset(struct m2c_loss *l, const struct m2c_wave *w, double probability);
/* A packet came or is missing. */
void m2c_loss_packet(struct m2c_loss *l);
/* A packet is missing after the last loss event: another event begins. */
void m2c_loss_event(struct m2c_loss *l);
/* An epoch ends. The average probability of loss: LOSSP, of (0, 1]. */
double m2c_loss_epoch(struct m2c_loss *l);

/* Multicast round-trip times: from a join to the first packet. */
struct m2c_rtt {
    double average_s; /* ARTT */
    double square_s2; /* V: the average of the measurements' squares */
    unsigned count;   /* K: measurements at wave channels */
};

/* Half of the mean interval between a wave channel's packets, in the slot in which it is `layers`:
 * beyond the round trip, a joining receiver waits so long for the first one. */
double m2c_wave_idle_s(const struct m2c_wave *w, unsigned layers);
/* Takes the time from the base channel's join to its first packet, above 0. */
void m2c_rtt_first(struct m2c_rtt *r, double waited_s);
/* The same for a wave channel; `layers`: NWC, the wave channels joined, this one included. */
void m2c_rtt_wave(struct m2c_rtt *r, const struct m2c_wave *w, double waited_s, unsigned layers);

/* REQN: packets/s of TCP at this round-trip time and probability of loss. */
double m2c_tcp_rate(double rtt_s, double loss);
/* The probability of loss that gives this rate, or 1: even that gives less. */
double m2c_tcp_loss(double rtt_s, double packets_per_s);

#endif

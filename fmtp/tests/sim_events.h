/* SPDX-License-Identifier: Apache-2.0
 *
 * What is on its way in the simulated network: a heap of events by time, then by order of their
 * making.
 */
#ifndef SIM_EVENTS_H
#define SIM_EVENTS_H

#include "sim.h"

enum kind { DATAGRAM, TO_RECEIVER, TO_SENDER };

struct packet { /* shared by the receivers it goes to */
    unsigned references;
    size_t len;
    uint8_t bytes[];
};

struct sim_event {
    uint64_t at_ns, order;
    enum kind kind;
    int rx;
    unsigned connection;
    struct packet *packet;
};

/* 32 pseudo-random bits. */
uint32_t sim_bits(struct sim *s);
/* True with probability p. */
bool sim_chance(struct sim *s, double p);
/* With one reference, the caller's. */
struct packet *sim_packet_new(const uint8_t *bytes, size_t len);
void sim_packet_done(struct packet *p);
/* Takes a reference of its own. */
void sim_push(struct sim *s, enum kind kind, int rx, uint64_t at_ns, struct packet *packet);
void sim_push_bytes(struct sim *s, enum kind kind, int rx, uint64_t at_ns, const uint8_t *bytes,
                    size_t len);
struct sim_event sim_pop(struct sim *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Events of a simulated network: a heap ordered by time, then by creation. For tests: if memory
 * runs out, it ends the program.
 */
#ifndef TRANSPORT_SIM_EVENTS_H
#define TRANSPORT_SIM_EVENTS_H

#include <stddef.h>
#include <stdint.h>

struct tp_packet { /* shared by the receivers to which it goes */
    unsigned references;
    size_t len;
    uint8_t bytes[];
};

struct tp_event {
    uint64_t at_ns, order;
    int kind;            /* defined by the simulation */
    int to;              /* its receiver */
    unsigned connection; /* which of the connections that can break */
    struct tp_packet *packet;
};

struct tp_events {
    struct tp_event *heap;
    size_t count, capacity;
    uint64_t order; /* number of events so far */
};

/* Frees the heap and drops what is in flight. */
void tp_events_free(struct tp_events *events);
/* Makes a packet with one reference, which the caller owns. */
struct tp_packet *tp_packet_new(const uint8_t *bytes, size_t len);
void tp_packet_done(struct tp_packet *p);
/* Adds a copy of the event and sets its order; the copy takes its own reference to the packet. */
void tp_events_push(struct tp_events *events, struct tp_event event);
/* Does the same with a new packet of these bytes. */
void tp_events_push_bytes(struct tp_events *events, struct tp_event event, const uint8_t *bytes,
                          size_t len);
/* Returns when the first event is due, or UINT64_MAX. */
uint64_t tp_events_next(const struct tp_events *events);
/* Removes and returns the first event; the caller owns its packet's reference. There must be
 * one. */
struct tp_event tp_events_pop(struct tp_events *events);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What is on its way in a simulated network: a heap of events by time, then by order of their
 * making. For tests: without memory it ends the program.
 */
#ifndef TRANSPORT_SIM_EVENTS_H
#define TRANSPORT_SIM_EVENTS_H

#include <stddef.h>
#include <stdint.h>

struct tp_packet { /* shared by the receivers it goes to */
    unsigned references;
    size_t len;
    uint8_t bytes[];
};

struct tp_event {
    uint64_t at_ns, order;
    int kind;            /* the simulation's */
    int to;              /* whom it reaches */
    unsigned connection; /* of those that can break, which */
    struct tp_packet *packet;
};

struct tp_events {
    struct tp_event *heap;
    size_t count, capacity;
    uint64_t order; /* events so far */
};

/* Frees the heap and drops what is on its way. */
void tp_events_free(struct tp_events *events);
/* With one reference, the caller's. */
struct tp_packet *tp_packet_new(const uint8_t *bytes, size_t len);
void tp_packet_done(struct tp_packet *p);
/* Puts in a copy of the event, whose order is set; takes its own reference. */
void tp_events_push(struct tp_events *events, struct tp_event event);
/* The same with a new packet of these bytes. */
void tp_events_push_bytes(struct tp_events *events, struct tp_event event, const uint8_t *bytes,
                          size_t len);
/* When the first is due, or UINT64_MAX. */
uint64_t tp_events_next(const struct tp_events *events);
/* Takes out the first; its packet's reference is the caller's. There must be one. */
struct tp_event tp_events_pop(struct tp_events *events);

#endif

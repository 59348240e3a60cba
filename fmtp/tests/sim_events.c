/* SPDX-License-Identifier: Apache-2.0 */
#include "sim_events.h"

#include <stdlib.h>
#include <string.h>

uint32_t sim_bits(struct sim *s) /* splitmix64 */
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 16);
}

uint32_t sim_random(struct sim *s, uint32_t n)
{
    return (uint32_t)((uint64_t)sim_bits(s) * n >> 32);
}

bool sim_chance(struct sim *s, double p)
{
    return p > 0 && sim_bits(s) < p * 4294967296.0;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

struct packet *sim_packet_new(const uint8_t *bytes, size_t len)
{
    struct packet *p = malloc(sizeof *p + len);

    p->references = 1;
    p->len = len;
    memcpy(p->bytes, bytes, len);
    return p;
}

void sim_packet_done(struct packet *p)
{
    if (!--p->references)
        free(p);
}

void sim_push(struct sim *s, enum kind kind, int rx, uint64_t at_ns, struct packet *packet)
{
    struct sim_event e = {at_ns, s->order++, kind, rx, s->rx[rx].connection, packet};
    size_t i = s->nevents++;

    packet->references++;
    if (s->nevents > s->events_capacity) {
        s->events_capacity = s->events_capacity ? 2 * s->events_capacity : 256;
        s->events = realloc(s->events, s->events_capacity * sizeof *s->events);
    }
    for (; i && before(&e, &s->events[(i - 1) / 2]); i = (i - 1) / 2)
        s->events[i] = s->events[(i - 1) / 2];
    s->events[i] = e;
}

void sim_push_bytes(struct sim *s, enum kind kind, int rx, uint64_t at_ns, const uint8_t *bytes,
                    size_t len)
{
    struct packet *p = sim_packet_new(bytes, len);

    sim_push(s, kind, rx, at_ns, p);
    sim_packet_done(p);
}

struct sim_event sim_pop(struct sim *s)
{
    struct sim_event top = s->events[0], last = s->events[--s->nevents];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < s->nevents) {
        if (child + 1 < s->nevents && before(&s->events[child + 1], &s->events[child]))
            child++;
        if (!before(&s->events[child], &last))
            break;
        s->events[i] = s->events[child];
        i = child;
    }
    if (s->nevents)
        s->events[i] = last;
    return top;
}

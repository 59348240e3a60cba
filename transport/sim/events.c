/* SPDX-License-Identifier: Apache-2.0 */
#include "events.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256 };

static void *checked(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "simulation: out of memory\n");
    exit(1);
}

static bool before(const struct tp_event *a, const struct tp_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

struct tp_packet *tp_packet_new(const uint8_t *bytes, size_t len)
{
    struct tp_packet *p = checked(malloc(sizeof *p + len));

    p->references = 1;
    p->len = len;
    memcpy(p->bytes, bytes, len);
    return p;
}

void tp_packet_done(struct tp_packet *p)
{
    if (!--p->references)
        free(p);
}

void tp_events_push(struct tp_events *events, struct tp_event event)
{
    size_t i = events->count++;

    event.order = events->order++;
    event.packet->references++;
    if (events->count > events->capacity) {
        events->capacity = events->capacity ? 2 * events->capacity : FIRST_CAPACITY;
        events->heap = checked(reallocarray(events->heap, events->capacity, sizeof *events->heap));
    }
    for (; i && before(&event, &events->heap[(i - 1) / 2]); i = (i - 1) / 2)
        events->heap[i] = events->heap[(i - 1) / 2];
    events->heap[i] = event;
}

/* gcc's analyzer believes that the packet leaks: the heap holds the other reference. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
void tp_events_push_bytes(struct tp_events *events, struct tp_event event, const uint8_t *bytes,
                          size_t len)
{
    event.packet = tp_packet_new(bytes, len);
    tp_events_push(events, event);
    tp_packet_done(event.packet);
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

uint64_t tp_events_next(const struct tp_events *events)
{
    return events->count ? events->heap[0].at_ns : UINT64_MAX;
}

struct tp_event tp_events_pop(struct tp_events *events)
{
    struct tp_event top = events->heap[0], last = events->heap[--events->count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < events->count) {
        if (child + 1 < events->count && before(&events->heap[child + 1], &events->heap[child]))
            child++;
        if (!before(&events->heap[child], &last))
            break;
        events->heap[i] = events->heap[child];
        i = child;
    }
    if (events->count)
        events->heap[i] = last;
    return top;
}

void tp_events_free(struct tp_events *events)
{
    while (events->count)
        /* Each event in the heap holds its own reference. */
        tp_packet_done(tp_events_pop(events).packet); /* NOLINT(clang-analyzer-unix.Malloc) */
    free(events->heap);
    *events = (struct tp_events){0};
}

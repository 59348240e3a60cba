/* SPDX-License-Identifier: Apache-2.0
 *
 * A binary heap of deadlines. A timer is a member of the object that owns it; arming, disarming and
 * rearming cost O(log n). Capacity is fixed at creation.
 */
#ifndef TRANSPORT_LOOP_TIMERS_H
#define TRANSPORT_LOOP_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#define TP_NEVER UINT64_MAX

struct tp_timer {
    uint64_t at_ns;
    size_t pos; /* position in the heap, from 1; 0: not armed */
};

struct tp_timers {
    struct tp_timer **heap; /* heap[1..count] */
    size_t count, capacity;
};

int tp_timers_init(struct tp_timers *t, size_t capacity); /* -1: no memory */
/* Frees the heap; the timers belong to their owners. */
void tp_timers_free(struct tp_timers *t);
/* Arms or rearms a timer. The caller must not exceed the capacity. */
void tp_timer_arm(struct tp_timers *t, struct tp_timer *timer, uint64_t at_ns);
/* Disarms the timer if it is armed. */
void tp_timer_disarm(struct tp_timers *t, struct tp_timer *timer);
/* Returns the earliest deadline, or TP_NEVER. */
uint64_t tp_timers_next(const struct tp_timers *t);
/* Removes and returns the earliest timer that has expired (at_ns <= now_ns), or returns NULL. */
struct tp_timer *tp_timers_pop(struct tp_timers *t, uint64_t now_ns);

#endif

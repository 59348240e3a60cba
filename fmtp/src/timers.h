/* SPDX-License-Identifier: Apache-2.0
 *
 * A binary heap of deadlines. A timer lives inside the object it belongs to; arming, disarming
 * and re-arming cost O(log n). Capacity is fixed at creation.
 */
#ifndef FMTP_TIMERS_H
#define FMTP_TIMERS_H

#include <stddef.h>
#include <stdint.h>

#define FMTP_NEVER UINT64_MAX

struct fmtp_timer {
    uint64_t at_ns;
    size_t pos; /* place in the heap from 1; 0: not armed */
};

struct fmtp_timers {
    struct fmtp_timer **heap; /* heap[1..count] */
    size_t count, capacity;
};

int fmtp_timers_init(struct fmtp_timers *t, size_t capacity); /* -1: no memory */
/* Frees the heap; the timers are their owners'. */
void fmtp_timers_free(struct fmtp_timers *t);
/* (Re-)arms. The capacity must not be exceeded. */
void fmtp_timer_arm(struct fmtp_timers *t, struct fmtp_timer *timer, uint64_t at_ns);
/* Takes the timer out, if it is armed. */
void fmtp_timer_disarm(struct fmtp_timers *t, struct fmtp_timer *timer);
/* Deadline of the earliest, or FMTP_NEVER. */
uint64_t fmtp_timers_next(const struct fmtp_timers *t);
/* Takes out the earliest whose time has come (at_ns <= now_ns), or NULL. */
struct fmtp_timer *fmtp_timers_pop(struct fmtp_timers *t, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "timers.h"

#include <assert.h>
#include <stdlib.h>

int tp_timers_init(struct tp_timers *t, size_t capacity)
{
    t->heap = calloc(capacity + 1, sizeof(struct tp_timer *));
    t->count = 0;
    t->capacity = capacity;
    return t->heap ? 0 : -1;
}

void tp_timers_free(struct tp_timers *t)
{
    free(t->heap);
    t->heap = NULL;
}

static void place(struct tp_timers *t, size_t pos, struct tp_timer *timer)
{
    t->heap[pos] = timer;
    timer->pos = pos;
}

static void sift(struct tp_timers *t, size_t pos, struct tp_timer *timer)
{
    while (pos > 1 && timer->at_ns < t->heap[pos / 2]->at_ns) {
        place(t, pos, t->heap[pos / 2]);
        pos /= 2;
    }
    for (;;) {
        size_t child = 2 * pos;
        if (child > t->count)
            break;
        if (child < t->count && t->heap[child + 1]->at_ns < t->heap[child]->at_ns)
            child++;
        if (t->heap[child]->at_ns >= timer->at_ns)
            break;
        place(t, pos, t->heap[child]);
        pos = child;
    }
    place(t, pos, timer);
}

void tp_timer_arm(struct tp_timers *t, struct tp_timer *timer, uint64_t at_ns)
{
    if (!timer->pos) {
        assert(t->count < t->capacity);
        timer->pos = ++t->count;
        t->heap[timer->pos] = timer;
    }
    timer->at_ns = at_ns;
    sift(t, timer->pos, timer);
}

void tp_timer_disarm(struct tp_timers *t, struct tp_timer *timer)
{
    size_t pos = timer->pos;

    if (!pos)
        return;
    struct tp_timer *last = t->heap[t->count--];
    timer->pos = 0;
    if (last != timer)
        sift(t, pos, last);
}

uint64_t tp_timers_next(const struct tp_timers *t)
{
    return t->count ? t->heap[1]->at_ns : TP_NEVER;
}

struct tp_timer *tp_timers_pop(struct tp_timers *t, uint64_t now_ns)
{
    if (!t->count || t->heap[1]->at_ns > now_ns)
        return NULL;
    struct tp_timer *timer = t->heap[1];
    tp_timer_disarm(t, timer);
    return timer;
}

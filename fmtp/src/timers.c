/* SPDX-License-Identifier: Apache-2.0 */
#include "timers.h"

#include <assert.h>
#include <stdlib.h>

int fmtp_timers_init(struct fmtp_timers *t, size_t capacity)
{
    t->heap = calloc(capacity + 1, sizeof(struct fmtp_timer *));
    t->count = 0;
    t->capacity = capacity;
    return t->heap ? 0 : -1;
}

void fmtp_timers_free(struct fmtp_timers *t)
{
    free(t->heap);
    t->heap = NULL;
}

static void place(struct fmtp_timers *t, size_t pos, struct fmtp_timer *timer)
{
    t->heap[pos] = timer;
    timer->pos = pos;
}

static void sift(struct fmtp_timers *t, size_t pos, struct fmtp_timer *timer)
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

void fmtp_timer_arm(struct fmtp_timers *t, struct fmtp_timer *timer, uint64_t at_ns)
{
    if (!timer->pos) {
        assert(t->count < t->capacity);
        timer->pos = ++t->count;
        t->heap[timer->pos] = timer;
    }
    timer->at_ns = at_ns;
    sift(t, timer->pos, timer);
}

void fmtp_timer_disarm(struct fmtp_timers *t, struct fmtp_timer *timer)
{
    size_t pos = timer->pos;

    if (!pos)
        return;
    struct fmtp_timer *last = t->heap[t->count--];
    timer->pos = 0;
    if (last != timer)
        sift(t, pos, last);
}

uint64_t fmtp_timers_next(const struct fmtp_timers *t)
{
    return t->count ? t->heap[1]->at_ns : FMTP_NEVER;
}

struct fmtp_timer *fmtp_timers_pop(struct fmtp_timers *t, uint64_t now_ns)
{
    if (!t->count || t->heap[1]->at_ns > now_ns)
        return NULL;
    struct fmtp_timer *timer = t->heap[1];
    fmtp_timer_disarm(t, timer);
    return timer;
}

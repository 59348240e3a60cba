/* SPDX-License-Identifier: Apache-2.0
 *
 * A full queue: a process that needs room asks the processes that hold it to release it, and waits
 * for a bounded time.
 *
 * First it only waits: what is being read is released soon. Then it requests what the older half of
 * the products occupy, then everything. Releasing a pin or reservation wakes it by a futex word,
 * whose bit 0 says that a process waits. After waiting without success it does not wait again for a
 * while.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pq_impl.h"

enum {
    PROCESS_WAITS = 1,
    LOOK_MS = 100, /* a process that is killed wakes no other */
    VAIN_MS = 10000,
    MS_PER_S = 1000,
    NS_PER_MS = 1000000
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * MS_PER_S + (uint64_t)t.tv_nsec / NS_PER_MS;
}

static bool others_hold(const struct pq *q)
{
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        const struct pq_client *cl = &q->clients[c];
        if (c != q->client && cl->used && (cl->pins || cl->first_reserved != PQ_NONE))
            return true;
    }
    return false;
}

static void ask(struct pq *q, uint64_t up_to)
{
    atomic_store(&q->h->asked_up_to, up_to);
    atomic_fetch_add(&q->h->asks, 1);
    pq_announce(q);
}

bool pq_room_ask(struct pq *q, struct pq_wait *w)
{
    struct pq_header *h = q->h;
    uint64_t now = now_ms(), last = atomic_load(&h->last_seq);
    if (!w->began_ms) {
        if (!q->patience_ms || !others_hold(q))
            return false;
        w->began_ms = now;
        if (now < q->vain_until_ms) {
            ask(q, last);
            return false;
        }
    }
    const uint64_t steps_ms[] = {q->patience_ms / 10, q->patience_ms / 4, q->patience_ms};
    unsigned step = 0;
    while (step < 3 && now - w->began_ms >= steps_ms[step])
        step++;
    if (step == 3 &&
        w->step <
            2) { /* it was delayed and has not requested all: give the holders time to answer */
        step = 2;
        w->began_ms = now - steps_ms[1];
    }
    if (step == 3) {
        q->vain_until_ms = now + VAIN_MS;
        return false;
    }
    if (step > w->step)
        ask(q, step == 1 ? last - h->products / 2 : last);
    w->step = step;
    w->until_ms = w->began_ms + steps_ms[step];
    if (w->until_ms > now + LOOK_MS)
        w->until_ms = now + LOOK_MS;
    w->word = atomic_fetch_or(&h->room, PROCESS_WAITS) | PROCESS_WAITS;
    return true;
}

void pq_room_wait(struct pq *q, const struct pq_wait *w)
{
    uint64_t now = now_ms(), left = w->until_ms > now ? w->until_ms - now : 0;
    struct timespec t = {(time_t)(left / MS_PER_S), (long)(left % MS_PER_S) * NS_PER_MS};
    syscall(SYS_futex, &q->h->room, FUTEX_WAIT, w->word, &t, NULL, 0);
}

void pq_room_made(struct pq *q)
{
    uint32_t word = atomic_load(&q->h->room);
    if (!(word & PROCESS_WAITS))
        return;
    while (!atomic_compare_exchange_weak(&q->h->room, &word, (word & ~1u) + 2))
        ;
    syscall(SYS_futex, &q->h->room, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool pq_room_asked(struct pq *q, uint64_t *up_to)
{
    uint32_t asks = atomic_load(&q->h->asks);
    if (asks == q->asks_seen)
        return false;
    q->asks_seen = asks;
    *up_to = atomic_load(&q->h->asked_up_to);
    return true;
}

void pq_set_patience(struct pq *q, unsigned ms)
{
    q->patience_ms = ms;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes that have the queue open, and what each holds: pins (a bitmap per client) and
 * reservations. What dead clients held is reclaimed when room or a place in the table is needed.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "pq_impl.h"

int pq_shared_mutexes_init(void *first, unsigned n, size_t stride)
{
    pthread_mutexattr_t attr;
    int e = 0;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (unsigned i = 0; !e && i < n; i++)
        e = pthread_mutex_init((pthread_mutex_t *)(void *)((char *)first + i * stride), &attr);
    pthread_mutexattr_destroy(&attr);
    return e;
}

static void unpin_for(struct pq *q, uint32_t client, uint32_t slot)
{
    struct pq_slot *s = &q->slots[slot];
    q->bitmaps[client * q->bitmap_words + slot / 64] &= ~(UINT64_C(1) << slot % 64);
    pq_barrier();
    q->clients[client].pins--;
    s->pins--;
    if (s->pins)
        return;
    if (pq_state(s) == SLOT_DOOMED)
        pq_region_free(q, slot);
    else
        pq_room_made(q);
}

static void take_back(struct pq *q, uint32_t client)
{
    struct pq_client *cl = &q->clients[client];
    for (size_t w = 0; cl->pins && w < q->bitmap_words; w++)
        for (uint64_t bits = q->bitmaps[client * q->bitmap_words + w]; bits; bits &= bits - 1)
            unpin_for(q, client, (uint32_t)(w * 64 + (size_t)__builtin_ctzll(bits)));
    while (cl->first_reserved != PQ_NONE)
        pq_region_free(q, cl->first_reserved);
    pq_barrier();
    cl->used = 0;
}

/* Reclaims what dead clients held. Returns how many there were. */
unsigned pq_client_reclaim(struct pq *q)
{
    unsigned dead = 0;
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        struct pq_client *cl = &q->clients[c];
        if (!cl->used)
            continue;
        int e = pthread_mutex_trylock(&cl->alive);
        if (e == EBUSY)
            continue;
        if (e == EOWNERDEAD)
            pthread_mutex_consistent(&cl->alive);
        take_back(q, c);
        if (e == 0 || e == EOWNERDEAD)
            pthread_mutex_unlock(&cl->alive);
        dead++;
    }
    return dead;
}

enum pq_status pq_client_enter(struct pq *q)
{
    for (int tries = 0; tries < 2; tries++) {
        for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
            struct pq_client *cl = &q->clients[c];
            if (cl->used)
                continue;
            int e = pthread_mutex_trylock(&cl->alive);
            if (e == EOWNERDEAD) /* it died between unlocking the mutex and recording that */
                e = pthread_mutex_consistent(&cl->alive);
            if (e)
                continue;
            cl->pid = getpid();
            cl->writes = q->writable;
            pq_barrier();
            cl->used = 1;
            q->client = c;
            return PQ_OK;
        }
        if (!pq_client_reclaim(q))
            break;
    }
    errno = EUSERS;
    return PQ_SYSTEM;
}

/* Returns whether a living process has this place in the table. */
static bool lives(struct pq *q, uint32_t client)
{
    pthread_mutex_t *alive = &q->clients[client].alive;
    int e = pthread_mutex_trylock(alive);
    if (e == EBUSY)
        return true;
    if (e == EOWNERDEAD) /* unlocking without pthread_mutex_consistent() would make it unusable */
        pthread_mutex_consistent(alive);
    if (e == 0 || e == EOWNERDEAD)
        pthread_mutex_unlock(alive);
    return false;
}

bool pq_client_lives(struct pq *q)
{
    for (uint32_t c = 0; c < PQ_CLIENTS; c++)
        if (q->clients[c].used && lives(q, c))
            return true;
    return false;
}

unsigned pq_clients(struct pq *q, struct pq_client_info *out, unsigned room)
{
    unsigned n = 0;
    if (pq_lock(q) != PQ_OK)
        return 0;
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        if (!q->clients[c].used || n++ >= room)
            continue;
        struct pq_client_info *i = &out[n - 1];
        *i = (struct pq_client_info){.pid = q->clients[c].pid, .writes = q->clients[c].writes != 0};
        i->self = c == q->client;
        i->alive = lives(q, c);
        i->pins = q->clients[c].pins;
        for (uint32_t s = q->clients[c].first_reserved; s != PQ_NONE; s = q->slots[s].newer) {
            i->reservations++;
            i->reserved_bytes += q->slots[s].bytes;
        }
    }
    pq_unlock(q);
    return n;
}

void pq_client_leave(struct pq *q)
{
    take_back(q, q->client);
    pthread_mutex_unlock(&q->clients[q->client].alive);
    if (pq_client_lives(q))
        return;
    pq_client_reclaim(q);
    pq_leave_clean(q);
}

void pq_own(struct pq *q, uint32_t slot)
{
    struct pq_slot *s = &q->slots[slot];
    struct pq_client *cl = &q->clients[s->owner];
    s->older = PQ_NONE;
    s->newer = cl->first_reserved;
    if (s->newer != PQ_NONE)
        q->slots[s->newer].older = slot;
    cl->first_reserved = slot;
}

void pq_disown(struct pq *q, uint32_t slot)
{
    const struct pq_slot *s = &q->slots[slot];
    if (s->older == PQ_NONE)
        q->clients[s->owner].first_reserved = s->newer;
    else
        q->slots[s->older].newer = s->newer;
    if (s->newer != PQ_NONE)
        q->slots[s->newer].older = s->older;
}

void pq_pin(struct pq *q, uint32_t slot)
{
    if (q->my_pins[slot]++)
        return;
    q->bitmaps[q->client * q->bitmap_words + slot / 64] |= UINT64_C(1) << slot % 64;
    q->clients[q->client].pins++;
    q->slots[slot].pins++;
}

void pq_unpin(struct pq *q, uint32_t slot)
{
    if (!--q->my_pins[slot])
        unpin_for(q, q->client, slot);
}

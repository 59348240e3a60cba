/* SPDX-License-Identifier: Apache-2.0
 *
 * Room in the data area. A cursor moves around it and evicts what it passes, so that the oldest
 * products go first. It steps over pinned products and reserved regions. While there is room
 * elsewhere, it also steps over products younger than half of all: their reservation lasted so long
 * that the cursor has come around. Nothing is evicted if no contiguous evictable room is large
 * enough.
 */
#include <time.h>

#include "pq_impl.h"

uint64_t pq_round_up(uint64_t bytes)
{
    return bytes ? (bytes + PQ_UNIT - 1) / PQ_UNIT * PQ_UNIT : PQ_UNIT;
}

static uint32_t pop_node(struct pq *q)
{
    uint32_t n = q->h->free_node;
    q->h->free_node = q->nodes[n].after;
    return n;
}

static void push_node(struct pq *q, uint32_t n)
{
    q->nodes[n].after = q->h->free_node;
    q->h->free_node = n;
}

static void link_nodes(struct pq *q, uint32_t a, uint32_t b)
{
    if (a == PQ_NONE)
        q->h->first_node = b;
    else
        q->nodes[a].after = b;
    if (b != PQ_NONE)
        q->nodes[b].before = a;
}

/* Merges free extent `second` into free extent `first` right before it. */
static void absorb(struct pq *q, uint32_t first, uint32_t second)
{
    q->nodes[first].bytes += q->nodes[second].bytes;
    link_nodes(q, first, q->nodes[second].after);
    if (q->h->cursor == second)
        q->h->cursor = first;
    push_node(q, second);
    q->h->free_nodes--;
}

/* Frees the region of a slot and the slot. */
void pq_region_free(struct pq *q, uint32_t slot)
{
    struct pq_header *h = q->h;
    if (pq_state(&q->slots[slot]) == SLOT_RESERVED)
        pq_disown(q, slot);
    pq_set_state(&q->slots[slot], SLOT_EMPTY);
    uint32_t n = pop_node(q);
    struct pq_node *node = &q->nodes[n];
    uint32_t before = q->nodes[slot].before, after = q->nodes[slot].after;
    node->offset = q->nodes[slot].offset;
    node->bytes = q->nodes[slot].bytes;
    link_nodes(q, before, n);
    link_nodes(q, n, after);
    h->free_nodes++;
    h->used_bytes -= node->bytes;
    h->used_slots--;
    /* The region directly before the cursor is most likely the last one taken: take it again. */
    if (h->cursor == slot || h->cursor == after)
        h->cursor = n;
    if (after != PQ_NONE && pq_is_free_node(q, after))
        absorb(q, n, after);
    if (before != PQ_NONE && pq_is_free_node(q, before))
        absorb(q, before, n);
    if (h->free_nodes > h->high_water_free_nodes)
        h->high_water_free_nodes = h->free_nodes;
    q->slots[slot].newer = h->free_slot;
    h->free_slot = slot;
    pq_room_made(q);
}

static bool evictable(const struct pq *q, uint32_t slot, uint64_t spare_after)
{
    const struct pq_slot *s = &q->slots[slot];
    return pq_state(s) == SLOT_COMMITTED && s->pins == 0 && s->seq <= spare_after;
}

/* Removes it from the queue, and frees its room at once or when the last pin is released. */
void pq_drop(struct pq *q, uint32_t slot)
{
    pq_set_state(&q->slots[slot], q->slots[slot].pins ? SLOT_DOOMED : SLOT_EMPTY);
    pq_index_remove(q, slot);
    if (!q->slots[slot].pins)
        pq_region_free(q, slot);
}

void pq_evict(struct pq *q, uint32_t slot)
{
    struct pq_header *h = q->h;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct timeval *creation = &q->slots[slot].info.creation;
    int64_t age_us, rest_us; /* creation times come from the network */
    if (__builtin_sub_overflow((int64_t)now.tv_sec, (int64_t)creation->tv_sec, &age_us) ||
        __builtin_mul_overflow(age_us, INT64_C(1000000), &age_us) ||
        __builtin_sub_overflow((int64_t)(now.tv_nsec / 1000), (int64_t)creation->tv_usec,
                               &rest_us) ||
        __builtin_add_overflow(age_us, rest_us, &age_us) || age_us < 0)
        age_us = 0;
    if (h->min_residence_us < 0 || age_us < h->min_residence_us) {
        h->min_residence_us = age_us;
        h->min_residence_bytes = h->used_bytes;
        h->min_residence_slots = h->products;
    }
    h->evicted++;
    pq_drop(q, slot);
}

/* Returns whether there is a run of free and evictable room, searched like take_at_cursor()
 * does. */
static bool room_exists(const struct pq *q, uint64_t bytes, uint64_t spare_after)
{
    for (int round = 0; round < 2; round++) {
        uint64_t run = 0;
        for (uint32_t n = round ? q->h->first_node : q->h->cursor; n != PQ_NONE;
             n = q->nodes[n].after) {
            run =
                pq_is_free_node(q, n) || evictable(q, n, spare_after) ? run + q->nodes[n].bytes : 0;
            if (run >= bytes)
                return true;
        }
    }
    return false;
}

/* Moves the cursor to a free extent of at least `bytes`, evicting what it passes. */
static uint32_t make_room(struct pq *q, uint64_t bytes, uint64_t spare_after)
{
    struct pq_header *h = q->h;
    for (;;) {
        if (h->cursor == PQ_NONE)
            h->cursor = h->first_node;
        uint32_t n = h->cursor;
        if (!pq_is_free_node(q, n)) {
            if (evictable(q, n, spare_after)) {
                pq_evict(q, n); /* the cursor is now at the extent that absorbed it */
            } else {
                h->reclaim_due = 1;
                h->cursor = q->nodes[n].after;
            }
            continue;
        }
        if (q->nodes[n].bytes >= bytes)
            return n;
        uint32_t after = q->nodes[n].after;
        if (after != PQ_NONE && evictable(q, after, spare_after))
            pq_evict(q, after);
        else
            h->cursor = after;
    }
}

static bool free_a_slot(struct pq *q)
{
    for (uint32_t s = q->h->oldest; s != PQ_NONE; s = q->slots[s].newer) {
        if (evictable(q, s, PQ_SPARE_NONE)) {
            pq_evict(q, s);
            return true;
        }
    }
    return false;
}

enum pq_status pq_region_take(struct pq *q, uint64_t bytes, uint32_t owner, uint32_t *slot)
{
    struct pq_header *h = q->h;
    bytes = pq_round_up(bytes);
    if (bytes > h->data_bytes)
        return PQ_BIG;
    if (h->reclaim_due) {
        h->reclaim_due = 0;
        pq_client_reclaim(q);
    }
    uint64_t spare_after = atomic_load(&h->last_seq) - h->products / 2;
    if (!room_exists(q, bytes, spare_after)) {
        spare_after = PQ_SPARE_NONE;
        if (!room_exists(q, bytes, spare_after) &&
            (!pq_client_reclaim(q) || !room_exists(q, bytes, spare_after)))
            return PQ_FULL;
    }
    if (h->free_slot == PQ_NONE && !free_a_slot(q) &&
        (!pq_client_reclaim(q) || (h->free_slot == PQ_NONE && !free_a_slot(q))))
        return PQ_FULL;
    uint32_t n = make_room(q, bytes, spare_after);

    uint32_t s = h->free_slot;
    struct pq_slot *sl = &q->slots[s];
    h->free_slot = sl->newer;
    sl->offset = q->nodes[n].offset;
    sl->bytes = bytes;
    sl->owner = owner;
    sl->pins = 0;
    sl->seq = 0;
    pq_set_state(sl, SLOT_RESERVED);
    pq_own(q, s);

    q->nodes[s].offset = sl->offset;
    q->nodes[s].bytes = bytes;
    link_nodes(q, q->nodes[n].before, s);
    if (q->nodes[n].bytes == bytes) {
        h->cursor = q->nodes[n].after;
        link_nodes(q, s, q->nodes[n].after);
        push_node(q, n);
        h->free_nodes--;
    } else {
        q->nodes[n].offset += bytes;
        q->nodes[n].bytes -= bytes;
        link_nodes(q, s, n);
        h->cursor = n;
    }
    h->used_bytes += bytes;
    h->used_slots++;
    if (h->used_bytes > h->high_water_bytes)
        h->high_water_bytes = h->used_bytes;
    if (h->used_slots > h->high_water_used)
        h->high_water_used = h->used_slots;
    *slot = s;
    return PQ_OK;
}

uint64_t pq_largest_free(const struct pq *q)
{
    uint64_t largest = 0;
    for (uint32_t n = q->h->first_node; n != PQ_NONE; n = q->nodes[n].after)
        if (pq_is_free_node(q, n) && q->nodes[n].bytes > largest)
            largest = q->nodes[n].bytes;
    return largest;
}

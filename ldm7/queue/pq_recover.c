/* SPDX-License-Identifier: Apache-2.0
 *
 * Restores the derived structures from the slots, and checks that they agree.
 */
#include <stdlib.h>
#include <string.h>

#include "pq_impl.h"

static bool region_is_sane(const struct pq *q, const struct pq_slot *s)
{
    return s->offset % PQ_UNIT == 0 && s->bytes % PQ_UNIT == 0 && s->bytes > 0 &&
           s->bytes <= q->h->data_bytes && s->offset <= q->h->data_bytes - s->bytes;
}

static bool product_is_sane(const struct pq *q, const struct pq_slot *s)
{
    const struct pq_info *i = &s->info;
    uint64_t last = atomic_load(&q->h->last_seq);
    return s->seq > 0 && s->seq <= last && last - s->seq < q->h->order_cells &&
           (uint64_t)s->data_offset + i->size <= s->bytes && s->inserted_us >= 0 &&
           s->order_us >= 0 && memchr(i->ident, 0, sizeof i->ident) &&
           memchr(i->origin, 0, sizeof i->origin);
}

static int by_offset(const void *a, const void *b, void *slots)
{
    const struct pq_slot *s = slots;
    uint64_t x = s[*(const uint32_t *)a].offset, y = s[*(const uint32_t *)b].offset;
    return x < y ? -1 : x > y;
}

static int by_seq(const void *a, const void *b, void *slots)
{
    const struct pq_slot *s = slots;
    uint64_t x = s[*(const uint32_t *)a].seq, y = s[*(const uint32_t *)b].seq;
    return x < y ? -1 : x > y;
}

static void recount_pins(struct pq *q)
{
    for (uint32_t s = 0; s < q->h->slots; s++)
        q->slots[s].pins = 0;
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        uint64_t *words = q->bitmaps + c * q->bitmap_words;
        q->clients[c].pins = 0;
        for (size_t w = 0; q->clients[c].used && w < q->bitmap_words; w++)
            for (uint64_t bits = words[w]; bits; bits &= bits - 1) {
                size_t s = w * 64 + (size_t)__builtin_ctzll(bits);
                if (s < q->h->slots && pq_state(&q->slots[s]) != SLOT_EMPTY) {
                    q->clients[c].pins++;
                    q->slots[s].pins++;
                } else {
                    words[w] &= ~(bits & -bits);
                }
            }
    }
}

static void relink_reservations(struct pq *q)
{
    for (uint32_t c = 0; c < PQ_CLIENTS; c++)
        q->clients[c].first_reserved = PQ_NONE;
    for (uint32_t s = 0; s < q->h->slots; s++)
        if (pq_state(&q->slots[s]) == SLOT_RESERVED)
            pq_own(q, s);
}

static void drop_unusable_slots(struct pq *q)
{
    for (uint32_t i = 0; i < q->h->slots; i++) {
        struct pq_slot *s = &q->slots[i];
        uint32_t state = pq_state(s);
        bool keep = false;
        if (state == SLOT_RESERVED)
            keep = s->owner < PQ_CLIENTS && q->clients[s->owner].used;
        else if (state == SLOT_COMMITTED)
            keep = product_is_sane(q, s);
        else if (state == SLOT_DOOMED)
            keep = s->pins > 0;
        if (!keep || !region_is_sane(q, s))
            pq_set_state(s, SLOT_EMPTY);
    }
}

static uint32_t collect(struct pq *q, bool only_products)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < q->h->slots; i++) {
        uint32_t state = pq_state(&q->slots[i]);
        if (only_products ? state == SLOT_COMMITTED : state != SLOT_EMPTY)
            q->scratch[n++] = i;
    }
    return n;
}

static void rebuild_index(struct pq *q)
{
    struct pq_header *h = q->h;
    pq_index_clear(q);
    uint32_t n = collect(q, true);
    qsort_r(q->scratch, n, sizeof *q->scratch, by_seq, q->slots);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = q->scratch[i];
        struct pq_slot *s = &q->slots[slot];
        bool twice = pq_hash_find(q, &s->info.signature) != PQ_NONE ||
                     (h->newest != PQ_NONE && q->slots[h->newest].seq == s->seq);
        if (twice) {
            pq_set_state(s, SLOT_EMPTY);
            continue;
        }
        /* Decreasing times occur only in a damaged file. */
        if (h->newest != PQ_NONE && s->order_us < q->slots[h->newest].order_us)
            s->order_us = q->slots[h->newest].order_us;
        if (s->order_us > h->last_order_us)
            h->last_order_us = s->order_us;
        pq_index_add(q, slot);
    }
}

static uint32_t append_node(struct pq *q, uint32_t last, uint32_t node, uint64_t offset,
                            uint64_t bytes)
{
    q->nodes[node] =
        (struct pq_node){.offset = offset, .bytes = bytes, .before = last, .after = PQ_NONE};
    if (last == PQ_NONE)
        q->h->first_node = node;
    else
        q->nodes[last].after = node;
    if (pq_is_free_node(q, node))
        q->h->free_nodes++;
    else
        q->h->used_bytes += bytes;
    return node;
}

static void rebuild_regions(struct pq *q)
{
    struct pq_header *h = q->h;
    uint32_t n = collect(q, false), spare = h->slots, last = PQ_NONE;
    uint64_t at = 0;
    qsort_r(q->scratch, n, sizeof *q->scratch, by_offset, q->slots);
    h->first_node = PQ_NONE;
    h->free_nodes = 0;
    h->used_bytes = 0;
    h->used_slots = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = q->scratch[i];
        struct pq_slot *s = &q->slots[slot];
        if (s->offset < at) { /* overlaps: only in a damaged file */
            if (pq_state(s) == SLOT_COMMITTED)
                pq_index_remove(q, slot);
            pq_set_state(s, SLOT_EMPTY);
            continue;
        }
        if (s->offset > at)
            last = append_node(q, last, spare++, at, s->offset - at);
        last = append_node(q, last, slot, s->offset, s->bytes);
        at = s->offset + s->bytes;
        h->used_slots++;
    }
    if (at < h->data_bytes)
        append_node(q, last, spare++, at, h->data_bytes - at);

    h->free_node = PQ_NONE;
    for (uint32_t i = h->nodes; i-- > spare;) {
        q->nodes[i].after = h->free_node;
        h->free_node = i;
    }
    h->free_slot = PQ_NONE;
    for (uint32_t i = h->slots; i-- > 0;) {
        if (pq_state(&q->slots[i]) != SLOT_EMPTY)
            continue;
        q->slots[i].newer = h->free_slot;
        h->free_slot = i;
    }
    h->cursor = h->newest == PQ_NONE ? h->first_node : q->nodes[h->newest].after;
}

void pq_rebuild(struct pq *q)
{
    recount_pins(q);
    drop_unusable_slots(q);
    rebuild_index(q);
    rebuild_regions(q);
    recount_pins(q); /* slots may have been dropped */
    relink_reservations(q);
    q->h->suspect = 0;
}

/* Sets the node's bit in scratch. Returns true if it was already set. */
static bool mark_node(const struct pq *q, uint32_t n)
{
    uint32_t bit = UINT32_C(1) << n % 32;
    bool was = q->scratch[n / 32] & bit;
    q->scratch[n / 32] |= bit;
    return was;
}

static bool regions_agree(const struct pq *q)
{
    const struct pq_header *h = q->h;
    uint64_t at = 0, used_bytes = 0;
    uint32_t used = 0, spare = 0, steps = 0, before = PQ_NONE;
    bool cursor_seen = h->cursor == PQ_NONE;
    memset(q->scratch, 0,
           h->slots * sizeof *q->scratch); /* 32 bits for a slot's 2 nodes, and 3 more */
    for (uint32_t n = h->first_node; n != PQ_NONE; before = n, n = q->nodes[n].after) {
        if (n >= h->nodes || ++steps > h->nodes)
            return false;
        const struct pq_node *node = &q->nodes[n];
        if (node->before != before || node->offset != at || !node->bytes || node->bytes % PQ_UNIT ||
            node->bytes > h->data_bytes - at)
            return false;
        at += node->bytes;
        mark_node(q, n);
        cursor_seen |= n == h->cursor;
        if (pq_is_free_node(q, n)) {
            if (before != PQ_NONE && pq_is_free_node(q, before))
                return false;
            spare++;
            continue;
        }
        const struct pq_slot *s = &q->slots[n];
        if (pq_state(s) == SLOT_EMPTY || pq_state(s) > SLOT_DOOMED || s->offset != node->offset ||
            s->bytes != node->bytes)
            return false;
        used++;
        used_bytes += node->bytes;
    }
    if (at != h->data_bytes || used != h->used_slots || used_bytes != h->used_bytes ||
        spare != h->free_nodes || !cursor_seen)
        return false;
    uint32_t free_slots = 0, free_nodes = 0;
    for (uint32_t s = h->free_slot; s != PQ_NONE; s = q->slots[s].newer)
        if (s >= h->slots || ++free_slots > h->slots || pq_state(&q->slots[s]) != SLOT_EMPTY)
            return false;
    for (uint32_t n = h->free_node; n != PQ_NONE; n = q->nodes[n].after)
        if (n < h->slots || n >= h->nodes || ++free_nodes > h->nodes || mark_node(q, n))
            return false; /* marked: it is also an extent of the data area */
    return free_slots + used == h->slots && free_nodes + spare == h->nodes - h->slots;
}

static bool index_agrees(const struct pq *q)
{
    const struct pq_header *h = q->h;
    uint32_t products = 0, cells = 0, hashed = 0, committed = 0;
    uint32_t older = PQ_NONE;
    for (uint32_t i = 0; i < h->hash_cells; i++) {
        if (q->hash[i] > h->slots)
            return false;
        hashed += q->hash[i] != 0;
    }
    for (uint32_t i = 0; i < h->order_cells; i++) {
        if (q->order[i] > h->slots)
            return false;
        cells += q->order[i] != 0;
    }
    for (uint32_t i = 0; i < h->slots; i++)
        committed += pq_state(&q->slots[i]) == SLOT_COMMITTED;
    /* A lookup ends at an empty cell, so there must be some. */
    if (hashed != h->products || cells != h->products || committed != h->products ||
        h->products > h->slots)
        return false;
    for (uint32_t s = h->oldest; s != PQ_NONE; older = s, s = q->slots[s].newer) {
        if (s >= h->slots || ++products > h->products)
            return false;
        const struct pq_slot *sl = &q->slots[s];
        if (pq_state(sl) != SLOT_COMMITTED || sl->older != older || !product_is_sane(q, sl) ||
            (older != PQ_NONE &&
             (q->slots[older].seq >= sl->seq || q->slots[older].order_us > sl->order_us)) ||
            sl->order_us > h->last_order_us || q->order[sl->seq % h->order_cells] != s + 1 ||
            pq_hash_find(q, &sl->info.signature) != s)
            return false;
    }
    return products == h->products && h->newest == older && pq_marks_agree(q);
}

static bool pins_agree(const struct pq *q)
{
    memset(q->scratch, 0, q->h->slots * sizeof *q->scratch);
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        const uint64_t *words = q->bitmaps + c * q->bitmap_words;
        uint32_t pins = 0;
        for (size_t w = 0; w < q->bitmap_words; w++)
            for (uint64_t bits = words[w]; bits; bits &= bits - 1) {
                size_t s = w * 64 + (size_t)__builtin_ctzll(bits);
                if (!q->clients[c].used || s >= q->h->slots || pq_state(&q->slots[s]) == SLOT_EMPTY)
                    return false;
                q->scratch[s]++;
                pins++;
            }
        if (q->clients[c].pins != pins)
            return false;
    }
    for (uint32_t s = 0; s < q->h->slots; s++)
        if (pq_state(&q->slots[s]) != SLOT_EMPTY && q->slots[s].pins != q->scratch[s])
            return false;
    return true;
}

static bool reservations_agree(const struct pq *q)
{
    uint32_t reserved = 0, listed = 0;
    for (uint32_t s = 0; s < q->h->slots; s++)
        reserved += pq_state(&q->slots[s]) == SLOT_RESERVED;
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        uint32_t older = PQ_NONE;
        for (uint32_t s = q->clients[c].first_reserved; s != PQ_NONE;
             older = s, s = q->slots[s].newer) {
            if (!q->clients[c].used || s >= q->h->slots || ++listed > reserved)
                return false;
            const struct pq_slot *sl = &q->slots[s];
            if (pq_state(sl) != SLOT_RESERVED || sl->owner != c || sl->older != older)
                return false;
        }
    }
    return listed == reserved;
}

bool pq_verify(const struct pq *q)
{
    return regions_agree(q) && index_agrees(q) && pins_agree(q) && reservations_agree(q);
}

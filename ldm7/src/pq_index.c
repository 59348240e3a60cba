/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding products: by signature (linear probing, keyed so that a peer that chooses signatures can
 * not make them collide; deletion shifts back, no tombstones) and by position in the insertion
 * order (a ring of cells and a doubly linked list).
 */
#include "pq_impl.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static uint32_t home(const struct pq *q, const struct pq_signature *sig)
{
    uint64_t a, b;
    memcpy(&a, sig->bytes, 8);
    memcpy(&b, sig->bytes + 8, 8);
    return (uint32_t)(mix(mix(a ^ q->h->hash_key[0]) + (b ^ q->h->hash_key[1]))) & (q->h->hash_cells - 1);
}

/* The cell that holds the signature, or the empty one where it would go. */
static uint32_t cell_of(const struct pq *q, const struct pq_signature *sig)
{
    uint32_t c = home(q, sig);
    while (q->hash[c] && memcmp(&q->slots[q->hash[c] - 1].info.signature, sig, sizeof *sig) != 0)
        c = (c + 1) & (q->h->hash_cells - 1);
    return c;
}

uint32_t pq_hash_find(const struct pq *q, const struct pq_signature *sig)
{
    uint32_t c = cell_of(q, sig);
    return q->hash[c] ? q->hash[c] - 1 : PQ_NONE;
}

static void hash_remove(struct pq *q, uint32_t slot)
{
    uint32_t mask = q->h->hash_cells - 1;
    uint32_t hole = cell_of(q, &q->slots[slot].info.signature);
    for (uint32_t c = (hole + 1) & mask; q->hash[c]; c = (c + 1) & mask) {
        uint32_t wanted = home(q, &q->slots[q->hash[c] - 1].info.signature);
        /* May it move to the hole, that is, does its probe path begin at or before the hole? */
        if (((c - wanted) & mask) >= ((c - hole) & mask)) {
            q->hash[hole] = q->hash[c];
            hole = c;
        }
    }
    q->hash[hole] = 0;
}

/* A slot whose seq is the highest of all, and whose cell in the order is free. */
void pq_index_add(struct pq *q, uint32_t slot)
{
    struct pq_header *h = q->h;
    struct pq_slot *s = &q->slots[slot];
    q->hash[cell_of(q, &s->info.signature)] = slot + 1;
    q->order[s->seq % h->order_cells] = slot + 1;
    s->older = h->newest;
    s->newer = PQ_NONE;
    if (h->newest == PQ_NONE)
        h->oldest = slot;
    else
        q->slots[h->newest].newer = slot;
    h->newest = slot;
    h->products++;
    if (h->products > h->high_water_slots)
        h->high_water_slots = h->products;
}

void pq_index_remove(struct pq *q, uint32_t slot)
{
    struct pq_header *h = q->h;
    struct pq_slot *s = &q->slots[slot];
    hash_remove(q, slot);
    q->order[s->seq % h->order_cells] = 0;
    if (s->older == PQ_NONE)
        h->oldest = s->newer;
    else
        q->slots[s->older].newer = s->newer;
    if (s->newer == PQ_NONE)
        h->newest = s->older;
    else
        q->slots[s->newer].older = s->older;
    h->products--;
}

/* The oldest product with a position > seq, or PQ_NONE. */
uint32_t pq_index_after(const struct pq *q, uint64_t seq)
{
    const struct pq_header *h = q->h;
    if (h->newest == PQ_NONE || q->slots[h->newest].seq <= seq)
        return PQ_NONE;
    if (q->slots[h->oldest].seq > seq)
        return h->oldest;
    uint32_t at = q->order[seq % h->order_cells];
    if (at && q->slots[at - 1].seq == seq)
        return q->slots[at - 1].newer;
    /* seq itself is gone. All products lie within order_cells of the newest. */
    for (uint64_t s = seq + 1; s <= q->slots[h->newest].seq; s++) {
        at = q->order[s % h->order_cells];
        if (at && q->slots[at - 1].seq == s)
            return at - 1;
    }
    return PQ_NONE;
}

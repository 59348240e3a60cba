/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds products: by signature (linear probing, keyed so that a peer that chooses signatures cannot
 * make them collide; deletion shifts back, no tombstones); by position in the insertion order (a
 * ring of cells and a doubly linked list; if products in between are gone, a tree of bits, 64 per
 * word, finds the next one); by time of insertion (bisection over positions).
 */
#include <string.h>

#include "pq_impl.h"

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
    uint64_t a;
    memcpy(&a, sig->bytes, 8);
    uint64_t b;
    memcpy(&b, sig->bytes + 8, 8);
    return (uint32_t)(mix(mix(a ^ q->h->hash_key[0]) + (b ^ q->h->hash_key[1]))) &
           (q->h->hash_cells - 1);
}

/* Returns the cell that holds the signature, or the empty one where it would go. */
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
        /* It may move to the hole if its probe path begins at or before the hole. */
        if (((c - wanted) & mask) >= ((c - hole) & mask)) {
            q->hash[hole] = q->hash[c];
            hole = c;
        }
    }
    q->hash[hole] = 0;
}

static void mark(struct pq *q, uint32_t cell)
{
    for (uint32_t l = 0; l < q->mark_levels; l++, cell /= 64)
        q->marks[l][cell / 64] |= UINT64_C(1) << cell % 64;
}

static void unmark(struct pq *q, uint32_t cell)
{
    for (uint32_t l = 0; l < q->mark_levels; l++, cell /= 64) {
        q->marks[l][cell / 64] &= ~(UINT64_C(1) << cell % 64);
        if (q->marks[l][cell / 64])
            return;
    }
}

/* Returns the first marked cell at or after `cell`, or PQ_NONE. */
static uint32_t marked_from(struct pq *q, uint32_t cell)
{
    for (uint32_t l = 0; l < q->mark_levels; l++, cell = cell / 64 + 1) {
        if (cell / 64 >= q->mark_words[l])
            return PQ_NONE;
        q->steps++;
        uint64_t bits = q->marks[l][cell / 64] >> cell % 64 << cell % 64;
        if (!bits)
            continue;
        cell = cell / 64 * 64 + (uint32_t)__builtin_ctzll(bits);
        while (l--) {
            q->steps++;
            cell = cell * 64 + (uint32_t)__builtin_ctzll(q->marks[l][cell]);
        }
        return cell;
    }
    return PQ_NONE;
}

/* Returns whether each bit is set exactly if there is something below it. */
bool pq_marks_agree(const struct pq *q)
{
    for (uint32_t l = 0; l < q->mark_levels; l++) {
        uint32_t below = l ? q->mark_words[l - 1] : q->h->order_cells;
        for (uint32_t i = 0; i < q->mark_words[l] * 64; i++) {
            bool there = i < below && (l ? q->marks[l - 1][i] != 0 : q->order[i] != 0);
            if ((q->marks[l][i / 64] >> i % 64 & 1) != there)
                return false;
        }
    }
    return true;
}

void pq_index_clear(struct pq *q)
{
    struct pq_header *h = q->h;
    memset(q->hash, 0, h->hash_cells * sizeof *q->hash);
    memset(q->order, 0, h->order_cells * sizeof *q->order);
    memset(q->marks[0], 0, h->mark_words * sizeof *q->marks[0]);
    h->oldest = h->newest = PQ_NONE;
    h->products = 0;
}

/* Adds a slot whose seq is the highest of all, and whose cell in the order is free. */
void pq_index_add(struct pq *q, uint32_t slot)
{
    struct pq_header *h = q->h;
    struct pq_slot *s = &q->slots[slot];
    q->hash[cell_of(q, &s->info.signature)] = slot + 1;
    q->order[s->seq % h->order_cells] = slot + 1;
    mark(q, (uint32_t)(s->seq % h->order_cells));
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
    unmark(q, (uint32_t)(s->seq % h->order_cells));
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

/* Returns the product at this position, or PQ_NONE. */
uint32_t pq_index_at(const struct pq *q, uint64_t seq)
{
    uint32_t at = q->order[seq % q->h->order_cells];
    return at && q->slots[at - 1].seq == seq ? at - 1 : PQ_NONE;
}

/* Returns the oldest product with a position > seq, or PQ_NONE. */
uint32_t pq_index_after(struct pq *q, uint64_t seq)
{
    const struct pq_header *h = q->h;
    q->steps++;
    if (h->newest == PQ_NONE || q->slots[h->newest].seq <= seq)
        return PQ_NONE;
    if (q->slots[h->oldest].seq > seq)
        return h->oldest;
    uint32_t slot = pq_index_at(q, seq);
    if (slot != PQ_NONE)
        return q->slots[slot].newer;
    /* seq itself is gone. All products are within order_cells of the newest, so the next one around
     * the ring is the next in order. */
    uint32_t cell = marked_from(q, (uint32_t)((seq + 1) % h->order_cells));
    if (cell == PQ_NONE)
        cell = marked_from(q, 0);
    return q->order[cell] - 1;
}

/* Returns the highest position such that all products up to it are older than this time. */
uint64_t pq_index_before_time(struct pq *q, int64_t us)
{
    const struct pq_header *h = q->h;
    if (h->newest == PQ_NONE || q->slots[h->newest].order_us < us)
        return atomic_load(&h->last_seq);
    uint64_t low = q->slots[h->oldest].seq, high = q->slots[h->newest].seq;
    while (low < high) { /* the product has a position from low to high */
        uint64_t middle = low + (high - low) / 2;
        const struct pq_slot *s = &q->slots[pq_index_after(q, middle - 1)];
        if (s->order_us >= us)
            high = middle;
        else
            low = s->seq + 1;
    }
    return low - 1;
}

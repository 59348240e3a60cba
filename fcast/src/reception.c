/* SPDX-License-Identifier: Apache-2.0 */
#include "reception.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ldpc_kind.h"
#include "reception_impl.h"

enum { WORD_BITS = 64, FIRST_SLOTS = 256, EVERY_SYMBOL_K = 1000, RATE_MIN = 8 };
/* A try that failed is repeated once so many symbols have come that they pay for it, with
 * about 0.1 ms each. Else a few datagrams a second could keep a receiver busy. */
#define WORK_PER_SYMBOL 50000
#define SYMBOLS_MAX (UINT64_C(1) << 26)

uint64_t fcast_reception_n(const struct fcast_fti *fti, uint32_t k)
{
    /* Other programs give a short Reed-Solomon block as many repair symbols as a full one. */
    return fti->fec == FCAST_RS ? RS_N_MAX : fcast_block_n(fti, k);
}

static uint64_t all_symbols(const struct fcast_fti *fti, const struct fcast_partition *p)
{
    return p->large_blocks * fcast_reception_n(fti, p->large) +
           (p->blocks - p->large_blocks) * fcast_reception_n(fti, p->small);
}

/* Returns the size of the tables of two codes (Reed-Solomon: 33 bytes per coefficient), and of an
 * LDPC decoder. */
static uint64_t codes_bytes(const struct fcast_fti *fti, const struct fcast_partition *p)
{
    const uint32_t k = p->large;
    const uint64_t n = fcast_reception_n(fti, k);
    const uint64_t kinds = p->large_blocks && p->large_blocks < p->blocks ? 2 : 1;

    if (fti->fec == FCAST_RS)
        return (uint64_t)k * 2 * 33 * (RS_N_MAX - k);
    if (fti->fec == FCAST_NO_CODE || n <= k)
        return 0;
    return kinds * ldpc_matrix_bytes(fcast_ldpc_kind(fti), k, (uint32_t)n, fti->n1) +
           ldpc_decoder_bytes(k, (uint32_t)n);
}

uint64_t fcast_reception_bytes(const struct fcast_fti *fti)
{
    const struct fcast_partition p = fcast_partition_of(fti);
    uint64_t symbols = all_symbols(fti, &p);

    if (symbols > SYMBOLS_MAX ||
        (fti->fec != FCAST_RS && fti->n_max > (uint64_t)RATE_MIN * fti->block_max))
        return 0;
    return symbols / 8 + p.blocks * sizeof(struct fcast_block_state) +
           (symbols - p.symbols) * sizeof(struct fcast_slot) + codes_bytes(fti, &p) + 1;
}

uint64_t fcast_reception_block_bytes(const struct fcast_fti *fti)
{
    const struct fcast_partition p = fcast_partition_of(fti);
    uint32_t k = p.large_blocks ? p.large : p.small;

    return fti->fec == FCAST_NO_CODE || !p.blocks ? 0
                                                  : fcast_reception_n(fti, k) * fti->symbol_bytes;
}

static uint64_t bit_of(const struct fcast_reception *r, struct fcast_symbol s)
{
    const struct fcast_partition *p = &r->partition;
    uint64_t large = s.block < p->large_blocks ? s.block : p->large_blocks;

    return large * r->large_n + (s.block - large) * r->small_n + s.id;
}

bool fcast_reception_has(const struct fcast_reception *r, struct fcast_symbol s)
{
    uint64_t bit = bit_of(r, s);

    return r->have[bit / WORD_BITS] >> bit % WORD_BITS & 1;
}

size_t fcast_source_len(const struct fcast_reception *r, uint64_t number)
{
    uint64_t at = number * r->fti.symbol_bytes;
    uint64_t left = at < r->fti.length ? r->fti.length - at : 0; /* none: padding */

    return left < r->fti.symbol_bytes ? (size_t)left : r->fti.symbol_bytes;
}

/* Makes room for one more slot. */
static bool grow(struct fcast_reception *r)
{
    if (r->slot_count < r->slot_room)
        return true;
    uint32_t room = r->slot_room ? 2 * r->slot_room : FIRST_SLOTS;
    struct fcast_slot *more = reallocarray(r->slots, room, sizeof *more);
    if (!more)
        return false;
    r->slots = more;
    r->slot_room = room;
    return true;
}

/* With fewer than slightly more than k symbols, decoding is likely to fail and not worth its
 * cost. */
static uint32_t first_try(const struct fcast_reception *r, uint32_t k)
{
    bool is_ldpc = r->fti.fec == FCAST_TRIANGLE || r->fti.fec == FCAST_STAIRCASE;

    return is_ldpc && k > EVERY_SYMBOL_K ? k + k / 256 : k;
}

/* Returns whether the block's symbols suffice without decoding it here. */
static bool has_enough(const struct fcast_reception *r, const struct fcast_block_state *b,
                       uint32_t k)
{
    return (r->place.keep ? b->received : b->source) == k;
}

static void finish_block(struct fcast_reception *r, uint32_t block)
{
    r->blocks[block].received = FCAST_RECEIVED_ALL;
    r->open_blocks--;
}

/* Records that the symbol is in the stores. */
static void count(struct fcast_reception *r, struct fcast_symbol s, uint32_t k)
{
    struct fcast_block_state *b = &r->blocks[s.block];
    uint64_t bit = bit_of(r, s);

    r->have[bit / WORD_BITS] |= UINT64_C(1) << bit % WORD_BITS;
    b->received++;
    b->source += s.id < k;
    if (s.id >= k && !r->place.keep) {
        r->slots[r->slot_count] = (struct fcast_slot){s.id, b->repair};
        b->repair = ++r->slot_count;
    }
}

/* Restores one note of an earlier run. */
static bool restore(struct fcast_reception *r, struct fcast_symbol s)
{
    if (s.block >= r->partition.blocks || r->blocks[s.block].received == FCAST_RECEIVED_ALL)
        return false;
    uint32_t k = fcast_block_k(&r->partition, s.block);
    if (s.id == FCAST_BLOCK_DONE) {
        finish_block(r, s.block);
        return true;
    }
    if (s.id >= fcast_reception_n(&r->fti, k) || fcast_reception_has(r, s) ||
        (s.id >= k && !r->place.keep && !grow(r)))
        return false;
    count(r, s, k);
    if (has_enough(r, &r->blocks[s.block], k))
        finish_block(r, s.block);
    return true;
}

int fcast_reception_init(struct fcast_reception *r, const struct fcast_fti *fti, int rs_kind,
                         const struct fcast_place *place, uint64_t *restored)
{
    *r = (struct fcast_reception){.fti = *fti, .rs_kind = rs_kind, .place = *place};
    r->partition = fcast_partition_of(fti);
    r->large_n = fcast_reception_n(fti, r->partition.large);
    r->small_n = fcast_reception_n(fti, r->partition.small);
    r->open_blocks = r->partition.blocks;
    r->have = calloc(all_symbols(fti, &r->partition) / WORD_BITS + 1, sizeof *r->have);
    r->blocks = calloc(r->partition.blocks + 1u, sizeof *r->blocks);
    if (!r->have || !r->blocks) {
        fcast_reception_free(r);
        return -1;
    }
    for (uint32_t i = 0; i < r->partition.blocks; i++)
        r->blocks[i].try_at = first_try(r, fcast_block_k(&r->partition, i));
    struct fcast_symbol s;
    for (uint64_t i = 0; place->noted && place->noted(place->ctx, i, &s); i++)
        *restored += restore(r, s);
    return 0;
}

void fcast_reception_free(struct fcast_reception *r)
{
    free(r->have);
    free(r->blocks);
    free(r->slots);
    ldpc_matrix_free(r->matrices[0]);
    ldpc_matrix_free(r->matrices[1]);
    rs_code_free(r->codes[0]);
    rs_code_free(r->codes[1]);
    *r = (struct fcast_reception){0};
}

static void note(const struct fcast_reception *r, struct fcast_symbol s)
{
    if (r->place.note)
        r->place.note(r->place.ctx, s);
}

static int store(struct fcast_reception *r, struct fcast_symbol s, uint32_t k, const uint8_t *bytes)
{
    const struct fcast_store *repair = &r->place.repair, *data = &r->place.data;

    if (s.id >= k)
        return repair->write(repair->ctx, (uint64_t)r->slot_count * r->fti.symbol_bytes, bytes,
                             r->fti.symbol_bytes);
    uint64_t number = fcast_block_first(&r->partition, s.block) + s.id;
    size_t len = fcast_source_len(r, number);
    return len ? data->write(data->ctx, number * r->fti.symbol_bytes, bytes, len) : 0;
}

/* Completes the block if enough symbols have arrived. */
static void try_block(struct fcast_reception *r, uint32_t block, uint32_t k)
{
    struct fcast_block_state *b = &r->blocks[block];
    bool is_whole = b->source == k;

    if (!is_whole && !fcast_decode_block(r, block)) {
        uint64_t step = k > EVERY_SYMBOL_K ? k / 512 : 1, dear = r->work / WORK_PER_SYMBOL;
        b->try_at = b->received + (uint32_t)(step > dear ? step : dear);
        return;
    }
    r->decoded += !is_whole;
    finish_block(r, block);
    note(r, (struct fcast_symbol){block, FCAST_BLOCK_DONE});
}

enum fcast_taken fcast_reception_take(struct fcast_reception *r, struct fcast_symbol s,
                                      const uint8_t *bytes)
{
    if (s.block >= r->partition.blocks)
        return FCAST_BAD_SYMBOL;
    uint32_t k = fcast_block_k(&r->partition, s.block);
    if (s.id >= fcast_reception_n(&r->fti, k))
        return FCAST_BAD_SYMBOL;
    struct fcast_block_state *b = &r->blocks[s.block];
    if (b->received == FCAST_RECEIVED_ALL || fcast_reception_has(r, s))
        return FCAST_REDUNDANT;
    if (r->place.keep ? r->place.keep(r->place.ctx, s, bytes) < 0
                      : (s.id >= k && !grow(r)) || store(r, s, k, bytes) < 0) {
        r->store_errors++;
        return FCAST_NOT_STORED;
    }
    count(r, s, k);
    if (r->place.keep) {
        if (has_enough(r, b, k))
            finish_block(r, s.block);
        return FCAST_TAKEN;
    }
    note(r, s);
    if (b->source == k || b->received >= b->try_at)
        try_block(r, s.block, k);
    return FCAST_TAKEN;
}

void fcast_reception_try(struct fcast_reception *r)
{
    for (uint32_t i = 0; i < r->partition.blocks; i++) {
        uint32_t k = fcast_block_k(&r->partition, i);
        if (r->blocks[i].received != FCAST_RECEIVED_ALL && r->blocks[i].received >= k)
            try_block(r, i, k);
    }
}

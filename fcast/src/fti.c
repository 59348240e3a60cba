/* SPDX-License-Identifier: Apache-2.0 */
#include "fti.h"

#include <assert.h>

#include "bytes.h"
#include "fec/ldpc.h"
#include "fec/rs.h"

enum { NO_CODE_LEN = 14, LDPC_LEN = 18, RS_LEN = 10 };
enum { BITS_20 = 0xfffff };

/* Returns how many bits of a payload ID hold the block number. */
static unsigned block_bits(uint8_t fec)
{
    return fec == FCAST_NO_CODE ? 16 : fec == FCAST_RS ? 24 : 12;
}

static bool is_ldpc(uint8_t fec)
{
    return fec == FCAST_STAIRCASE || fec == FCAST_TRIANGLE;
}

static bool is_code_good(const struct fcast_fti *f)
{
    switch (f->fec) {
    case FCAST_NO_CODE: return f->block_max <= UINT16_MAX + 1u && f->n_max == 0;
    case FCAST_RS: return f->n_max > f->block_max && f->n_max <= RS_N_MAX;
    case FCAST_STAIRCASE:
    case FCAST_TRIANGLE:
        return f->n_max >= f->block_max && f->n_max <= BITS_20 && f->n1 >= LDPC_N1_MIN &&
               f->n1 <= LDPC_N1_MAX && f->seed >= 1 && f->seed <= LDPC_SEED_MAX;
    default: return false;
    }
}

bool fcast_fti_is_good(const struct fcast_fti *f)
{
    if (!f->symbol_bytes || !f->block_max || f->length > FCAST_LENGTH_MAX || !is_code_good(f))
        return false;
    uint64_t symbols = (f->length + f->symbol_bytes - 1) / f->symbol_bytes;
    return (symbols + f->block_max - 1) / f->block_max <= UINT64_C(1) << block_bits(f->fec);
}

bool fcast_fti_get(uint8_t fec, const uint8_t *at, size_t len, struct fcast_fti *out)
{
    *out = (struct fcast_fti){.fec = fec};
    size_t want = fec == FCAST_NO_CODE ? NO_CODE_LEN : is_ldpc(fec) ? LDPC_LEN : RS_LEN;
    if (len != want || (fec != FCAST_NO_CODE && fec != FCAST_RS && !is_ldpc(fec)))
        return false;
    out->length = get_be(at, 6);
    if (fec == FCAST_NO_CODE) {
        out->symbol_bytes = (uint16_t)get_be(at + 8, 2);
        out->block_max = (uint32_t)get_be(at + 10, 4);
    } else if (fec == FCAST_RS) {
        out->symbol_bytes = (uint16_t)get_be(at + 6, 2);
        out->block_max = at[8];
        out->n_max = at[9];
    } else {
        uint64_t sizes = get_be(at + 8, 6); /* N1m3 3 bits, G 5, B 20, max_n 20 */
        out->symbol_bytes = (uint16_t)get_be(at + 6, 2);
        out->n1 = (uint8_t)((sizes >> 45) + LDPC_N1_MIN);
        out->block_max = sizes >> 20 & BITS_20;
        out->n_max = sizes & BITS_20;
        out->seed = (uint32_t)get_be(at + 14, 4);
        if ((sizes >> 40 & 31) > 1)
            return false; /* groups of symbols: we accept only one symbol per packet */
    }
    return fcast_fti_is_good(out);
}

size_t fcast_fti_put(uint8_t out[FCAST_FTI_MAX], const struct fcast_fti *f)
{
    uint8_t *at = put_be(out, f->length, 6);

    if (f->fec == FCAST_NO_CODE) {
        at = put_be(at, 0, 2);
        at = put_be(at, f->symbol_bytes, 2);
        at = put_be(at, f->block_max, 4);
    } else if (f->fec == FCAST_RS) {
        at = put_be(at, f->symbol_bytes, 2);
        at = put_be(at, f->block_max, 1);
        at = put_be(at, f->n_max, 1);
    } else {
        at = put_be(at, f->symbol_bytes, 2);
        at = put_be(at,
                    (uint64_t)(f->n1 - LDPC_N1_MIN) << 45 | UINT64_C(1) << 40 |
                        (uint64_t)f->block_max << 20 | f->n_max,
                    6);
        at = put_be(at, f->seed, 4);
    }
    return (size_t)(at - out);
}

struct fcast_symbol fcast_payload_id_get(uint8_t fec, const uint8_t bytes[FCAST_PAYLOAD_ID])
{
    uint32_t id = (uint32_t)get_be(bytes, FCAST_PAYLOAD_ID);
    unsigned bits = 32 - block_bits(fec);

    return (struct fcast_symbol){id >> bits, id & ((1u << bits) - 1)};
}

void fcast_payload_id_put(uint8_t fec, struct fcast_symbol s, uint8_t out[FCAST_PAYLOAD_ID])
{
    put_be(out, s.block << (32 - block_bits(fec)) | s.id, FCAST_PAYLOAD_ID);
}

struct fcast_partition fcast_partition_of(const struct fcast_fti *f)
{
    struct fcast_partition p = {.symbols = (f->length + f->symbol_bytes - 1) / f->symbol_bytes};

    if (!p.symbols)
        return p;
    p.blocks = (uint32_t)((p.symbols + f->block_max - 1) / f->block_max);
    if (f->is_padded)
        p.symbols = (uint64_t)p.blocks * f->block_max;
    p.large = (uint32_t)((p.symbols + p.blocks - 1) / p.blocks);
    p.small = (uint32_t)(p.symbols / p.blocks);
    p.large_blocks = (uint32_t)(p.symbols - (uint64_t)p.small * p.blocks);
    return p;
}

uint32_t fcast_block_k(const struct fcast_partition *p, uint32_t block)
{
    return block < p->large_blocks ? p->large : p->small;
}

uint64_t fcast_block_first(const struct fcast_partition *p, uint32_t block)
{
    uint32_t large = block < p->large_blocks ? block : p->large_blocks;

    return (uint64_t)large * p->large + (uint64_t)(block - large) * p->small;
}

uint32_t fcast_block_n(const struct fcast_fti *f, uint32_t k)
{
    switch (f->fec) {
    case FCAST_NO_CODE: return k;
    case FCAST_RS: {
        /* RFC 5510 5.1: n = floor(k * max_n / B). */
        uint32_t n = (uint32_t)((uint64_t)k * f->n_max / f->block_max);
        return n > k ? n : k + 1;
    }
    default: {
        uint32_t n = (uint32_t)((uint64_t)k * f->n_max / f->block_max);
        /* A block too small for the code's matrix has no repair symbols. */
        return k >= 2 && n > k && n - k >= f->n1 ? n : k;
    }
    }
}

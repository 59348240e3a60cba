/* SPDX-License-Identifier: Apache-2.0 */
#include "encode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fec/rs.h"
#include "ldpc_kind.h"

enum { SEED_ATTEMPTS = 30, SEED_TRIALS = 3, SMALL_TRIALS = 30, SMALL_K = 2000 };

/* Reads `count` consecutive source symbols, with zeroes after the object's end. */
static int read_symbols(fcast_read_fn *read, void *ctx, const struct fcast_fti *fti,
                        uint64_t number, uint32_t count, uint8_t *out)
{
    const uint64_t at = number * fti->symbol_bytes, left = at < fti->length ? fti->length - at : 0;
    const size_t all = (size_t)count * fti->symbol_bytes, len = left < all ? (size_t)left : all;

    memset(out + len, 0, all - len);
    return len ? read(ctx, at, out, len) : 0;
}

int fcast_read_symbol(fcast_read_fn *read, void *ctx, const struct fcast_fti *fti, uint64_t number,
                      uint8_t *out)
{
    return read_symbols(read, ctx, fti, number, 1, out);
}

/* A block in memory: n symbols and pointers to them. */
struct block {
    uint8_t *bytes, **symbols;
};

static bool block_init(struct block *b, uint32_t n, size_t symbol_bytes)
{
    b->bytes = calloc(n, symbol_bytes);
    b->symbols = calloc(n, sizeof *b->symbols);
    if (!b->bytes || !b->symbols)
        return false;
    for (uint32_t i = 0; i < n; i++)
        b->symbols[i] = b->bytes + (size_t)i * symbol_bytes;
    return true;
}

static void block_free(struct block *b)
{
    free(b->bytes);
    free(b->symbols);
}

/* Computes repair symbols k to n - 1 of a block whose source symbols are present. */
static int encode_block(const struct fcast_fti *fti, int rs_kind, uint32_t k, uint32_t n,
                        struct block *b)
{
    const uint8_t *const *source = (const uint8_t *const *)b->symbols;

    if (fti->fec == FCAST_RS) {
        struct rs_code *code = rs_code_new((enum rs_kind)rs_kind, k, n);
        if (!code)
            return -1;
        rs_encode(code, fti->symbol_bytes, source, k, n - k, b->symbols + k);
        rs_code_free(code);
        return 0;
    }
    struct ldpc_matrix *m = ldpc_matrix_new(fcast_ldpc_kind(fti), k, n, fti->n1, fti->seed);
    if (!m)
        return -1;
    int error = ldpc_encode(m, fti->symbol_bytes, source, b->symbols + k);
    ldpc_matrix_free(m);
    errno = error;
    return error ? -1 : 0;
}

uint64_t fcast_repair_bytes(const struct fcast_fti *fti)
{
    const struct fcast_partition p = fcast_partition_of(fti);
    const uint64_t large = p.large_blocks, small = p.blocks - p.large_blocks;

    return (large * (fcast_block_n(fti, p.large) - p.large) +
            small * (fcast_block_n(fti, p.small) - p.small)) *
           fti->symbol_bytes;
}

int fcast_encode_block(const struct fcast_fti *fti, int rs_kind, uint32_t block,
                       fcast_read_fn *read, void *ctx, const struct fcast_store *repair,
                       uint64_t at)
{
    const struct fcast_partition p = fcast_partition_of(fti);
    const uint32_t k = fcast_block_k(&p, block), n = fcast_block_n(fti, k);
    const uint64_t first = fcast_block_first(&p, block);
    const size_t size = fti->symbol_bytes;
    struct block b = {0};
    int result = 0;

    if (n == k)
        return 0;
    if (!block_init(&b, n, size)) {
        errno = ENOMEM;
        result = -1;
    }
    if (result == 0)
        result = read_symbols(read, ctx, fti, first, k, b.bytes);
    if (result == 0)
        result = encode_block(fti, rs_kind, k, n, &b);
    if (result == 0)
        result = repair->write(repair->ctx, at, b.symbols[k], (n - k) * size);
    block_free(&b);
    return result;
}

int fcast_encode(const struct fcast_fti *fti, int rs_kind, fcast_read_fn *read, void *ctx,
                 const struct fcast_store *repair, uint64_t *at)
{
    const struct fcast_partition p = fcast_partition_of(fti);
    int result = 0;

    for (uint32_t i = 0; i < p.blocks && result == 0; i++) {
        uint32_t k = fcast_block_k(&p, i);
        result = fcast_encode_block(fti, rs_kind, i, read, ctx, repair, *at);
        *at += (uint64_t)(fcast_block_n(fti, k) - k) * fti->symbol_bytes;
    }
    return result;
}

uint32_t fcast_choose_seed(const struct fcast_fti *fti)
{
    const struct fcast_partition p = fcast_partition_of(fti);
    uint32_t k = p.large_blocks ? p.large : p.small, n = p.blocks ? fcast_block_n(fti, k) : 0;

    if (n <= k)
        return 1;
    /* Smaller blocks need more symbols, and more trials before a bad seed shows. */
    double limit = k >= 5000 ? 1.02 : k >= SMALL_K ? 1.03 : k >= 500 ? 1.06 : 1.2;
    return ldpc_choose_seed(fcast_ldpc_kind(fti), k, n, fti->n1, 1,
                            k < SMALL_K ? SMALL_TRIALS : SEED_TRIALS, limit, SEED_ATTEMPTS);
}

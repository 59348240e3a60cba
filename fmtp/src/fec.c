/* SPDX-License-Identifier: Apache-2.0 */
#include "fec.h"

#include <isa-l/erasure_code.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fec/gf8.h"

enum { ROWS = 6 }; /* parity rows made at once */

uint32_t fmtp_fec_groups(uint32_t nblocks, unsigned fec_k)
{
    return (uint32_t)(((uint64_t)nblocks + fec_k - 1) / fec_k);
}

static uint32_t first_of(uint32_t nblocks, uint32_t groups, uint32_t g)
{
    return (uint32_t)((uint64_t)g * nblocks / groups);
}

struct fmtp_fec_group fmtp_fec_group(uint32_t nblocks, unsigned fec_k, uint32_t g)
{
    uint32_t groups = fmtp_fec_groups(nblocks, fec_k);
    uint32_t first = first_of(nblocks, groups, g);

    return (struct fmtp_fec_group){first, first_of(nblocks, groups, g + 1) - first};
}

uint32_t fmtp_fec_group_of(uint32_t nblocks, unsigned fec_k, uint32_t block)
{
    /* The largest g with floor(g * n / G) <= block, which means g * n < (block + 1) * G. */
    uint64_t groups = fmtp_fec_groups(nblocks, fec_k);

    return (uint32_t)((((uint64_t)block + 1) * groups - 1) / nblocks);
}

/* Computes row `number` of the parity part of the generator matrix. */
static void parity_row(unsigned k, unsigned number, uint8_t *row)
{
    for (unsigned j = 0; j < k; j++)
        row[j] = gf_inv((uint8_t)((k + number) ^ j));
}

void fmtp_fec_encode(unsigned k, unsigned number, unsigned count, size_t block_bytes,
                     const uint8_t *const *blocks, uint8_t *const *out)
{
    uint8_t rows[ROWS * FMTP_FEC_MAX_K];

    for (unsigned at = 0; at < count; at += ROWS) {
        unsigned n = count - at < ROWS ? count - at : ROWS;
        for (unsigned i = 0; i < n; i++)
            parity_row(k, number + at + i, rows + (size_t)i * k);
        gf8_combine(block_bytes, k, n, rows, blocks, out + at);
    }
}

/* Returns whether these are valid numbers of missing blocks and of parity symbols for a group of k,
 * without a repeated block. lost[j]: block j is missing. */
static bool is_loss(unsigned k, unsigned m, const uint8_t *missing, const uint8_t *numbers,
                    bool lost[FMTP_FEC_MAX_K])
{
    if (k > FMTP_FEC_MAX_K || m > k || m > fmtp_fec_max_parity(k))
        return false;
    for (unsigned i = 0; i < m; i++) {
        if (missing[i] >= k || lost[missing[i]] || numbers[i] >= fmtp_fec_max_parity(k))
            return false;
        lost[missing[i]] = true;
    }
    return true;
}

int fmtp_fec_decode(unsigned k, size_t block_bytes, const uint8_t *const *blocks, unsigned m,
                    const uint8_t *missing, const uint8_t *numbers, const uint8_t *const *parity,
                    uint8_t *const *out)
{
    bool lost[FMTP_FEC_MAX_K] = {false};
    unsigned here = 0;

    if (!is_loss(k, m, missing, numbers, lost))
        return -1;
    uint8_t *made = malloc(2 * (size_t)m * k + 1);
    if (!made)
        return -1;
    uint8_t *rows = made + (size_t)m * k;
    const uint8_t *in[FMTP_FEC_MAX_K];
    uint8_t present[FMTP_FEC_MAX_K];
    for (unsigned j = 0; j < k; j++)
        if (!lost[j]) {
            in[here] = blocks[j];
            present[here++] = (uint8_t)j;
        }
    for (unsigned i = 0; i < m; i++) {
        in[here + i] = parity[i];
        parity_row(k, numbers[i], made + (size_t)i * k);
    }
    /* A submatrix of a Cauchy matrix always has an inverse, unless a number is repeated. */
    const struct gf8_loss loss = {k, m, present, missing, made};
    int result = gf8_recovery(&loss, rows);
    if (result == 0)
        gf8_combine(block_bytes, k, m, rows, in, out);
    free(made);
    return result;
}

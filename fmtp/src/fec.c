/* SPDX-License-Identifier: Apache-2.0 */
#include "fec.h"

#include <isa-l/erasure_code.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 6,  /* output symbols per pass: what ISA-L computes at once */
    TABLE = 32 /* bytes of multiplication table per coefficient */
};

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
    /* The largest g with floor(g * n / G) <= block, that is g * n < (block + 1) * G. */
    uint64_t groups = fmtp_fec_groups(nblocks, fec_k);

    return (uint32_t)((((uint64_t)block + 1) * groups - 1) / nblocks);
}

/* Row `number` of the parity part of the generator matrix. */
static void parity_row(unsigned k, unsigned number, uint8_t *row)
{
    for (unsigned j = 0; j < k; j++)
        row[j] = gf_inv((uint8_t)((k + number) ^ j));
}

/* out[i] = sum of coefficients[i][j] * in[j], ROWS at a time. */
static void combine(size_t bytes, unsigned k, unsigned rows, uint8_t *coefficients,
                    const uint8_t *const *in, uint8_t *const *out)
{
    uint8_t tables[ROWS * (FMTP_FEC_MAX_K + 1) * TABLE];

    for (unsigned at = 0; at < rows; at += ROWS) {
        unsigned n = rows - at < ROWS ? rows - at : ROWS;
        ec_init_tables((int)k, (int)n, coefficients + (size_t)at * k, tables);
        ec_encode_data((int)bytes, (int)k, (int)n, tables, (uint8_t **)in, (uint8_t **)out + at);
    }
}

void fmtp_fec_encode(unsigned k, unsigned number, unsigned count, size_t block_bytes,
                     const uint8_t *const *blocks, uint8_t *const *out)
{
    uint8_t rows[ROWS * FMTP_FEC_MAX_K];

    for (unsigned at = 0; at < count; at += ROWS) {
        unsigned n = count - at < ROWS ? count - at : ROWS;
        for (unsigned i = 0; i < n; i++)
            parity_row(k, number + at + i, rows + (size_t)i * k);
        combine(block_bytes, k, n, rows, blocks, out + at);
    }
}

int fmtp_fec_decode(unsigned k, size_t block_bytes, const uint8_t *const *blocks, unsigned m,
                    const uint8_t *missing, const uint8_t *numbers, const uint8_t *const *parity,
                    uint8_t *const *out)
{
    uint8_t lost[FMTP_FEC_MAX_K] = {0};
    unsigned npresent = 0;
    int result = -1;

    if (k > FMTP_FEC_MAX_K || m > k || m > fmtp_fec_max_parity(k))
        return -1;
    for (unsigned i = 0; i < m; i++) {
        if (missing[i] >= k || lost[missing[i]] || numbers[i] >= fmtp_fec_max_parity(k))
            return -1;
        lost[missing[i]] = 1;
    }
    /* With P the parity, A the matrix's columns of the present blocks B and C those of the missing
     * ones M: P = A B + C M, so M = C^-1 A B + C^-1 P: one pass over k symbols. C is m x m and, as
     * part of a Cauchy matrix, always has an inverse (unless a number comes twice). */
    uint8_t *rows = malloc((size_t)m * k + 2 * (size_t)m * m + 1);
    if (!rows)
        return -1;
    uint8_t *square = rows + (size_t)m * k;
    uint8_t *inverse = square + (size_t)m * m;
    const uint8_t *in[FMTP_FEC_MAX_K];
    uint8_t present[FMTP_FEC_MAX_K];
    for (unsigned j = 0; j < k; j++)
        if (!lost[j]) {
            in[npresent] = blocks[j];
            present[npresent++] = (uint8_t)j;
        }
    for (unsigned i = 0; i < m; i++) {
        in[npresent + i] = parity[i];
        for (unsigned j = 0; j < m; j++)
            square[i * m + j] = gf_inv((uint8_t)((k + numbers[i]) ^ missing[j]));
    }
    if (m && gf_invert_matrix(square, inverse, (int)m) < 0)
        goto out;
    memset(rows, 0, (size_t)m * k);
    uint8_t row[FMTP_FEC_MAX_K];
    for (unsigned p = 0; p < m; p++) {
        parity_row(k, numbers[p], row);
        for (unsigned i = 0; i < m; i++) {
            uint8_t c = inverse[i * m + p];
            for (unsigned j = 0; j < npresent; j++)
                rows[(size_t)i * k + j] ^= gf_mul(c, row[present[j]]);
            rows[(size_t)i * k + npresent + p] = c;
        }
    }
    combine(block_bytes, k, m, rows, in, out);
    result = 0;
out:
    free(rows);
    return result;
}

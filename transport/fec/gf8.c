/* SPDX-License-Identifier: Apache-2.0 */
#include "gf8.h"

#include <assert.h>
#include <isa-l/erasure_code.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 6,  /* output symbols per pass: as many as ISA-L computes at once */
    TABLE = 32 /* bytes of the multiplication table of a coefficient */
};

void gf8_combine(size_t size_bytes, unsigned k, unsigned count, const uint8_t *rows,
                 const uint8_t *const in[], uint8_t *const out[])
{
    uint8_t tables[ROWS * GF8_N_MAX * TABLE];

    assert(k <= GF8_N_MAX && size_bytes <= INT_MAX);
    for (unsigned at = 0; at < count; at += ROWS) {
        unsigned n = count - at < ROWS ? count - at : ROWS;
        ec_init_tables((int)k, (int)n, (uint8_t *)rows + (size_t)at * k, tables);
        ec_encode_data((int)size_bytes, (int)k, (int)n, tables, (uint8_t **)in,
                       (uint8_t **)out + at);
    }
}

/* Let P be the repair symbols, B and M the present and the missing source symbols, A and C their
 * columns: P = A B + C M, so M = C^-1 A B + C^-1 P. One pass over k symbols. */
int gf8_recovery(const struct gf8_loss *loss, uint8_t *rows)
{
    const unsigned k = loss->k, m = loss->m, here = k - m;
    uint8_t *square = malloc(2 * (size_t)m * m + 1);

    if (!square)
        return -1;
    uint8_t *inverse = square + (size_t)m * m;
    for (unsigned i = 0; i < m; i++)
        for (unsigned j = 0; j < m; j++)
            square[i * m + j] = loss->parity[(size_t)i * k + loss->missing[j]];
    int result = m ? gf_invert_matrix(square, inverse, (int)m) : 0;
    memset(rows, 0, (size_t)m * k);
    for (unsigned i = 0; result == 0 && i < m; i++)
        for (unsigned p = 0; p < m; p++) {
            const uint8_t c = inverse[i * m + p], *parity = loss->parity + (size_t)p * k;
            for (unsigned j = 0; j < here; j++)
                rows[(size_t)i * k + j] ^= gf_mul(c, parity[loss->present[j]]);
            rows[(size_t)i * k + here + p] = c;
        }
    free(square);
    return result < 0 ? -1 : 0;
}

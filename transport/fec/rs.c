/* SPDX-License-Identifier: Apache-2.0 */
#include "rs.h"

#include <assert.h>
#include <errno.h>
#include <isa-l/erasure_code.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gf8.h"

enum { TABLE_BYTES = 32 }; /* bytes of ISA-L's multiplication table per coefficient */

struct rs_code {
    unsigned k, n;
    uint8_t *parity; /* n - k rows of k coefficients */
    uint8_t *tables; /* the same, expanded for ISA-L */
};

static uint8_t power(uint8_t base, unsigned exponent)
{
    uint8_t result = 1;
    while (exponent-- > 0)
        result = gf_mul(result, base);
    return result;
}

static uint8_t point(enum rs_kind kind, unsigned number)
{
    switch (kind) {
    case RS_RFC5510: return power(2, number);
    case RS_RIZZO: return number == 0 ? 0 : power(2, number - 1);
    default: return (uint8_t)number;
    }
}

/* The Vandermonde column of a symbol: powers 0 to k-1 of its point. */
static void column(enum rs_kind kind, unsigned k, unsigned number, uint8_t *out)
{
    uint8_t base = point(kind, number), value = 1;
    for (unsigned i = 0; i < k; i++) {
        out[i] = value;
        value = gf_mul(value, base);
    }
}

/* The parity row of id j is the inverse of the first k columns times column j. */
static bool make_parity(struct rs_code *code, enum rs_kind kind)
{
    unsigned k = code->k;
    uint8_t *square = malloc((size_t)k * k), *inverse = malloc((size_t)k * k), *values = malloc(k);
    bool is_made = square && inverse && values;
    if (is_made) {
        for (unsigned j = 0; j < k; j++) {
            column(kind, k, j, values);
            for (unsigned i = 0; i < k; i++)
                square[i * k + j] = values[i];
        }
        /* The points differ, so a Vandermonde matrix always has an inverse. */
        is_made = gf_invert_matrix(square, inverse, (int)k) == 0;
        assert(is_made);
    }
    for (unsigned j = k; is_made && j < code->n; j++) {
        uint8_t *row = code->parity + (size_t)(j - k) * k;
        column(kind, k, j, values);
        for (unsigned i = 0; i < k; i++) {
            row[i] = 0;
            for (unsigned l = 0; l < k; l++)
                row[i] ^= gf_mul(inverse[i * k + l], values[l]);
        }
    }
    free(square);
    free(inverse);
    free(values);
    return is_made;
}

struct rs_code *rs_code_new(enum rs_kind kind, unsigned k, unsigned n)
{
    if (k < 1 || n <= k || n > RS_N_MAX) {
        errno = EINVAL;
        return NULL;
    }
    struct rs_code *code = calloc(1, sizeof *code);
    if (!code)
        return NULL;
    code->k = k;
    code->n = n;
    code->parity = malloc((size_t)(n - k) * k);
    code->tables = malloc((size_t)(n - k) * k * TABLE_BYTES);
    if (!code->parity || !code->tables || !make_parity(code, kind)) {
        rs_code_free(code);
        errno = ENOMEM;
        return NULL;
    }
    ec_init_tables((int)k, (int)(n - k), code->parity, code->tables);
    return code;
}

void rs_code_free(struct rs_code *code)
{
    if (!code)
        return;
    free(code->parity);
    free(code->tables);
    free(code);
}

void rs_encode(const struct rs_code *code, size_t size_bytes, const uint8_t *const source[],
               unsigned first, unsigned count, uint8_t *const repair[])
{
    assert(first >= code->k && count <= code->n - first && size_bytes <= INT_MAX);
    uint8_t *tables = code->tables + (size_t)(first - code->k) * code->k * TABLE_BYTES;
    ec_encode_data((int)size_bytes, (int)code->k, (int)count, tables, (uint8_t **)source,
                   (uint8_t **)repair);
}

/* The symbols that have arrived, in the order that the equations use. */
struct present {
    const uint8_t *in[RS_N_MAX]; /* source symbols that arrived, then repair symbols */
    uint8_t source[RS_N_MAX], missing[RS_N_MAX]; /* ids of source symbols: arrived, missing */
    uint8_t repair[RS_N_MAX];                    /* parity rows of the repair symbols */
    unsigned source_count, repair_count, missing_count;
};

static bool sort_out(const struct rs_code *code, const unsigned ids[],
                     const uint8_t *const symbols[], struct present *p)
{
    const uint8_t *at[RS_N_MAX] = {NULL};
    bool is_here[RS_N_MAX] = {false};
    *p = (struct present){.source_count = 0};
    for (unsigned i = 0; i < code->k; i++) {
        if (ids[i] >= code->n || is_here[ids[i]])
            return false;
        is_here[ids[i]] = true;
        at[ids[i]] = symbols[i];
    }
    for (unsigned id = 0; id < code->k; id++) {
        if (is_here[id]) {
            p->in[p->source_count] = at[id];
            p->source[p->source_count++] = (uint8_t)id;
        } else {
            p->missing[p->missing_count++] = (uint8_t)id;
        }
    }
    for (unsigned id = code->k; id < code->n; id++)
        if (is_here[id]) {
            p->in[p->source_count + p->repair_count] = at[id];
            p->repair[p->repair_count++] = (uint8_t)(id - code->k);
        }
    assert(p->repair_count == p->missing_count);
    return true;
}

int rs_decode(const struct rs_code *code, size_t size_bytes, const unsigned ids[],
              const uint8_t *const symbols[], uint8_t *const out[])
{
    const unsigned k = code->k;
    struct present p;
    if (!sort_out(code, ids, symbols, &p))
        return EINVAL;
    const unsigned m = p.missing_count;
    uint8_t *targets[RS_N_MAX], *made = malloc(2 * (size_t)m * k + 1);
    if (!made)
        return ENOMEM;
    uint8_t *rows = made + (size_t)m * k;
    for (unsigned i = 0; i < m; i++) {
        memcpy(made + (size_t)i * k, code->parity + (size_t)p.repair[i] * k, k);
        targets[i] = out[p.missing[i]];
    }
    /* With any k of n symbols the matrix always has an inverse. */
    const struct gf8_loss loss = {k, m, p.source, p.missing, made};
    bool is_solved = gf8_recovery(&loss, rows) == 0;
    if (is_solved)
        gf8_combine(size_bytes, k, m, rows, p.in, targets);
    free(made);
    return is_solved ? 0 : ENOMEM;
}

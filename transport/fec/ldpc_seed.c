/* SPDX-License-Identifier: Apache-2.0 */
/* Measure how many symbols a matrix needs in simulated receptions, and choose a seed that needs
 * few. */
#include <errno.h>
#include <stdlib.h>

#include "ldpc_decoder.h"

/* A seed with twins ranks below any seed without them. */
#define TWINS_COST 100.0

/* Returns whether the first `count` symbols of `order` decode. -1: no memory. */
static int decodes(const struct ldpc_matrix *m, const uint32_t *order, uint32_t count, bool ml)
{
    struct ldpc_decoder *d = ldpc_decoder_new(m);
    if (!d)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        ldpc_decoder_add(d, order[i]);
    bool is_done = ldpc_decoder_is_complete(d) || (ml && ldpc_decoder_solve(d));
    int result = !is_done && errno == ENOMEM && ml ? -1 : is_done;
    ldpc_decoder_free(d);
    return result;
}

/* The smallest number of leading symbols of `order` that decode; 0 without memory. */
static uint32_t needed(const struct ldpc_matrix *m, const uint32_t *order, bool ml)
{
    uint32_t low = m->k, high = m->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int found = decodes(m, order, middle, ml);
        if (found < 0)
            return 0;
        if (found)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* All ids in a random order that *state determines. NULL: no memory. */
static uint32_t *shuffled(const struct ldpc_matrix *m, uint32_t *state)
{
    uint32_t *order = reallocarray(NULL, m->n, sizeof *order);
    if (!order)
        return NULL;
    for (uint32_t i = 0; i < m->n; i++)
        order[i] = i;
    for (uint32_t i = m->n; i-- > 1;) {
        uint32_t j = ldpc_random(state, i + 1), id = order[i];
        order[i] = order[j];
        order[j] = id;
    }
    return order;
}

uint32_t ldpc_needed(const struct ldpc_matrix *m, uint32_t *state, bool ml)
{
    uint32_t *order = shuffled(m, state);
    uint32_t count = order ? needed(m, order, ml) : 0;

    free(order);
    if (count == 0)
        errno = ENOMEM;
    return count;
}

/* Returns whether no trial of ldpc_overhead() needs more than limit * k symbols. This is faster
 * than finding how many each needs. -1: no memory. */
static int is_within(const struct ldpc_matrix *m, unsigned trials, double limit)
{
    uint32_t state = m->seed, count = (uint32_t)(limit * m->k) + 1;
    int result = 1;

    while (count > m->n || (double)count / m->k > limit)
        count--;
    for (unsigned trial = 0; trial < trials && result > 0; trial++) {
        uint32_t *order = shuffled(m, &state);
        result = order ? decodes(m, order, count, true) : -1;
        free(order);
    }
    return result;
}

double ldpc_overhead(const struct ldpc_matrix *m, unsigned trials, bool ml, double *worst)
{
    uint32_t state = m->seed, most = 0;
    double sum = 0;
    for (unsigned trial = 0; trial < trials; trial++) {
        uint32_t count = ldpc_needed(m, &state, ml);
        if (count == 0)
            return 0;
        sum += count;
        if (count > most)
            most = count;
    }
    if (worst)
        *worst = (double)most / m->k;
    return trials ? sum / trials / m->k : 1;
}

static int rising(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* 64 bits that represent a row. */
static uint64_t row_hash(uint64_t row)
{
    uint64_t z = (row + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int ldpc_has_twins(const struct ldpc_matrix *m)
{
    uint64_t *columns = calloc(m->n, sizeof *columns);
    if (!columns)
        return -1;
    for (uint32_t row = 0; row < m->n - m->k; row++) {
        size_t count;
        const uint32_t *ids = ldpc_row(m, row, &count);
        for (size_t i = 0; i < count; i++)
            columns[ids[i]] ^= row_hash(row);
    }
    qsort(columns, m->n, sizeof *columns, rising);
    int found = 0;
    for (uint32_t i = 1; i < m->n && !found; i++)
        found = columns[i] == columns[i - 1];
    free(columns);
    return found;
}

uint32_t ldpc_choose_seed(enum ldpc_kind kind, uint32_t k, uint32_t n, unsigned n1, uint32_t seed,
                          unsigned trials, double limit, unsigned attempts)
{
    uint32_t best = 0;
    double least = 0;
    for (unsigned i = 0; i < attempts; i++) {
        uint32_t one = (seed - 1 + i) % LDPC_SEED_MAX + 1;
        struct ldpc_matrix *m = ldpc_matrix_new(kind, k, n, n1, one);
        if (!m)
            return 0;
        double worst = 0;
        int twins = ldpc_has_twins(m), within = twins == 0 ? is_within(m, trials, limit) : 0;
        bool failed =
            twins < 0 || within < 0 || (!within && ldpc_overhead(m, trials, true, &worst) == 0);
        ldpc_matrix_free(m);
        if (failed) {
            errno = ENOMEM;
            return 0;
        }
        if (twins)
            worst += TWINS_COST;
        if (within || best == 0 || worst < least) {
            best = one;
            least = worst;
        }
        if (within || worst <= limit)
            break;
    }
    return best;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How many symbols a matrix needs, from simulated receptions; a seed that does not need many. */
#include <errno.h>
#include <stdlib.h>

#include "ldpc_decoder.h"

/* Whether the first `count` symbols of `order` decode. -1: no memory. */
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

/* The smallest number of symbols of `order` that decode; 0 without memory. */
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

double ldpc_overhead(const struct ldpc_matrix *m, unsigned trials, bool ml, double *worst)
{
    uint32_t *order = reallocarray(NULL, m->n, sizeof *order);
    uint32_t state = m->seed, most = 0;
    double sum = 0;
    bool is_done = order != NULL;
    for (unsigned trial = 0; is_done && trial < trials; trial++) {
        for (uint32_t i = 0; i < m->n; i++)
            order[i] = i;
        for (uint32_t i = m->n; i-- > 1;) {
            uint32_t j = ldpc_random(&state, i + 1), id = order[i];
            order[i] = order[j];
            order[j] = id;
        }
        uint32_t count = needed(m, order, ml);
        is_done = count > 0;
        sum += count;
        if (count > most)
            most = count;
    }
    free(order);
    if (!is_done) {
        errno = ENOMEM;
        return 0;
    }
    if (worst)
        *worst = (double)most / m->k;
    return trials ? sum / trials / m->k : 1;
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
        double mean = ldpc_overhead(m, trials, true, &worst);
        ldpc_matrix_free(m);
        if (mean == 0)
            return 0;
        if (best == 0 || worst < least) {
            best = one;
            least = worst;
        }
        if (worst <= limit)
            break;
    }
    return best;
}

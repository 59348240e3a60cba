/* SPDX-License-Identifier: Apache-2.0 */
/* How many symbols LDPC with maximum likelihood needs: the distribution over seeds.
 *
 * Usage: fec-overhead triangle|staircase K N N1 SEEDS TRIALS [MEAN WORST]: simulates one reception
 * in random order for each seed from 1 on. With TRIALS above 0 it replaces each seed by the one
 * that a sender would choose from there after that many trials (in other orders). Prints percent
 * beyond K: mean, quantiles, worst and its seed. Exit status 1 if the mean is above MEAN or the
 * worst above WORST percent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ldpc.h"

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct run {
    enum ldpc_kind kind;
    uint32_t k, n, seeds;
    unsigned n1, trials;
};

/* Measure the percent beyond k of a reception with each seed; return the worst seed. */
static uint32_t measure(const struct run *r, double *percent)
{
    enum { ATTEMPTS = 20 };
    const double limit = 1.02;
    uint32_t worst = 0, state = 20150615;
    for (uint32_t i = 0; i < r->seeds; i++) {
        uint32_t seed = r->trials ? ldpc_choose_seed(r->kind, r->k, r->n, r->n1, i + 1, r->trials,
                                                     limit, ATTEMPTS)
                                  : i + 1;
        struct ldpc_matrix *m = seed ? ldpc_matrix_new(r->kind, r->k, r->n, r->n1, seed) : NULL;
        uint32_t needed = m ? ldpc_needed(m, &state, true) : 0;
        ldpc_matrix_free(m);
        if (needed == 0) {
            fprintf(stderr, "fec-overhead: no code with k = %u, n = %u, N1 = %u\n", r->k, r->n,
                    r->n1);
            exit(2);
        }
        percent[i] = 100.0 * (needed - r->k) / r->k;
        if (percent[i] > percent[worst])
            worst = i;
    }
    return worst + 1;
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    bool is_triangle = argc > 1 && strcmp(argv[1], "triangle") == 0;
    if ((argc != 7 && argc != 9) || (!is_triangle && strcmp(argv[1], "staircase") != 0) ||
        number(argv[5]) < 1) {
        fprintf(stderr, "usage: fec-overhead triangle|staircase K N N1 SEEDS TRIALS "
                        "[MEAN WORST (percent)]\n");
        return 2;
    }
    const struct run r = {.kind = is_triangle ? LDPC_TRIANGLE : LDPC_STAIRCASE,
                          .k = number(argv[2]),
                          .n = number(argv[3]),
                          .n1 = number(argv[4]),
                          .seeds = number(argv[5]),
                          .trials = number(argv[6])};
    double *percent = calloc(r.seeds, sizeof *percent), sum = 0;
    if (!percent)
        return 2;
    uint32_t worst = measure(&r, percent), seeds = r.seeds;
    qsort(percent, seeds, sizeof *percent, rising);
    for (uint32_t i = 0; i < seeds; i++)
        sum += percent[i];
    double mean = sum / seeds, most = percent[seeds - 1];
    printf(
        "%s k=%u n=%u N1=%u seeds=%u trials=%u percent: mean=%.3f p1=%.3f p50=%.3f p90=%.3f p99=%.3f "
        "worst=%.3f (seed %u)\n",
        argv[1], r.k, r.n, r.n1, seeds, r.trials, mean, percent[seeds / 100], percent[seeds / 2],
        percent[seeds - 1 - seeds / 10], percent[seeds - 1 - seeds / 100], most, worst);
    free(percent);
    bool is_above = argc == 9 && (mean > strtod(argv[7], NULL) || most > strtod(argv[8], NULL));
    if (is_above)
        fprintf(stderr, "fec-overhead: above %s %% (mean) or %s %% (worst)\n", argv[7], argv[8]);
    return is_above;
}

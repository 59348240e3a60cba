/* SPDX-License-Identifier: Apache-2.0
 *
 * Listening time on the simulated network: the number of datagrams sent until a receiver has the
 * file, divided by the file's symbols.
 *
 * Usage: fcast-listening FEC-ID K OVERHEAD SYMBOLS LOSS SEEDS [SYMBOL-BYTES]: 8 receivers per seed;
 * FEC-ID as in the RFCs (0, 3, 4, 5). Prints the mean, the worst, and the value of the formula for
 * groups of K (exact for Reed-Solomon).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim_kit.h"

enum { RECEIVERS = 8 };

/* The expected number of rounds over all groups. */
static double formula(double k, double groups, double loss)
{
    double last = 0, mean = 0, group = 0, term = pow(1 - loss, k);

    for (unsigned x = 0; last < 0.999999; x++) {
        group += term;
        double all = pow(group < 1 ? group : 1, groups);
        mean += (all - last) * (k + x) / k;
        last = all;
        term *= loss * (k + x) / (x + 1);
    }
    return mean;
}

int main(int argc, char **argv)
{
    double sum = 0, worst = 0;

    if (argc != 7 && argc != 8) {
        fprintf(stderr,
                "usage: fcast-listening FEC-ID K OVERHEAD SYMBOLS LOSS SEEDS [SYMBOL-BYTES]\n");
        return 2;
    }
    const double k = atof(argv[2]), symbols = atof(argv[4]), loss = atof(argv[5]);
    const unsigned bytes = argc == 8 ? (unsigned)atoi(argv[7]) : 64;
    const int seeds = atoi(argv[6]);
    for (int seed = 1; seed <= seeds; seed++) {
        const struct sim_config cfg = {.sender = {.tsi = 9,
                                                  .fec = (uint8_t)atoi(argv[1]),
                                                  .k = (uint32_t)k,
                                                  .overhead = atof(argv[3]),
                                                  .symbol_bytes = (uint16_t)bytes,
                                                  .order = FCAST_SHUFFLE},
                                       .receivers = RECEIVERS,
                                       .seed = (uint64_t)seed,
                                       .loss = loss};
        struct sim *s = sim_new(&cfg);
        sim_file(s, (uint64_t)symbols * bytes - 220); /* room for the header */
        sim_run(s, (uint64_t)(20 * symbols));
        for (unsigned i = 0; i < RECEIVERS; i++) {
            /* When the file was complete, not the descriptor that confirms it. */
            double one = (double)s->receivers[i].done_at / symbols;
            sum += one / (seeds * RECEIVERS);
            worst = one > worst ? one : worst;
            if (s->receivers[i].done != 1)
                fprintf(stderr, "fcast-listening: seed %d: receiver %u is not done\n", seed, i);
        }
        sim_free(s);
    }
    printf("fec=%s k=%.0f symbols=%.0f loss=%.3f receivers=%d mean=%.4f worst=%.4f formula=%.4f "
           "bound=%.4f\n",
           argv[1], k, symbols, loss, RECEIVERS * seeds, sum, worst,
           formula(k, ceil(symbols / k), loss), 1 / (1 - loss));
    return 0;
}

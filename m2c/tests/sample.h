/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of one quantity over the seeds, and their mean with Student's 95 % interval.
 */
#ifndef M2C_TESTS_SAMPLE_H
#define M2C_TESTS_SAMPLE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SAY(...) print_message("[   INFO   ] " __VA_ARGS__)

enum { LONG_SEEDS = 4, MOST_SEEDS = 20 }; /* M2C10 has 20 runs */

/* DOWNPOUR_TEST_LONG: LONG_SEEDS; "all": MOST_SEEDS; not set: 0. */
static inline unsigned seeds_asked(void)
{
    const char *asked = getenv("DOWNPOUR_TEST_LONG");

    return !asked ? 0 : strcmp(asked, "all") == 0 ? MOST_SEEDS : LONG_SEEDS;
}

static inline void assert_within(double found, double least, double most)
{
    if (!(found >= least && found <= most))
        print_error("found %.3f, expected %.3f to %.3f\n", found, least, most);
    assert_true(found >= least && found <= most);
}

struct sample {
    double sum, squares, least, most;
    unsigned count;
};

static inline void add(struct sample *s, double value)
{
    s->least = s->count ? fmin(s->least, value) : value;
    s->most = s->count ? fmax(s->most, value) : value;
    s->sum += value;
    s->squares += value * value;
    s->count++;
}

static inline double mean(const struct sample *s)
{
    return s->sum / s->count;
}

/* Returns half of the interval of the mean. */
static inline double half(const struct sample *s)
{
    const double t95 = s->count == LONG_SEEDS ? 3.182 : 2.093;

    assert_true(s->count == LONG_SEEDS || s->count == MOST_SEEDS);
    const double variance = (s->squares - s->sum * s->sum / s->count) / (s->count - 1);
    return t95 * sqrt(fmax(0, variance) / s->count);
}

/* Formats the mean and, with more than one seed, its interval. The texts of the last eight calls
 * remain valid. */
static inline const char *interval(const struct sample *s, int digits)
{
    static char texts[8][32];
    static unsigned next;
    char *text = texts[next++ % 8];

    if (s->count > 1)
        snprintf(text, sizeof texts[0], "%.*f +- %.*f", digits, mean(s), digits, half(s));
    else
        snprintf(text, sizeof texts[0], "%.*f", digits, mean(s));
    return text;
}

#endif

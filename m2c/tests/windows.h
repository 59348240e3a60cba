/* SPDX-License-Identifier: Apache-2.0
 *
 * Packets in each of successive windows of time, and how much they vary.
 */
#ifndef M2C_TESTS_WINDOWS_H
#define M2C_TESTS_WINDOWS_H

#include <math.h>
#include <stdint.h>

struct windows {
    uint64_t now, packets; /* the window that is being counted; the earlier ones: */
    double sum, squares;
};

/* Counts a packet of that window, from 0. */
static inline void windows_count(struct windows *w, uint64_t window)
{
    for (; w->now < window; w->now++) {
        w->sum += (double)w->packets;
        w->squares += (double)(w->packets * w->packets);
        w->packets = 0;
    }
    w->packets++;
}

/* Returns the standard deviation divided by the mean; 0 without packets. */
static inline double windows_variation(const struct windows *w)
{
    const double count = (double)w->now, mean = w->sum / count;

    return w->sum > 0 ? sqrt(fmax(0, w->squares / count - mean * mean)) / mean : 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a carousel sends one symbol of each block. With a fixed order, periodic loss
 * hits the same blocks each time.
 */
#ifndef FCAST_ORDER_H
#define FCAST_ORDER_H

#include <stddef.h>
#include <stdint.h>

enum fcast_order { FCAST_SEQUENTIAL, FCAST_ROTATE, FCAST_SHUFFLE };

/* The order of the next round over count things: out[i] of 0 to count - 1. Advances *random.
 * Rotation continues from a random one; shuffling permutes. */
void fcast_order_round(enum fcast_order order, uint32_t count, uint64_t *random, uint32_t *out);

/* An interval of [0.5 T, 1.5 T] with the mean T, as the timer of MSR-TR-99-14 varies it; of any
 * unit. */
uint64_t fcast_jitter(uint64_t mean, uint64_t *random);

/* The seed's choice of k for a file of `symbols`: with at most k_max a group, the groups as equal
 * as padding them to one size allows. *groups and *padding may be NULL. */
uint32_t fcast_choose_k(uint64_t symbols, uint32_t k_max, uint64_t *groups, uint64_t *padding);

#endif

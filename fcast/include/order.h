/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a carousel sends one symbol of each block, and in which a block's symbols
 * follow each other. With a fixed order, periodic loss hits the same blocks in every cycle.
 */
#ifndef FCAST_ORDER_H
#define FCAST_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "fti.h"

enum fcast_order { FCAST_SEQUENTIAL, FCAST_ROTATE, FCAST_SHUFFLE };

/* Fills out[0 .. count - 1] with the order of the next round, a permutation of 0 to count - 1, and
 * advances *random. Rotation starts at a random element; shuffling permutes. */
void fcast_order_round(enum fcast_order order, uint32_t count, uint64_t *random, uint32_t *out);

/* Returns the symbol that a block of k source and n encoding symbols sends at this index. Source
 * symbols come first, in order. Repair symbols of LDPC are spread out, because adjacent rows cover
 * few of the lost source symbols. */
uint32_t fcast_symbol_id(uint8_t fec, uint32_t k, uint32_t n, uint32_t index);

/* Returns encoding symbol `number` (from 0) of an object, in an order that alternates between its
 * blocks. */
struct fcast_symbol fcast_object_symbol(const struct fcast_fti *f, const struct fcast_partition *p,
                                        uint64_t number);

/* Returns an interval in [0.5 T, 1.5 T] with mean T, like the timer of MSR-TR-99-14; in any
 * unit. */
uint64_t fcast_jitter(uint64_t mean, uint64_t *random);

/* Returns the k of 1999 for a file of `symbols`: at most k_max per group, with groups as equal as
 * padding them to one size allows. *groups and *padding may be NULL. */
uint32_t fcast_choose_k(uint64_t symbols, uint32_t k_max, uint64_t *groups, uint64_t *padding);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A product for tests of the receiving core with extension 1: blocks of 100 bytes, fec_k 4, product
 * 0 of 1000 bytes: 10 blocks in groups [0,3) [3,6) [6,10), each filled with its number + 1. The
 * round trip is 40 ms, so patience is 1.5 * 40 + 20 = 80 ms until an answer is measured.
 */
#ifndef REPAIR_KIT_H
#define REPAIR_KIT_H

#include "receiver_kit.h"

/* A meaningless parity symbol. */
extern const uint8_t repair_symbol[100];

void open_product(void);
/* Delivers blocks [from, to) of product 0. */
void blocks(uint32_t from, uint32_t to);
void assert_product(void);
/* Returns the true parity symbol of a group of product 0. */
const uint8_t *parity_of(uint32_t first, unsigned k, unsigned number);

#endif

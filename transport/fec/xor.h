/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of symbols over GF(2). */
#ifndef TRANSPORT_FEC_XOR_H
#define TRANSPORT_FEC_XOR_H

#include <stddef.h>
#include <stdint.h>

/* Sets size_bytes of target from `offset` on to the sum (XOR) of `count` sources. No source is the
 * target. A count of 0 gives zeros. */
void fec_xor(uint8_t *target, const uint8_t *const sources[], size_t count, size_t offset,
             size_t size_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Incompressible bytes for dummy products, the same on every machine for the same (seed, index):
 * the stream of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), little-endian.
 */
#ifndef LDM_SPLITMIX_H
#define LDM_SPLITMIX_H

#include <stddef.h>
#include <stdint.h>

/* Returns the state at which the stream of product `index` begins. */
uint64_t splitmix_key(uint64_t seed, uint64_t index);
/* Fills in bytes offset .. offset + bytes of the stream; offset must be a multiple of 8. */
void splitmix_fill(uint64_t key, uint64_t offset, void *out, size_t bytes);

#endif

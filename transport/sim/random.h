/* SPDX-License-Identifier: Apache-2.0
 *
 * Pseudo-random numbers for simulations: splitmix64, so the seed determines everything.
 */
#ifndef TRANSPORT_SIM_RANDOM_H
#define TRANSPORT_SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* Returns 32 pseudo-random bits; *state starts as the seed. */
static inline uint32_t tp_random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 16);
}
/* Returns a number in [0, n). */
static inline uint32_t tp_random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)((uint64_t)tp_random_bits(state) * n >> 32);
}
/* Returns true with probability p. */
static inline bool tp_random_chance(uint64_t *state, double p)
{
    return p > 0 && tp_random_bits(state) < p * 4294967296.0;
}

#endif

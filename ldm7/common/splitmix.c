/* SPDX-License-Identifier: Apache-2.0 */
#include "splitmix.h"

#include <endian.h>
#include <string.h>

static const uint64_t gamma64 = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t splitmix_key(uint64_t seed, uint64_t index)
{
    return mix64(mix64(seed + gamma64) + (index + 1) * gamma64);
}

void splitmix_fill(uint64_t key, uint64_t offset, void *out, size_t bytes)
{
    uint8_t *to = out;
    uint64_t state = key + offset / 8 * gamma64;
    for (; bytes >= 8; bytes -= 8, to += 8) {
        uint64_t word = htole64(mix64(state += gamma64));
        memcpy(to, &word, 8);
    }
    if (bytes) {
        uint64_t word = htole64(mix64(state + gamma64));
        memcpy(to, &word, bytes);
    }
}

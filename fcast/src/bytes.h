/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in network byte order.
 */
#ifndef FCAST_BYTES_H
#define FCAST_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Returns the number in the next `bytes` bytes, at most 8. */
static inline uint64_t get_be(const uint8_t *at, size_t bytes)
{
    uint64_t n = 0;

    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | at[i];
    return n;
}
/* Writes the lowest `bytes` bytes of n; returns the position after them. */
static inline uint8_t *put_be(uint8_t *at, uint64_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(n >> 8 * (bytes - 1 - i));
    return at + bytes;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "xor.h"

#include <string.h>

/* Two sources at a time: the target is loaded and stored once for both. */
static void add2(uint8_t *restrict target, const uint8_t *restrict a, const uint8_t *restrict b,
                 size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        target[i] ^= (uint8_t)(a[i] ^ b[i]);
}

static void add1(uint8_t *restrict target, const uint8_t *restrict a, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        target[i] ^= a[i];
}

void fec_xor(uint8_t *target, const uint8_t *const sources[], size_t count, size_t offset,
             size_t size_bytes)
{
    uint8_t *to = target + offset;
    if (count == 0) {
        memset(to, 0, size_bytes);
        return;
    }
    memcpy(to, sources[0] + offset, size_bytes);
    size_t i = 1;
    for (; i + 1 < count; i += 2)
        add2(to, sources[i] + offset, sources[i + 1] + offset, size_bytes);
    if (i < count)
        add1(to, sources[i] + offset, size_bytes);
}

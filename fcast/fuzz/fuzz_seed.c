/* SPDX-License-Identifier: Apache-2.0 */
/* A packet of 1999: writing what was read gives the same bytes, and its block lies in the packet.
 * The same bytes as the end of a file: a trailer that is accepted lies within them. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "seed.h"

static void read_trailer(const uint8_t *bytes, size_t count)
{
    struct fcast_meta meta;
    size_t trailer = 0;

    if (!fcast_seed_trailer_get(bytes, count, count, &meta, &trailer) &&
        (trailer < FCAST_OBJECT_FIXED || trailer > count ||
         strlen(meta.location) >= sizeof meta.location))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct fcast_seed_header h;
    const uint8_t *block;
    size_t block_bytes;
    uint8_t again[FCAST_SEED_HEADER_BYTES];

    read_trailer(bytes, count);
    if (!fcast_seed_get(bytes, count, &h, &block, &block_bytes))
        return 0;
    if (block_bytes == 0 || block + block_bytes != bytes + count ||
        h.group >= fcast_seed_groups(h.file_bytes, block_bytes, h.k) ||
        fcast_seed_put(again, &h) != sizeof again || memcmp(again, bytes, sizeof again) != 0)
        abort();
    return 0;
}

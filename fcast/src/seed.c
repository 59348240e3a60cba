/* SPDX-License-Identifier: Apache-2.0 */
#include "seed.h"

#include "bytes.h"

enum { WORD = 4 };

uint32_t fcast_seed_groups(uint32_t file_bytes, size_t block_bytes, uint8_t k)
{
    uint64_t group_bytes = (uint64_t)block_bytes * k;

    return group_bytes ? (uint32_t)((file_bytes + group_bytes - 1) / group_bytes) : 0;
}

size_t fcast_seed_put(uint8_t *out, const struct fcast_seed_header *h)
{
    uint8_t *at = put_be(out, h->sequence, WORD);

    at = put_be(at, h->file_id, WORD);
    at = put_be(at, h->file_bytes, WORD);
    at = put_be(at, h->group, WORD);
    *at++ = h->index;
    *at++ = h->k;
    return (size_t)(at - out);
}

bool fcast_seed_get(const uint8_t *bytes, size_t len, struct fcast_seed_header *out,
                    const uint8_t **block, size_t *block_bytes)
{
    if (len <= FCAST_SEED_HEADER_BYTES)
        return false;
    *out = (struct fcast_seed_header){.sequence = (uint32_t)get_be(bytes, WORD),
                                      .file_id = (uint32_t)get_be(bytes + 4, WORD),
                                      .file_bytes = (uint32_t)get_be(bytes + 8, WORD),
                                      .group = (uint32_t)get_be(bytes + 12, WORD),
                                      .index = bytes[16],
                                      .k = bytes[17]};
    *block = bytes + FCAST_SEED_HEADER_BYTES;
    *block_bytes = len - FCAST_SEED_HEADER_BYTES;
    return out->group < fcast_seed_groups(out->file_bytes, *block_bytes, out->k);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "seed.h"

#include "bytes.h"
#include "fec/rs.h"

enum { WORD = 4 };

_Static_assert(FCAST_SEED_RS == (int)RS_RIZZO, "the code of 1999");

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

bool fcast_seed_fti(const struct fcast_seed_header *h, size_t block_bytes, struct fcast_fti *out)
{
    *out = (struct fcast_fti){.fec = FCAST_RS,
                              .length = h->file_bytes,
                              .symbol_bytes = (uint16_t)block_bytes,
                              .block_max = h->k,
                              .n_max = RS_N_MAX,
                              .is_padded = true};
    return block_bytes <= UINT16_MAX && fcast_fti_is_good(out);
}

size_t fcast_seed_trailer_put(uint8_t *out, size_t room, const struct fcast_meta *meta)
{
    size_t len = fcast_object_header_put(out, room, meta, true);

    if (!len || room - len < WORD)
        return 0;
    put_be(out + len, len, WORD);
    return len + WORD;
}

const char *fcast_seed_trailer_get(const uint8_t *bytes, size_t len, uint64_t file_bytes,
                                   struct fcast_meta *out, size_t *trailer_bytes)
{
    struct fcast_object_header h;

    if (len < FCAST_OBJECT_FIXED + WORD || len > file_bytes)
        return "shorter than a trailer";
    uint64_t header = get_be(bytes + len - WORD, WORD);
    if (header < FCAST_OBJECT_FIXED || header > len - WORD)
        return "length of the trailer";
    const uint8_t *at = bytes + len - WORD - header;
    const char *wrong = fcast_object_header_get(at, (size_t)header, header, &h);
    if (wrong)
        return wrong;
    *trailer_bytes = (size_t)header + WORD;
    bool is_plain = !h.meta.encoding[0];
    if (h.is_cid || h.len != header || h.covers_data)
        return "header of the trailer";
    if (is_plain && h.meta.has_length && h.meta.length != file_bytes - *trailer_bytes)
        return "Content-Length";
    *out = h.meta;
    return NULL;
}

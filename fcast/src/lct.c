/* SPDX-License-Identifier: Apache-2.0 */
#include "lct.h"

#include <assert.h>
#include <string.h>

#include "bytes.h"

enum { WORD = 4, FIRST = 4, ONE_WORD = 128 };

/* Reads a number of up to 112 bits that must fit in 64. */
static bool get_id(const uint8_t *at, size_t bytes, uint64_t *out)
{
    for (; bytes > 8; at++, bytes--)
        if (*at)
            return false;
    *out = get_be(at, bytes);
    return true;
}

static size_t extension_len(const uint8_t *at, size_t left)
{
    size_t len = at[0] >= ONE_WORD ? WORD : left < 2 ? 0 : (size_t)at[1] * WORD;

    return len <= left ? len : 0;
}

static bool are_well_formed(const uint8_t *ext, size_t left)
{
    while (left) {
        size_t len = extension_len(ext, left);
        if (!len)
            return false;
        ext += len;
        left -= len;
    }
    return true;
}

enum lct_result lct_get(const uint8_t *bytes, size_t len, struct lct_header *out)
{
    *out = (struct lct_header){0};
    if (len < FIRST)
        return LCT_SHORT;
    if (bytes[0] >> 4 != LCT_VERSION)
        return LCT_BAD_VERSION;
    const size_t word = WORD, half = bytes[1] >> 4 & 1 ? 2 : 0;
    size_t cci = word * (1u + (bytes[0] >> 2 & 3));
    size_t tsi = word * (bytes[1] >> 7 & 1) + half, toi = word * (bytes[1] >> 5 & 3) + half;
    size_t fixed = FIRST + cci + tsi + toi;
    out->len = (size_t)bytes[2] * WORD;
    if (out->len > len)
        return LCT_SHORT;
    if (out->len < fixed)
        return LCT_BAD_LENGTH;
    out->close_session = bytes[1] & 2;
    out->close_object = bytes[1] & 1;
    out->codepoint = bytes[3];
    out->cci = (uint32_t)get_be(bytes + FIRST, WORD);
    if (!get_id(bytes + FIRST + cci, tsi, &out->tsi) ||
        !get_id(bytes + FIRST + cci + tsi, toi, &out->toi))
        return LCT_TOO_LARGE;
    out->ext = bytes + fixed;
    out->ext_len = out->len - fixed;
    return are_well_formed(out->ext, out->ext_len) ? LCT_OK : LCT_BAD_LENGTH;
}

const uint8_t *lct_extension(const struct lct_header *h, uint8_t type, size_t *len)
{
    const uint8_t *at = h->ext, *end = h->ext + h->ext_len;

    while (at < end) {
        size_t n = extension_len(at, (size_t)(end - at)), head = at[0] >= ONE_WORD ? 1 : 2;
        if (at[0] == type) {
            *len = n - head;
            return at + head;
        }
        at += n;
    }
    return NULL;
}

size_t lct_put(uint8_t *out, const struct lct_header *h)
{
    /* TSI and TOI both have 16 or both have 48 bits: the flag H adds 16 to each. */
    bool wide_tsi = h->tsi > UINT16_MAX, wide_toi = h->toi > UINT16_MAX;
    uint8_t *at = out;

    assert(h->tsi >> 48 == 0 && h->toi >> 48 == 0);
    *at++ = LCT_VERSION << 4;
    *at++ =
        (uint8_t)(wide_tsi << 7 | wide_toi << 5 | 1 << 4 | h->close_session << 1 | h->close_object);
    *at++ = 0;
    *at++ = h->codepoint;
    at = put_be(at, h->cci, WORD);
    at = put_be(at, h->tsi, wide_tsi ? 6 : 2);
    at = put_be(at, h->toi, wide_toi ? 6 : 2);
    out[2] = (uint8_t)((at - out) / WORD);
    return (size_t)(at - out);
}

size_t lct_add(uint8_t *out, size_t len, uint8_t type, const uint8_t *content, size_t content_len)
{
    uint8_t *at = out + len;
    size_t head = type >= ONE_WORD ? 1 : 2, whole = head + content_len;

    assert(whole % WORD == 0 && len + whole <= LCT_HEADER_MAX);
    assert(head == 2 || whole == WORD);
    *at++ = type;
    if (head == 2)
        *at++ = (uint8_t)(whole / WORD);
    memcpy(at, content, content_len);
    out[2] = (uint8_t)((len + whole) / WORD);
    return len + whole;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * LCT headers (RFC 5651) of ALC packets (RFC 5775): what identifies session and object, and the
 * header extensions. The codepoint is the FEC Encoding ID, as in FLUTE.
 */
#ifndef FCAST_LCT_H
#define FCAST_LCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LCT_VERSION = 1, LCT_HEADER_MAX = 4 * 255 };
/* Header extension types. Extensions of type 128 and above are one word long. */
enum { LCT_EXT_NOP = 0, LCT_EXT_AUTH = 1, LCT_EXT_TIME = 2, LCT_EXT_FTI = 64 };
enum { LCT_EXT_FDT = 192, LCT_EXT_CENC = 193 };

struct lct_header {
    uint32_t cci;      /* the first word of the congestion control information */
    uint64_t tsi, toi; /* session and object */
    uint8_t codepoint;
    bool close_session, close_object;
    size_t len;         /* of the header including extensions */
    const uint8_t *ext; /* all extensions */
    size_t ext_len;     /* in bytes */
};

/* Why a datagram is invalid. */
enum lct_result { LCT_OK, LCT_SHORT, LCT_BAD_VERSION, LCT_BAD_LENGTH, LCT_TOO_LARGE };

/* Reads the header at the beginning of a datagram. A TSI or TOI above 64 bits gives LCT_TOO_LARGE.
 * The extensions point into the datagram; they are well-formed if this returns LCT_OK. */
enum lct_result lct_get(const uint8_t *bytes, size_t len, struct lct_header *out);
/* Returns the content of the first extension of that type, after HET and HEL (if present); *len
 * receives its length in bytes. NULL: none. */
const uint8_t *lct_extension(const struct lct_header *h, uint8_t type, size_t *len);

/* Writes a header without extensions (TSI and TOI of 16 or 48 bits, CCI of 32) and returns its
 * length. `out` has room for LCT_HEADER_MAX bytes. */
size_t lct_put(uint8_t *out, const struct lct_header *h);
/* Appends an extension to a header of len bytes and returns the new length. For types below 128,
 * content_len + 2 must be a multiple of 4; for others, content_len is 3. */
size_t lct_add(uint8_t *out, size_t len, uint8_t type, const uint8_t *content, size_t content_len);

#endif

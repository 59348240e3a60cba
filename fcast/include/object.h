/* SPDX-License-Identifier: Apache-2.0
 *
 * FCAST compound objects (RFC 6968): a header with metadata, then the data; and the Carousel
 * Instance Descriptor (CID), an object that lists the carousel's objects.
 */
#ifndef FCAST_OBJECT_H
#define FCAST_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FCAST_OBJECT_FIXED = 8, /* bytes of a header before the metadata */
    FCAST_OBJECT_HEADER_MAX = 65536,
    FCAST_NAME_MAX = 1024,
    FCAST_DIGEST = 32, /* SHA-256 */
    FCAST_CID_RANGES_MAX = 4096,
};

/* What the metadata say. */
struct fcast_meta {
    char location[FCAST_NAME_MAX]; /* Content-Location: "" if there is none */
    char type[128];                /* Content-Type */
    char encoding[32];             /* Content-Encoding */
    bool has_length, has_digest, is_slice;
    uint64_t length; /* Content-Length: bytes before the content encoding */
    uint8_t digest[FCAST_DIGEST];
    bool is_cid, cid_complete;
    uint32_t cid_id;
};

struct fcast_object_header {
    size_t len; /* with the padding: where the data begin */
    bool is_cid;
    bool covers_data; /* the checksum covers them (G = 1) */
    uint16_t checksum;
    struct fcast_meta meta;
};

/* The length, with padding, of the header that begins with these FCAST_OBJECT_FIXED bytes. 0: it is
 * invalid, or longer than FCAST_OBJECT_HEADER_MAX, or than `object` bytes. */
size_t fcast_object_header_len(const uint8_t fixed[FCAST_OBJECT_FIXED], uint64_t object);
/* Reads the header of an object of `object` bytes; `len` of them, at least the header, are here.
 * NULL, or why it is invalid. A checksum over the header alone is verified. */
const char *fcast_object_header_get(const uint8_t *bytes, size_t len, uint64_t object,
                                    struct fcast_object_header *out);
/* Writes a header for these metadata; returns its length with padding, 0 if `room` is too small. */
size_t fcast_object_header_put(uint8_t *out, size_t room, const struct fcast_meta *meta,
                               bool is_empty);

/* The TOIs that a CID lists, as ranges that rise. */
struct fcast_cid {
    unsigned count;
    struct fcast_range {
        uint64_t first, last;
    } ranges[FCAST_CID_RANGES_MAX];
};
/* Reads the list `1,2,4-6,(100=10/2)`; equivalences count as their own TOIs. false: it is invalid,
 * or has more ranges than there is room for. */
bool fcast_cid_get(const uint8_t *bytes, size_t len, struct fcast_cid *out);
/* Writes the list; returns its length, 0 if the list is empty or there is no room. */
size_t fcast_cid_put(uint8_t *out, size_t room, const struct fcast_cid *cid);
bool fcast_cid_has(const struct fcast_cid *cid, uint64_t toi);
/* Adds a TOI above all that are there. false: no room. */
bool fcast_cid_add(struct fcast_cid *cid, uint64_t toi);

#endif

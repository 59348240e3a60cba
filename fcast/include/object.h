/* SPDX-License-Identifier: Apache-2.0
 *
 * FCAST compound objects (RFC 6968): a header with metadata, followed by the data; and the Carousel
 * Instance Descriptor (CID), an object that lists the carousel's objects.
 */
#ifndef FCAST_OBJECT_H
#define FCAST_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FCAST_OBJECT_FIXED = 8, /* bytes of the header that precede the metadata */
    FCAST_OBJECT_HEADER_MAX = 65536,
    FCAST_NAME_MAX = 1024,
    FCAST_DIGEST = 32, /* SHA-256 */
    FCAST_CID_RANGES_MAX = 4096,
};

/* The content of the metadata. */
struct fcast_meta {
    char location[FCAST_NAME_MAX]; /* Content-Location; "" if missing */
    char type[128];                /* Content-Type */
    char encoding[32];             /* Content-Encoding */
    bool has_length, has_digest, is_slice;
    uint64_t length; /* Content-Length: bytes before the content encoding */
    uint8_t digest[FCAST_DIGEST];
    bool is_cid, cid_complete;
    uint32_t cid_id;
};

struct fcast_object_header {
    size_t len; /* including padding: where the data begin */
    bool is_cid;
    bool covers_data; /* the checksum also covers the data (G = 1) */
    uint16_t checksum;
    struct fcast_meta meta;
};

/* Returns the length, including padding, of the header that begins with these FCAST_OBJECT_FIXED
 * bytes; 0 if it is invalid, or longer than FCAST_OBJECT_HEADER_MAX or than `object` bytes. */
size_t fcast_object_header_len(const uint8_t fixed[FCAST_OBJECT_FIXED], uint64_t object);
/* Reads the header of an object of `object` bytes, of which `len` are available, at least the
 * header. Returns NULL, or why it is invalid. Verifies a checksum over the header alone. */
const char *fcast_object_header_get(const uint8_t *bytes, size_t len, uint64_t object,
                                    struct fcast_object_header *out);
/* Writes a header for these metadata and returns its length including padding; 0 if `room` is too
 * small. */
size_t fcast_object_header_put(uint8_t *out, size_t room, const struct fcast_meta *meta,
                               bool is_empty);

/* The TOIs that a CID lists, as ascending ranges. */
struct fcast_cid {
    unsigned count;
    struct fcast_range {
        uint64_t first, last;
    } ranges[FCAST_CID_RANGES_MAX];
};
/* Reads a list such as `1,2,4-6,(100=10/2)`; equivalences count as their own TOIs. Returns false if
 * it is invalid or has too many ranges. */
bool fcast_cid_get(const uint8_t *bytes, size_t len, struct fcast_cid *out);
/* Writes the list and returns its length; 0 if the list is empty or there is no room. */
size_t fcast_cid_put(uint8_t *out, size_t room, const struct fcast_cid *cid);
bool fcast_cid_has(const struct fcast_cid *cid, uint64_t toi);
/* Adds a TOI above all that it has. Returns false if there is no room. */
bool fcast_cid_add(struct fcast_cid *cid, uint64_t toi);

#endif

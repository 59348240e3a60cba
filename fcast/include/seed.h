/* SPDX-License-Identifier: Apache-2.0
 *
 * The packet header of Fcast in 1999 (MSR-TR-99-14, Figure 6). Network byte order is our choice:
 * the report specifies none. One block follows the header. All blocks have the size of the first.
 */
#ifndef FCAST_SEED_H
#define FCAST_SEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fti.h"
#include "object.h"

enum {
    FCAST_SEED_HEADER_BYTES = 18,
    FCAST_SEED_BLOCK_BYTES = 1024, /* what the report's programs send */
    FCAST_SEED_RS = 1,             /* enum rs_kind: the codec that the report cites */
    FCAST_SEED_K_MAX = 254,
    FCAST_SEED_TRAILER_MAX = FCAST_OBJECT_HEADER_MAX + 4
};

struct fcast_seed_header {
    uint32_t sequence; /* increases by one with each packet */
    uint32_t file_id, file_bytes;
    uint32_t group;
    uint8_t index; /* below k: a source block; otherwise a repair block */
    uint8_t k;     /* source blocks per group */
};

/* Returns how many groups a file has with blocks of that size; the last one may be padded. */
uint32_t fcast_seed_groups(uint32_t file_bytes, size_t block_bytes, uint8_t k);
/* Writes FCAST_SEED_HEADER_BYTES and returns how many. */
size_t fcast_seed_put(uint8_t *out, const struct fcast_seed_header *h);
/* Reads a packet; *block points to its block. Returns false if it is too short, the file is empty,
 * k is 0, or the file does not have that group. */
bool fcast_seed_get(const uint8_t *bytes, size_t len, struct fcast_seed_header *out,
                    const uint8_t **block, size_t *block_bytes);
/* Describes how the packet's file is encoded. Returns false if k leaves no repair blocks, or if
 * there are too many groups. */
bool fcast_seed_fti(const struct fcast_seed_header *h, size_t block_bytes, struct fcast_fti *out);

/* The trailer that ends a file: its name, length and digest. Without it, the data are the file. The
 * report specifies no layout; we use the header of an FCAST object, followed by its length in 4
 * bytes. */

/* Writes the trailer and returns its length; 0 if `room` is too small. */
size_t fcast_seed_trailer_put(uint8_t *out, size_t room, const struct fcast_meta *meta);
/* Reads the trailer from the last `len` bytes (FCAST_SEED_TRAILER_MAX, or all) of `file_bytes`.
 * Returns NULL, or why it is invalid. */
const char *fcast_seed_trailer_get(const uint8_t *bytes, size_t len, uint64_t file_bytes,
                                   struct fcast_meta *out, size_t *trailer_bytes);

#endif

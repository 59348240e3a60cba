/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores an object by a storage scheme of 1999. Blocks wait in memory until the scheme has them
 * written. When each group has its k, the shelf reads, sorts, decodes and writes back each crowd
 * (or group). Receive-Order writes the sorted file beside the first one, In-Memory writes only
 * then.
 */
#ifndef FCAST_SHELF_H
#define FCAST_SHELF_H

#include "fcast.h"
#include "storage.h"

struct fcast_shelf_config {
    enum fcast_scheme scheme;
    uint32_t b;           /* blocks of a write; groups of a bucket's crowd */
    uint64_t max_bytes;   /* of memory */
    bool fills;           /* write zeroes to a new crowd (or group) first: direct writes into new
                           * blocks of a file system that are larger cost more than one each */
    int rs_kind;          /* enum rs_kind */
    struct fcast_fti fti; /* Reed-Solomon */
    /* The disk: data; repair for the sorted file of Receive-Order; notes of what is written, which
     * another shelf continues with. Writes are of whole blocks. */
    struct fcast_place disk;
};

struct fcast_shelf;

/* Bytes of memory that it would need. */
uint64_t fcast_shelf_need(const struct fcast_shelf_config *cfg);
/* NULL with errno: EINVAL for another code, E2BIG if it takes more memory than max_bytes, ENOMEM,
 * or why a store failed. */
struct fcast_shelf *fcast_shelf_new(const struct fcast_shelf_config *cfg);
void fcast_shelf_free(struct fcast_shelf *s);
/* The functions of a fcast_place. */
int fcast_shelf_keep(struct fcast_shelf *s, struct fcast_symbol symbol, const uint8_t *bytes);
bool fcast_shelf_noted(struct fcast_shelf *s, uint64_t i, struct fcast_symbol *out);
int fcast_shelf_settle(struct fcast_shelf *s);
/* Writes the blocks in memory, so that another process can continue. */
int fcast_shelf_flush(struct fcast_shelf *s);
/* True if the object's data are in the repair store (Receive-Order, settled). */
bool fcast_shelf_is_moved(const struct fcast_shelf *s);
/* Bytes of memory that it can take. */
uint64_t fcast_shelf_memory(const struct fcast_shelf *s);
/* Blocks that waited in memory at most, at a time. */
uint64_t fcast_shelf_peak(const struct fcast_shelf *s);

#endif

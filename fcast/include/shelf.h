/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores an object by a storage scheme of 1999. Blocks wait in memory until the scheme writes them.
 * When each group has k blocks, the shelf reads, sorts, decodes and writes back one crowd (or
 * group) after another. Receive-Order writes the sorted file beside the first one; In-Memory writes
 * only at that point.
 */
#ifndef FCAST_SHELF_H
#define FCAST_SHELF_H

#include "fcast.h"
#include "storage.h"

struct fcast_shelf_config {
    enum fcast_scheme scheme;
    uint32_t b;         /* blocks per write; groups in a bucket's crowd */
    uint64_t max_bytes; /* of memory */
    /* Write zeroes to a new crowd (or group) first: direct writes into new file system blocks that
     * are larger than the write cost more than one access each. */
    bool fills;
    int rs_kind;          /* enum rs_kind */
    struct fcast_fti fti; /* Reed-Solomon */
    /* The disk: data; repair for the sorted file of Receive-Order; notes of what is written, from
     * which another shelf continues. All writes are of whole blocks. */
    struct fcast_place disk;
};

struct fcast_shelf;

/* Returns how many bytes of memory it would need. */
uint64_t fcast_shelf_need(const struct fcast_shelf_config *cfg);
/* Returns NULL with errno: EINVAL for another code, E2BIG if it needs more memory than max_bytes,
 * ENOMEM, or a store's error. */
struct fcast_shelf *fcast_shelf_new(const struct fcast_shelf_config *cfg);
void fcast_shelf_free(struct fcast_shelf *s);
/* The functions of a struct fcast_place. */
int fcast_shelf_keep(struct fcast_shelf *s, struct fcast_symbol symbol, const uint8_t *bytes);
bool fcast_shelf_noted(struct fcast_shelf *s, uint64_t i, struct fcast_symbol *out);
int fcast_shelf_settle(struct fcast_shelf *s);
/* Writes the blocks in memory, so that another process can continue. */
int fcast_shelf_flush(struct fcast_shelf *s);
/* Returns whether the object's data are in the repair store (Receive-Order, settled). */
bool fcast_shelf_is_moved(const struct fcast_shelf *s);
/* Returns how many bytes of memory it may use. */
uint64_t fcast_shelf_memory(const struct fcast_shelf *s);
/* Returns the most blocks that waited in memory at a time. */
uint64_t fcast_shelf_peak(const struct fcast_shelf *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The five storage schemes of MSR-TR-99-14: where and when to write each block. They handle no
 * bytes: the caller keeps the blocks that fcast_storage_take() accepted, and writes those that
 * fcast_storage_next() names.
 *
 * Positions are in blocks of the file: group g has [g k, (g + 1) k), a crowd the positions of its
 * groups. Receive-Order appends. Crowd-Bucket has two buckets, which suffices for the sequential
 * order; the rotated order would need the report's third.
 */
#ifndef FCAST_STORAGE_H
#define FCAST_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fcast_scheme {
    FCAST_IN_MEMORY,
    FCAST_RECEIVE_ORDER,
    FCAST_GROUP_AREA,
    FCAST_CROWD_BUCKET,
    FCAST_CROWD_POOL
};

struct fcast_storage_config {
    enum fcast_scheme scheme;
    uint32_t groups, k;
    uint32_t crowd_groups; /* Crowd-Bucket: equal to b; Crowd-Pool: any number; others: unused */
    uint32_t b;            /* most blocks per write; In-Memory, Group-Area: unused */
};

/* A block, by its group and its index in the group. */
struct fcast_block {
    uint32_t group;
    uint8_t index;
    uint32_t slot; /* for the caller's use */
};

/* One write to adjacent positions; the blocks are in the order of their positions. */
struct fcast_write {
    uint64_t at;
    uint32_t count;
    const struct fcast_block *blocks; /* valid until the next call */
};

struct fcast_storage;

/* Returns NULL with errno: EINVAL, ENOMEM. */
struct fcast_storage *fcast_storage_new(const struct fcast_storage_config *cfg);
void fcast_storage_free(struct fcast_storage *s);
/* Returns the most blocks in memory at a time, including those being written. Crowd-Pool: b c + b -
 * c + 1 for c crowds, which suffices if writing b blocks takes no longer than the arrival of b. */
uint64_t fcast_storage_room(const struct fcast_storage *s);
/* Takes a new block of an incomplete group. Returns false if there is no room or the group has its
 * k. */
bool fcast_storage_take(struct fcast_storage *s, struct fcast_block block);
/* Returns the next write when the disk is idle; its blocks still count as being in memory. flush:
 * no more blocks will arrive. Returns false if there is nothing to write now. */
bool fcast_storage_next(struct fcast_storage *s, bool flush, struct fcast_write *out);
/* The write is complete: its blocks leave memory. */
void fcast_storage_written(struct fcast_storage *s);
/* Takes a block that an earlier process wrote, as the next of its crowd. Returns false if its group
 * has its k. */
bool fcast_storage_restore(struct fcast_storage *s, struct fcast_block block);
/* Returns how many groups share an area of the file: 1, a crowd's, or all. */
uint32_t fcast_storage_area_groups(const struct fcast_storage *s);
/* Crowd-Pool: returns how many groups per crowd minimize the memory of pool and crowd. */
uint32_t fcast_storage_pool_groups(uint32_t groups, uint32_t k, uint32_t b);
/* Returns how many blocks are in memory. */
uint64_t fcast_storage_held(const struct fcast_storage *s);

#endif

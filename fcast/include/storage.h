/* SPDX-License-Identifier: Apache-2.0
 *
 * The five storage schemes of MSR-TR-99-14: where and when to write each block. They handle no
 * bytes: the caller keeps the blocks that take() accepted, and writes those that next() names.
 *
 * Positions are in blocks of the file: group g has [g k, (g + 1) k), a crowd the positions of its
 * groups. Receive-Order appends. Crowd-Bucket has two buckets, which the sequential order needs;
 * the rotated order would need the report's third.
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
    uint32_t crowd_groups; /* Crowd-Bucket: b itself; Crowd-Pool: any number; others: not used */
    uint32_t b;            /* blocks of a write at most; In-Memory, Group-Area: not used */
};

/* A block by its group and its index there. */
struct fcast_block {
    uint32_t group;
    uint8_t index;
    uint32_t slot; /* the caller's */
};

/* One write of neighbouring positions; the blocks are in their order there. */
struct fcast_write {
    uint64_t at;
    uint32_t count;
    const struct fcast_block *blocks; /* until the next call */
};

struct fcast_storage;

/* NULL with errno: EINVAL, ENOMEM. */
struct fcast_storage *fcast_storage_new(const struct fcast_storage_config *cfg);
void fcast_storage_free(struct fcast_storage *s);
/* Blocks that are in memory at the same time at most, the write included. Crowd-Pool:
 * b c + b - c + 1 of c crowds, which is enough if a write of b blocks takes no longer than the
 * arrival of b. */
uint64_t fcast_storage_room(const struct fcast_storage *s);
/* Takes a new block of an incomplete group. false: no room, or the group has its k. */
bool fcast_storage_take(struct fcast_storage *s, struct fcast_block block);
/* The disk is free: the next write; its blocks still count as being in memory. flush: nothing else
 * will come. false: there is nothing to write now. */
bool fcast_storage_next(struct fcast_storage *s, bool flush, struct fcast_write *out);
/* The write is done: its blocks leave memory. */
void fcast_storage_written(struct fcast_storage *s);
/* A block that an earlier process wrote, as the next of its crowd. false: its group has its k. */
bool fcast_storage_restore(struct fcast_storage *s, struct fcast_block block);
/* Groups that share an area of the file: 1, a crowd's, or all. */
uint32_t fcast_storage_area_groups(const struct fcast_storage *s);
/* Crowd-Pool: groups of a crowd with which pool and crowd need least memory. */
uint32_t fcast_storage_pool_groups(uint32_t groups, uint32_t k, uint32_t b);
/* Blocks in memory now. */
uint64_t fcast_storage_held(const struct fcast_storage *s);

#endif

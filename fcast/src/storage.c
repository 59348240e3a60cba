/* SPDX-License-Identifier: Apache-2.0 */
#include "storage.h"

#include <errno.h>
#include <stdlib.h>

struct area { /* filled from its beginning */
    uint32_t held;
    uint64_t written;
};

struct fcast_storage {
    struct fcast_storage_config cfg;
    uint32_t area_groups, area_count;
    uint64_t room, held;
    uint32_t writing;   /* blocks in the current write */
    uint32_t *have;     /* blocks that each group has */
    struct area *areas; /* groups, crowds, or the whole file */
    uint32_t last,
        full; /* area of the last block; Crowd-Bucket: area of the bucket waiting to be written */
    bool has_full;
    struct fcast_block *blocks; /* in memory, in order of arrival */
    uint32_t *area_of;          /* their areas */
    uint64_t count;             /* their number, without those being written */
    struct fcast_block *out;
};

static bool is_pool(const struct fcast_storage *s)
{
    return s->cfg.scheme == FCAST_CROWD_POOL;
}

static bool is_bucket(const struct fcast_storage *s)
{
    /* Group-Area is Crowd-Bucket with b = 1. */
    return s->cfg.scheme == FCAST_CROWD_BUCKET || s->cfg.scheme == FCAST_GROUP_AREA;
}

static void measure(struct fcast_storage *s)
{
    const struct fcast_storage_config *c = &s->cfg;

    switch (c->scheme) {
    case FCAST_IN_MEMORY:
        s->cfg.b = c->groups * c->k;
        s->room = s->cfg.b;
        s->area_groups = c->groups;
        break;
    case FCAST_RECEIVE_ORDER:
        s->area_groups = c->groups;
        s->cfg.b = c->b ? c->b : 1;
        s->room = 2 * (uint64_t)s->cfg.b;
        break;
    case FCAST_GROUP_AREA:
        s->area_groups = 1;
        s->cfg.b = 1;
        s->room = 2;
        break;
    case FCAST_CROWD_BUCKET:
        s->area_groups = c->b;
        s->room = 2 * (uint64_t)c->b;
        break;
    case FCAST_CROWD_POOL: s->area_groups = c->crowd_groups; break;
    }
    s->area_count = (c->groups + s->area_groups - 1) / s->area_groups;
    if (is_pool(s))
        s->room = (uint64_t)c->b * s->area_count + c->b - s->area_count + 1;
}

struct fcast_storage *fcast_storage_new(const struct fcast_storage_config *cfg)
{
    bool is_crowd = cfg->scheme == FCAST_CROWD_BUCKET || cfg->scheme == FCAST_CROWD_POOL;

    if (!cfg->groups || !cfg->k || (uint64_t)cfg->groups * cfg->k > UINT32_MAX ||
        cfg->b > cfg->groups * cfg->k || (is_crowd && !cfg->b) ||
        (cfg->scheme == FCAST_CROWD_POOL && !cfg->crowd_groups)) {
        errno = EINVAL;
        return NULL;
    }
    struct fcast_storage *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    measure(s);
    s->have = calloc(cfg->groups, sizeof *s->have);
    s->areas = calloc(s->area_count, sizeof *s->areas);
    s->blocks = calloc(s->room, sizeof *s->blocks);
    s->area_of = calloc(s->room, sizeof *s->area_of);
    s->out = calloc(s->cfg.b, sizeof *s->out);
    if (!s->have || !s->areas || !s->blocks || !s->area_of || !s->out) {
        fcast_storage_free(s);
        errno = ENOMEM;
        return NULL;
    }
    return s;
}

void fcast_storage_free(struct fcast_storage *s)
{
    if (!s)
        return;
    free(s->have);
    free(s->areas);
    free(s->blocks);
    free(s->area_of);
    free(s->out);
    free(s);
}

uint64_t fcast_storage_room(const struct fcast_storage *s)
{
    return s->room;
}

uint64_t fcast_storage_held(const struct fcast_storage *s)
{
    return s->held;
}

/* Returns whether the bucket being filled has another crowd's blocks while the other one is
 * busy. */
static bool are_buckets_busy(const struct fcast_storage *s, uint32_t area)
{
    return s->areas[s->last].held && (area != s->last || s->areas[s->last].held == s->cfg.b) &&
           (s->has_full || s->writing);
}

bool fcast_storage_take(struct fcast_storage *s, struct fcast_block block)
{
    if (block.group >= s->cfg.groups || s->have[block.group] == s->cfg.k || s->held == s->room)
        return false;
    uint32_t area = block.group / s->area_groups;
    if (is_bucket(s)) {
        if (are_buckets_busy(s, area))
            return false;
        if (area != s->last && s->areas[s->last].held) {
            s->has_full = true;
            s->full = s->last;
        }
    }
    s->have[block.group]++;
    s->areas[area].held++;
    s->last = area;
    s->blocks[s->count] = block;
    s->area_of[s->count++] = area;
    s->held++;
    return true;
}

/* Chooses the area to write: one with b blocks; with a pool, the one with the most, so that writes
 * are large. Returns area_count for none. */
static uint32_t choose(const struct fcast_storage *s, bool flush)
{
    uint32_t best = s->area_count, most = 0;

    if (s->has_full)
        return s->full;
    if (!is_pool(s) && s->areas[s->last].held >= s->cfg.b)
        return s->last;
    for (uint32_t i = 0; (is_pool(s) || flush) && i < s->area_count; i++)
        if (s->areas[i].held > most) {
            best = i;
            most = s->areas[i].held;
        }
    return best;
}

/* Moves the oldest blocks of the area, at most b, out of the pool. */
static uint32_t gather(struct fcast_storage *s, uint32_t area)
{
    uint32_t moved = 0;
    uint64_t left = 0;

    for (uint64_t i = 0; i < s->count; i++) {
        if (s->area_of[i] == area && moved < s->cfg.b) {
            s->out[moved++] = s->blocks[i];
            continue;
        }
        s->blocks[left] = s->blocks[i];
        s->area_of[left++] = s->area_of[i];
    }
    s->count = left;
    return moved;
}

bool fcast_storage_next(struct fcast_storage *s, bool flush, struct fcast_write *out)
{
    if (s->writing)
        return false;
    uint32_t area = choose(s, flush);
    if (area == s->area_count)
        return false;
    struct area *a = &s->areas[area];
    s->writing = gather(s, area);
    uint64_t first = (uint64_t)area * s->area_groups * s->cfg.k;
    *out = (struct fcast_write){.at = first + a->written, .count = s->writing, .blocks = s->out};
    a->held -= s->writing;
    a->written += s->writing;
    s->has_full = is_bucket(s) && area != s->last && a->held;
    return true;
}

void fcast_storage_written(struct fcast_storage *s)
{
    s->held -= s->writing;
    s->writing = 0;
}

bool fcast_storage_restore(struct fcast_storage *s, struct fcast_block block)
{
    if (block.group >= s->cfg.groups || s->have[block.group] == s->cfg.k)
        return false;
    s->have[block.group]++;
    s->areas[block.group / s->area_groups].written++;
    return true;
}

uint32_t fcast_storage_area_groups(const struct fcast_storage *s)
{
    return s->area_groups;
}

uint32_t fcast_storage_pool_groups(uint32_t groups, uint32_t k, uint32_t b)
{
    uint64_t least = UINT64_MAX;
    uint32_t best = 1;

    for (uint32_t g = 1; g <= groups; g++) {
        uint64_t c = (groups + g - 1) / g, crowd = (uint64_t)g * k;
        uint64_t pool = b * c + b - c + 1, need = crowd > pool ? crowd : pool;
        if (need < least) {
            least = need;
            best = g;
        }
        if (crowd >= least)
            break; /* larger crowds need more */
    }
    return best;
}

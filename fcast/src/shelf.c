/* SPDX-License-Identifier: Apache-2.0 */
#include "shelf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fec/rs.h"

enum { ALIGNMENT = 4096, IDS = 256, WORD_BITS = 64, FILL_BLOCKS = 256 };
/* The id of a note: a crowd is being written back. If no FCAST_BLOCK_DONE of its first group
 * follows, its blocks are lost. */
#define SORTING (UINT32_MAX - 1)

struct area {       /* groups that share a part of the file */
    uint32_t count; /* blocks stored there */
    bool is_settled, is_sorting;
};

struct fcast_shelf {
    struct fcast_shelf_config cfg;
    struct fcast_partition partition;
    struct fcast_storage *storage;
    uint32_t k, groups, area_groups, area_count;
    struct area *areas;
    uint32_t *group_at; /* by position: the group of the block there */
    uint8_t *id_at;
    uint8_t *pool; /* waiting blocks, by slot; In-Memory: all, by arrival */
    uint32_t *slots, free_slots;
    uint8_t *writing, *zeroes; /* zeroes NULL: new areas are not filled */
    uint64_t memory, peak;
    struct rs_code *codes[2];       /* of large and small groups */
    uint64_t next_area, next_block; /* position of fcast_shelf_noted() */
    bool is_settled;
};

static bool is_in_memory(const struct fcast_shelf *s)
{
    return s->cfg.scheme == FCAST_IN_MEMORY;
}

static uint64_t first_position(const struct fcast_shelf *s, uint64_t area)
{
    return area * s->area_groups * s->k;
}

static uint32_t groups_of(const struct fcast_shelf *s, uint32_t area)
{
    uint32_t left = s->groups - area * s->area_groups;

    return left < s->area_groups ? left : s->area_groups;
}

static uint8_t *new_blocks(uint64_t count, size_t block_bytes)
{
    void *bytes;
    int error = posix_memalign(&bytes, ALIGNMENT, count * block_bytes + 1);

    errno = error;
    return error ? NULL : bytes;
}

/* ------------------------------------------------------------------ making */

static struct fcast_storage_config plan(const struct fcast_shelf *s)
{
    uint64_t blocks = (uint64_t)s->groups * s->k;
    uint32_t b = s->cfg.b < blocks ? s->cfg.b : (uint32_t)blocks;
    struct fcast_storage_config c = {
        .scheme = s->cfg.scheme, .groups = s->groups, .k = s->k, .b = b ? b : 1};

    if (c.scheme == FCAST_CROWD_POOL)
        c.crowd_groups = fcast_storage_pool_groups(c.groups, c.k, c.b);
    return c;
}

/* Receive-Order appends and leaves no gaps. */
static bool does_fill(const struct fcast_shelf *s)
{
    return s->cfg.fills && !is_in_memory(s) && s->cfg.scheme != FCAST_RECEIVE_ORDER;
}

/* Returns how much memory it uses at most. */
static uint64_t memory_of(const struct fcast_shelf *s, const struct fcast_storage_config *c)
{
    const uint64_t blocks = (uint64_t)s->groups * s->k, size = s->cfg.fti.symbol_bytes;
    const uint64_t tables = blocks * (sizeof *s->group_at + sizeof *s->id_at) +
                            s->groups * (sizeof *s->areas + IDS / 8);
    uint64_t held = 2 * (uint64_t)c->b, crowd = s->k;

    if (c->scheme == FCAST_IN_MEMORY)
        held = blocks;
    if (c->scheme == FCAST_CROWD_BUCKET)
        crowd = (uint64_t)c->b * s->k;
    if (c->scheme == FCAST_CROWD_POOL) {
        uint64_t crowds = (c->groups + c->crowd_groups - 1) / c->crowd_groups;
        held = c->b * crowds + c->b - crowds + 1;
        crowd = (uint64_t)c->crowd_groups * s->k;
    }
    const uint64_t lists = 2 * sizeof(struct fcast_block) + 2 * sizeof(uint32_t);
    const uint64_t zeroes = does_fill(s) ? FILL_BLOCKS * size : 0;
    return tables + held * (size + lists) + c->b * size + 2 * crowd * size + zeroes;
}

static void measure(struct fcast_shelf *s, const struct fcast_shelf_config *cfg)
{
    s->cfg = *cfg;
    s->partition = fcast_partition_of(&cfg->fti);
    s->k = s->partition.large_blocks ? s->partition.large : s->partition.small;
    s->groups = s->partition.blocks;
}

uint64_t fcast_shelf_need(const struct fcast_shelf_config *cfg)
{
    struct fcast_shelf s = {0};

    measure(&s, cfg);
    const struct fcast_storage_config c = plan(&s);
    return memory_of(&s, &c);
}

/* Replays one note of an earlier process. */
static void replay(struct fcast_shelf *s, struct fcast_symbol n, uint64_t *seen)
{
    if (n.block >= s->groups)
        return;
    struct area *a = &s->areas[n.block / s->area_groups];
    if (n.id == SORTING || n.id == FCAST_BLOCK_DONE) {
        a->is_sorting = n.id == SORTING;
        a->is_settled = n.id == FCAST_BLOCK_DONE;
        return;
    }
    uint64_t bit = (uint64_t)n.block * IDS + n.id,
             first = first_position(s, n.block / s->area_groups);
    if (a->is_sorting) { /* a later run started the crowd over */
        uint64_t at = (uint64_t)(n.block / s->area_groups) * s->area_groups * IDS / WORD_BITS;
        memset(seen + at, 0, (size_t)s->area_groups * IDS / 8);
        a->is_sorting = false;
        a->count = 0;
    }
    if (n.id >= RS_N_MAX || seen[bit / WORD_BITS] >> bit % WORD_BITS & 1 ||
        a->count == s->area_groups * s->k)
        return;
    seen[bit / WORD_BITS] |= UINT64_C(1) << bit % WORD_BITS;
    s->group_at[first + a->count] = n.block;
    s->id_at[first + a->count++] = (uint8_t)n.id;
}

static bool restore(struct fcast_shelf *s)
{
    uint64_t whole = (uint64_t)s->area_count * s->area_groups;
    uint64_t *seen = calloc(whole, IDS / 8);
    struct fcast_symbol n;
    bool good = seen != NULL;

    for (uint64_t i = 0; good && s->cfg.disk.noted && s->cfg.disk.noted(s->cfg.disk.ctx, i, &n);
         i++)
        replay(s, n, seen);
    free(seen);
    for (uint32_t a = 0; good && a < s->area_count; a++) {
        if (s->areas[a].is_sorting)
            s->areas[a] = (struct area){0};
        for (uint32_t i = 0; !s->areas[a].is_settled && i < s->areas[a].count; i++) {
            const struct fcast_block b = {.group = s->group_at[first_position(s, a) + i]};
            good = fcast_storage_restore(s->storage, b);
            errno = EINVAL; /* in case it failed: more blocks of a group than possible */
        }
    }
    return good;
}

struct fcast_shelf *fcast_shelf_new(const struct fcast_shelf_config *cfg)
{
    if (cfg->fti.fec != FCAST_RS || !cfg->fti.length) {
        errno = EINVAL;
        return NULL;
    }
    struct fcast_shelf *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    measure(s, cfg);
    const struct fcast_storage_config c = plan(s);
    s->memory = memory_of(s, &c);
    if (s->memory > cfg->max_bytes) {
        free(s);
        errno = E2BIG;
        return NULL;
    }
    s->storage = fcast_storage_new(&c);
    if (!s->storage) {
        free(s);
        return NULL;
    }
    s->area_groups = fcast_storage_area_groups(s->storage);
    s->area_count = (s->groups + s->area_groups - 1) / s->area_groups;
    s->areas = calloc(s->area_count, sizeof *s->areas);
    uint64_t room = fcast_storage_room(s->storage);
    uint64_t positions = first_position(s, s->area_count);
    s->group_at = calloc(positions, sizeof *s->group_at);
    s->id_at = calloc(positions, sizeof *s->id_at);
    s->pool = new_blocks(room, cfg->fti.symbol_bytes);
    s->writing = new_blocks(c.b, cfg->fti.symbol_bytes);
    s->slots = calloc(room, sizeof *s->slots);
    if (does_fill(s) && (s->zeroes = new_blocks(FILL_BLOCKS, cfg->fti.symbol_bytes)))
        memset(s->zeroes, 0, (size_t)FILL_BLOCKS * cfg->fti.symbol_bytes);
    bool good = (s->zeroes || !does_fill(s)) && s->areas && s->group_at && s->id_at && s->pool &&
                s->writing && s->slots;
    for (uint64_t i = 0; good && i < room; i++)
        s->slots[s->free_slots++] = (uint32_t)(room - 1 - i);
    if (!good || (!is_in_memory(s) && !restore(s))) {
        int error = errno;
        fcast_shelf_free(s);
        errno = error;
        return NULL;
    }
    return s;
}

void fcast_shelf_free(struct fcast_shelf *s)
{
    if (!s)
        return;
    fcast_storage_free(s->storage);
    free(s->areas);
    free(s->group_at);
    free(s->id_at);
    free(s->pool);
    free(s->slots);
    free(s->writing);
    free(s->zeroes);
    rs_code_free(s->codes[0]);
    rs_code_free(s->codes[1]);
    free(s);
}

bool fcast_shelf_is_moved(const struct fcast_shelf *s)
{
    return s->cfg.scheme == FCAST_RECEIVE_ORDER && s->is_settled;
}

uint64_t fcast_shelf_memory(const struct fcast_shelf *s)
{
    return s->memory;
}

uint64_t fcast_shelf_peak(const struct fcast_shelf *s)
{
    return s->peak;
}

bool fcast_shelf_noted(struct fcast_shelf *s, uint64_t i, struct fcast_symbol *out)
{
    if (i == 0)
        s->next_area = s->next_block = 0;
    for (; s->next_area < s->area_count; s->next_area++, s->next_block = 0) {
        uint32_t area = (uint32_t)s->next_area, n = (uint32_t)s->next_block;
        const struct area *a = &s->areas[area];
        if (n >= (a->is_settled ? groups_of(s, area) : a->count))
            continue;
        uint64_t at = first_position(s, area) + n;
        *out = a->is_settled ? (struct fcast_symbol){area * s->area_groups + n, FCAST_BLOCK_DONE}
                             : (struct fcast_symbol){s->group_at[at], s->id_at[at]};
        s->next_block++;
        return true;
    }
    return false;
}

/* ------------------------------------------------------------------ receiving */

static void note(const struct fcast_shelf *s, uint32_t group, uint32_t id)
{
    if (s->cfg.disk.note)
        s->cfg.disk.note(s->cfg.disk.ctx, (struct fcast_symbol){group, id});
}

/* Writes zeroes over a whole area before its first block. */
static int fill(const struct fcast_shelf *s, uint32_t area)
{
    const struct fcast_store *data = &s->cfg.disk.data;
    const uint64_t size = s->cfg.fti.symbol_bytes;
    uint64_t at = first_position(s, area), left = (uint64_t)groups_of(s, area) * s->k;

    for (uint64_t n; left; at += n, left -= n) {
        n = left < FILL_BLOCKS ? left : FILL_BLOCKS;
        if (data->write(data->ctx, at * size, s->zeroes, n * size) < 0)
            return -1;
    }
    return 0;
}

static int write_one(struct fcast_shelf *s, const struct fcast_write *w)
{
    const uint32_t area = w->blocks[0].group / s->area_groups;

    const struct fcast_store *data = &s->cfg.disk.data;
    size_t size = s->cfg.fti.symbol_bytes;

    for (uint32_t i = 0; i < w->count; i++)
        memcpy(s->writing + i * size, s->pool + w->blocks[i].slot * size, size);
    int result = s->zeroes && !s->areas[area].count ? fill(s, area) : 0;
    if (result == 0)
        result = data->write(data->ctx, w->at * size, s->writing, w->count * size);
    for (uint32_t i = 0; i < w->count; i++) {
        const struct fcast_block *b = &w->blocks[i];
        s->slots[s->free_slots++] = b->slot;
        if (result < 0)
            continue;
        s->group_at[w->at + i] = b->group;
        s->id_at[w->at + i] = b->index;
        s->areas[b->group / s->area_groups].count++;
        note(s, b->group, b->index);
    }
    fcast_storage_written(s->storage);
    return result;
}

int fcast_shelf_flush(struct fcast_shelf *s)
{
    struct fcast_write w;

    while (!is_in_memory(s) && fcast_storage_next(s->storage, true, &w))
        if (write_one(s, &w) < 0)
            return -1;
    return 0;
}

int fcast_shelf_keep(struct fcast_shelf *s, struct fcast_symbol symbol, const uint8_t *bytes)
{
    const bool is_pool = s->cfg.scheme == FCAST_CROWD_POOL;
    const size_t size = s->cfg.fti.symbol_bytes;
    struct fcast_write w;

    if (is_pool && !s->free_slots && fcast_storage_next(s->storage, false, &w) &&
        write_one(s, &w) < 0)
        return -1;
    struct fcast_block b = {.group = symbol.block, .index = (uint8_t)symbol.id};
    if (symbol.id >= RS_N_MAX || !s->free_slots) {
        errno = EINVAL;
        return -1;
    }
    b.slot = s->slots[s->free_slots - 1];
    if (!fcast_storage_take(s->storage, b)) {
        errno = EINVAL;
        return -1;
    }
    s->free_slots--;
    memcpy(s->pool + b.slot * size, bytes, size);
    uint64_t held = fcast_storage_held(s->storage);
    s->peak = held > s->peak ? held : s->peak;
    if (is_in_memory(s)) { /* slots are assigned in order */
        s->group_at[b.slot] = b.group;
        s->id_at[b.slot] = b.index;
        s->areas[0].count++;
        return 0;
    }
    /* A pool waits until it is full: then some crowd has b blocks. */
    while (!is_pool && fcast_storage_next(s->storage, false, &w))
        if (write_one(s, &w) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------ decoding */

struct sorting {
    uint32_t area;
    uint64_t first;     /* first position */
    uint32_t *by_group; /* positions relative to `first`, sorted by group */
    uint32_t *begins;   /* where each group begins in by_group, and the end */
    uint8_t *read, *made;
};

static void sorting_free(struct sorting *t)
{
    free(t->by_group);
    free(t->begins);
    free(t->read);
    free(t->made);
}

/* Sorts the positions of the area by group. */
static bool sort(const struct fcast_shelf *s, struct sorting *t)
{
    const struct area *a = &s->areas[t->area];
    uint32_t groups = groups_of(s, t->area), base = t->area * s->area_groups;

    t->by_group = calloc(a->count + 1u, sizeof *t->by_group);
    t->begins = calloc(groups + 2u, sizeof *t->begins);
    if (!t->by_group || !t->begins)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        t->begins[s->group_at[t->first + i] - base + 2]++;
    for (uint32_t g = 2; g < groups + 2; g++)
        t->begins[g] += t->begins[g - 1];
    for (uint32_t i = 0; i < a->count; i++)
        t->by_group[t->begins[s->group_at[t->first + i] - base + 1]++] = i;
    return true;
}

/* Computes the source blocks of a group, in order, from its k blocks. */
static int make_group(struct fcast_shelf *s, uint32_t group, uint32_t k,
                      const uint8_t *const blocks[], const unsigned ids[], uint8_t *out)
{
    const size_t size = s->cfg.fti.symbol_bytes;
    uint8_t *made[RS_N_MAX];
    bool is_whole = true;

    for (uint32_t i = 0; i < k; i++)
        made[i] = out + i * size;
    for (uint32_t i = 0; i < k; i++) {
        is_whole = is_whole && ids[i] < k;
        if (ids[i] < k)
            memcpy(made[ids[i]], blocks[i], size);
    }
    if (is_whole)
        return 0;
    struct rs_code **code = &s->codes[group >= s->partition.large_blocks];
    if (!*code && !(*code = rs_code_new((enum rs_kind)s->cfg.rs_kind, k, RS_N_MAX)))
        return -1;
    int error = rs_decode(*code, size, ids, blocks, made);
    errno = error;
    return error ? -1 : 0;
}

/* Finds the k blocks of the area's `nth` group, and writes its source blocks to `out`. */
static int decode_group(struct fcast_shelf *s, struct sorting *t, uint32_t nth, uint8_t *out)
{
    const struct fcast_store *data = &s->cfg.disk.data;
    const size_t size = s->cfg.fti.symbol_bytes;
    const uint32_t group = t->area * s->area_groups + nth, k = fcast_block_k(&s->partition, group);
    const uint8_t *blocks[RS_N_MAX] = {NULL};
    unsigned ids[RS_N_MAX] = {0};

    if (t->begins[nth + 1] - t->begins[nth] != k) {
        errno = EINVAL;
        return -1;
    }
    for (uint32_t i = 0; i < k; i++) {
        uint64_t at = t->by_group[t->begins[nth] + i];
        ids[i] = s->id_at[t->first + at];
        if (is_in_memory(s)) {
            blocks[i] = s->pool + at * size;
        } else if (s->cfg.scheme == FCAST_RECEIVE_ORDER) {
            blocks[i] = t->read + i * size;
            if (data->read(data->ctx, at * size, t->read + i * size, size) < 0)
                return -1;
        } else {
            blocks[i] = t->read + at * size;
        }
    }
    return make_group(s, group, k, blocks, ids, out);
}

/* Settles a crowd in place: reads, sorts, decodes and writes it back. Short groups move it toward
 * the beginning, over crowds that have already moved; never over a later one. */
static int settle_crowd(struct fcast_shelf *s, struct sorting *t)
{
    const struct fcast_store *data = &s->cfg.disk.data;
    const struct fcast_place *disk = &s->cfg.disk;
    const size_t size = s->cfg.fti.symbol_bytes;
    const uint32_t base = t->area * s->area_groups, groups = groups_of(s, t->area);
    const uint64_t begin = fcast_block_first(&s->partition, base);
    const uint64_t blocks = s->areas[t->area].count;

    if (data->read(data->ctx, t->first * size, t->read, blocks * size) < 0)
        return -1;
    for (uint32_t g = 0; g < groups; g++) {
        uint64_t at = fcast_block_first(&s->partition, base + g) - begin;
        if (decode_group(s, t, g, t->made + at * size) < 0)
            return -1;
    }
    note(s, base, SORTING);
    if ((disk->sync && disk->sync(disk->ctx) < 0) ||
        data->write(data->ctx, begin * size, t->made, blocks * size) < 0)
        return -1;
    note(s, base, FCAST_BLOCK_DONE);
    s->areas[t->area].is_settled = true;
    return 0;
}

/* Settles the whole file, one group at a time, at its final place. */
static int settle_file(struct fcast_shelf *s, struct sorting *t)
{
    const struct fcast_store *to = is_in_memory(s) ? &s->cfg.disk.data : &s->cfg.disk.repair;
    const size_t size = s->cfg.fti.symbol_bytes;

    for (uint32_t g = 0; g < s->groups; g++)
        if (decode_group(s, t, g, t->made) < 0 ||
            to->write(to->ctx, fcast_block_first(&s->partition, g) * size, t->made,
                      fcast_block_k(&s->partition, g) * size) < 0)
            return -1;
    return 0;
}

int fcast_shelf_settle(struct fcast_shelf *s)
{
    const bool is_one = is_in_memory(s) || s->cfg.scheme == FCAST_RECEIVE_ORDER;
    const uint64_t crowd = is_one ? s->k : (uint64_t)s->area_groups * s->k;

    if (s->is_settled)
        return 0;
    if (fcast_shelf_flush(s) < 0)
        return -1;
    for (uint32_t a = 0; a < s->area_count; a++) {
        struct sorting t = {.area = a, .first = first_position(s, a)};
        if (s->areas[a].is_settled)
            continue;
        t.read = new_blocks(crowd, s->cfg.fti.symbol_bytes);
        t.made = new_blocks(crowd, s->cfg.fti.symbol_bytes);
        bool good = t.read && t.made && sort(s, &t) &&
                    (is_one ? settle_file(s, &t) : settle_crowd(s, &t)) == 0;
        int error = errno;
        sorting_free(&t);
        errno = error;
        if (!good)
            return -1;
    }
    s->is_settled = true;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The five storage schemes of 1999 on a disk that counts: a write of any size takes as long as b
 * blocks take to arrive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "order.h"
#include "storage.h"

enum { GROUPS_MAX = 128, K_MAX = 16 };

struct disk {
    struct fcast_storage *storage;
    struct fcast_storage_config cfg;
    uint32_t writes, seeks, blocks;
    uint64_t end, peak; /* after the last write; most blocks in memory */
    bool is_taken[GROUPS_MAX * K_MAX];
    bool is_here[GROUPS_MAX][K_MAX];
};

/* Checks the constraints on a write: only free positions, within the area of its blocks' groups. */
static void put(struct disk *d, const struct fcast_write *w, uint32_t area_groups)
{
    d->writes++;
    d->seeks += w->at != d->end;
    d->end = w->at + w->count;
    d->blocks += w->count;
    assert_in_range(w->count, 1, d->cfg.b);
    assert_true(d->end <= (uint64_t)d->cfg.groups * d->cfg.k);
    for (uint32_t i = 0; i < w->count; i++) {
        uint64_t at = w->at + i;
        assert_false(d->is_taken[at]);
        d->is_taken[at] = true;
        assert_int_equal(at / d->cfg.k / area_groups, w->blocks[i].group / area_groups);
        assert_false(d->is_here[w->blocks[i].group][w->blocks[i].index]);
        d->is_here[w->blocks[i].group][w->blocks[i].index] = true;
    }
}

/* Delivers all blocks in index-major order. Returns false if a block found no room. */
static bool run(struct disk *d, const struct fcast_storage_config *cfg, enum fcast_order order,
                uint32_t area_groups, uint32_t arrivals, uint64_t random)
{
    *d = (struct disk){.storage = fcast_storage_new(cfg), .cfg = *cfg};
    assert_non_null(d->storage);
    uint32_t groups[GROUPS_MAX], since = 0;
    bool fits = true, is_busy = false;
    struct fcast_write w;
    for (uint32_t index = 0; index < cfg->k; index++) {
        fcast_order_round(order, cfg->groups, &random, groups);
        for (uint32_t i = 0; i < cfg->groups; i++) {
            fits &=
                fcast_storage_take(d->storage, (struct fcast_block){groups[i], (uint8_t)index, 0});
            if (fcast_storage_held(d->storage) > d->peak)
                d->peak = fcast_storage_held(d->storage);
            if (is_busy && ++since >= arrivals) {
                fcast_storage_written(d->storage);
                is_busy = false;
            }
            if (!is_busy && fcast_storage_next(d->storage, false, &w)) {
                put(d, &w, area_groups);
                is_busy = true;
                since = 0;
            }
        }
    }
    fcast_storage_written(d->storage);
    for (; fcast_storage_next(d->storage, true, &w); fcast_storage_written(d->storage))
        put(d, &w, area_groups);
    assert_int_equal(fcast_storage_held(d->storage), 0);
    assert_true(d->peak <= fcast_storage_room(d->storage));
    fcast_storage_free(d->storage);
    return fits;
}

/* The theorem of the report: b c + b - c + 1 blocks never overflow as long as the disk keeps up. */
static void test_pool_never_overflows(void **state)
{
    (void)state;
    uint64_t random = 7;
    uint32_t groups[GROUPS_MAX], near = 0;
    static struct disk d;
    for (uint32_t trial = 0; trial < 600; trial++) {
        fcast_order_round(FCAST_SHUFFLE, GROUPS_MAX, &random, groups);
        struct fcast_storage_config cfg = {.scheme = FCAST_CROWD_POOL,
                                           .groups = 1 + groups[0],
                                           .k = 2 + groups[1] % (K_MAX - 1),
                                           .crowd_groups = 1 + groups[2] % 12,
                                           .b = 1 + groups[3] % 8};
        if (cfg.b > cfg.groups * cfg.k)
            cfg.b = 1;
        assert_true(run(&d, &cfg, (enum fcast_order)(trial % 3), cfg.crowd_groups, cfg.b, random));
        assert_int_equal(d.blocks, cfg.groups * cfg.k);
        uint32_t c = (cfg.groups + cfg.crowd_groups - 1) / cfg.crowd_groups;
        near += d.peak * 2 > cfg.b * c + cfg.b - c + 1;
    }
    /* The bound is tight: half of it would be too little in many cases. */
    assert_true(near > 60);
}

static void test_a_slow_disk_overflows_the_pool(void **state)
{
    (void)state;
    static struct disk d;
    const struct fcast_storage_config cfg = {
        .scheme = FCAST_CROWD_POOL, .groups = 64, .k = 16, .crowd_groups = 8, .b = 4};
    assert_false(run(&d, &cfg, FCAST_SHUFFLE, 8, 8, 1));
}

static void test_writes_and_seeks(void **state)
{
    (void)state;
    static struct disk d;
    enum { GROUPS = 64, K = 16, BLOCKS = GROUPS * K, B = 4 };
    struct fcast_storage_config cfg = {.scheme = FCAST_IN_MEMORY, .groups = GROUPS, .k = K};
    cfg.b = BLOCKS;
    assert_true(run(&d, &cfg, FCAST_SHUFFLE, GROUPS, 1, 1));
    assert_int_equal(d.writes, 1);
    assert_int_equal(d.peak, BLOCKS);

    cfg = (struct fcast_storage_config){FCAST_RECEIVE_ORDER, GROUPS, K, 0, 1};
    assert_true(run(&d, &cfg, FCAST_SHUFFLE, GROUPS, 1, 1));
    assert_int_equal(d.writes, BLOCKS);
    assert_int_equal(d.seeks, 0);

    cfg.scheme = FCAST_GROUP_AREA;
    assert_true(run(&d, &cfg, FCAST_SEQUENTIAL, 1, 1, 1));
    assert_int_equal(d.writes, BLOCKS);
    assert_true(d.seeks > BLOCKS - K);

    /* Whole crowds one after another take S/b writes. Two buckets are too few for other orders. */
    cfg = (struct fcast_storage_config){FCAST_CROWD_BUCKET, GROUPS, K, 0, B};
    assert_true(run(&d, &cfg, FCAST_SEQUENTIAL, B, B, 1));
    assert_int_equal(d.writes, BLOCKS / B);
    assert_in_range(d.peak, B + 1, 2 * B);
    assert_false(run(&d, &cfg, FCAST_SHUFFLE, B, B, 1));

    /* Any order takes S/b writes, plus those before the pool is full and those at the end. */
    cfg = (struct fcast_storage_config){FCAST_CROWD_POOL, GROUPS, K, 8, B};
    assert_true(run(&d, &cfg, FCAST_SHUFFLE, 8, B, 1));
    assert_in_range(d.writes, BLOCKS / B, BLOCKS / B * 5 / 4);
}

/* The report's equation for the pool's memory, slightly above sqrt(S (b - 1)), from Figure 18. */
static void test_memory_of_a_pool(void **state)
{
    (void)state;
    static const struct {
        uint32_t groups, k, b, blocks;
    } cases[] = {
        {1024, 64, 16, 1000}, {8192, 64, 16, 2813}, {8192, 64, 128, 8225}, {10240, 32, 4, 993}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t groups = cases[i].groups, k = cases[i].k, b = cases[i].b;
        uint32_t g = fcast_storage_pool_groups(groups, k, b), c = (groups + g - 1) / g;
        uint32_t pool = b * c + b - c + 1, need = g * k > pool ? g * k : pool;
        /* Crowds are whole groups: up to a group more. */
        assert_in_range(need, cases[i].blocks * 99 / 100, cases[i].blocks + k + b);
    }
    assert_int_equal(fcast_storage_pool_groups(1, 32, 4), 1);
    assert_int_equal(fcast_storage_pool_groups(100, 32, 1), 1);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const struct fcast_storage_config none[] = {
        {FCAST_CROWD_POOL, 0, 4, 1, 1},    {FCAST_CROWD_POOL, 4, 0, 1, 1},
        {FCAST_CROWD_POOL, 4, 4, 0, 1},    {FCAST_CROWD_POOL, 4, 4, 1, 0},
        {FCAST_CROWD_BUCKET, 4, 4, 1, 17}, {FCAST_GROUP_AREA, UINT32_MAX, 2, 0, 1}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(fcast_storage_new(&none[i]));
    const struct fcast_storage_config cfg = {FCAST_RECEIVE_ORDER, 1, 1, 0, 1};
    struct fcast_storage *s = fcast_storage_new(&cfg);
    assert_false(fcast_storage_take(s, (struct fcast_block){1, 0, 0})); /* no such group */
    assert_true(fcast_storage_take(s, (struct fcast_block){0, 0, 0}));
    assert_false(fcast_storage_take(s, (struct fcast_block){0, 1, 0})); /* the group has its k */
    fcast_storage_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_never_overflows),
        cmocka_unit_test(test_a_slow_disk_overflows_the_pool),
        cmocka_unit_test(test_writes_and_seeks),
        cmocka_unit_test(test_memory_of_a_pool),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The application scheduler: Figures 3b, 3d and 3e of the report on the sequencer. Its curves are
 * only pictures; the numbers below follow from the rule alone, computed with a ring of blocks in
 * another program.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedule.h"
#include "sim/random.h"

static struct m2c_schedule schedule_of(uint32_t blocks, uint32_t levels)
{
    struct m2c_schedule s;

    assert_int_equal(m2c_schedule_init(&s, blocks, levels), 0);
    return s;
}

/* Returns how many buffers it takes to hear `needed` different blocks on this many levels. */
static uint32_t buffers_until(const struct m2c_schedule *s, uint32_t levels, uint32_t needed,
                              uint64_t first)
{
    uint8_t *heard = calloc(1, s->blocks);
    uint32_t different = 0, buffers = 0;

    assert_non_null(heard);
    for (; different < needed; buffers++)
        for (uint32_t level = 0; level < levels; level++) {
            uint8_t *one = &heard[m2c_schedule_block(s, first + buffers, level)];
            different += !*one;
            *one = 1;
        }
    free(heard);
    return buffers;
}

static void test_figure_3b(void **state)
{
    (void)state;
    static const uint32_t shifts[] = {0, 5, 2, 7};
    struct m2c_schedule s = schedule_of(10, 4);

    for (uint32_t buffer = 0; buffer < 25; buffer++)
        for (uint32_t level = 0; level < 4; level++)
            assert_int_equal(m2c_schedule_block(&s, buffer, level), (buffer + shifts[level]) % 10);
    m2c_schedule_free(&s);
}

static const uint64_t FIRST[] = {0, 1, 333, 999, UINT64_C(1) << 40};

/* Without repair symbols all of 1,000 blocks are needed: only doubling the levels helps (3d). */
static void test_figure_3d(void **state)
{
    (void)state;
    static const uint32_t expected[][2] = {{1, 1000}, {2, 500}, {3, 500}, {4, 250}, {8, 125}};
    struct m2c_schedule s = schedule_of(1000, 16);

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (size_t j = 0; j < sizeof FIRST / sizeof *FIRST; j++)
            assert_int_equal(buffers_until(&s, expected[i][0], 1000, FIRST[j]), expected[i][1]);
    m2c_schedule_free(&s);
}

/* With as many repair symbols, 500 of 1,000 are needed: each level helps, and few arrive twice
 * (3e). */
static void test_figure_3e(void **state)
{
    (void)state;
    static const uint32_t expected[][2] = {{1, 500}, {2, 250}, {3, 167}, {4, 125},
                                           {5, 100}, {6, 84},  {8, 63},  {16, 32}};
    struct m2c_schedule s = schedule_of(1000, 16);

    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (size_t j = 0; j < sizeof FIRST / sizeof *FIRST; j++)
            assert_int_equal(buffers_until(&s, expected[i][0], 500, FIRST[j]), expected[i][1]);
    m2c_schedule_free(&s);
}

static int by_value(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Whatever the ring: all levels differ, none is closer to another than half of the longest gap
 * (rounded down), and nothing repeats within as many buffers as the shortest gap is long. */
static void test_levels_spread(void **state)
{
    (void)state;
    uint64_t random = 3;

    for (unsigned i = 0; i < 300; i++) {
        const uint32_t blocks = 1 + tp_random_below(&random, 3000);
        const uint32_t levels = 1 + tp_random_below(&random, blocks < 200 ? blocks : 200);
        struct m2c_schedule s = schedule_of(blocks, levels);
        uint32_t sorted[200], shortest = blocks, longest = 0;
        memcpy(sorted, s.shift, levels * sizeof *sorted);
        qsort(sorted, levels, sizeof *sorted, by_value);
        for (uint32_t n = 0; n < levels; n++) {
            const uint32_t next = n + 1 < levels ? sorted[n + 1] : blocks;
            const uint32_t gap = next - sorted[n];
            shortest = gap < shortest ? gap : shortest;
            longest = gap > longest ? gap : longest;
        }
        assert_true(shortest >= 1 && longest <= 2 * shortest + 1);
        assert_int_equal(buffers_until(&s, levels, shortest * levels, tp_random_bits(&random)),
                         shortest);
        m2c_schedule_free(&s);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const uint32_t wrong[][2] = {{0, 0}, {1, 0}, {0, 1}, {10, 11}};
    struct m2c_schedule s;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        assert_int_equal(m2c_schedule_init(&s, wrong[i][0], wrong[i][1]), -1);
        assert_int_equal(errno, EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figure_3b),       cmocka_unit_test(test_figure_3d),
        cmocka_unit_test(test_figure_3e),       cmocka_unit_test(test_levels_spread),
        cmocka_unit_test(test_what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

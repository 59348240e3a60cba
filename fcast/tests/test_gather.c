/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathering short writes into long ones: whatever arrives in whatever order, the files are the same
 * as without gathering; a failed write loses nothing.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../tools/gather.h"
#include "sim/random.h"

enum { FILE_BYTES = 1 << 20, FILES = 2, MEMORY = 1 << 20, PIECE = 1000 };

struct file {
    uint8_t is[FILE_BYTES], should_be[FILE_BYTES];
    struct gather_file gathered;
};
static struct file files[FILES];
static unsigned writes, fails_every; /* 0: never */

static int put(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct file *f = ctx;

    if (fails_every && ++writes % fails_every == 0) {
        errno = EIO;
        return -1;
    }
    writes += !fails_every;
    assert_true(at + len <= FILE_BYTES);
    memcpy(f->is + at, bytes, len);
    return 0;
}

static void begin(void)
{
    memset(files, 0, sizeof files);
    for (int i = 0; i < FILES; i++)
        files[i].gathered = (struct gather_file){put, &files[i], 0};
    writes = 0;
}

static void check(struct gather *g)
{
    for (int i = 0; i < FILES; i++) {
        while (gather_flush(g, &files[i].gathered) < 0)
            assert_int_equal(errno, EIO);
        assert_int_equal(files[i].gathered.runs, 0);
        assert_memory_equal(files[i].is, files[i].should_be, FILE_BYTES);
    }
}

/* Writes `streams` interleaved runs to each file; every `skip`-th piece is missing. */
static void grow(struct gather *g, unsigned streams, unsigned skip, uint64_t *random)
{
    const unsigned pieces = FILE_BYTES / PIECE / streams;

    for (unsigned j = 0; j < pieces; j++)
        for (unsigned i = 0; i < streams * FILES; i++) {
            struct file *f = &files[i % FILES];
            uint64_t at = ((uint64_t)(i / FILES) * pieces + j) * PIECE;
            if (skip && tp_random_bits(random) % skip == 0)
                continue;
            memset(f->should_be + at, (int)(1 + tp_random_bits(random) % 255), PIECE);
            while (gather_put(g, &f->gathered, at, f->should_be + at, PIECE) < 0)
                assert_int_equal(errno, EIO);
        }
}

static void test_what_comes_is_what_is_written(void **state)
{
    (void)state;
    static const unsigned streams[] = {1, 3, 40, 200};
    uint64_t random = 7;

    for (unsigned n = 0; n < 4; n++)
        for (unsigned skip = 0; skip < 8; skip += 7)
            for (unsigned fails = 0; fails < 4; fails += 3) {
                struct gather *g = gather_new(streams[n], MEMORY);
                assert_non_null(g);
                begin();
                fails_every = fails;
                grow(g, streams[n], skip, &random);
                check(g);
                gather_free(g);
            }
    fails_every = 0;
}

/* One long write replaces many short ones and consists of whole pages, except at its ends. */
static void test_that_it_gathers(void **state)
{
    (void)state;
    uint64_t random = 7;
    struct gather *g = gather_new(14, MEMORY);

    assert_non_null(g);
    begin();
    grow(g, 14, 0, &random);
    check(g);
    assert_in_range(writes, FILES * FILE_BYTES / 16384, FILES * FILE_BYTES / 8192);
    gather_free(g);
}

static void test_room_and_dropping(void **state)
{
    (void)state;
    uint64_t random = 7;
    struct gather *g = gather_new(1, MEMORY);

    assert_non_null(g);
    begin();
    grow(g, 20, 0, &random);
    fails_every = 1;
    assert_int_equal(gather_widen(g, 500), -1);
    fails_every = 0;
    assert_int_equal(gather_widen(g, 500), 0);
    check(g);
    memset(files, 0, sizeof files[0].is);
    files[0].gathered = (struct gather_file){put, &files[0], 0};
    assert_int_equal(gather_put(g, &files[0].gathered, 0, "abc", 3), 0);
    assert_int_equal(files[0].gathered.runs, 1);
    gather_drop(g, &files[0].gathered);
    assert_int_equal(files[0].gathered.runs, 0);
    assert_int_equal(gather_flush(g, &files[0].gathered), 0);
    assert_int_equal(files[0].is[0], 0);
    gather_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_comes_is_what_is_written),
                                       cmocka_unit_test(test_that_it_gathers),
                                       cmocka_unit_test(test_room_and_dropping)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

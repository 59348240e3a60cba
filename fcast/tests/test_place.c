/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of fcast-recv below DIR/.fcast when any of its writes fails, once or from then on: the
 * next process continues with what was stored, and its object is correct.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../tools/place.h"
#include "sim/random.h"

enum { E = 16, BYTES = 1500 * E + 5, REPAIR_ROOM = 1 << 20 };

static uint8_t object[BYTES], repair[REPAIR_ROOM], got[BYTES];

/* ------------------------------------------------------------------ a disk that fails */

/* Counts all writes, or only those of notes. */
static uint64_t writes, fail_from, fail_until;
static bool only_notes;
static int fail_with;

static bool is_of_notes(int fd)
{
    char link[32], name[256];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, name, sizeof name);
    return len > 6 && memcmp(name + len - 6, ".notes", 6) == 0;
}

ssize_t __real_pwrite64(int fd, const void *bytes, size_t len, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t at);

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t at)
{
    uint64_t number = only_notes && !is_of_notes(fd) ? UINT64_MAX : writes++;

    if (number < fail_from || number >= fail_until)
        return __real_pwrite64(fd, bytes, len, at);
    /* Like a disk that fills up: part of the data is written, then nothing; or nothing at all. */
    if (number == fail_from && len > E && fail_until > fail_from + 1)
        return __real_pwrite64(fd, bytes, len / 2 + 1, at);
    errno = fail_with;
    return -1;
}

/* ------------------------------------------------------------------ a sender and a receiver */

static int read_bytes(void *ctx, uint64_t at, void *bytes, size_t len)
{
    memcpy(bytes, (const uint8_t *)ctx + at, len);
    return 0;
}

static int write_bytes(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    assert_true(at + len <= REPAIR_ROOM);
    memcpy((uint8_t *)ctx + at, bytes, len);
    return 0;
}

struct life {
    struct places places;
    struct fcast_receiver *core;
    unsigned stored, moved;
};

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    return place_open(&((struct life *)ctx)->places, source, tsi, toi, fti, out);
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    struct life *l = ctx;

    (void)toi;
    (void)meta; /* no digest: wrong bytes must show up here */
    assert_int_equal(bytes, BYTES);
    assert_int_equal(place_read(place, at, got, BYTES), 0);
    assert_memory_equal(got, object, BYTES);
    if (place_may_move(place, at, bytes)) {
        assert_true(place_move(place, at, bytes, l->places.dir_fd, "moved"));
        int fd = openat(l->places.dir_fd, "moved", O_RDONLY);
        assert_true(fd >= 0);
        memset(got, 0, BYTES);
        assert_int_equal(read(fd, got, BYTES), BYTES);
        assert_int_equal(read(fd, got, 1), 0);
        assert_memory_equal(got + 1, object + 1, BYTES - 1);
        close(fd);
        l->moved++;
    }
    place_close(&l->places, place, true, false);
    l->stored++;
    return FCAST_STORED;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    (void)toi;
    place_close(&((struct life *)ctx)->places, place, false, keep);
}

static void start(struct life *l, const char *dir)
{
    const struct fcast_receiver_config cfg = {.ctx = l, .begin = begin, .done = done, .drop = drop};
    int fd = open(dir, O_RDONLY | O_DIRECTORY);

    l->stored = l->moved = 0;
    assert_true(fd >= 0);
    assert_int_equal(places_open(&l->places, fd), 0);
    l->places.keeping.has_header = true;
    close(fd);
    l->core = fcast_receiver_new(&cfg);
    assert_non_null(l->core);
}

static void end(struct life *l)
{
    fcast_receiver_free(l->core);
    places_close(&l->places);
    close(l->places.dir_fd);
}

/* Plays the carousel to the receiver, which loses every third datagram, until it has the object, a
 * write has failed and `stops` is set, or `most` datagrams were sent. */
static void play(struct fcast_sender *s, struct life *l, unsigned most, bool stops)
{
    static uint8_t bytes[FCAST_DATAGRAM_MAX];

    for (unsigned i = 1; i <= most && !l->stored && !(stops && l->places.error); i++) {
        size_t len = fcast_sender_next(s, bytes);
        if (i % 3)
            fcast_receiver_datagram(l->core, 1, bytes, len, i);
    }
}

static struct fcast_sender *carousel(uint8_t fec, uint64_t seed, int skipped)
{
    const struct fcast_sender_config cfg = {.tsi = 1,
                                            .fec = fec,
                                            .symbol_bytes = E,
                                            .k = 60,
                                            .overhead = 1,
                                            .order = FCAST_SHUFFLE,
                                            .random = seed,
                                            .repair = {repair, read_bytes, write_bytes}};
    const struct fcast_meta meta = {.location = "object"};
    const struct fcast_store source = {object, read_bytes, NULL};
    struct fcast_sender *s = fcast_sender_new(&cfg);
    uint64_t toi;

    assert_non_null(s);
    assert_int_equal(fcast_sender_add(s, &meta, BYTES, &source, &toi), 0);
    assert_int_equal(fcast_sender_commit(s), 0);
    static uint8_t bytes[FCAST_DATAGRAM_MAX];
    for (int i = 0; i < skipped; i++)
        fcast_sender_next(s, bytes);
    return s;
}

static const int errors[] = {ENOSPC, EDQUOT, EIO};

/* Runs receivers in which writes `first` to `last` fail, then one in which none fails. */
static void fail_at(uint8_t fec, uint64_t first, uint64_t last, bool stops)
{
    char dir[] = "/tmp/fcast-place-XXXXXX", remove[64];
    /* Repair symbols come soon; notes record their slots. */
    struct fcast_sender *s = carousel(fec, first + 1, 1400);
    struct life l;

    assert_non_null(mkdtemp(dir));
    writes = 0;
    fail_from = first;
    fail_until = last;
    fail_with = errors[first % 3];
    start(&l, dir);
    play(s, &l, 1800, stops);
    bool failed = writes > first;
    end(&l);
    failed = failed || writes > first;
    /* Whatever came last: the receiver writes its notes when it ends. */
    assert_true(l.stored || failed);
    fail_from = UINT64_MAX; /* the disk has room again */
    if (!l.stored) {
        start(&l, dir);
        play(s, &l, 20000, false);
        assert_int_equal(l.stored, 1);
        assert_int_equal(l.places.error, 0);
        end(&l);
    }
    fcast_sender_free(s);
    snprintf(remove, sizeof remove, "rm -r %s", dir);
    assert_int_equal(system(remove), 0);
}

/* From that write on nothing fits, and the receiver ends. */
static void test_a_disk_that_stays_full(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 14; n++)
        fail_at(n % 2 ? FCAST_RS : FCAST_TRIANGLE, n, UINT64_MAX, true);
}

/* One write of notes fails or is partial, and the receiver continues: it never leaves notes that do
 * not match the symbols in the stores. */
static void test_notes_that_fail_once(void **state)
{
    (void)state;
    only_notes = true;
    for (uint64_t n = 0; n < 2; n++)
        for (uint64_t times = 1; times < 3; times++)
            fail_at(FCAST_RS, n, n + times, false);
    only_notes = false;
}

/* The object's own file becomes the data's file if the header arrived before other bytes were
 * stored, in the same run or an earlier one; otherwise it cannot be moved. */
static void test_files_that_move(void **state)
{
    (void)state;
    static const struct {
        int skipped;
        unsigned first; /* datagrams of the first run */
    } cases[] = {{0, 900}, {1400, 900}, {1560, 1750 /* repair symbols, then the header */}};
    unsigned moved[3] = {0};

    for (unsigned n = 0; n < 18; n++) {
        const unsigned late = n % 3;
        char dir[] = "/tmp/fcast-place-XXXXXX", remove[64];
        struct fcast_sender *s = carousel(FCAST_TRIANGLE, n, cases[late].skipped);
        struct life l;

        assert_non_null(mkdtemp(dir));
        start(&l, dir);
        play(s, &l, cases[late].first, false); /* two thirds of them arrive */
        assert_int_equal(l.stored, 0);
        end(&l);
        start(&l, dir);
        play(s, &l, 20000, false);
        assert_int_equal(l.stored, 1);
        moved[late] += l.moved;
        end(&l);
        fcast_sender_free(s);
        snprintf(remove, sizeof remove, "rm -r %s", dir);
        assert_int_equal(system(remove), 0);
    }
    assert_in_range(moved[0], 2, 6); /* in the other runs it was lost */
    assert_int_equal(moved[1] + moved[2], 0);
}

int main(void)
{
    uint64_t random = 5;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_disk_that_stays_full),
                                       cmocka_unit_test(test_notes_that_fail_once),
                                       cmocka_unit_test(test_files_that_move)};

    for (unsigned i = 0; i < BYTES; i++)
        object[i] = (uint8_t)tp_random_bits(&random);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One session after another at one receiver: nothing known about the first applies to the next,
 * whose objects have the same numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fcast.h"

enum { E = 64, BYTES = 700, FILES_MAX = 8 };
#define SECOND_NS UINT64_C(1000000000)

/* A file consists of copies of one letter. */
struct got {
    char name[FILES_MAX][16];
    unsigned count, dropped;
    uint64_t now_ns;
};

static int read_letter(void *ctx, uint64_t at, void *bytes, size_t len)
{
    (void)at;
    memset(bytes, *(const char *)ctx, len);
    return 0;
}

static uint8_t disk[4][2 * BYTES];

static int read_disk(void *ctx, uint64_t at, void *bytes, size_t len)
{
    memcpy(bytes, (uint8_t *)ctx + at, len);
    return 0;
}

static int write_disk(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    assert_true(at + len <= 2 * BYTES);
    memcpy((uint8_t *)ctx + at, bytes, len);
    return 0;
}

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    (void)ctx;
    (void)source;
    (void)tsi;
    assert_true(fti->length <= 2 * BYTES && toi < 4);
    out->ctx = disk[toi];
    out->data = (struct fcast_store){disk[toi], read_disk, write_disk};
    out->repair = out->data;
    return FCAST_WANT;
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    struct got *got = ctx;

    (void)toi;
    assert_int_equal(bytes, BYTES);
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(((uint8_t *)place)[at + i], meta->location[0]);
    snprintf(got->name[got->count++], sizeof got->name[0], "%.15s", meta->location);
    return FCAST_STORED;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    struct got *got = ctx;

    (void)toi;
    (void)place;
    (void)keep;
    got->dropped++;
}

static struct fcast_receiver *receiver(struct got *got, enum fcast_protocol protocol, bool follows)
{
    const struct fcast_receiver_config cfg = {.protocol = protocol,
                                              .follows = follows,
                                              .ctx = got,
                                              .begin = begin,
                                              .done = done,
                                              .drop = drop};
    return fcast_receiver_new(&cfg);
}

/* Sends a session of these files (one letter each) from its own address: this many datagrams,
 * beginning with the descriptor, and the end if it is `ended`. */
static void session(struct fcast_receiver *r, struct got *got, enum fcast_protocol protocol,
                    uint64_t source, const char *files, unsigned datagrams, bool ended)
{
    const struct fcast_sender_config cfg = {.tsi = source,
                                            .protocol = protocol,
                                            .fec = FCAST_NO_CODE,
                                            .symbol_bytes = E,
                                            .random = source,
                                            .cycles = 2};
    struct fcast_sender *s = fcast_sender_new(&cfg);
    uint8_t bytes[FCAST_DATAGRAM_MAX];
    size_t len;
    uint64_t toi;

    for (const char *f = files; *f; f++) {
        const struct fcast_store source_store = {(void *)f, read_letter, NULL};
        struct fcast_meta meta = {.location = {*f}};
        assert_int_equal(fcast_sender_add(s, &meta, BYTES, &source_store, &toi), 0);
    }
    assert_int_equal(fcast_sender_commit(s), 0);
    for (unsigned i = 0; i < datagrams && (len = fcast_sender_next(s, bytes)) > 0; i++)
        fcast_receiver_datagram(r, source, bytes, len, got->now_ns += 1000000);
    len = ended ? fcast_sender_close(s, bytes) : 0;
    if (len)
        fcast_receiver_datagram(r, source, bytes, len, got->now_ns += 1000000);
    fcast_sender_free(s);
}

static const enum fcast_protocol protocols[] = {FCAST_PROTOCOL_FCAST, FCAST_PROTOCOL_FLUTE};

/* The first sender dies after its descriptor, which has number 2 with FCAST. The second sender's
 * file with this number must be received, and the first descriptor must not make the receiver
 * believe that it has everything without it. */
static void test_a_descriptor_of_a_dead_session(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct got got = {0};
        struct fcast_receiver *r = receiver(&got, protocols[i], false);
        session(r, &got, protocols[i], 1, "a", 8, false);
        assert_int_equal(got.count, 0);
        got.now_ns += 11 * SECOND_NS;
        session(r, &got, protocols[i], 2, "xyz", 20, false);
        assert_false(fcast_receiver_has_all(r));
        session(r, &got, protocols[i], 2, "xyz", 1000, false);
        assert_true(fcast_receiver_has_all(r));
        assert_int_equal(got.count, 3);
        fcast_receiver_free(r);
    }
}

/* As in a satellite's feed: each day's files are a session. */
static void test_a_receiver_that_follows(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        const bool ended = i % 2;
        struct got got = {0};
        struct fcast_receiver *r = receiver(&got, protocols[i / 2], true);
        session(r, &got, protocols[i / 2], 1, "ab", 1000, ended);
        assert_int_equal(got.count, 2);
        assert_int_equal(fcast_receiver_is_closed(r), ended);
        got.now_ns += ended ? 0 : 11 * SECOND_NS;
        session(r, &got, protocols[i / 2], 2, "cde", 1000, ended);
        assert_int_equal(got.count, 5);
        assert_true(fcast_receiver_has_all(r));
        assert_int_equal(fcast_receiver_is_closed(r), ended);
        fcast_receiver_free(r);
    }
}

/* A session that continues keeps its receiver, and so does one whose receiver does not follow. */
static void test_who_does_not_follow(void **state)
{
    (void)state;
    for (unsigned follows = 0; follows < 2; follows++) {
        struct got got = {0};
        struct fcast_receiver_stats st;
        struct fcast_receiver *r = receiver(&got, FCAST_PROTOCOL_FCAST, follows);
        session(r, &got, FCAST_PROTOCOL_FCAST, 1, "ab", 1000, !follows);
        got.now_ns += (follows ? 9 : 11) * SECOND_NS;
        session(r, &got, FCAST_PROTOCOL_FCAST, 2, "cde", 500, false);
        fcast_receiver_get_stats(r, &st);
        assert_int_equal(got.count, 2);
        assert_true(st.stray > 30);
        fcast_receiver_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_descriptor_of_a_dead_session),
                                       cmocka_unit_test(test_a_receiver_that_follows),
                                       cmocka_unit_test(test_who_does_not_follow)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

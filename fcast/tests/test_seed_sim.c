/* SPDX-License-Identifier: Apache-2.0
 *
 * Fcast of 1999 on a simulated network, and what attackers can do to it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "seed.h"
#include "sim_kit.h"

enum { E = 64, FILE_ID = 9 };

static struct sim_config base(void)
{
    return (struct sim_config){.sender = {.tsi = FILE_ID,
                                          .protocol = FCAST_PROTOCOL_SEED,
                                          .fec = FCAST_RS,
                                          .rs_kind = FCAST_SEED_RS,
                                          .symbol_bytes = E,
                                          .overhead = 1,
                                          .order = FCAST_SHUFFLE},
                               .receivers = 2,
                               .seed = 1};
}

static void assert_all_done(const struct sim *s)
{
    for (unsigned i = 0; i < s->cfg.receivers; i++) {
        struct fcast_receiver_stats st;
        fcast_receiver_get_stats(s->receivers[i].core, &st);
        assert_true(s->receivers[i].finished > 0);
        assert_int_equal(s->receivers[i].done, 1);
        assert_int_equal(s->receivers[i].wrong, 0);
        assert_int_equal(st.store_errors, 0);
    }
}

/* Files with sizes near the boundaries of blocks and groups, in every order, with and without
 * loss. */
static void test_sizes(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, E, 7 * E, 32 * E - 140, 33 * E, 20 * 32 * E + 5};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned order = 0; order < 6; order++) {
            struct sim_config cfg = base();
            cfg.seed = i * 10 + order + 1;
            cfg.sender.order = (enum fcast_order)(order % 3);
            cfg.loss = order < 3 ? 0 : 0.3;
            cfg.duplicate = cfg.reorder = cfg.loss / 2;
            cfg.late = order * 5;
            struct sim *s = sim_new(&cfg);
            sim_file(s, sizes[i]);
            sim_run(s, 30000);
            assert_all_done(s);
            sim_free(s);
        }
}

/* Each datagram matches Figure 6; k follows the report's rule; indices cycle over all groups. */
static void test_what_is_sent(void **state)
{
    (void)state;
    struct sim_config cfg = base();
    cfg.sender.order = FCAST_SEQUENTIAL;
    cfg.sender.cycles = 1;
    struct sim *s = sim_new(&cfg);
    sim_file(s, 33 * E - 40); /* plus the trailer: 34 blocks, two groups of 17 */
    assert_int_equal(fcast_sender_commit(s->sender), 0);
    uint8_t bytes[FCAST_DATAGRAM_MAX];
    struct fcast_seed_header h, first = {0};
    const uint8_t *block;
    size_t len, block_bytes;
    uint32_t sent = 0;
    while ((len = fcast_sender_next(s->sender, bytes))) {
        assert_true(fcast_seed_get(bytes, len, &h, &block, &block_bytes));
        if (sent == 0)
            first = h;
        assert_int_equal(block_bytes, E);
        assert_int_equal(h.sequence, sent);
        assert_int_equal(h.file_id, FILE_ID);
        assert_int_equal(h.file_bytes, first.file_bytes);
        uint32_t groups = fcast_seed_groups(h.file_bytes, E, h.k);
        assert_int_equal(h.k, fcast_choose_k((h.file_bytes + E - 1) / E, 32, NULL, NULL));
        assert_int_equal(h.group, sent % groups);
        assert_int_equal(h.index, sent / groups);
        sent++;
    }
    assert_int_equal(first.k, 17);
    assert_in_range(first.file_bytes, 33 * E + 1, 34 * E);
    assert_int_equal(sent, 2 * first.k * fcast_seed_groups(first.file_bytes, E, first.k));
    assert_int_equal(fcast_sender_close(s->sender, bytes), 0);
    sim_free(s);
}

/* 19 groups of 24 symbols, and every 19th datagram is lost. In a fixed order these all belong to
 * one group, in every cycle, and nothing breaks the synchrony of the packets of 1999. A varying
 * order does. */
static void test_a_loss_period_that_divides_the_cycle(void **state)
{
    enum { GROUPS = 19, K = 16, N = 24, CYCLE = GROUPS * N };

    (void)state;
    for (int order = FCAST_SEQUENTIAL; order <= FCAST_SHUFFLE; order++) {
        struct sim_config cfg = base();
        cfg.sender.k = K;
        cfg.sender.overhead = 0.5;
        cfg.sender.order = (enum fcast_order)order;
        cfg.periodic = GROUPS;
        cfg.receivers = 1;
        struct sim *s = sim_new(&cfg);
        sim_file(s, GROUPS * K * E - 140); /* plus the trailer */
        sim_run(s, 10 * CYCLE);
        if (order != FCAST_SEQUENTIAL) {
            assert_all_done(s);
        } else {
            struct fcast_receiver_stats got;
            fcast_receiver_get_stats(s->receivers[0].core, &got);
            assert_int_equal(got.useful, (GROUPS - 1) * K);
            assert_int_equal(s->receivers[0].done, 0);
        }
        sim_free(s);
    }
}

/* A receiver that restarts continues with what its places hold. */
static void test_a_receiver_that_dies(void **state)
{
    (void)state;
    struct sim_config cfg = base();
    cfg.loss = 0.2;
    struct sim *s = sim_new(&cfg);
    sim_file(s, 300 * E);
    sim_run(s, 250);
    struct fcast_receiver_stats st;
    fcast_receiver_get_stats(s->receivers[0].core, &st);
    uint64_t useful = st.useful;
    assert_true(useful > 100 && !s->receivers[0].finished);
    sim_restart(s, 0);
    sim_run(s, 20000);
    assert_all_done(s);
    fcast_receiver_get_stats(s->receivers[0].core, &st);
    /* A block that was complete counts as one. */
    assert_in_range(st.restored, useful - 32, useful + 32);
    sim_free(s);
}

static void test_what_a_sender_refuses(void **state)
{
    (void)state;
    uint64_t toi;
    struct sim_config cfg = base();
    struct sim *s = sim_new(&cfg);
    sim_file(s, 100);
    const struct fcast_meta meta = {.location = "second"};
    const struct fcast_store none = {0};
    assert_int_equal(fcast_sender_add(s->sender, &meta, 0, &none, &toi), -1);
    assert_int_equal(errno, ENOSPC);
    sim_free(s);
    s = sim_new(&cfg);
    assert_int_equal(fcast_sender_add(s->sender, &meta, UINT32_MAX, &none, &toi), -1);
    assert_int_equal(errno, EFBIG);
    sim_free(s);
    struct fcast_sender_config wrong[3] = {cfg.sender, cfg.sender, cfg.sender};
    wrong[0].fec = FCAST_TRIANGLE;
    wrong[1].k = FCAST_SEED_K_MAX + 1;
    wrong[2].key = (const uint8_t *)"key";
    for (int i = 0; i < 3; i++)
        assert_null(fcast_sender_new(&wrong[i]));
}

/* Forges other files, other file sizes and junk from the sender's own address, as an attacker
 * can. */
static void forge(struct fcast_receiver *r, uint64_t sent)
{
    uint8_t bytes[FCAST_SEED_HEADER_BYTES + E];
    struct fcast_seed_header h = {.sequence = (uint32_t)sent,
                                  .file_id = 100 + (uint32_t)sent % 1000,
                                  .file_bytes = UINT32_MAX >> sent % 20,
                                  .group = (uint32_t)sent % 50,
                                  .index = (uint8_t)sent,
                                  .k = (uint8_t)sent};
    memset(bytes, (int)sent, sizeof bytes);
    if (sent % 3 == 0)
        h.file_id = FILE_ID;
    fcast_seed_put(bytes, &h);
    fcast_receiver_datagram(r, 7, bytes, sizeof bytes - sent % 90 % sizeof bytes, sent);
    if (sent > 100) /* the session belongs to the sender heard first */
        fcast_receiver_datagram(r, 8, bytes, sizeof bytes, sent);
}

static void test_strangers(void **state)
{
    (void)state;
    struct sim_config cfg = base();
    cfg.loss = 0.1;
    cfg.between = forge;
    cfg.max_objects = 8;
    cfg.max_bytes = UINT64_C(1) << 34;
    struct sim *s = sim_new(&cfg);
    sim_file(s, 400 * E);
    sim_run(s, 30000);
    struct fcast_receiver_stats st;
    fcast_receiver_get_stats(s->receivers[0].core, &st);
    assert_all_done(s);
    assert_true(st.malformed > 0 && st.stray > 0 && st.conflicting > 0 && st.evicted > 0);
    assert_in_range(s->receivers[0].promised_max, 1, cfg.max_bytes);
    sim_free(s);
}

static void test_trailers(void **state)
{
    (void)state;
    const struct fcast_meta meta = {.location = "a/b", .has_length = true, .length = 5};
    uint8_t bytes[512] = "12345";
    struct fcast_meta got;
    size_t len = fcast_seed_trailer_put(bytes + 5, sizeof bytes - 5, &meta), found;
    assert_in_range(len, 30, 200);
    assert_null(fcast_seed_trailer_get(bytes, len + 5, len + 5, &got, &found));
    assert_string_equal(got.location, "a/b");
    assert_int_equal(found, len);
    assert_int_equal(fcast_seed_trailer_put(bytes + 5, len - 1, &meta), 0);
    /* Of another file; truncated; with each byte wrong in turn. */
    assert_non_null(fcast_seed_trailer_get(bytes, len + 5, len + 6, &got, &found));
    for (size_t n = 0; n < len + 5; n++)
        assert_non_null(fcast_seed_trailer_get(bytes, n, n, &got, &found));
    unsigned taken = 0;
    for (size_t i = 5; i < len + 5; i++) {
        bytes[i] ^= 0x15;
        taken += !fcast_seed_trailer_get(bytes, len + 5, len + 5, &got, &found);
        bytes[i] ^= 0x15;
    }
    assert_int_equal(taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_what_is_sent),
        cmocka_unit_test(test_a_loss_period_that_divides_the_cycle),
        cmocka_unit_test(test_a_receiver_that_dies),
        cmocka_unit_test(test_what_a_sender_refuses),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

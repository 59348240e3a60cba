/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's components: FEC groups with their parity, the reorder buffer, the queue of
 * messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "groups.h"
#include "outbox.h"
#include "reorder.h"

/* 10 blocks in groups of at most 4: ceil(10/4) = 3 groups [0,3) [3,6) [6,10). */
static void test_geometry(void **state)
{
    static const uint32_t of[] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 2};
    struct fmtp_groups *gs = fmtp_groups_new(10, 4);

    (void)state;
    struct fmtp_symbols s;
    assert_int_equal(fmtp_symbols_init(&s, 100, 1000), 0);
    assert_int_equal(gs->count, 3);
    assert_int_equal(gs->group[0].missing, 3);
    assert_int_equal(gs->group[2].missing, 4);
    for (int again = 0; again < 2; again++)
        for (uint32_t b = 10; b-- > 0;) {
            assert_int_equal(fmtp_groups_of(gs, b), of[b]);
            if (again)
                fmtp_groups_blocks(gs, of[b]); /* remembers the group */
        }
    assert_int_equal(fmtp_groups_blocks(gs, 2).first, 6);
    assert_int_equal(fmtp_groups_blocks(gs, 2).count, 4);
    fmtp_groups_free(gs, &s);
    fmtp_groups_free(NULL, &s);
    fmtp_symbols_free(&s);
}

/* Two blocks of 100 and 30 bytes. Parity 0 of a group of 2 has the coefficients 1/2 and 1/3 of
 * GF(2^8) with polynomial 0x11d: 0x8e and 0xf4 (2 * 0x8e = 0x11c ^ 0x11d = 1; 3 * 0xf4 = 0xf4 ^
 * 0xf5 = 1 with 2 * 0xf4 = 0x1e8 ^ 0x11d = 0xf5). Block 0 is all 2, block 1 all 3: parity is
 * 1 ^ 1 = 0 where both are, and 1 in the padding of block 1. */
static void test_decode(void **state)
{
    uint64_t received = 0;

    (void)state;
    uint8_t symbol[100];
    memset(symbol, 0, 30);
    memset(symbol + 30, 1, 70);
    uint8_t product[130];
    struct fmtp_symbols s;
    for (int lost = 0; lost < 2; lost++) {
        struct fmtp_groups *gs = fmtp_groups_new(2, 2);
        assert_int_equal(fmtp_symbols_init(&s, 100, 1000), 0);
        memset(product, 0xee, sizeof product);
        if (lost)
            memset(product, 2, 100);
        else
            memset(product + 100, 3, 30);
        received = lost ? 1 : 2;
        fmtp_groups_received(gs, &s, 0);
        assert_int_equal(fmtp_groups_keep(gs, &s, 0, 0, symbol), FMTP_KEEP_NEW);
        assert_int_equal(s.count, 1);
        struct fmtp_target to = {product, 130, &received, NULL, NULL};
        assert_int_equal(fmtp_groups_decode(gs, &s, 0, &to), 1);
        for (int i = 0; i < 130; i++)
            assert_int_equal(product[i], i < 100 ? 2 : 3);
        assert_int_equal(received, 3);
        assert_int_equal(gs->group[0].missing, 0);
        assert_int_equal(gs->group[0].held, 0);
        assert_int_equal(s.count, 0);
        fmtp_groups_free(gs, &s);
        fmtp_symbols_free(&s);
    }
}

/* Each symbol is kept once, and only as many as there is memory for; what a group held is freed
 * when the group is complete, or with the product. */
static void test_keep(void **state)
{
    struct fmtp_groups *gs = fmtp_groups_new(8, 4);
    uint8_t symbol[100] = {0};
    uint64_t received = 0x2;

    (void)state;
    struct fmtp_symbols s;
    assert_int_equal(fmtp_symbols_init(&s, 100, 3 * (100 + sizeof(struct fmtp_symbol)) + 99), 0);
    assert_int_equal(fmtp_groups_keep(gs, &s, 0, 7, symbol), FMTP_KEEP_NEW);
    assert_int_equal(fmtp_groups_keep(gs, &s, 0, 7, symbol), FMTP_KEEP_HAD);
    assert_int_equal(fmtp_groups_keep(gs, &s, 0, 1, symbol), FMTP_KEEP_NEW);
    assert_int_equal(fmtp_groups_keep(gs, &s, 1, 1, symbol), FMTP_KEEP_NEW);
    assert_int_equal(fmtp_groups_keep(gs, &s, 1, 2, symbol), FMTP_KEEP_NO_ROOM);
    assert_int_equal(gs->group[0].held, 2);
    assert_int_equal(gs->group[1].held, 1);
    uint8_t bitmap[32];
    fmtp_groups_bitmap(gs, 0, &received, bitmap);
    assert_int_equal(bitmap[0], 0x0d);
    fmtp_groups_bitmap(gs, 1, &received, bitmap);
    assert_int_equal(bitmap[0], 0x0f);
    for (int i = 0; i < 4; i++)
        fmtp_groups_received(gs, &s, 0);
    assert_int_equal(gs->group[0].held, 0);
    assert_int_equal(s.count, 1);
    assert_int_equal(fmtp_groups_keep(gs, &s, 1, 2, symbol), FMTP_KEEP_NEW);
    fmtp_groups_free(gs, &s);
    assert_int_equal(s.count, 0);
    fmtp_symbols_free(&s);
}

static bool put(struct fmtp_reorder *s, uint32_t index, uint32_t seq, uint8_t fill, bool *forgot)
{
    struct fmtp_header h = {index, seq, 3, FMTP_MEM_DATA};
    uint8_t payload[3] = {fill, fill, fill};

    return fmtp_reorder_put(s, &h, payload, forgot);
}

static void expect_reordered(struct fmtp_reorder *s, uint32_t index, size_t *cursor, uint32_t seq,
                             uint8_t fill)
{
    const struct fmtp_reordered *e = fmtp_reorder_take(s, index, cursor);

    assert_non_null(e);
    assert_int_equal(e->h.index, index);
    assert_int_equal(e->h.seqnum, seq);
    assert_int_equal(e->payload[0], fill);
    assert_int_equal(e->payload[2], fill);
}

static void test_reorder(void **state)
{
    size_t cursor = 0;

    (void)state;
    struct fmtp_reorder s;
    assert_int_equal(fmtp_reorder_init(&s, 3, 3), 0);
    assert_null(fmtp_reorder_take(&s, 1, &cursor));
    bool forgot;
    assert_true(put(&s, 1, 0, 'a', &forgot));
    assert_true(put(&s, 2, 0, 'b', &forgot));
    assert_true(put(&s, 1, 5, 'c', &forgot));
    assert_false(forgot);
    assert_true(put(&s, 1, 9, 'd', &forgot)); /* takes the place of 'a' */
    assert_true(forgot);
    assert_int_equal(s.count, 3);
    cursor = 0;
    expect_reordered(&s, 1, &cursor, 5, 'c'); /* the oldest first */
    expect_reordered(&s, 1, &cursor, 9, 'd');
    assert_null(fmtp_reorder_take(&s, 1, &cursor));
    assert_int_equal(s.count, 1);
    cursor = 0;
    assert_null(fmtp_reorder_take(&s, 1, &cursor));
    assert_true(put(&s, 1, 7, 'e', &forgot)); /* takes the place of 'b' */
    assert_true(forgot);
    assert_true(put(&s, 3, 7, 'f', &forgot)); /* takes a free place */
    assert_false(forgot);
    fmtp_reorder_free(&s);
    /* No room, and blocks that are too small. */
    assert_int_equal(fmtp_reorder_init(&s, 0, 3), 0);
    assert_false(put(&s, 1, 0, 'a', &forgot));
    fmtp_reorder_free(&s);
    assert_int_equal(fmtp_reorder_init(&s, 4, 2), 0);
    assert_false(put(&s, 1, 0, 'a', &forgot));
    assert_int_equal(s.count, 0);
    fmtp_reorder_free(&s);
}

/* Bytes come out in the order in which they went in, in pieces of any size. */
static void test_outbox(void **state)
{
    uint8_t in = 0, out = 0;
    size_t most = 0;

    (void)state;
    struct fmtp_outbox o;
    fmtp_outbox_init(&o, 5000);
    uint8_t piece[300];
    for (int i = 0; i < 3000; i++) {
        size_t n = (size_t)(i * 7919 % 300), head = n / 3, take = (size_t)(i * 104729 % 301);
        for (size_t b = 0; b < n; b++)
            piece[b] = (uint8_t)(in + b);
        if (fmtp_outbox_put(&o, piece, head, piece + head, n - head) == 0)
            in = (uint8_t)(in + n);
        else
            assert_true(o.len + n > 5000);
        take = take < o.len ? take : o.len;
        for (size_t b = 0; b < take; b++)
            assert_int_equal(o.bytes[o.at + b], out++);
        fmtp_outbox_sent(&o, take);
        most = o.capacity > most ? o.capacity : most;
    }
    assert_true(most <= 4 * 5000);
    while (fmtp_outbox_put(&o, piece, 300, NULL, 0) == 0)
        ;
    assert_true(o.len > 4700 && o.len <= 5000);
    fmtp_outbox_clear(&o);
    assert_int_equal(o.len, 0);
    fmtp_outbox_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_geometry), cmocka_unit_test(test_decode), cmocka_unit_test(test_keep),
        cmocka_unit_test(test_reorder),  cmocka_unit_test(test_outbox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

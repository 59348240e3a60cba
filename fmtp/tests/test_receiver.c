/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving core alone: bytes in, bytes out.
 */
#include <stdlib.h>
#include <string.h>

#include "receiver_kit.h"

enum { BLOCK = KIT_BLOCK, SMALL = 8 * BLOCK };

/* Opens LAYOUT_2017 without a session, for products of up to `bytes`. */
static void open_for(size_t bytes)
{
    kit_reset();
    kit.bytes = bytes;
    kit.cfg.parity_bytes = kit.cfg.reorder_blocks = 0;
    kit_open();
}

static size_t message(uint8_t *out, uint16_t flags, uint32_t index, uint32_t seq, size_t len,
                      uint8_t fill)
{
    struct fmtp_header h = {index, seq, (uint16_t)len, flags};

    fmtp_header_put(out, &h);
    memset(out + FMTP_HEADER_LEN, fill, len);
    return FMTP_HEADER_LEN + len;
}

static void give(const uint8_t *bytes, size_t len)
{
    fmtp_receiver_datagram(kit.r, bytes, bytes + FMTP_HEADER_LEN, len - FMTP_HEADER_LEN,
                           kit.now_ns);
}

static int stream(const uint8_t *bytes, size_t len)
{
    return fmtp_receiver_stream(kit.r, bytes, len, kit.now_ns);
}

static uint64_t bad(void)
{
    return kit_stats().bad_messages;
}

static void test_in_order(void **state)
{
    (void)state;
    open_for(SMALL);
    kit_bop(5, BLOCK + 10);
    assert_int_equal(kit.nbegun, 1);
    /* equation (2): 2 * 1458 * 8 / 8e6 = 2.916 ms */
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 2916000);
    kit_datagram(FMTP_MEM_DATA, 5, 0, BLOCK, 'a');
    kit_datagram(FMTP_MEM_DATA, 5, BLOCK, 10, 'b');
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.data[BLOCK - 1], 'a');
    assert_int_equal(kit.data[BLOCK + 9], 'b');
    assert_int_equal(kit.data[BLOCK + 10], 0);
    assert_int_equal(fmtp_receiver_deadline(kit.r), TP_NEVER);
    kit_expect(FMTP_RETX_END, 5, 0, 0);
    /* The same again changes nothing. */
    kit_bop(5, BLOCK + 10);
    kit_datagram(FMTP_MEM_DATA, 5, 0, BLOCK, 'x');
    kit_datagram(FMTP_EOP, 5, 0, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit.nbegun, 1);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.data[0], 'a');
    kit_close();
    assert_int_equal(kit.nmissed, 0);
}

static void test_malformed(void **state)
{
    (void)state;
    open_for(SMALL);
    kit_bop(0, 3 * BLOCK);
    uint8_t bytes[2048];
    size_t n = message(bytes, FMTP_MEM_DATA, 0, 0, BLOCK, 'a');
    fmtp_receiver_bad_datagram(kit.r); /* shorter than a header */
    give(bytes, n - 1);                /* the length does not fit */
    give(bytes, n + 1);
    kit_datagram(FMTP_MEM_DATA, 0, 1, BLOCK, 'a');      /* not at a block boundary */
    kit_datagram(FMTP_MEM_DATA, 0, 0, 100, 'a');        /* short, but not the last */
    kit_datagram(FMTP_MEM_DATA, 0, 3 * BLOCK, 10, 'a'); /* beyond the end */
    kit_datagram(FMTP_MEM_DATA, 0, 0, 0, 'a');
    kit_datagram(FMTP_MEM_DATA, 0, 0xfffffd58, BLOCK, 'a');
    kit_datagram(FMTP_RETX_DATA, 0, 0, BLOCK, 'a'); /* not on UDP */
    kit_datagram(0x0005, 0, 0, BLOCK, 'a');         /* two flags */
    kit_datagram(FMTP_BOP, 1, 0, 5, 0);             /* short body */
    assert_int_equal(bad(), 11);
    assert_int_equal(kit.data[0], 0);
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 1);
}

/* Each gap is requested once, consecutive blocks in one request of at most 45 blocks. */
static void test_merging(void **state)
{
    uint32_t size = 100 * BLOCK;

    (void)state;
    open_for(size);
    kit_bop(0, size);
    kit_datagram(FMTP_MEM_DATA, 0, 2 * BLOCK, BLOCK, 'a');
    kit_expect(FMTP_RETX_REQ, 0, 0, 2 * BLOCK);
    kit_datagram(FMTP_MEM_DATA, 0, 95 * BLOCK, BLOCK, 'a');
    kit_expect(FMTP_RETX_REQ, 0, 3 * BLOCK, 45 * BLOCK);
    kit_expect(FMTP_RETX_REQ, 0, 48 * BLOCK, 45 * BLOCK);
    kit_expect(FMTP_RETX_REQ, 0, 93 * BLOCK, 2 * BLOCK);
    kit_datagram(FMTP_MEM_DATA, 0, 50 * BLOCK, BLOCK, 'a'); /* late, not lost */
    kit_expect_nothing();
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect(FMTP_RETX_REQ, 0, 96 * BLOCK, 4 * BLOCK);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_nothing();
    kit_close();
}

/* More gaps than fit in the backlog of requests: all are requested eventually. */
static void test_many_gaps(void **state)
{
    uint32_t blocks = 30000, size = blocks * BLOCK, asked = 0;
    size_t most = 0;

    (void)state;
    open_for(size);
    kit_bop(0, size);
    for (uint32_t b = 1; b < blocks; b += 2)
        kit_datagram(FMTP_MEM_DATA, 0, b * BLOCK, BLOCK, 'a');
    const uint8_t *bytes;
    size_t n;
    while ((n = fmtp_receiver_output(kit.r, &bytes))) {
        most = n > most ? n : most;
        struct fmtp_header h;
        fmtp_header_get(bytes, &h);
        assert_int_equal(h.flags, FMTP_RETX_REQ);
        assert_int_equal(h.seqnum, 2 * asked * BLOCK);
        assert_int_equal(h.payloadlen, BLOCK);
        fmtp_receiver_sent(kit.r, FMTP_HEADER_LEN);
        asked++;
    }
    assert_int_equal(asked, blocks / 2);
    assert_true(most < 65536 + FMTP_HEADER_LEN);
    assert_false(fmtp_receiver_stuck(kit.r));
    kit_close();
}

/* RETX_DATA arrives in pieces while the multicast delivers the same block and completes the
 * product. */
static void test_race(void **state)
{
    uint8_t bytes[2048];
    size_t n = message(bytes, FMTP_RETX_DATA, 0, 0, BLOCK, 'r');

    (void)state;
    open_for(SMALL);
    kit_bop(0, 2 * BLOCK);
    kit_datagram(FMTP_MEM_DATA, 0, BLOCK, BLOCK, 'm');
    kit_expect(FMTP_RETX_REQ, 0, 0, BLOCK);
    assert_int_equal(stream(bytes, 700), 0);
    kit_datagram(FMTP_MEM_DATA, 0, 0, BLOCK, 'm'); /* was only late */
    assert_int_equal(kit.nended, 1);
    memset(kit.data, 'z', SMALL); /* the application owns it again */
    assert_int_equal(stream(bytes + 700, n - 700), 0);
    for (size_t i = 0; i < SMALL; i++)
        assert_int_equal(kit.data[i], 'z');
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 0);
    kit_expect(FMTP_RETX_END, 0, 0, 0);
    kit_expect_nothing();
    kit_close();
}

static void test_stream_garbage(void **state)
{
    static const uint16_t wrong[] = {FMTP_BOP,      FMTP_EOP,     FMTP_MEM_DATA, FMTP_RETX_REQ,
                                     FMTP_RETX_END, FMTP_BOP_REQ, FMTP_EOP_REQ,  0,
                                     0xffff};

    (void)state;
    uint8_t bytes[2048];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_for(SMALL);
        message(bytes, wrong[i], 0, 0, 0, 0);
        assert_int_equal(stream(bytes, 12), -1);
        assert_int_equal(bad(), 1);
        kit_close();
    }
    open_for(SMALL);
    message(bytes, FMTP_RETX_DATA, 0, 0, 1449, 0);
    assert_int_equal(stream(bytes, 12), -1);
    kit_close();
    open_for(SMALL);
    message(bytes, FMTP_RETX_REJ, 0, 0, 1, 0);
    assert_int_equal(stream(bytes, 12), -1);
    kit_close();
}

/* A gap of products is requested, modulo 2^32; an older index is ignored. */
static void test_index_arithmetic(void **state)
{
    (void)state;
    open_for(SMALL);
    kit_bop(UINT32_MAX - 1, 0);
    kit_expect(FMTP_RETX_END, UINT32_MAX - 1, 0, 0);
    kit_bop(1, 0);
    kit_expect(FMTP_BOP_REQ, UINT32_MAX, 0, 0);
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    kit_expect(FMTP_RETX_END, 1, 0, 0);
    kit_bop(UINT32_MAX - 7, 0); /* an older index */
    kit_datagram(FMTP_MEM_DATA, 0x80000010, 0, BLOCK, 'a');
    kit_expect_nothing();
    assert_int_equal(kit.nbegun, 2);
    kit_close();
    assert_int_equal(kit.nmissed, 2);
    assert_int_equal(kit.missed[0], UINT32_MAX); /* in order of index */
    assert_int_equal(kit.missed[1], 0);
}

/* One stray index does not make the receiver request thousands of products; a run of them makes it
 * ask about the index, and the stream's answer moves it there. */
static void test_far_jump(void **state)
{
    (void)state;
    open_for(SMALL);
    kit_bop(0, 0);
    kit_expect(FMTP_RETX_END, 0, 0, 0);
    for (uint32_t i = 1; i < 100; i++)
        kit_datagram(FMTP_MEM_DATA, i * 1000000, 0, BLOCK, 'a');
    kit_expect_nothing();
    assert_int_equal(bad(), 99);
    kit_bop(1, 0);
    kit_expect(FMTP_RETX_END, 1, 0, 0);
    for (uint32_t i = 0; i < 32; i++)
        kit_datagram(FMTP_MEM_DATA, 100, i * BLOCK, BLOCK, 'a');
    kit_expect(FMTP_BOP_REQ, 100, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit.nmissed, 0); /* until the stream confirms it */
    assert_int_equal(kit_stream_bop(100, BLOCK), 0);
    /* 2..99 never arrived: those for which there may be room are requested */
    assert_int_equal(kit.nmissed, 90);
    assert_int_equal(kit.missed[0], 2);
    assert_int_equal(kit.missed[89], 91);
    for (uint32_t i = 92; i < 100; i++)
        kit_expect(FMTP_BOP_REQ, i, 0, 0);
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 99);
}

/* At most max_products in flight: the others are missed and acknowledged to the sender. */
static void test_table_full(void **state)
{
    (void)state;
    open_for(SMALL);
    for (uint32_t i = 0; i < KIT_PRODUCTS; i++)
        kit_bop(i, 2 * BLOCK);
    assert_int_equal(fmtp_receiver_in_flight(kit.r), KIT_PRODUCTS);
    assert_int_equal(kit.nmissed, 0);
    kit_bop(KIT_PRODUCTS, 2 * BLOCK);
    assert_int_equal(kit.nmissed, 1);
    assert_int_equal(kit.missed[0], KIT_PRODUCTS);
    assert_int_equal(kit.nbegun, KIT_PRODUCTS);
    assert_int_equal(fmtp_receiver_in_flight(kit.r), KIT_PRODUCTS);
    kit_close();
    assert_int_equal(kit.nmissed, 1 + KIT_PRODUCTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_many_gaps),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_stream_garbage),
        cmocka_unit_test(test_index_arithmetic),
        cmocka_unit_test(test_far_jump),
        cmocka_unit_test(test_table_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

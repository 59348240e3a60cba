/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving core: which products belong to it, connections that come and go, data before its
 * BOP, predicted places, clocks that leap, and the bounds of what it keeps.
 */
#include <stdlib.h>
#include <string.h>

#include "receiver_kit.h"

static uint64_t bad(void)
{
    return kit_stats().bad_messages;
}

/* ------------------------------------------------------------------ which products */

/* The first index is exact: what is lost before the first datagram is requested; anything older
 * belongs to another session. */
static void test_first_index(void **state)
{
    (void)state;
    kit_open_extended(4, 5);
    kit_bop(4, 100);
    kit_datagram(FMTP_MEM_DATA, 4, 0, 100, 1);
    assert_int_equal(kit.nbegun, 0);
    assert_int_equal(kit_stats().duplicate_blocks, 0); /* of a product that we never had */
    kit_expect_nothing();
    kit_bop(7, 100);
    kit_expect(FMTP_BOP_REQ, 5, 0, 0);
    kit_expect(FMTP_BOP_REQ, 6, 0, 0);
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 3);
    assert_int_equal(kit.missed[0], 5);
    assert_int_equal(kit.missed[1], 6);
    assert_int_equal(kit.missed[2], 7);
}

/* Unsolicited RETX_EOP: about the newest product known, about an unknown newer one, about one that
 * is done. */
static void test_nudge(void **state)
{
    (void)state;
    kit_open_extended(4, 5);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 6, 0, 0, 0), 0);
    kit_expect(FMTP_BOP_REQ, 5, 0, 0);
    kit_expect(FMTP_BOP_REQ, 6, 0, 0);
    assert_int_equal(kit_stream_bop(6, 250), 0);
    /* It is over: everything is requested at once, but not EOP. */
    kit_expect_repair(6, 0, 3, 0, 0, 3, 0x7);
    kit_expect_nothing();
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 6, 0, 0, 0), 0);
    kit_expect_nothing();
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 5, 0, 0, 0), 0);
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 6, 0, 0, 0), 0);
    assert_int_equal(kit.nmissed, 2);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 6, 0, 0, 0), 0);
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 6, 0, 0, 0), 0);
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 2);
}

/* An ordinary sender waits for us to finish a product before the first that we saw: that one and
 * all later ones are ours, once each. */
static void test_earlier(void **state)
{
    (void)state;
    kit_reset();
    kit_open();
    kit_bop(10, 0);
    kit_expect(FMTP_RETX_END, 10, 0, 0);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 7, 0, 0, 0), 0);
    for (uint32_t i = 7; i < 10; i++)
        kit_expect(FMTP_BOP_REQ, i, 0, 0);
    assert_int_equal(kit_stream_bop(7, 0), 0);
    kit_expect(FMTP_RETX_END, 7, 0, 0);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 7, 0, 0, 0), 0);
    assert_int_equal(kit_stream_bop(7, 0), 0);
    /* The sender may not have reached it; if the sender shows that it has, it is asked again. */
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 8, 0, 0, 0), 0);
    assert_int_equal(kit.nmissed, 0);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 8, 0, 0, 0), 0);
    kit_expect(FMTP_BOP_REQ, 8, 0, 0);
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 8, 0, 0, 0), 0);
    assert_int_equal(kit.nmissed, 1);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 8, 0, 0, 0), 0);
    kit_expect_nothing();
    /* Further back than can be kept: not accepted. */
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 7 - KIT_PRODUCTS - 1, 0, 0, 0), 0);
    kit_expect_nothing();
    assert_int_equal(kit.nended, 2);
    kit_close();
    assert_int_equal(kit.nmissed, 2); /* 8 rejected, 9 at the end */
}

/* What a jump skipped is acknowledged when the sender asks, or it would keep asking. */
static void test_skipped_is_acknowledged(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    for (uint32_t i = 0; i < 32; i++)
        kit_datagram(FMTP_MEM_DATA, 100, i * 100, 100, 1);
    kit_expect(FMTP_BOP_REQ, 100, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit.nmissed, 0); /* datagrams alone are no evidence */
    assert_int_equal(kit_stream_bop(100, 100), 0);
    assert_int_equal(kit.nmissed, 100);
    kit_drain();
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 0, 0, 0, 0), 0);
    kit_expect(FMTP_RETX_END, 0, 0, 0);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 99, 0, 0, 0), 0);
    kit_expect(FMTP_RETX_END, 99, 0, 0);
    kit_datagram(FMTP_MEM_DATA, 100, 0, 100, 1);
    kit_expect(FMTP_RETX_END, 100, 0, 0);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 100, 0, 0, 0), 0);
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 100);
}

/* ------------------------------------------------------------------ connections */

static void test_bounds_of_session(void **state)
{
    struct fmtp_session good = {.extended = true, .block_bytes = 64, .fec_k = 254, .id = 1};

    (void)state;
    kit_reset();
    kit_open();
    kit_bop(3, 4000);
    struct fmtp_session s;
    s = good, s.block_bytes = 63;
    assert_int_equal(fmtp_receiver_session(kit.r, &s, 0), -1);
    s = good, s.block_bytes = 65493;
    assert_int_equal(fmtp_receiver_session(kit.r, &s, 0), -1);
    s = good, s.fec_k = 0;
    assert_int_equal(fmtp_receiver_session(kit.r, &s, 0), -1);
    s = good, s.fec_k = 255;
    assert_int_equal(fmtp_receiver_session(kit.r, &s, 0), -1);
    assert_int_equal(kit.nmissed, 0); /* nothing changed */
    kit_datagram(FMTP_MEM_DATA, 3, 0, KIT_BLOCK, 1);
    assert_int_equal(kit_stats().blocks, 1);
    assert_int_equal(fmtp_receiver_session(kit.r, &good, 0), 0);
    assert_int_equal(kit.nmissed, 1);
    s = good, s.extended = false, s.fec_k = 0, s.block_bytes = 65492;
    assert_int_equal(fmtp_receiver_session(kit.r, &s, 0), 0);
    kit_bop(0, 100000);
    kit_datagram(FMTP_MEM_DATA, 0, 65492, 34508, 2);
    kit_expect(FMTP_RETX_REQ, 0, 0, 65492);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 0, 65492, 1), 0);
    assert_int_equal(kit.nended, 1);
    kit_close();
}

/* The same session on another connection: what has passed is requested again, what began meanwhile
 * is requested, half messages are discarded. */
static void test_resume(void **state)
{
    uint8_t half[20] = {0};
    struct fmtp_header h = {0, 0, 100, FMTP_RETX_DATA};

    (void)state;
    kit_open_extended(4, 0);
    kit_bop(0, 1000);
    kit_datagram(FMTP_MEM_DATA, 0, 300, 100, 4); /* group 0 is lost */
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    uint8_t symbol[100] = {0};
    kit_parity(0, 0, 1, 3, symbol, 100); /* one symbol of it has arrived */
    kit_bop(2, 1000);                    /* product 1 is lost, 2 is in flight */
    kit_datagram(FMTP_MEM_DATA, 2, 0, 100, 1);
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
    kit_expect(FMTP_BOP_REQ, 1, 0, 0);
    fmtp_header_put(half, &h);
    assert_int_equal(fmtp_receiver_stream(kit.r, half, sizeof half, kit.now_ns), 0);
    kit_datagram(FMTP_MEM_DATA, 2, 400, 100, 5);
    kit_session(true, 100, 4, 5, 77); /* the request for group 0 never left */
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 3, 0, 2, 0x7);
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
    kit_expect(FMTP_BOP_REQ, 1, 0, 0);
    kit_expect(FMTP_BOP_REQ, 2, 0, 0);
    kit_expect_repair(2, 0, 3, 0, 0, 2, 0x6);
    kit_expect_repair(2, 1, 3, 0, 0, 2, 0x5); /* 2 is over: 4 was begun */
    kit_expect_repair(2, 2, 4, 0, 0, 4, 0xf);
    kit_expect(FMTP_BOP_REQ, 3, 0, 0);
    kit_expect(FMTP_BOP_REQ, 4, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit.nmissed, 0);
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 3, 0, 0, 0), 0); /* in step */
    assert_int_equal(kit.nmissed, 1);
    assert_int_equal(kit_stream_bop(2, 1000), 0); /* known: nothing */
    kit_expect_nothing();
    assert_int_equal(kit.nbegun, 2);
    kit_close();
    assert_int_equal(kit.nmissed, 5);
}

/* Rounds also start over: nothing about the old connection's answers counts. */
static void test_resume_begins_rounds_anew(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    fmtp_receiver_rtt(kit.r, 40 * MS); /* patience 80 ms */
    kit_bop(0, 300);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_advance(80 * MS);
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_session(true, 100, 4, 1, 77);
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_advance(79 * MS);
    kit_expect_nothing();
    kit_advance(1 * MS);
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_close();
}

/* The sender advanced by more than we can keep: the oldest products are missed. */
static void test_resume_after_long(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    kit_bop(0, 0);
    kit_drain();
    kit_session(true, 100, 4, 1000, 77);
    assert_int_equal(kit.nmissed, 999 - KIT_PRODUCTS);
    assert_int_equal(kit.missed[0], 1);
    for (uint32_t i = 1000 - KIT_PRODUCTS; i < 1000; i++)
        kit_expect(FMTP_BOP_REQ, i, 0, 0);
    kit_expect_nothing();
    kit_session(true, 100, 4, 1000, 77); /* and again */
    for (uint32_t i = 1000 - KIT_PRODUCTS; i < 1000; i++)
        kit_expect(FMTP_BOP_REQ, i, 0, 0);
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 999);
}

/* Another session, or none: incomplete products are missed in order, indices start over. */
static void test_other_session(void **state)
{
    (void)state;
    kit_open_extended(4, 10);
    kit_bop(12, 1000);                          /* 10 and 11 unknown */
    kit_datagram(FMTP_MEM_DATA, 10, 0, 100, 7); /* before its BOP */
    kit_session(true, 200, 4, 10, 78);
    assert_int_equal(kit.nmissed, 3);
    assert_int_equal(kit.missed[0], 10);
    assert_int_equal(kit.missed[1], 11);
    assert_int_equal(kit.missed[2], 12);
    kit_expect_nothing();
    kit_bop(10, 400); /* the reorder buffer is empty */
    kit_datagram(FMTP_MEM_DATA, 10, 200, 200, 2);
    assert_int_equal(kit.nended, 0);
    kit_datagram(FMTP_MEM_DATA, 10, 0, 200, 1);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.data[0], 1);
    kit_session(false, KIT_BLOCK, 0, 0, 0);
    kit_bop(3, 0); /* starts there */
    assert_int_equal(kit.nended, 2);
    kit_session(false, KIT_BLOCK, 0, 0,
                0); /* an original cannot say which session it is: start over */
    kit_bop(3, 0);
    assert_int_equal(kit.nended, 3);
    kit_close();
    assert_int_equal(kit.nmissed, 3);
}

/* The sender accepts nothing: at the bound the receiver reports it; another connection may
 * follow. */
static void test_stuck(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    for (uint32_t i = 0; !fmtp_receiver_stuck(kit.r) && i < 100000; i++)
        kit_bop(i, 0);
    assert_true(fmtp_receiver_stuck(kit.r));
    const uint8_t *bytes;
    assert_true(fmtp_receiver_output(kit.r, &bytes) <= 2 * 65536 + 256 * KIT_PRODUCTS);
    kit_session(true, 100, 4, (uint32_t)kit.nended, 77);
    assert_false(fmtp_receiver_stuck(kit.r));
    kit_expect_nothing();
    kit_close();
    assert_int_equal(kit.nmissed, 0);
}

/* ------------------------------------------------------------------ before the BOP */

/* Data before its BOP is used when the BOP arrives, in either way and in either kind of session. */
static void test_reorder(void **state)
{
    (void)state;
    kit_reset();
    kit_open();
    kit_datagram(FMTP_MEM_DATA, 0, 0, KIT_BLOCK, 1);
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    kit_datagram(FMTP_MEM_DATA, 0, 2 * KIT_BLOCK, KIT_BLOCK, 3);
    kit_datagram(FMTP_MEM_DATA, 0, 4 * KIT_BLOCK, KIT_BLOCK, 5); /* beyond its end: bad */
    kit_expect_nothing();
    assert_int_equal(kit_stream_bop(0, 3 * KIT_BLOCK), 0);
    kit_expect(FMTP_RETX_REQ, 0, KIT_BLOCK, KIT_BLOCK);
    kit_expect_nothing();
    assert_int_equal(bad(), 1);
    assert_int_equal(kit_stats().reorder_hits, 3);
    kit_datagram(FMTP_MEM_DATA, 0, KIT_BLOCK, KIT_BLOCK, 2);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.data[0], 1);
    assert_int_equal(kit.data[3 * KIT_BLOCK - 1], 3);
    kit_close();
    /* The whole product and more before the BOP: complete with the BOP. Also a group's parity. */
    kit_open_extended(4, 0);
    uint8_t symbol[100] = {0};
    kit_datagram(FMTP_MEM_DATA, 0, 0, 100, 0);
    kit_datagram(FMTP_REPAIR, 0, 200, 100, 0);
    kit_parity(0, 0, 0, 1, symbol, 100); /* all zeros: so is block 1 */
    kit_datagram(FMTP_MEM_DATA, 0, 200, 100, 9);
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    kit_bop(0, 300);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit_stats().decoded_blocks, 1);
    kit_expect(FMTP_RETX_END, 0, 2, 0); /* one of three arrived by MEM_DATA */
    kit_expect_nothing();
    assert_int_equal(kit_stats().reorder_hits, 3);
    kit_close();
    assert_int_equal(kit.nmissed, 0);
}

/* The ring has 8 places: what it discards is requested; rejected, unwanted or misaligned data take
 * no place. */
static void test_reorder_bound(void **state)
{
    (void)state;
    kit_reset();
    kit_open();
    for (uint32_t b = 0; b < 10; b++)
        kit_datagram(FMTP_MEM_DATA, 0, b * KIT_BLOCK, KIT_BLOCK, (uint8_t)b);
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    assert_int_equal(kit_stats().reorder_drops, 2);
    kit_bop(0, 11 * KIT_BLOCK);
    kit_expect(FMTP_RETX_REQ, 0, 0, 2 * KIT_BLOCK);
    kit_expect_nothing();
    assert_int_equal(kit_stats().reorder_hits, 8);
    kit_datagram(FMTP_MEM_DATA, 1, 0, KIT_BLOCK, 1);
    kit_drain();
    assert_int_equal(kit_stream(FMTP_RETX_REJ, 1, 0, 0, 0), 0);
    assert_int_equal(kit_stats().reorder_drops, 3);
    kit.refuse = true;
    kit_datagram(FMTP_MEM_DATA, 2, 0, KIT_BLOCK, 1);
    kit_expect(FMTP_BOP_REQ, 2, 0, 0);
    kit_bop(2, 2 * KIT_BLOCK);
    kit_expect(FMTP_RETX_END, 2, 0, 0);
    assert_int_equal(kit_stats().reorder_drops, 4);
    assert_int_equal(kit_stats().reorder_hits, 8);
    assert_int_equal(kit.nmissed, 1); /* not wanted is not missed */
    kit_close();
    kit_reset();
    kit.cfg.reorder_blocks = 0;
    kit_open();
    kit_datagram(FMTP_MEM_DATA, 0, 0, KIT_BLOCK, 1);
    kit_expect(FMTP_BOP_REQ, 0, 0, 0);
    kit_bop(0, 2 * KIT_BLOCK);
    kit_expect(FMTP_RETX_REQ, 0, 0, KIT_BLOCK);
    kit_close();
}

/* ------------------------------------------------------------------ places */

static void test_places(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    struct fmtp_header first;
    struct iovec at[8];
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 8), 0);
    kit_bop(0, 650);
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 3), 3);
    assert_int_equal(first.index, 0);
    assert_int_equal(first.seqnum, 0);
    assert_int_equal(first.flags, FMTP_MEM_DATA);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(at[i].iov_base, kit.data + 100 * i);
        assert_int_equal(at[i].iov_len, 100);
    }
    /* In its place: counted, nothing is copied. */
    memset(at[0].iov_base, 1, 100);
    struct fmtp_header h = {0, 0, 100, FMTP_MEM_DATA};
    uint8_t head[FMTP_HEADER_LEN];
    fmtp_header_put(head, &h);
    fmtp_receiver_datagram(kit.r, head, at[0].iov_base, 100, kit.now_ns);
    assert_int_equal(kit_stats().blocks, 1);
    /* In another block's place: block 2 arrived, block 1 was predicted. */
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 8), 6);
    assert_int_equal(first.seqnum, 100);
    assert_int_equal(at[5].iov_len, 50);
    memset(at[0].iov_base, 3, 100);
    h.seqnum = 200;
    fmtp_header_put(head, &h);
    fmtp_receiver_datagram(kit.r, head, at[0].iov_base, 100, kit.now_ns);
    assert_int_equal(kit.data[200], 3);
    kit_datagram(FMTP_REPAIR, 0, 500, 100, 6);
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 8),
                     2); /* 3 and 4; 5 has already arrived */
    assert_int_equal(first.seqnum, 300);
    /* A parity symbol does not change the prediction. */
    uint8_t symbol[100] = {0};
    kit_parity(0, 1, 0, 1, symbol, 100);
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 8), 2);
    assert_int_equal(first.seqnum, 300);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0); /* no more to come */
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 8), 0);
    kit_datagram(FMTP_MEM_DATA, 1, 0, 100, 1); /* the newest has no BOP */
    assert_int_equal(fmtp_receiver_places(kit.r, &first, at, 8), 0);
    kit_close();
}

/* ------------------------------------------------------------------ the stream, time, bounds */

/* The sender's messages in single bytes; another path delivers data in between. */
static void test_stream_in_bytes(void **state)
{
    struct fmtp_header h = {0, 100, 100, FMTP_RETX_DATA};

    (void)state;
    kit_open_extended(4, 0);
    kit_bop(0, 300);
    uint8_t bytes[12 + 100];
    fmtp_header_put(bytes, &h);
    memset(bytes + 12, 2, 100);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(kit_stats().retx_blocks, 0);
        if (i == 50)
            memset(kit.data + 100, 0xee,
                   100); /* overwritten: a predicted place that is not ours yet */
        assert_int_equal(fmtp_receiver_stream(kit.r, bytes + i, 1, kit.now_ns), 0);
    }
    assert_int_equal(kit_stats().retx_blocks, 1);
    for (int i = 100; i < 200; i++)
        assert_int_equal(kit.data[i], 2);
    /* Of no product, repeated, not a block, empty, of a product without BOP. */
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 99, 0, 100, 1), 0);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 100, 100, 1), 0);
    assert_int_equal(kit_stats().duplicate_blocks, 2);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 150, 100, 1), 0);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 0, 0, 1), 0);
    assert_int_equal(bad(), 2);
    kit_datagram(FMTP_EOP, 1, 0, 0, 0);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 1, 0, 100, 1), 0);
    assert_int_equal(kit_stats().duplicate_blocks, 3);
    assert_int_equal(kit_stream(FMTP_RETX_BOP, 1, 0, 6, 1), 0); /* its lengths do not fit */
    assert_int_equal(bad(), 3);
    assert_int_equal(kit_stream(FMTP_RETX_BOP, 1, 0, 5, 1), -1);
    kit_close();
}

/* The clock leaps to its end: everything is requested once, no loop, no lost deadline; a step back
 * is ignored. */
static void test_clock(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    kit_bop(0, 1000);
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 2 * MS);
    kit.now_ns = UINT64_MAX - 1;
    for (int i = 0; i < 4; i++)
        kit_advance(0);
    for (uint32_t g = 0; g < 3; g++)
        kit_expect_repair(0, g, g == 2 ? 4 : 3, 0, 0, g == 2 ? 4 : 3, g == 2 ? 0xf : 0x7);
    kit_expect(FMTP_EOP_REQ, 0, 0, 0);
    kit_expect_nothing();
    assert_true(fmtp_receiver_deadline(kit.r) != TP_NEVER);
    kit.now_ns = 5;
    kit_datagram(FMTP_MEM_DATA, 0, 0, 100, 1);
    kit_advance(MS);
    kit_expect_nothing();
    kit_close();
    /* A day: one round, not all of them. */
    kit_open_extended(4, 0);
    kit_bop(0, 100);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 1, 0, 0, 1, 0x1);
    kit_advance(UINT64_C(86400000) * MS);
    kit_expect_repair(0, 0, 1, 0, 1, 1, 0x1);
    kit_expect_nothing();
    kit_close();
}

/* No room for another product: it is acknowledged and missed, whatever named it. */
static void test_table_full(void **state)
{
    (void)state;
    kit_open_extended(4, 0);
    for (uint32_t i = 0; i < KIT_PRODUCTS; i++)
        kit_bop(i, 1000);
    kit_drain();
    assert_int_equal(kit_stream(FMTP_RETX_EOP, KIT_PRODUCTS, 0, 0, 0), 0);
    /* It still counts that the previous product is over. */
    for (uint32_t g = 0; g < 3; g++)
        kit_expect_repair(KIT_PRODUCTS - 1, g, g == 2 ? 4 : 3, 0, 0, g == 2 ? 4 : 3,
                          g == 2 ? 0xf : 0x7);
    kit_expect(FMTP_RETX_END, KIT_PRODUCTS, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit.nmissed, 1);
    assert_int_equal(kit.missed[0], KIT_PRODUCTS);
    kit_bop(KIT_PRODUCTS + 1, 0);
    assert_int_equal(kit.nmissed, 2);
    kit_datagram(FMTP_MEM_DATA, KIT_PRODUCTS + 1, 0, 100, 1);
    assert_int_equal(kit.nmissed, 2);
    assert_int_equal(fmtp_receiver_in_flight(kit.r), KIT_PRODUCTS);
    kit_close();
    assert_int_equal(kit.nmissed, 2 + KIT_PRODUCTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_index),
        cmocka_unit_test(test_nudge),
        cmocka_unit_test(test_earlier),
        cmocka_unit_test(test_skipped_is_acknowledged),
        cmocka_unit_test(test_bounds_of_session),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_begins_rounds_anew),
        cmocka_unit_test(test_resume_after_long),
        cmocka_unit_test(test_other_session),
        cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_reorder_bound),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_stream_in_bytes),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_table_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

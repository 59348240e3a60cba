/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving core with extension 1: when it asks for a group, what it does with parity, and
 * when its patience ends. Common setting: blocks of 100 bytes, fec_k 4, product 0 of 1000 bytes: 10
 * blocks in groups [0,3) [3,6) [6,10); a round trip of 40 ms, hence a patience of 1.5 * 40 + 20 =
 * 80 ms as long as no answer was measured.
 */
#include "receiver_kit.h"

#include <string.h>

#include "fec.h"

static const uint8_t symbol[100] = {1, 2, 3};
static uint8_t big_symbol[KIT_BLOCK];

static void open_product(void)
{
    kit_open_extended(4, 0);
    fmtp_receiver_rtt(kit.r, 40 * MS);
    kit_bop(0, 1000);
    kit_expect_nothing();
}

/* Blocks [from, to) of product 0; each is filled with its number + 1. */
static void blocks(uint32_t from, uint32_t to)
{
    for (uint32_t b = from; b < to; b++)
        kit_datagram(FMTP_MEM_DATA, 0, b * 100, 100, (uint8_t)(b + 1));
}

static void assert_product(void)
{
    for (int i = 0; i < 1000; i++)
        assert_int_equal(kit.data[i], i / 100 + 1);
}

/* The parity symbol of a group of product 0 as it is. */
static const uint8_t *parity_of(uint32_t first, unsigned k, unsigned number)
{
    static uint8_t out[100];
    uint8_t data[4][100], *const outs[] = {out};
    const uint8_t *in[4];

    for (unsigned i = 0; i < k; i++) {
        memset(data[i], (int)(first + i + 1), 100);
        in[i] = data[i];
    }
    fmtp_fec_encode(k, number, 1, 100, in, outs);
    return out;
}

/* A group is asked for when a block of a later one comes, not before; the last ones at EOP. */
static void test_passed(void **state)
{
    (void)state;
    open_product();
    kit_datagram(FMTP_MEM_DATA, 0, 0, 100, 1);
    blocks(2, 3);                                       /* block 1 is lost */
    kit_expect_nothing();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 1, 0x2);
    kit_expect_nothing();
    blocks(7, 9);                                       /* 4, 5, 6 and 9 are lost */
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_expect_nothing();
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 2, 4, 0, 0, 2, 0x9);
    kit_expect_nothing();
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_nothing();
    assert_int_equal(kit_stats().repair_requests, 3);
    assert_int_equal(kit_stats().retx_requests, 0);
    kit_close();
    assert_int_equal(kit.nmissed, 1);
}

/* Proactive parity: nothing is asked if it suffices, and what lacks when its last symbol came. */
static void test_proactive(void **state)
{
    (void)state;
    open_product();
    blocks(0, 1);
    blocks(2, 3);
    kit_parity(0, 0, 0, 1, parity_of(0, 3, 0), 100);
    assert_int_equal(kit_stats().decoded_blocks, 1);
    assert_int_equal(kit.data[100], 2);
    blocks(3, 4);                                       /* 4 and 5 are lost */
    kit_parity(0, 1, 0, 2, parity_of(3, 3, 0), 100);
    kit_expect_nothing();
    kit_parity(0, 1, 1, 2, parity_of(3, 3, 1), 100);
    kit_expect_nothing();
    blocks(6, 7);
    kit_parity(0, 2, 0, 1, parity_of(6, 4, 0), 100);    /* 7, 8, 9 are lost: two more needed */
    kit_expect_repair(0, 2, 4, 1, 0, 2, 0xe);
    kit_parity(0, 2, 1, 3, parity_of(6, 4, 1), 100);
    assert_int_equal(kit.nended, 0);
    kit_parity(0, 2, 2, 3, parity_of(6, 4, 2), 100);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 0);
    kit_expect(FMTP_RETX_END, 0, 6, 0);                 /* 1, 4, 5, 7, 8 and 9 were lost */
    kit_expect_nothing();
    assert_product();
    assert_int_equal(kit_stats().decoded_blocks, 6);
    assert_int_equal(kit_stats().parity_symbols, 6);
    kit_close();
}

/* Proactive parity of which the last symbol is lost: the next group's block says that it passed. */
static void test_lost_end(void **state)
{
    (void)state;
    open_product();
    blocks(0, 1);
    kit_parity(0, 0, 0, 2, symbol, 100);                /* 1 and 2 are lost, symbol 1 as well */
    kit_expect_nothing();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 2, 0, 1, 0x6);
    kit_close();
}

/* The parity of a later group says that the earlier ones passed. */
static void test_parity_passes(void **state)
{
    (void)state;
    open_product();
    kit_parity(0, 2, 0, 2, symbol, 100);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 0, 3, 0x7);
    kit_expect_nothing();
    /* A block that is sent again says nothing. */
    kit_close();
    open_product();
    kit_datagram(FMTP_REPAIR, 0, 900, 100, 10);
    kit_expect_nothing();
    assert_int_equal(kit_stats().repaired_blocks, 1);
    kit_close();
}

/* A burst ends and the group is still short: more is asked for at once, with the new end. */
static void test_burst_short(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_parity(0, 0, 0, 3, symbol, 100);
    kit_expect_nothing();
    kit_parity(0, 0, 2, 3, symbol, 100);                /* 1 is lost */
    kit_expect_repair(0, 0, 3, 3, 0, 1, 0x7);
    /* The tail of the same burst once more, late: nothing. */
    kit_parity(0, 0, 2, 3, symbol, 100);
    kit_expect_nothing();
    kit_parity(0, 0, 3, 4, symbol, 100);
    kit_expect_nothing();
    assert_int_equal(kit_stats().decoded_blocks, 3);
    kit_close();
}

/* Nothing comes: a later round each time, twice as long, then RETX_REQ; nothing after that. */
static void test_rounds(void **state)
{
    (void)state;
    open_product();
    blocks(4, 5);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    uint64_t at = kit.now_ns;
    for (uint8_t round = 1; round <= 3; round++) {
        at += 80 * MS << (round - 1);
        if (round == 1) {
            kit_advance(2 * MS);
            kit_datagram(FMTP_EOP, 0, 0, 0, 0);
            kit_expect_repair(0, 1, 3, 0, 0, 2, 0x5);
            kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
            kit_datagram(FMTP_REPAIR, 0, 300, 100, 4);  /* these two are repaired meanwhile */
            kit_datagram(FMTP_REPAIR, 0, 500, 100, 6);
            for (uint32_t b = 6; b < 10; b++)
                kit_datagram(FMTP_REPAIR, 0, b * 100, 100, (uint8_t)(b + 1));
        }
        assert_int_equal(fmtp_receiver_deadline(kit.r), at);
        kit_advance(at - kit.now_ns - 1);
        kit_expect_nothing();
        kit_advance(1);
        kit_expect_repair(0, 0, 3, 0, round, 3, 0x7);
        kit_expect_nothing();
    }
    kit_advance(640 * MS);
    kit_expect(FMTP_RETX_REQ, 0, 0, 300);
    kit_expect_nothing();
    assert_int_equal(fmtp_receiver_deadline(kit.r), FMTP_NEVER);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_nothing();
    for (uint32_t b = 0; b < 3; b++)
        assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, b * 100, 100, (uint8_t)(b + 1)), 0);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 3);
    assert_product();
    kit_close();
}

/* Equation (2) gives 2 * 1000 * 8 / 8e6 = 2 ms; but as long as data comes the multicast is not over:
 * patience, 80 ms, and 0.1 ms for each block to come after the latest. */
static void test_tau(void **state)
{
    (void)state;
    open_product();
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 2 * MS);
    for (uint32_t b = 0; b < 3; b++) {
        kit_advance(80 * MS);
        kit_expect_nothing();
        blocks(b, b + 1);
    }
    kit_advance(80 * MS);
    kit_expect_nothing();
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 4 * 80 * MS + 700000);
    kit_advance(700000);
    kit_expect_repair(0, 1, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
    kit_expect(FMTP_EOP_REQ, 0, 0, 0);
    kit_expect_nothing();
    kit_close();
}

/* RETX_DATA for a group that was asked for by multicast counts and completes. */
static void test_answered_by_stream(void **state)
{
    (void)state;
    open_product();
    blocks(2, 10);
    kit_expect_repair(0, 0, 3, 0, 0, 2, 0x3);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 0, 100, 1), 0);
    assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, 100, 100, 2), 0);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 2);
    assert_product();
    kit_expect(FMTP_RETX_END, 0, 2, 0);
    kit_expect_nothing();
    kit_close();
}

/* A timeout after news: what the end told is asked for, as a first round. */
static void test_timeout_with_news(void **state)
{
    (void)state;
    open_product();
    blocks(3, 10);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_advance(10 * MS);
    kit_parity(0, 0, 0, 3, symbol, 100);                /* 1 and 2 are lost */
    /* The answer took 10 ms, +-5: 10 + 4 * 5 is below 80 ms. */
    kit_advance(69 * MS);
    kit_expect_nothing();
    kit_advance(1 * MS);
    kit_expect_repair(0, 0, 3, 3, 0, 2, 0x7);
    kit_close();
}

/* Answers that take long make patience longer: the first took 100 ms, +-50: 100 + 4 * 50 = 300. */
static void test_patience_is_learned(void **state)
{
    (void)state;
    open_product();
    fmtp_receiver_rtt(kit.r, 60 * MS);                  /* 110 ms */
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit.now_ns += 100 * MS;
    kit_datagram(FMTP_REPAIR, 0, 0, 100, 1);
    blocks(7, 8);                                       /* 4, 5: group 1 is asked for */
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_datagram(FMTP_REPAIR, 0, 100, 100, 2);
    kit_datagram(FMTP_REPAIR, 0, 200, 100, 3);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 2, 4, 0, 0, 3, 0xd);
    kit_advance(299 * MS);
    kit_expect_nothing();
    kit_advance(1 * MS);
    kit_expect_repair(0, 1, 3, 0, 1, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 1, 3, 0xd);
    kit_close();
}

/* A quick answer makes it shorter: 10 ms, +-5, are below 1.5 round trips and 5 ms. */
static void test_quick_answer(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit.now_ns += 10 * MS;
    for (uint32_t b = 0; b < 3; b++)
        kit_datagram(FMTP_REPAIR, 0, b * 100, 100, (uint8_t)(b + 1));
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
    kit_advance(64 * MS);
    kit_expect_nothing();
    kit_advance(1 * MS);
    kit_expect_repair(0, 1, 3, 0, 1, 2, 0x6);
    kit_close();
}

/* Slow answers are learned from although a later round was asked for meanwhile: 150 ms, +-75. */
static void test_slow_answer(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_drain();
    kit_advance(80 * MS);
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 1, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 1, 4, 0xf);
    kit.now_ns += 70 * MS;
    for (uint32_t b = 0; b < 10; b++)
        if (b < 3 || b > 5)
            kit_datagram(FMTP_REPAIR, 0, b * 100, 100, (uint8_t)(b + 1));
    /* Group 1 is due at 80 + 160 ms, passed over; from then on 2^2 * 450 ms (75 + 3/4 * 75 twice:
     * the second sample was the same, so its deviation is 0: 75 * 3/4; 150 + 4 * 56.25 = 375). */
    kit_advance(90 * MS);
    kit_expect_repair(0, 1, 3, 0, 2, 2, 0x6);
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 240 * MS + 4 * 375 * MS);
    kit_close();
}

/* After the last round: no RETX_REQ while repairs of anything come. */
static void test_repairs_go_on(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_drain();
    for (uint8_t round = 1; round <= 3; round++) {
        kit_advance(80 * MS << (round - 1));
        kit_drain();
    }
    kit_advance(639 * MS);
    kit_expect_nothing();
    kit_datagram(FMTP_REPAIR, 0, 800, 100, 9);          /* group 2 is being repaired at last */
    kit_advance(1 * MS);
    kit_expect_repair(0, 0, 3, 0, 3, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 3, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 3, 3, 0xb);
    kit_expect_nothing();
    for (int i = 0; i < 10; i++)                        /* nothing more comes, however long */
        kit_advance(40000 * MS);
    kit_expect(FMTP_RETX_REQ, 0, 0, 300);
    kit_expect(FMTP_RETX_REQ, 0, 400, 200);
    kit_expect(FMTP_RETX_REQ, 0, 600, 200);
    kit_expect(FMTP_RETX_REQ, 0, 900, 100);
    kit_expect_nothing();
    kit_close();
}

/* While what was asked for earlier is being repaired, patience lasts; what was passed over is asked
 * for again. */
static void test_progress(void **state)
{
    (void)state;
    open_product();
    blocks(6, 7);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 2, 4, 0, 0, 3, 0xe);
    kit_advance(30 * MS);
    kit_datagram(FMTP_REPAIR, 0, 300, 100, 4);          /* group 1: took 30, +-15: still 90 */
    kit_advance(50 * MS);
    /* At 80 ms: group 0 was passed over and group 1 may have lost the rest; group 2 is still to
     * come, until nothing came for 90 ms. */
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 1, 2, 0x6);
    kit_expect_nothing();
    kit_advance(39 * MS);
    kit_expect_nothing();
    kit_advance(1 * MS);
    kit_expect_repair(0, 2, 4, 0, 1, 3, 0xe);
    kit_close();
}

/* Fewer parity numbers are left than would suffice: asked for all the same, the sender repeats
 * blocks. Patience ends as ever. */
static void test_numbers_run_out(void **state)
{
    (void)state;
    open_product();
    kit_parity(0, 0, 250, 251, symbol, 100);            /* of 252; 3 missing, 1 in hand */
    kit_expect_repair(0, 0, 3, 251, 0, 2, 0x7);
    kit_parity(0, 0, 251, 252, symbol, 100);
    kit_expect_repair(0, 0, 3, 252, 0, 1, 0x7);
    kit_expect_nothing();
    kit_datagram(FMTP_REPAIR, 0, 0, 100, 1);
    assert_int_equal(kit_stats().decoded_blocks, 2);
    kit_close();
}

/* A group whose end is told to be later and later, each time in vain, is asked for by RETX_REQ in
 * the end: after 32 requests. */
static void test_asks_are_bounded(void **state)
{
    (void)state;
    kit_reset();
    kit.cfg.parity_bytes = 0;
    kit_open();
    kit_session(true, 100, 4, 0, 1);
    fmtp_receiver_rtt(kit.r, UINT64_MAX);               /* patience has its bound as well */
    kit_bop(0, 1000);
    blocks(3, 10);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 5000 * MS);
    for (uint8_t end = 1; end < 32; end++) {
        kit_parity(0, 0, (uint8_t)(end - 1), end, symbol, 100);
        kit_expect_repair(0, 0, 3, end, 0, 3, 0x7);
    }
    kit_parity(0, 0, 31, 32, symbol, 100);
    kit_expect(FMTP_RETX_REQ, 0, 0, 300);
    kit_parity(0, 0, 32, 33, symbol, 100);
    kit_advance(5000 * MS);
    kit_expect_nothing();
    assert_int_equal(fmtp_receiver_deadline(kit.r), FMTP_NEVER);
    kit_close();
}

/* Parity beyond the bound is dropped and asked for again. */
static void test_parity_bound(void **state)
{
    (void)state;
    kit_reset();
    kit.cfg.parity_bytes = 1 * (sizeof(void *) * 2 + 100);
    kit_open();
    kit_session(true, 100, 4, 0, 1);
    kit_bop(0, 1000);
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_parity(0, 0, 0, 3, symbol, 100);
    kit_parity(0, 0, 1, 3, symbol, 100);
    assert_int_equal(kit_stats().parity_drops, 1);
    kit_parity(0, 0, 2, 3, symbol, 100);
    assert_int_equal(kit_stats().parity_drops, 2);
    kit_expect_repair(0, 0, 3, 3, 0, 2, 0x7);
    kit_close();
}

static void test_malformed(void **state)
{
    (void)state;
    open_product();
    kit_parity(0, 3, 0, 1, symbol, 100);                /* there are 3 groups */
    kit_parity(0, 0, 1, 1, symbol, 100);                /* end must be above the number */
    kit_parity(0, 0, 0, 253, symbol, 100);              /* 255 - 3 numbers */
    kit_parity(0, 0, 0, 1, symbol, 99);
    kit_datagram(FMTP_REPAIR, 0, 50, 100, 1);
    kit_datagram(FMTP_REPAIR, 0, 1000, 100, 1);
    kit_datagram(FMTP_REPAIR, 0, 0, 99, 1);
    kit_datagram(FMTP_REPAIR_REQ, 0, 0, 5, 1);          /* not for us */
    kit_bytes(FMTP_MEM_DATA, 0, 0, big_symbol, 101);    /* longer than a block */
    assert_int_equal(kit_stats().bad_messages, 9);
    assert_int_equal(kit.data[0], 0);
    kit_expect_nothing();
    kit_close();
    /* Not agreed on: unknown types. */
    kit_reset();
    kit_open();
    kit_bop(0, 3000);
    kit_parity(0, 0, 0, 1, big_symbol, KIT_BLOCK);
    kit_datagram(FMTP_REPAIR, 0, 0, KIT_BLOCK, 1);
    assert_int_equal(kit_stats().bad_messages, 2);
    kit_close();
}

/* Duplicates change nothing; late blocks make the parity suffice. */
static void test_late_block_decodes(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_parity(0, 0, 0, 2, parity_of(0, 3, 0), 100);
    kit_parity(0, 0, 0, 2, parity_of(0, 3, 0), 100);
    kit_datagram(FMTP_REPAIR, 0, 200, 100, 3);
    assert_int_equal(kit_stats().decoded_blocks, 0);
    blocks(1, 2);                                       /* reordered */
    assert_int_equal(kit_stats().decoded_blocks, 1);
    assert_int_equal(kit.data[0], 1);
    assert_int_equal(kit.data[299], 3);
    kit_parity(0, 0, 1, 2, symbol, 100);                /* for a group that is complete */
    kit_datagram(FMTP_REPAIR, 0, 0, 100, 9);
    assert_int_equal(kit.data[0], 1);
    assert_int_equal(kit_stats().duplicate_blocks, 1);
    kit_expect_nothing();
    kit_close();
}

/* A newer product: all groups of the one before passed; its EOP is not needed. */
static void test_newer_product(void **state)
{
    (void)state;
    open_product();
    blocks(1, 10);
    kit_expect_repair(0, 0, 3, 0, 0, 1, 0x1);
    kit_close();
    open_product();
    blocks(0, 9);
    kit_datagram(FMTP_MEM_DATA, 1, 0, 100, 1);
    kit_expect_repair(0, 2, 4, 0, 0, 1, 0x8);
    kit_expect(FMTP_BOP_REQ, 1, 0, 0);
    kit_expect_nothing();
    kit_close();
}

/* The last block is short: 950 bytes; parity gives back 50 of its 100 bytes. */
static void test_short_last_block(void **state)
{
    uint8_t data[4][100] = {{0}}, parity[100], *const outs[] = {parity};
    const uint8_t *in[] = {data[0], data[1], data[2], data[3]};

    (void)state;
    kit_open_extended(4, 0);
    kit_bop(0, 950);
    for (int i = 0; i < 4; i++)
        memset(data[i], 7 + i, i == 3 ? 50 : 100);
    fmtp_fec_encode(4, 0, 1, 100, in, outs);
    blocks(0, 9);
    kit.data[950] = 0x5a;                               /* not ours */
    kit_parity(0, 2, 0, 1, parity, 100);
    assert_int_equal(kit.nended, 1);
    for (int i = 0; i < 950; i++)
        assert_int_equal(kit.data[i], i / 100 + 1);
    assert_int_equal(kit.data[950], 0x5a);
    kit_close();
    /* And when it is another block that is missing. */
    kit_open_extended(4, 0);
    kit_bop(0, 950);
    blocks(0, 8);
    kit_datagram(FMTP_MEM_DATA, 0, 900, 50, 10);
    kit_parity(0, 2, 0, 1, parity, 100);
    assert_int_equal(kit.nended, 1);
    for (int i = 0; i < 950; i++)
        assert_int_equal(kit.data[i], i / 100 + 1);
    kit_close();
}

/* Many groups at once: no more than a bounded backlog of requests; all are asked for in the end,
 * in order, and each waits only from its request on. */
static void test_backlog(void **state)
{
    const uint8_t *bytes;
    uint32_t asked = 0;
    size_t n, most = 0;

    (void)state;
    kit_open_extended(1, 0);                            /* 4000 groups of one block */
    kit_bop(0, 400000);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    while ((n = fmtp_receiver_output(kit.r, &bytes))) {
        struct fmtp_header h;
        most = n > most ? n : most;
        fmtp_header_get(bytes, &h);
        assert_int_equal(h.flags, FMTP_REPAIR_REQ);
        assert_int_equal(h.seqnum, asked);
        assert_int_equal(h.payloadlen, 5);
        fmtp_receiver_sent(kit.r, 17);
        asked++;
    }
    assert_int_equal(asked, 4000);
    assert_true(most < 65536 + 17);
    /* With k = 1 the inverse of 1 is 1: parity 0 is the block. */
    kit_parity(0, 5, 0, 1, symbol, 100);
    assert_memory_equal(kit.data + 500, symbol, 100);
    /* All out of patience at once: again no more than the bound, the others later. */
    kit_advance(100 * MS);
    n = fmtp_receiver_output(kit.r, &bytes);
    assert_in_range(n, 65536, 65536 + 17);
    kit_drain();
    for (int i = 0; i < 200; i++) {
        kit_advance(100 * MS);
        kit_drain();
    }
    assert_false(fmtp_receiver_stuck(kit.r));
    assert_int_equal(fmtp_receiver_deadline(kit.r), FMTP_NEVER);
    assert_int_equal(kit_stats().retx_requests, 3999);
    assert_int_equal(kit_stats().repair_requests, 4000 + 3 * 3999);
    kit_close();
}

/* A product of too many groups is repaired by RETX_REQ alone: 65,537 blocks in groups of one. */
static void test_too_many_groups(void **state)
{
    (void)state;
    kit_reset();
    kit.bytes = 65537 * 64;
    kit_open();
    kit_session(true, 64, 1, 0, 1);
    kit_bop(0, 65537 * 64);
    kit_datagram(FMTP_MEM_DATA, 0, 2 * 64, 64, 1);
    kit_expect(FMTP_RETX_REQ, 0, 0, 128);
    kit_bytes(FMTP_PARITY, 0, 1, big_symbol, 64);
    assert_int_equal(kit_stats().bad_messages, 1);
    kit_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passed), cmocka_unit_test(test_proactive),
        cmocka_unit_test(test_lost_end), cmocka_unit_test(test_parity_passes),
        cmocka_unit_test(test_burst_short), cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_tau), cmocka_unit_test(test_answered_by_stream), cmocka_unit_test(test_timeout_with_news),
        cmocka_unit_test(test_patience_is_learned), cmocka_unit_test(test_quick_answer),
        cmocka_unit_test(test_slow_answer), cmocka_unit_test(test_repairs_go_on),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_numbers_run_out), cmocka_unit_test(test_asks_are_bounded),
        cmocka_unit_test(test_parity_bound),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_late_block_decodes),
        cmocka_unit_test(test_newer_product), cmocka_unit_test(test_short_last_block),
        cmocka_unit_test(test_backlog), cmocka_unit_test(test_too_many_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

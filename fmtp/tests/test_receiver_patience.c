/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving core with extension 1: how long it waits for a repair, and what it does then.
 */
#include <string.h>

#include "repair_kit.h"

/* Without an answer it requests another round each time, after twice as long, then by RETX_REQ, and
 * then nothing. */
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
            kit_datagram(FMTP_REPAIR, 0, 300, 100, 4); /* these two are repaired meanwhile */
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
    assert_int_equal(fmtp_receiver_deadline(kit.r), TP_NEVER);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_nothing();
    for (uint32_t b = 0; b < 3; b++)
        assert_int_equal(kit_stream(FMTP_RETX_DATA, 0, b * 100, 100, (uint8_t)(b + 1)), 0);
    assert_int_equal(kit.nended, 1);
    assert_int_equal(kit.retx, 3);
    assert_product();
    kit_close();
}

/* Equation (2) gives 2 * 1000 * 8 / 8e6 = 2 ms. But while data arrive the multicast is not over:
 * add patience, 80 ms, and 0.1 ms for each block still to come after the latest. */
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

/* A burst whose end is lost: what is missing is requested 10 ms and 24 blocks (2.4 ms at 8 Mbit/s)
 * after its last symbol that arrived, as a first round and with the end that the symbols
 * announced. */
static void test_burst_without_end(void **state)
{
    (void)state;
    open_product();
    blocks(3, 10);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_advance(10 * MS);
    kit_parity(0, 0, 0, 4, repair_symbol, 100);
    kit_advance(5 * MS);
    kit_parity(0, 0, 1, 4, repair_symbol, 100); /* 2 and 3 are lost */
    kit_advance(7400000);                       /* 12.4 ms after the first */
    kit_expect_nothing();
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 15 * MS + 12400000);
    kit_advance(5 * MS);
    kit_expect_repair(0, 0, 3, 4, 0, 1, 0x7);
    kit_expect_nothing();
    kit_close();
}

/* Slow answers make patience longer: the first took 100 ms, +-50: 100 + 4 * 50 = 300. */
static void test_patience_is_learned(void **state)
{
    (void)state;
    open_product();
    fmtp_receiver_rtt(kit.r, 60 * MS); /* 110 ms */
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit.now_ns += 100 * MS;
    kit_datagram(FMTP_REPAIR, 0, 0, 100, 1);
    blocks(7, 8); /* 4, 5: group 1 is requested */
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

/* A quick answer makes it shorter: 10 ms, +-5, is below 1.5 round trips plus 5 ms. */
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

/* Slow answers count even if a later round was requested meanwhile: 150 ms, +-75. */
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

/* After the last round: no RETX_REQ as long as any repairs arrive. */
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
    kit_datagram(FMTP_REPAIR, 0, 800, 100, 9); /* group 2 is being repaired at last */
    kit_advance(1 * MS);
    kit_expect_repair(0, 0, 3, 0, 3, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 3, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 3, 3, 0xb);
    kit_expect_nothing();
    for (int i = 0; i < 10; i++) /* nothing more arrives, however long it waits */
        kit_advance(40000 * MS);
    kit_expect(FMTP_RETX_REQ, 0, 0, 300);
    kit_expect(FMTP_RETX_REQ, 0, 400, 200);
    kit_expect(FMTP_RETX_REQ, 0, 600, 200);
    kit_expect(FMTP_RETX_REQ, 0, 900, 100);
    kit_expect_nothing();
    kit_close();
}

/* While earlier requests are being repaired, patience lasts; what was passed over is requested
 * again. */
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
    kit_datagram(FMTP_REPAIR, 0, 300, 100, 4); /* group 1: took 30, +-15: still 90 */
    kit_advance(50 * MS);
    /* At 80 ms group 0 was passed over and group 1 may have lost the rest; group 2 is still to
     * come, until nothing has arrived for 90 ms. */
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 1, 2, 0x6);
    kit_expect_nothing();
    kit_advance(39 * MS);
    kit_expect_nothing();
    kit_advance(1 * MS);
    kit_expect_repair(0, 2, 4, 0, 1, 3, 0xe);
    kit_close();
}

/* A group whose announced end keeps growing while it gets no answer is finally requested by
 * RETX_REQ: after 32 requests. */
static void test_asks_are_bounded(void **state)
{
    (void)state;
    kit_reset();
    kit.cfg.parity_bytes = 0;
    kit_open();
    kit_session(true, 100, 4, 0, 1);
    fmtp_receiver_rtt(kit.r, UINT64_MAX); /* patience is also bounded in this case */
    kit_bop(0, 1000);
    blocks(3, 10);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + 5000 * MS);
    for (uint8_t end = 1; end < 32; end++) {
        kit_parity(0, 0, (uint8_t)(end - 1), end, repair_symbol, 100);
        kit_expect_repair(0, 0, 3, end, 0, 3, 0x7);
    }
    kit_parity(0, 0, 31, 32, repair_symbol, 100);
    kit_expect(FMTP_RETX_REQ, 0, 0, 300);
    kit_parity(0, 0, 32, 33, repair_symbol, 100);
    kit_advance(5000 * MS);
    kit_expect_nothing();
    assert_int_equal(fmtp_receiver_deadline(kit.r), TP_NEVER);
    kit_close();
}

/* A reminder from the sender says that nothing of the product is in flight: what was requested
 * longer than a round trip ago is requested again at once, as a later round. */
static void test_reminder(void **state)
{
    (void)state;
    open_product();
    blocks(3, 4);
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_advance(30 * MS);
    kit_datagram(FMTP_EOP, 0, 0, 0, 0);
    kit_expect_repair(0, 1, 3, 0, 0, 2, 0x6);
    kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
    kit_advance(11 * MS); /* of 80; 41 and 11 ms ago */
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 0, 0, 0, 0), 0);
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_expect_nothing();
    /* The others still wait. */
    assert_int_equal(fmtp_receiver_deadline(kit.r), 1000 + (30 + 80) * MS);
    kit_close();
}

/* RETX_EOP as an answer to EOP_REQ is not a reminder: the sender may be busy repairing. */
static void test_answer_is_no_reminder(void **state)
{
    (void)state;
    open_product();
    kit_advance(81 * MS); /* beyond tau_rcv, and silence */
    kit_expect_repair(0, 0, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 1, 3, 0, 0, 3, 0x7);
    kit_expect_repair(0, 2, 4, 0, 0, 4, 0xf);
    kit_expect(FMTP_EOP_REQ, 0, 0, 0);
    kit_advance(50 * MS);
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 0, 0, 0, 0), 0);
    kit_expect_nothing();
    assert_int_equal(kit_stream(FMTP_RETX_EOP, 0, 0, 0, 0), 0);
    kit_expect_repair(0, 0, 3, 0, 1, 3, 0x7);
    kit_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_tau),
        cmocka_unit_test(test_burst_without_end),
        cmocka_unit_test(test_patience_is_learned),
        cmocka_unit_test(test_quick_answer),
        cmocka_unit_test(test_slow_answer),
        cmocka_unit_test(test_repairs_go_on),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_asks_are_bounded),
        cmocka_unit_test(test_reminder),
        cmocka_unit_test(test_answer_is_no_reminder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

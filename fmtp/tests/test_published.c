/* SPDX-License-Identifier: Apache-2.0
 *
 * What the published senders did and ours does on request: the timer by the hand-over time, and one
 * blocking thread for each receiver. Times are worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fmtp.h"
#include "sender_kit.h"
#include "sim.h"

static struct fmtp_server_stats stats_of(const struct sim *s)
{
    struct fmtp_server_stats stats;

    fmtp_sender_get_stats(s->sender, &stats);
    return stats;
}

/* ---- the timer: five datagrams, of which one leaves in each millisecond; f_snd is 50 */
static struct fmtp_sender *handed_over(uint64_t handover_ns, uint64_t begun_ns, uint64_t sent_ns,
                                       uint64_t each_ns)
{
    struct fmtp_sender_config cfg = common;

    cfg.fec_k = 0;
    cfg.f_snd = 50;
    cfg.timer_by_handover = true;
    cfg.handover_ns = handover_ns;
    struct fmtp_sender *s = make(&cfg);
    peer(s, false);
    offer(s, 2 * BLOCK + 1);
    struct fmtp_datagram d;
    assert_int_equal(fmtp_sender_fill(s, &d, 1, begun_ns), 1); /* the system has no room yet */
    fmtp_sender_sent(s, 0, begun_ns);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    for (uint64_t i = 0; i < 5; i++)
        assert_true(next(s, sent_ns + i * each_ns, &h, payload));
    assert_int_equal(h.flags, FMTP_EOP);
    return s;
}

static void assert_expires(struct fmtp_sender *s, uint64_t at_ns)
{
    fmtp_sender_timeout(s, at_ns - 1);
    assert_int_equal(nreleased, 0);
    fmtp_sender_timeout(s, at_ns);
    assert_int_equal(nreleased, 1);
    fmtp_sender_free(s);
}

static void test_handover(void **state)
{
    (void)state;
    /* From 10 to 14 ms; by the rate it would be 50 x 201 x 8 / 1.12 Mbit/s = 71.8 ms. */
    assert_expires(handed_over(0, 10 * MS, 10 * MS, MS), (14 + 50 * 4) * MS);
    /* The first call waited for 20 ms. */
    assert_expires(handed_over(0, 10 * MS, 30 * MS, MS), (34 + 50 * 24) * MS);
    /* Five datagrams count at least 2 ms each; or 0.5 ms, which they exceed. */
    assert_expires(handed_over(2 * MS, 10 * MS, 10 * MS, MS), (14 + 50 * 10) * MS);
    assert_expires(handed_over(MS / 2, 10 * MS, 10 * MS, MS), (14 + 50 * 4) * MS);
    /* As in virtual time, where handing over takes none; then the round trip of 8 ms is longer. */
    assert_expires(handed_over(MS, 10 * MS, 10 * MS, 0), (10 + 50 * 5) * MS);
    assert_expires(handed_over(0, 10 * MS, 10 * MS, 0), (10 + 8) * MS);
}

/* ---- blocking: product 0 has 50 blocks, of which the first 40 are lost; their repair by a stream
 * of 1 Mbit/s takes 40 x 1460 B x 8 us = 467.2 ms, from 44 to 511 ms. Product 1 loses a block;
 * its request arrives at 51 ms, and its timer ends 56 ms after 32.1 ms. Product 2 loses nothing;
 * its RETX_END arrives at 55 ms, and its timer ends at 34.9 + 56 ms. Product 0's ends at 608 ms. */
static bool lose(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_MEM_DATA && ((h->index == 0 && h->seqnum < 40 * FMTP_DATA_LEN) ||
                                         (h->index & 1 && h->seqnum == FMTP_DATA_LEN));
}

static struct sim *slow_stream(bool blocking)
{
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = 20000000,
                             .unicast_bps = 1000000,
                             .delay_ns = 10 * MS,
                             .f_snd = 20,
                             .f_rcv = 20,
                             .receivers = 1,
                             .drop = lose,
                             .blocking = blocking};
    struct sim *s = sim_new(&cfg);

    sim_product(s, 50 * FMTP_DATA_LEN, 0);
    sim_product(s, 7000, 0);
    sim_product(s, 7000, 0);
    sim_product(s, 7000, 1000 * MS);
    return s;
}

/* What both do: a request that was not answered when its product's timer ended is rejected. */
static void check_outcome(const struct sim *s)
{
    const struct sim_receiver *rx = &s->rx[0];

    assert_int_equal(rx->ended[0], 1);
    assert_in_range(rx->ended_ns[0], (511 + 10) * MS, (511 + 11) * MS);
    assert_int_equal(s->why[1], FMTP_RELEASE_TIMEOUT);
    assert_in_range(s->released_ns[1], 88 * MS, 89 * MS);
    assert_int_equal(sim_count(rx, FMTP_RETX_REJ, 1), 1);
    assert_in_range(sim_find(rx, FMTP_RETX_REJ, 1)->at_ns, (511 + 10) * MS, (511 + 11) * MS);
    assert_int_equal(rx->missed[1], 1);
    assert_int_equal(rx->ended[2], 1);
    assert_int_equal(rx->ended[3], 1); /* the stream is still in step */
    assert_int_equal(rx->retx_blocks[3], 1);
}

static void test_event_loop(void **state)
{
    (void)state;
    struct sim *s = slow_stream(false);
    sim_run(s, 300 * MS);
    uint64_t first = stats_of(s).retx_requests - 1;
    assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_REQ, 0), first);
    assert_int_equal(stats_of(s).rejects, 1); /* at the end of its timer */
    assert_int_equal(s->why[2], FMTP_RELEASE_ALL_DONE);
    assert_in_range(s->released_ns[2], 54 * MS, 56 * MS);
    sim_run(s, TP_NEVER);
    check_outcome(s);
    assert_int_equal(s->why[0], FMTP_RELEASE_ALL_DONE);
    sim_free(s);
}

static void test_blocking(void **state)
{
    (void)state;
    struct sim *s = slow_stream(true);
    sim_run(s, 300 * MS);
    /* Neither the request for product 1 nor the end of product 2 is read. */
    assert_in_range(stats_of(s).retx_requests, 1, sim_count(&s->rx[0], FMTP_RETX_REQ, 0));
    assert_int_equal(stats_of(s).rejects, 0);
    assert_int_equal(stats_of(s).acks, 0);
    assert_int_equal(s->why[2], FMTP_RELEASE_TIMEOUT);
    assert_in_range(s->released_ns[2], 90 * MS, 91 * MS);
    sim_run(s, TP_NEVER);
    check_outcome(s);
    assert_int_equal(stats_of(s).rejects, 1);
    assert_int_equal(s->why[3], FMTP_RELEASE_ALL_DONE);
    sim_free(s);
}

/* ---- reminders: a busy thread sends none, not even of another product */
static uint64_t nudges_to_busy(bool blocking)
{
    struct fmtp_sender_config cfg = common;
    unsigned extra;

    cfg.fec_k = 0;
    cfg.blocking = blocking;
    struct fmtp_sender *s = make(&cfg);
    int p = peer(s, false);
    offer(s, 300);
    drain(s, 0, &extra);
    put(s, p, FMTP_RETX_REQ, latest, 0, BLOCK);
    offer(s, 300);
    drain(s, 0, &extra);
    fmtp_sender_timeout(s, 3000 * MS); /* after the 2 s that 256 KiB take */
    uint64_t nudges = fmtp_sender_counts(s)->nudges;
    uint8_t bytes[2 * BLOCK];
    assert_int_equal(stream(s, p, bytes, sizeof bytes, 3000 * MS),
                     FMTP_HEADER_LEN + BLOCK + nudges * FMTP_HEADER_LEN);
    fmtp_sender_timeout(s, 8000 * MS);
    assert_true(fmtp_sender_counts(s)->nudges > nudges);
    fmtp_sender_free(s);
    return nudges;
}

static void test_reminders(void **state)
{
    (void)state;
    assert_int_equal(nudges_to_busy(false), 1);
    assert_int_equal(nudges_to_busy(true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handover),
        cmocka_unit_test(test_event_loop),
        cmocka_unit_test(test_blocking),
        cmocka_unit_test(test_reminders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Deterministic losses over the simulated link, row by row of the published sequences, with times
 * worked out by hand. Common setting: 20 Mbit/s (400 ns per byte), 10 ms each way, products of 7000
 * bytes = 4 blocks of 1448 and one of 1208 bytes, 4 bytes of metadata. Hence on the NIC
 *   BOP 12+18+4 = 34 B 13 600 ns, full block 1460 B 584 000 ns, last block 1220 B 488 000 ns,
 *   EOP 12 B 4 800 ns;
 * BOP arrives at 10 013 600; EOP is put on the NIC at 13 600 + 4*584 000 + 488 000 = 2 837 600.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "sim.h"

#define MS UINT64_C(1000000)
#define BOP_ARRIVES (10 * MS + 13600)
#define EOP_LEAVES UINT64_C(2837600)
enum { SIZE = 7000, BLOCK = 1448 };

static const struct sim_config common = {.layout = FMTP_LAYOUT_2021,
                                         .rate_bps = 20000000,
                                         .unicast_bps = 20000000,
                                         .delay_ns = 10 * MS,
                                         .f_snd = 5000,
                                         .f_rcv = 20,
                                         .receivers = 1};

static struct sim *run(bool (*drop)(int, const struct fmtp_header *), int products)
{
    struct sim_config cfg = common;

    cfg.drop = drop;
    struct sim *s = sim_new(&cfg);
    for (int i = 0; i < products; i++)
        sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    return s;
}

static void assert_got(const struct sim *s, int rx, int product, uint32_t retx_blocks)
{
    const struct sim_receiver *r = &s->rx[rx];

    assert_int_equal(r->begun[product], 1);
    assert_int_equal(r->ended[product], 1);
    assert_int_equal(r->missed[product], 0);
    assert_true(r->intact[product]);
    assert_int_equal(r->retx_blocks[product], retx_blocks);
    assert_int_equal(sim_count(r, FMTP_RETX_END, s->cfg.first_index + (uint32_t)product), 1);
}

static void assert_all_done(const struct sim *s)
{
    for (int i = 0; i < s->nproducts; i++) {
        assert_int_equal(s->multicasted[i], 1);
        assert_int_equal(s->released[i], 1);
        assert_int_equal(s->why[i], FMTP_RELEASE_ALL_DONE);
    }
}

/* ---- nothing lost: one RETX_END and nothing else on the stream */
static void test_lossless(void **state)
{
    struct sim *s = run(NULL, 3);

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_got(s, 0, i, 0);
    assert_all_done(s);
    assert_int_equal(s->rx[0].nlog, 3);
    /* Complete with the last block, without waiting for EOP. */
    assert_int_equal(s->rx[0].ended_ns[0], EOP_LEAVES + 10 * MS);
    sim_free(s);
}

/* ---- one DATA */
static bool lose_block_2(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_MEM_DATA && h->seqnum == 2 * BLOCK;
}

static void test_one_data(void **state)
{
    struct sim *s = run(lose_block_2, 1);
    const struct sim_receiver *rx = &s->rx[0];

    (void)state;
    assert_got(s, 0, 0, 1);
    assert_all_done(s);
    assert_int_equal(rx->nlog, 3);
    const struct sim_message *m = sim_find(rx, FMTP_RETX_REQ, 0);
    assert_int_equal(m->h.seqnum, 2896);
    assert_int_equal(m->h.payloadlen, 1448);
    /* requested when block 3 arrives: BOP and 4 blocks on the NIC, 10 ms, and 10 ms back */
    assert_int_equal(m->at_ns, 13600 + 4 * 584000 + 20 * MS);
    m = sim_find(rx, FMTP_RETX_DATA, 0);
    assert_int_equal(m->h.seqnum, 2896);
    assert_int_equal(m->h.payloadlen, 1448);
    sim_free(s);
}

/* ---- the last blocks: requested at EOP, two of them in one request */
static bool lose_last_two(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_MEM_DATA && h->seqnum >= 3 * BLOCK;
}

static void test_last_blocks(void **state)
{
    struct sim *s = run(lose_last_two, 1);
    const struct sim_receiver *rx = &s->rx[0];
    const struct sim_message *m = sim_find(rx, FMTP_RETX_REQ, 0);

    (void)state;
    assert_got(s, 0, 0, 2);
    assert_all_done(s);
    assert_int_equal(sim_count(rx, FMTP_RETX_REQ, 0), 1);
    assert_int_equal(m->h.seqnum, 4344);
    assert_int_equal(m->h.payloadlen, 2896); /* full blocks; the sender clips */
    assert_int_equal(m->at_ns, EOP_LEAVES + 4800 + 20 * MS);
    assert_int_equal(sim_count(rx, FMTP_RETX_DATA, 0), 2);
    assert_int_equal(sim_count(rx, FMTP_EOP_REQ, 0), 0);
    /* REQ, DATA 4344 (1448), DATA 5792 (1208), END */
    assert_int_equal(rx->nlog, 4);
    assert_int_equal(rx->log[2].h.seqnum, 5792);
    assert_int_equal(rx->log[2].h.payloadlen, 1208);
    sim_free(s);
}

/* ---- EOP alone: not needed, nothing is requested */
static bool lose_eop(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_EOP;
}

static void test_eop(void **state)
{
    struct sim *s = run(lose_eop, 2);

    (void)state;
    assert_got(s, 0, 0, 0);
    assert_got(s, 0, 1, 0);
    assert_all_done(s);
    assert_int_equal(s->rx[0].nlog, 2);
    sim_free(s);
}

/* ---- EOP and the last block: detected by the receiver timer, equation (2) 20 * 7000 * 8 / 20e6 =
 * 0.056 s after the BOP */
static bool lose_tail(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_EOP || (h->flags == FMTP_MEM_DATA && h->seqnum == 4 * BLOCK);
}

static void test_receiver_timer(void **state)
{
    struct sim *s = run(lose_tail, 1);
    const struct sim_receiver *rx = &s->rx[0];
    uint64_t asked = BOP_ARRIVES + 56 * MS;

    (void)state;
    assert_got(s, 0, 0, 1);
    assert_all_done(s);
    assert_int_equal(sim_find(rx, FMTP_RETX_REQ, 0)->at_ns, asked + 10 * MS);
    assert_int_equal(sim_find(rx, FMTP_RETX_REQ, 0)->h.seqnum, 5792);
    assert_int_equal(sim_find(rx, FMTP_EOP_REQ, 0)->at_ns, asked + 10 * MS);
    assert_int_equal(sim_count(rx, FMTP_EOP_REQ, 0), 1);
    assert_int_equal(sim_count(rx, FMTP_RETX_EOP, 0), 1);
    /* REQ, EOP_REQ, DATA, EOP, END */
    assert_int_equal(rx->nlog, 5);
    sim_free(s);
}

/* ---- EOP_REQ is sent once, although the timer (at 66.0 ms) and the next BOP (at 70.0 ms, before
 * the answer arrives) both show that EOP is lost */
static bool lose_tail_of_0(int rx, const struct fmtp_header *h)
{
    return h->index == 0 && lose_tail(rx, h);
}

static void test_eop_is_asked_once(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.drop = lose_tail_of_0;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_product(s, SIZE, 60 * MS);
    sim_run(s, TP_NEVER);
    assert_got(s, 0, 0, 1);
    assert_got(s, 0, 1, 0);
    assert_int_equal(sim_count(&s->rx[0], FMTP_EOP_REQ, 0), 1);
    assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_REQ, 0), 1);
    sim_free(s);
}

/* ---- the tail is lost and another product follows closely: its BOP reveals the loss, long before
 * the timer */
static void test_next_bop(void **state)
{
    struct sim *s = run(lose_tail_of_0, 2);
    const struct sim_receiver *rx = &s->rx[0];

    (void)state;
    assert_got(s, 0, 0, 1);
    assert_got(s, 0, 1, 0);
    assert_all_done(s);
    /* BOP(1) leaves the NIC after EOP(0) (4800) and itself (13 600) */
    assert_int_equal(sim_find(rx, FMTP_RETX_REQ, 0)->at_ns, EOP_LEAVES + 4800 + 13600 + 20 * MS);
    assert_int_equal(sim_count(rx, FMTP_EOP_REQ, 0), 1);
    /* Product 1 is acknowledged before product 0: its last block arrives before the repair. */
    assert_true(sim_find(rx, FMTP_RETX_END, 1)->at_ns < sim_find(rx, FMTP_RETX_END, 0)->at_ns);
    sim_free(s);
}

/* ---- BOP */
static bool lose_bop(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_BOP;
}

static void test_bop(void **state)
{
    struct sim *s = run(lose_bop, 1);
    const struct sim_receiver *rx = &s->rx[0];

    (void)state;
    assert_got(s, 0, 0, 5);
    assert_all_done(s);
    /* first DATA -> BOP_REQ, once */
    assert_int_equal(sim_count(rx, FMTP_BOP_REQ, 0), 1);
    assert_int_equal(sim_find(rx, FMTP_BOP_REQ, 0)->at_ns, 13600 + 584000 + 20 * MS);
    assert_int_equal(sim_count(rx, FMTP_RETX_BOP, 0), 1);
    /* All five in one request; EOP has arrived meanwhile and is not requested. */
    assert_int_equal(sim_count(rx, FMTP_RETX_REQ, 0), 1);
    assert_int_equal(sim_find(rx, FMTP_RETX_REQ, 0)->h.seqnum, 0);
    assert_int_equal(sim_find(rx, FMTP_RETX_REQ, 0)->h.payloadlen, 5 * 1448);
    assert_int_equal(sim_count(rx, FMTP_RETX_DATA, 0), 5);
    assert_int_equal(sim_count(rx, FMTP_EOP_REQ, 0), 0);
    sim_free(s);
}

/* ---- BOP and EOP: RETX_REQ for everything and, as long as nothing shows the end, the receiver
 * timer */
static bool lose_bop_eop(int rx, const struct fmtp_header *h)
{
    return lose_bop(rx, h) || lose_eop(rx, h);
}

static void test_bop_and_eop(void **state)
{
    struct sim *s = run(lose_bop_eop, 2);

    (void)state;
    assert_got(s, 0, 0, 5);
    assert_got(s, 0, 1, 5);
    assert_all_done(s);
    /* Product 0 is over because product 1 was seen: blocks and EOP are requested at once. */
    assert_int_equal(sim_count(&s->rx[0], FMTP_EOP_REQ, 0), 1);
    sim_free(s);
}

/* ---- BOP of a product that is still being multicast when the BOP arrives: only what has passed is
 * requested (the originals request everything missing, some of it needlessly). 100 blocks take 58.4
 * ms, the BOP arrives after 30 ms. */
static void test_bop_of_long_product(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.drop = lose_bop;
    struct sim *s = sim_new(&cfg);
    sim_product(s, 100 * BLOCK, 0);
    sim_run(s, TP_NEVER);
    /* The first DATA arrives at 0.5976+10 ms; RETX_BOP is complete at 30.5976 ms plus its
     * transmission (34 B in pieces: at least 0.0136 ms); block k arrives at 10.0136 + 0.584 (k+1)
     * ms: blocks 0..34 before 30.6112 ms (block 34 at 30.4536), and at most one more while it is in
     * pieces. */
    assert_int_equal(s->rx[0].ended[0], 1);
    assert_true(s->rx[0].intact[0]);
    assert_in_range(s->rx[0].retx_blocks[0], 35, 36);
    struct fmtp_client_stats stats;
    fmtp_receiver_get_stats(s->rx[0].core, &stats);
    assert_int_equal(stats.duplicate_blocks, 0);
    assert_int_equal(stats.blocks + stats.retx_blocks, 100);
    sim_free(s);
}

/* ---- a whole product; others follow */
static bool lose_product_0(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->index == 1;
}

static void test_whole_product(void **state)
{
    struct sim *s = run(lose_product_0, 3);
    const struct sim_receiver *rx = &s->rx[0];
    size_t i = 0;

    (void)state;
    assert_got(s, 0, 0, 0);
    assert_got(s, 0, 1, 5);
    assert_got(s, 0, 2, 0);
    assert_all_done(s);
    /* BOP_REQ, RETX_BOP, RETX_REQ, EOP_REQ, 5 RETX_DATA, RETX_EOP, RETX_END in this order */
    const uint16_t order[] = {FMTP_BOP_REQ,   FMTP_RETX_BOP,  FMTP_RETX_REQ,
                              FMTP_EOP_REQ,   FMTP_RETX_DATA, FMTP_RETX_DATA,
                              FMTP_RETX_DATA, FMTP_RETX_DATA, FMTP_RETX_DATA};
    for (size_t k = 0; k < rx->nlog && i < 9; k++)
        if (rx->log[k].h.index == 1)
            assert_int_equal(rx->log[k].h.flags, order[i++]);
    assert_int_equal(i, 9);
    assert_int_equal(sim_count(rx, FMTP_RETX_EOP, 1), 1);
    sim_free(s);
}

/* ---- the whole last product: after max(2 RTT, 100 ms) and the time that 256 KiB in the system's
 * queues would take, 104.8576 ms, the sender reminds the receivers that are not done */
#define NUDGE_AFTER (100 * MS + UINT64_C(104857600))

static void test_whole_last_product(void **state)
{
    struct sim *s = run(lose_product_0, 2);
    const struct sim_receiver *rx = &s->rx[0];
    uint64_t eop_1 = 2 * EOP_LEAVES + 4800;

    (void)state;
    assert_got(s, 0, 0, 0);
    assert_got(s, 0, 1, 5);
    assert_all_done(s);
    assert_int_equal(s->multicasted_ns[1], eop_1);
    assert_int_equal(sim_count(rx, FMTP_RETX_EOP, 1), 1);
    assert_in_range(sim_find(rx, FMTP_RETX_EOP, 1)->at_ns, eop_1 + NUDGE_AFTER + 10 * MS,
                    eop_1 + NUDGE_AFTER + 11 * MS);
    assert_int_equal(sim_count(rx, FMTP_BOP_REQ, 1), 1);
    assert_int_equal(sim_count(rx, FMTP_EOP_REQ, 1), 0);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s->sender, &stats);
    assert_int_equal(stats.nudges, 1);
    sim_free(s);
}

/* ---- the same with a sender timer before the reminder, equation (1): 20 * 7000*8/20e6 = 56 ms
 * after EOP was sent; the product is missed */
static void test_whole_last_product_too_late(void **state)
{
    struct sim_config cfg = common;
    uint64_t eop_1 = 2 * EOP_LEAVES + 4800;

    (void)state;
    cfg.drop = lose_product_0;
    cfg.f_snd = 20;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    const struct sim_receiver *rx = &s->rx[0];
    assert_got(s, 0, 0, 0);
    assert_int_equal(s->released_ns[1], eop_1 + 56 * MS);
    assert_int_equal(s->why[1], FMTP_RELEASE_TIMEOUT);
    assert_int_equal(rx->missed[1], 1);
    assert_int_equal(rx->begun[1] + rx->ended[1], 0);
    assert_int_equal(sim_count(rx, FMTP_RETX_EOP, 1), 1);
    assert_int_equal(sim_count(rx, FMTP_BOP_REQ, 1), 1);
    assert_int_equal(sim_count(rx, FMTP_RETX_REJ, 1), 1);
    sim_free(s);
}

/* ---- the very first product is lost as a whole, before the receiver has seen any index */
static bool lose_everything_of_0(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->index == 0;
}

static void test_whole_first_product(void **state)
{
    struct sim *s = run(lose_everything_of_0, 2);

    (void)state;
    assert_got(s, 0, 0, 5);
    assert_got(s, 0, 1, 0);
    assert_all_done(s);
    sim_free(s);
}

/* ---- a request after the sender timer: rejected, missed. f_snd 1 gives 2.8 ms, but the round
 * trip is longer: tau = max RTT = 20 ms. The receiver's request arrives at 66+10 ms. */
static void test_too_late(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.drop = lose_tail;
    cfg.f_snd = 1;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    assert_int_equal(s->released_ns[0], EOP_LEAVES + 20 * MS);
    assert_int_equal(s->why[0], FMTP_RELEASE_TIMEOUT);
    assert_int_equal(s->rx[0].ended[0], 0);
    assert_int_equal(s->rx[0].missed[0], 1);
    assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_REJ, 0), 1);
    assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_END, 0), 0);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s->sender, &stats);
    assert_int_equal(stats.timeouts, 1);
    assert_int_equal(stats.unacknowledged, 1);
    sim_free(s);
}

/* ---- the same with a timer that runs from BOP, which is put on the NIC at 0 */
static void test_timer_from_bop(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.drop = lose_tail;
    cfg.f_snd = 1;
    cfg.timer_from_bop = true;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    assert_int_equal(s->released_ns[0], 20 * MS);
    assert_int_equal(s->why[0], FMTP_RELEASE_TIMEOUT);
    assert_int_equal(s->rx[0].missed[0], 1);
    sim_free(s);
}

/* ---- requests still queued when the sender timer expires are also rejected: 40 of 50 blocks over
 * a unicast link of 1 Mbit/s take 0.47 s; tau_snd = 10 * 72400*8/20e6 = 0.29 s */
static bool lose_most(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_MEM_DATA && h->seqnum < 40 * BLOCK;
}

static void test_slow_unicast(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.drop = lose_most;
    cfg.f_snd = 10;
    cfg.unicast_bps = 1000000;
    struct sim *s = sim_new(&cfg);
    sim_product(s, 50 * BLOCK, 0);
    sim_product(s, SIZE, 2000 * MS);
    sim_run(s, TP_NEVER);
    assert_int_equal(s->why[0], FMTP_RELEASE_TIMEOUT);
    assert_int_equal(s->rx[0].missed[0], 1);
    assert_int_equal(s->rx[0].ended[0], 0);
    assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_REJ, 0), 1);
    /* The stream is still in step: later products are repaired. */
    assert_in_range(sim_count(&s->rx[0], FMTP_RETX_DATA, 0), 10, 39);
    assert_int_equal(s->rx[0].nlog > 0, 1);
    sim_free(s);
}

/* ---- unwanted: RETX_END at once, nothing is requested although blocks are lost */
static void test_unwanted(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.drop = lose_last_two;
    cfg.refuse_all = true;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s->rx[0].begun[i], 1);
        assert_int_equal(s->rx[0].ended[i] + s->rx[0].missed[i], 0);
        assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_END, (uint32_t)i), 1);
    }
    assert_int_equal(sim_find(&s->rx[0], FMTP_RETX_END, 0)->at_ns, BOP_ARRIVES + 10 * MS);
    assert_int_equal(s->rx[0].nlog, 2);
    assert_all_done(s);
    /* Only after everything was multicast. */
    assert_true(s->released_ns[0] >= s->multicasted_ns[0]);
    sim_free(s);
}

/* ---- a retransmitted BOP of an older product does not affect the newer one's timer */
static bool lose_bop_of_0_and_tail_of_1(int rx, const struct fmtp_header *h)
{
    return h->index == 0 ? lose_bop(rx, h) : lose_tail(rx, h);
}

static void test_timers_are_independent(void **state)
{
    struct sim *s = run(lose_bop_of_0_and_tail_of_1, 2);
    uint64_t bop_1_arrives = EOP_LEAVES + 4800 + BOP_ARRIVES;

    (void)state;
    assert_got(s, 0, 0, 5);
    assert_got(s, 0, 1, 1);
    assert_int_equal(sim_find(&s->rx[0], FMTP_EOP_REQ, 1)->at_ns,
                     bop_1_arrives + 56 * MS + 10 * MS);
    sim_free(s);
}

/* ---- joining in mid-stream: the first product seen is fetched as a whole, in both layouts */
static void join_mid_stream(enum fmtp_layout layout)
{
    struct sim_config cfg = common;

    cfg.layout = layout;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_product(s, 200 * BLOCK, 0);
    sim_product(s, SIZE, 0);
    sim_run(s, 60 * MS);
    sim_join(s);
    sim_run(s, TP_NEVER);
    for (int i = 0; i < 3; i++)
        assert_got(s, 0, i, 0);
    assert_int_equal(s->rx[1].begun[0] + s->rx[1].missed[0], 0);
    assert_int_equal(s->rx[1].ended[1] + s->rx[1].missed[1], 1);
    assert_int_equal(sim_count(&s->rx[1], FMTP_BOP_REQ, 0), 0);
    assert_int_equal(sim_count(&s->rx[1], FMTP_BOP_REQ, 1), 1);
    assert_true(s->rx[1].ended[1] == 0 || s->rx[1].intact[1]);
    assert_got(s, 1, 2, 0);
    sim_free(s);
}

static void test_join(void **state)
{
    (void)state;
    join_mid_stream(FMTP_LAYOUT_2021);
    join_mid_stream(FMTP_LAYOUT_2017);
}

/* ---- with no receiver connected a product waits for its timer */
static void test_no_receivers(void **state)
{
    struct sim_config cfg = common;

    (void)state;
    cfg.receivers = 0;
    struct sim *s = sim_new(&cfg);
    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    assert_int_equal(s->why[0], FMTP_RELEASE_TIMEOUT);
    assert_int_equal(s->released_ns[0], EOP_LEAVES + 14000 * MS);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s->sender, &stats);
    assert_int_equal(stats.timeouts, 0);
    assert_int_equal(stats.unacknowledged, 0);
    sim_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossless),
        cmocka_unit_test(test_one_data),
        cmocka_unit_test(test_last_blocks),
        cmocka_unit_test(test_eop),
        cmocka_unit_test(test_receiver_timer),
        cmocka_unit_test(test_eop_is_asked_once),
        cmocka_unit_test(test_next_bop),
        cmocka_unit_test(test_bop),
        cmocka_unit_test(test_bop_and_eop),
        cmocka_unit_test(test_bop_of_long_product),
        cmocka_unit_test(test_whole_product),
        cmocka_unit_test(test_whole_last_product),
        cmocka_unit_test(test_whole_last_product_too_late),
        cmocka_unit_test(test_whole_first_product),
        cmocka_unit_test(test_too_late),
        cmocka_unit_test(test_timer_from_bop),
        cmocka_unit_test(test_slow_unicast),
        cmocka_unit_test(test_unwanted),
        cmocka_unit_test(test_timers_are_independent),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_no_receivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

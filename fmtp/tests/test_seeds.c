/* SPDX-License-Identifier: Apache-2.0
 *
 * Many seeds over the simulated network: whatever is lost (by kind of message, at random, in
 * bursts), duplicated, reordered or delayed, whichever end restarts, reconnects or leaves, however
 * clocks leap: at every receiver each product is delivered intact once or reported missed once, and
 * the sender releases it once. FMTP_SEEDS=N runs N seeds (default 400, with DOWNPOUR_TEST_LONG
 * 2000), FMTP_SEED=N only that one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "seeds.h"
#include "sim.h"

#define MS UINT64_C(1000000)
enum { SEEDS = 400, MANY_SEEDS = 2000, PRODUCTS = 12 };

struct totals {
    uint64_t ended, missed, retx_blocks, blocks, parity, repairs, decoded, nudges, restarts;
    uint64_t receivers;
};

/* ------------------------------------------------------------------ one seed's settings */

static unsigned ordinary_every; /* 0: all receivers are extended */
static uint16_t lost_flags;     /* of these kinds, one in lost_every is lost */
static uint32_t lost_every, drop_state;

static bool extended(int receiver)
{
    return !ordinary_every || (unsigned)receiver % ordinary_every != 0;
}

static bool drop(int receiver, const struct fmtp_header *h)
{
    (void)receiver;
    drop_state = drop_state * 1664525 + 1013904223;
    return h->flags & lost_flags && (drop_state >> 8) % lost_every == 0;
}

static uint32_t pick(uint32_t *x, uint32_t n)
{
    *x = *x * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)*x * n >> 32);
}

static struct sim_config settings(uint32_t seed)
{
    static const double f_snd[] = {0, 2, 100, 5000};
    static const uint32_t first[] = {0, 7, UINT32_MAX - 4, 0x7ffffffa};
    static const uint16_t fec_k[] = {0, 200, 200, 20, 3};
    static const uint16_t kinds[] = {0,
                                     0,
                                     FMTP_BOP,
                                     FMTP_EOP,
                                     FMTP_MEM_DATA,
                                     FMTP_PARITY,
                                     FMTP_REPAIR,
                                     FMTP_BOP | FMTP_EOP,
                                     FMTP_PARITY | FMTP_REPAIR,
                                     FMTP_MEM_DATA | FMTP_PARITY};
    uint32_t x = seed * 2654435761u + 1;
    struct sim_config cfg = {.layout = pick(&x, 8) ? FMTP_LAYOUT_2021 : FMTP_LAYOUT_2017,
                             .rate_bps = 20000000,
                             .unicast_bps = pick(&x, 5) ? 20000000 : 1000000,
                             .f_snd = f_snd[pick(&x, 4)],
                             .f_rcv = 1 + pick(&x, 20),
                             .first_index = first[pick(&x, 4)],
                             .seed = seed,
                             .fec_k = fec_k[pick(&x, 5)],
                             .extended = extended,
                             .drop = drop,
                             .receivers = 1 + (int)pick(&x, 8),
                             .reorder_ns = 5 * MS,
                             .overhead_bytes = 42,
                             .reorder_blocks = pick(&x, 2) * 64,
                             .block_bytes = pick(&x, 4) ? 0 : 300};

    if (pick(&x, 60) == 0)
        cfg.receivers = 100;
    cfg.delay_ns = (pick(&x, 6) ? pick(&x, 50) : pick(&x, 501)) * MS;
    cfg.delay_spread_ns = pick(&x, 3) ? 0 : pick(&x, 3) * MS;
    cfg.duplicate = pick(&x, 3) / 50.0;
    cfg.reorder = pick(&x, 5) ? 0 : 0.05;
    switch (pick(&x, 4)) {
    case 0: break;
    case 1:
        cfg.burst_begins = 1.0 / (20 + pick(&x, 500));
        cfg.burst_ends = 1.0 / (1 + pick(&x, 40));
        break;
    default: cfg.loss = pick(&x, 3) ? pick(&x, 11) / 100.0 : pick(&x, 50) / 100.0;
    }
    lost_flags = kinds[pick(&x, 10)];
    lost_every = 1 + pick(&x, 3);
    drop_state = seed;
    ordinary_every = pick(&x, 4) ? 0 : 1 + pick(&x, 3);
    if (pick(&x, 6) == 0)
        cfg.r_uc_bps = 500000 + pick(&x, 20000000);
    if (pick(&x, 8) == 0)
        cfg.peer_queue_bytes = 64 * 16;
    if (pick(&x, 5) == 0)
        cfg.parity_bytes = 10 * 1448;
    return cfg;
}

/* ------------------------------------------------------------------ disturbances */

enum { RECONNECTED = 1, RESTARTED = 2, LEFT = 4, LEAPT = 8, SENDER_RESTARTED = 16 };

/* Disturbs one of them now. */
static unsigned disturb(struct sim *s, uint32_t what)
{
    int i = (int)sim_random(s, (uint32_t)s->nrx);

    switch (what) {
    case 0:
        i = (int)sim_random(s, (uint32_t)s->nrx + 1) - 1; /* -1: the sender's */
        sim_leap(s, i, sim_random(s, 20000) * UINT64_C(10000000));
        return LEAPT;
    case 1:
    case 2:
        if (!s->rx[i].core)
            return 0;
        sim_reconnect(s, i, what == 2);
        return what == 2 ? RESTARTED : RECONNECTED;
    case 3:
        if (!s->rx[i].core)
            return 0;
        sim_leave(s, i);
        return LEFT;
    default: sim_restart_sender(s); return SENDER_RESTARTED;
    }
}

/* ------------------------------------------------------------------ what must hold */

static void check_receiver(struct sim *s, int i, uint32_t seed, unsigned disturbed,
                           struct totals *t)
{
    struct sim_receiver *rx = &s->rx[i];
    struct fmtp_client_stats got;

    fmtp_receiver_get_stats(rx->core, &got);
    for (int p = 0; p < PRODUCTS; p++) {
        uint32_t index = s->cfg.first_index + (uint32_t)p;
        int decided = rx->ended[p] + rx->missed[p];
        bool all = !(disturbed & ~LEAPT) && !s->closed;
        if (decided > 1 || (all && decided != 1) || rx->begun[p] > 1 ||
            (rx->begun[p] && !decided) || (rx->ended[p] && !rx->intact[p]) ||
            (all && sim_count(rx, FMTP_RETX_END, index) < rx->ended[p]))
            fail_msg("seed %u, receiver %d, product %d: begun %d, ended %d (%s), missed %d, "
                     "acknowledged %d",
                     seed, i, p, rx->begun[p], rx->ended[p], rx->intact[p] ? "intact" : "damaged",
                     rx->missed[p], sim_count(rx, FMTP_RETX_END, index));
        t->ended += (uint64_t)rx->ended[p];
        t->missed += (uint64_t)rx->missed[p];
        if (s->cfg.loss <= 0 && !lost_flags && s->cfg.burst_begins <= 0 && s->cfg.f_snd >= 100 &&
            s->cfg.reorder <= 0 && !disturbed && !rx->ended[p] && s->product[p].size)
            fail_msg("seed %u: product %d missed without loss", seed, p);
    }
    t->retx_blocks += got.retx_blocks;
    t->blocks += got.blocks;
    t->decoded += got.decoded_blocks;
    if (fmtp_receiver_in_flight(rx->core))
        fail_msg("seed %u, receiver %d: %zu products are left, and nothing more happens", seed, i,
                 fmtp_receiver_in_flight(rx->core));
    if (got.bad_messages)
        fail_msg("seed %u, receiver %d: %llu bad messages", seed, i,
                 (unsigned long long)got.bad_messages);
}

static void one(uint32_t seed, struct totals *t)
{
    struct sim_config cfg = settings(seed);
    struct sim *s = sim_new(&cfg);
    uint64_t at_ns = 0;
    unsigned disturbed = 0;

    for (int p = 0; p < PRODUCTS; p++) {
        uint32_t most = cfg.receivers > 20 ? 15000 : 150000;
        uint32_t size = sim_random(s, 4) == 0 ? sim_random(s, 3000) : sim_random(s, most);
        if (p == 5)
            size = 0;
        sim_product(s, size, at_ns);
        at_ns += sim_random(s, 100) * MS;
    }
    if (seed % 3 == 0) {
        uint32_t kind = sim_random(s, 5);
        for (uint32_t n = 1 + sim_random(s, 3); n; n--) {
            sim_run(s, s->now_ns + sim_random(s, 400) * MS);
            disturbed |= disturb(s, kind);
        }
    }
    sim_run(s, TP_NEVER);
    for (int i = 0; i < s->nrx; i++)
        if (s->rx[i].core)
            check_receiver(s, i, seed, disturbed, t);
    for (int p = 0; p < PRODUCTS; p++) {
        if (s->multicasted[p] + s->restarted < 1 || s->multicasted[p] > 1 || s->released[p] != 1)
            fail_msg("seed %u: product %d was multicast %d times, released %d times", seed, p,
                     s->multicasted[p], s->released[p]);
    }
    struct fmtp_server_stats sent;
    fmtp_sender_get_stats(s->sender, &sent);
    assert_int_equal(sent.retained, 0);
    if (sent.bad_messages)
        fail_msg("seed %u: %llu bad messages at the sender", seed,
                 (unsigned long long)sent.bad_messages);
    if (!disturbed && !s->closed)
        assert_true(sent.acks + sent.unacknowledged >= PRODUCTS * (uint64_t)s->nrx);
    if (ordinary_every == 1 || !cfg.fec_k || cfg.layout == FMTP_LAYOUT_2017)
        assert_int_equal(sent.parity_sent + sent.repairs_sent, 0);
    t->parity += sent.parity_sent;
    t->repairs += sent.repairs_sent;
    t->nudges += sent.nudges;
    t->restarts += disturbed != 0;
    t->receivers += (uint64_t)s->nrx;
    sim_free(s);
}

static void test_seeds(void **state)
{
    struct seeds seeds = seeds_of(SEEDS, MANY_SEEDS);
    struct totals t = {0};

    (void)state;
    for (uint32_t seed = seeds.first; seed < seeds.end; seed++)
        one(seed, &t);
    if (seeds.is_alone)
        return;
    print_message("%u seeds, %llu of them disturbed, %llu receivers: %llu delivered, %llu missed; "
                  "%llu blocks by multicast, %llu by stream, %llu decoded; %llu parity, %llu "
                  "repairs, %llu nudges sent\n",
                  seeds.many, (unsigned long long)t.restarts, (unsigned long long)t.receivers,
                  (unsigned long long)t.ended, (unsigned long long)t.missed,
                  (unsigned long long)t.blocks, (unsigned long long)t.retx_blocks,
                  (unsigned long long)t.decoded, (unsigned long long)t.parity,
                  (unsigned long long)t.repairs, (unsigned long long)t.nudges);
    /* Every outcome really occurred. */
    if (seeds.many >= SEEDS) {
        assert_true(t.ended > 5000);
        assert_true(t.missed > 500);
        assert_true(t.retx_blocks > 10000);
        assert_true(t.decoded > 1000);
        assert_true(t.parity > 1000);
        assert_true(t.repairs > 1000);
        assert_true(t.nudges > 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Many seeds over the simulated network: whatever is lost, doubled or reordered, every product is
 * delivered intact once or reported missed once at every receiver, and let go once by the sender.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim.h"
#include "timers.h"

#define MS UINT64_C(1000000)
enum { SEEDS = 400, PRODUCTS = 12 };

struct totals { uint64_t ended, missed, retx_blocks, blocks; };

static void one(uint32_t seed, struct totals *t)
{
    static const double f_snd[] = {0, 2, 100, 5000};
    static const uint32_t first[] = {0, 7, UINT32_MAX - 4, 0x7ffffffa};
    struct sim_config cfg = {
        .layout = seed % 2 ? FMTP_LAYOUT_2021 : FMTP_LAYOUT_2017, .rate_bps = 20000000,
        .unicast_bps = seed % 5 == 0 ? 1000000 : 20000000, .delay_ns = seed % 50 * MS,
        .f_snd = f_snd[seed % 4], .f_rcv = 1 + seed % 20, .loss = seed % 11 / 100.0,
        .duplicate = seed % 3 / 50.0, .reorder = seed % 7 == 0 ? 0.05 : 0, .reorder_ns = 5 * MS,
        .receivers = 1 + (int)(seed % 8), .first_index = first[seed / 4 % 4],
        .seed = seed};
    struct sim *s = sim_new(&cfg);
    struct fmtp_server_stats sent;
    uint64_t at_ns = 0;
    uint64_t acks = 0, unfinished = 0;

    for (int p = 0; p < PRODUCTS; p++) {
        uint32_t size = sim_random(s, 4) == 0 ? sim_random(s, 3000) : sim_random(s, 150000);
        if (p == 5)
            size = 0;
        sim_product(s, size, at_ns);
        at_ns += sim_random(s, 100) * MS;
    }
    sim_run(s, FMTP_NEVER);
    for (int i = 0; i < s->nrx; i++) {
        struct sim_receiver *rx = &s->rx[i];
        struct fmtp_client_stats got;
        uint64_t delivered = 0;
        for (int p = 0; p < PRODUCTS; p++) {
            uint32_t index = cfg.first_index + (uint32_t)p;
            if (rx->ended[p] + rx->missed[p] != 1 || rx->begun[p] > 1 ||
                (rx->ended[p] && !rx->intact[p]) ||
                sim_count(rx, FMTP_RETX_END, index) != rx->ended[p])
                fail_msg("seed %u, receiver %d, product %d: begun %d, ended %d (%s), missed %d, "
                         "acknowledged %d", seed, i, p, rx->begun[p], rx->ended[p],
                         rx->intact[p] ? "intact" : "damaged", rx->missed[p],
                         sim_count(rx, FMTP_RETX_END, index));
            t->ended += (uint64_t)rx->ended[p];
            t->missed += (uint64_t)rx->missed[p];
            acks += (uint64_t)rx->ended[p];
            delivered += (uint64_t)rx->ended[p];
            unfinished += (uint64_t)rx->missed[p];
            if (cfg.loss <= 0 && cfg.f_snd >= 100 && cfg.reorder <= 0 && !rx->ended[p] &&
                s->product[p].size)
                fail_msg("seed %u: product %d missed without loss", seed, p);
        }
        fmtp_receiver_get_stats(rx->core, &got);
        t->retx_blocks += got.retx_blocks;
        t->blocks += got.blocks;
        assert_int_equal(fmtp_receiver_in_flight(rx->core), 0);
        assert_int_equal(got.bad_messages, 0);
        assert_int_equal(got.products, delivered);
    }
    for (int p = 0; p < PRODUCTS; p++) {
        assert_int_equal(s->multicasted[p], 1);
        assert_int_equal(s->released[p], 1);
    }
    fmtp_sender_get_stats(s->sender, &sent);
    assert_int_equal(sent.retained, 0);
    assert_int_equal(sent.bad_messages, 0);
    /* An acknowledgement may come after the timer; but none is counted that was not sent. */
    assert_true(sent.acks <= acks);
    assert_int_equal(sent.acks + sent.unacknowledged, PRODUCTS * (uint64_t)s->nrx);
    assert_true(sent.unacknowledged >= unfinished);
    sim_free(s);
}

static void test_seeds(void **state)
{
    struct totals t = {0};

    (void)state;
    for (uint32_t seed = 0; seed < SEEDS; seed++)
        one(seed, &t);
    print_message("%d seeds: %llu delivered, %llu missed, %llu blocks by multicast, %llu repaired\n",
                  SEEDS, (unsigned long long)t.ended, (unsigned long long)t.missed,
                  (unsigned long long)t.blocks, (unsigned long long)t.retx_blocks);
    /* Both ways out were really taken. */
    assert_true(t.ended > 5000);
    assert_true(t.missed > 500);
    assert_true(t.retx_blocks > 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seeds)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

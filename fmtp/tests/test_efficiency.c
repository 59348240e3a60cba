/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of the link multicast repair leaves for data, in virtual time: one product of 20 MB at
 * 100 Mbit/s, with 54 bytes of headers per datagram (Ethernet 14, IPv4 20, UDP 8, FMTP 12).
 * Goodput: the product's bits divided by the time from its first datagram to its completion at the
 * last receiver, minus the one-way delay; for one seed, or the median of three with
 * DOWNPOUR_TEST_LONG. Wire: FMTP bytes that left the sender, by multicast and on all streams,
 * divided by the product's bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "sim.h"

#define MS UINT64_C(1000000)
enum { MOST_SEEDS = 3 };

struct row {
    int receivers;
    double loss;
    uint64_t delay_ms;
    double least_goodput; /* relative to the rate; 0: not asserted */
    double most_wire;
};

struct result {
    double goodput, wire;
    struct fmtp_server_stats sent;
    uint64_t decoded;
};

static struct result run_once(const struct row *row, uint32_t seed)
{
    const uint32_t size = 20000000;
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = 100000000,
                             .unicast_bps = 100000000,
                             .delay_ns = row->delay_ms * MS,
                             .overhead_bytes = 42,
                             .f_snd = 5000,
                             .f_rcv = 20,
                             .loss = row->loss,
                             .receivers = row->receivers,
                             .fec_k = 200,
                             .reorder_blocks = 1024,
                             .quiet = true,
                             .seed = seed,
                             .products = 1};
    struct sim *s = sim_new(&cfg);
    struct result r = {0};
    uint64_t last_ns = 0;

    sim_product(s, size, 0);
    sim_run(s, TP_NEVER);
    struct fmtp_client_stats got;
    for (int i = 0; i < s->nrx; i++) {
        assert_int_equal(s->rx[i].ended[0], 1);
        assert_true(s->rx[i].intact[0]);
        if (s->rx[i].ended_ns[0] > last_ns)
            last_ns = s->rx[i].ended_ns[0];
        fmtp_receiver_get_stats(s->rx[i].core, &got);
        r.decoded += got.decoded_blocks;
    }
    fmtp_sender_get_stats(s->sender, &r.sent);
    r.goodput = size * 8.0 / ((double)(last_ns - cfg.delay_ns) / 1e9) / (double)cfg.rate_bps;
    r.wire = (double)(s->datagram_bytes + s->stream_bytes) / size;
    sim_free(s);
    return r;
}

static int by_goodput(const void *a, const void *b)
{
    double x = ((const struct result *)a)->goodput, y = ((const struct result *)b)->goodput;

    return (x > y) - (x < y);
}

/* Runs `seeds` seeds (an odd number, at most MOST_SEEDS) and takes the median. */
static void run(const struct row *row, uint32_t seeds)
{
    struct result all[MOST_SEEDS], *r = all + seeds / 2;

    for (uint32_t i = 0; i < seeds; i++)
        all[i] = run_once(row, 1 + i);
    qsort(all, seeds, sizeof *all, by_goodput);
    print_message("%4d %5.1f %6d %9.2f %8.4f %8llu %8llu %9llu %9llu %8llu\n", row->receivers,
                  row->loss * 100, (int)row->delay_ms, r->goodput * 100, r->wire,
                  (unsigned long long)r->sent.repair_requests,
                  (unsigned long long)r->sent.parity_sent, (unsigned long long)r->sent.repairs_sent,
                  (unsigned long long)r->sent.retx_blocks, (unsigned long long)r->decoded);
    if (r->goodput < row->least_goodput || r->wire > row->most_wire)
        fail_msg("goodput %.2f %%, at least %.0f %% expected; wire %.4f, at most %.2f",
                 r->goodput * 100, row->least_goodput * 100, r->wire, row->most_wire);
}

static void test_repair_leaves_room_for_data(void **state)
{
    static const struct row rows[] = {
        {8, 0.00, 0, 0.96, 1.06},  {8, 0.00, 25, 0.96, 1.06},  {8, 0.01, 0, 0.93, 1.07},
        {8, 0.01, 25, 0.93, 1.07}, {8, 0.05, 0, 0.88, 1.11},   {8, 0.05, 25, 0.88, 1.11},
        {24, 0.05, 0, 0.75, 1.11}, {24, 0.05, 25, 0.75, 1.11}, {1, 0.05, 25, 0.88, 1.11},
    };

    uint32_t seeds = getenv("DOWNPOUR_TEST_LONG") ? MOST_SEEDS : 1;

    (void)state;
    print_message("medians of %u seeds\n", seeds);
    print_message("   n loss%% delay  goodput%%     wire requests   parity originals by stream  "
                  "decoded\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run(&rows[i], seeds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repair_leaves_room_for_data)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Receivers that lose half of a file at once, as when a busy machine stops them and their sockets
 * overflow: 40 MB at 1.5 Gbit/s to 8 receivers, each of which receives nothing for 100 ms. No
 * account bears that much, so each is repaired on its own stream while the multicast continues.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "sim.h"

#define MS UINT64_C(1000000)
enum { SIZE = 40000000 };

/* 27 625 blocks of 1448 bytes in packets of 1502 take 221.3 ms. What a receiver misses in 100 ms
 * takes as long on its stream, which has the same rate, and begins when the first group after the
 * outage has passed, at most 400 blocks or 3.2 ms later. The first patience is 20 ms plus one and a
 * half round trips. */
#define MULTICAST (222 * MS)
#define BEGINS (50 * MS)
#define OUTAGE (100 * MS)
#define BOUND (OUTAGE + 4 * MS + 21 * MS)

static const struct sim *net;
static uint64_t spread_ns;

static uint64_t begins(int receiver)
{
    return BEGINS + (uint64_t)receiver * spread_ns;
}

static bool in_outage(int receiver, const struct fmtp_header *h)
{
    uint64_t from = begins(receiver);

    (void)h;
    return net && net->now_ns >= from && net->now_ns < from + OUTAGE;
}

static void lose_half(uint64_t spread)
{
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = 1500000000,
                             .unicast_bps = 1500000000,
                             .delay_ns = MS / 10,
                             .overhead_bytes = 42,
                             .f_snd = 5000,
                             .f_rcv = 20,
                             .receivers = 8,
                             .fec_k = 200,
                             .reorder_blocks = 1024,
                             .peer_queue_bytes = 4 << 20,
                             .drop = in_outage,
                             .quiet = true,
                             .seed = 1,
                             .products = 1};

    net = NULL;
    spread_ns = spread;
    struct sim *s = sim_new(&cfg);
    net = s;
    sim_product(s, SIZE, 0);
    sim_run(s, TP_NEVER);
    for (int i = 0; i < s->nrx; i++) {
        uint64_t bound = begins(i) + OUTAGE + BOUND;
        bound = bound > MULTICAST ? bound : MULTICAST;
        assert_int_equal(s->rx[i].ended[0], 1);
        assert_in_range(s->rx[i].ended_ns[0], 0, bound);
        /* More than a third of all blocks were missing. */
        assert_true(s->rx[i].retx_blocks[0] > SIZE / 1448 / 3);
    }
    sim_free(s);
}

static void test_all_lose_the_same_half(void **state)
{
    (void)state;
    lose_half(0);
}

static void test_each_loses_another_half(void **state)
{
    (void)state;
    lose_half(10 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_lose_the_same_half),
        cmocka_unit_test(test_each_loses_another_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

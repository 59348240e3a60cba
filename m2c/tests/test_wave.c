/* SPDX-License-Identifier: Apache-2.0
 *
 * The wave of channels: its invariants at random moments, and figures worked out by hand from RFC
 * 3738, 3.1.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/random.h"
#include "wave.h"

#define SECOND UINT64_C(1000000000)

static struct m2c_wave wave_of(unsigned layers)
{
    struct m2c_wave w;
    const struct m2c_wave_config cfg = {.layers = layers};

    assert_int_equal(m2c_wave_init(&w, &cfg), 0);
    return w;
}

static void assert_near(double found, double expected)
{
    const double error = fabs(found - expected) / fmax(1, fabs(expected));

    if (!(error < 1e-9))
        print_error("found %.12g, expected %.12g\n", found, expected);
    assert_true(error < 1e-9);
}

/* By hand: L = ceil(10 * 0.25 / 0.287682) = ceil(8.69) = 9; Q = 300 / 10; T = N + Q. The lowest
 * layer above the base starts at 4/3 and ends at 1, the next at 16/9; 1 + 4/3 + 16/9 = 37/9. */
static void test_figures(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(16);

    assert_int_equal(w.quiescent, 30);
    assert_int_equal(w.channels, 46);
    assert_int_equal(w.base_per_slot, 9);
    assert_near(m2c_wave_rate(&w, 0, 0), 1);
    assert_near(m2c_wave_rate(&w, 0, 1), 0.75);
    assert_near(m2c_wave_rate(&w, 1, 0), 4.0 / 3);
    assert_near(m2c_wave_rate(&w, 1, 1), 1);
    assert_near(m2c_wave_rate(&w, 2, 0), 16.0 / 9);
    assert_near(m2c_wave_cumulative(&w, 2, 0), 37.0 / 9);
    assert_near(m2c_wave_cumulative(&w, 2, 1), 37.0 / 12);
    assert_near(m2c_wave_packets(&w, 0, 0, 1), 2.5 / 0.28768207245178093);
}

/* The layers for 1, 4 and 100 Mbit/s with 1,494 bytes per packet: 3 ((4/3)^(N+1) - 1) must be at
 * least 83.67, 334.7 and 8,367 packets/s. */
static void test_layers_for_a_rate(void **state)
{
    (void)state;
    static const struct {
        double bit_per_s;
        unsigned layers;
    } of[] = {{1e6, 11}, {4e6, 16}, {100e6, 27}};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const double packets_per_s = of[i].bit_per_s / 8 / 1494;
        const struct m2c_wave_config cfg = {.layers = 1};
        const unsigned layers = m2c_wave_layers_for(&cfg, packets_per_s);
        assert_int_equal(layers, of[i].layers);
        const struct m2c_wave w = wave_of(layers);
        assert_true(m2c_wave_cumulative(&w, layers, 0) >= packets_per_s);
        assert_true(m2c_wave_cumulative(&w, layers - 1, 0) < packets_per_s);
    }
    assert_int_equal(m2c_wave_layers_for(&(struct m2c_wave_config){.layers = 1}, 1e12),
                     M2C_LAYERS_MAX + 1);
}

/* Each channel's rate is one continuous falling curve over all slots of its wave. */
static void test_rates_fall_without_steps(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(11);

    for (uint64_t slot = 0; slot < 3 * w.channels; slot++)
        for (unsigned channel = 0; channel < w.channels; channel++) {
            const int now = m2c_wave_layer(&w, channel, slot);
            const int then = m2c_wave_layer(&w, channel, slot + 1);
            if (now > 1) {
                assert_int_equal(then, now - 1);
                assert_near(m2c_wave_rate(&w, (unsigned)now, 1),
                            m2c_wave_rate(&w, (unsigned)then, 0));
            } else if (now == 1) {
                assert_int_equal(then, -1);
            } else {
                assert_true(then == -1 || then == (int)w.cfg.layers);
            }
        }
}

/* A wave has N slots, then Q slots of rest; in each slot N channels are active, one per layer, and
 * the wave of channel i ends with slot i. */
static void test_period(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(16);

    for (unsigned channel = 0; channel < w.channels; channel++) {
        unsigned active = 0;
        for (uint64_t slot = 0; slot < w.channels; slot++) {
            const int layer = m2c_wave_layer(&w, channel, slot);
            assert_int_equal(layer, m2c_wave_layer(&w, channel, slot + 7 * w.channels));
            active += layer > 0;
        }
        assert_int_equal(active, w.cfg.layers);
        assert_int_equal(m2c_wave_layer(&w, channel, channel), 1);
        assert_int_equal(m2c_wave_layer(&w, channel, channel + 1), -1);
    }
    for (uint64_t slot = 0; slot < w.channels; slot++)
        for (unsigned layer = 0; layer <= w.cfg.layers; layer++)
            assert_int_equal(m2c_wave_layer(&w, m2c_wave_channel(&w, layer, slot), slot), layer);
    assert_int_equal(m2c_wave_layer(&w, w.channels + 1, 0), -1);
}

/* C_m(1) = C_(m-1)(0) + P BCR, which gives the sequencer's order of tiles; at random rates and
 * factors. */
static void test_layers_meet(void **state)
{
    (void)state;
    uint64_t random = 18;

    for (unsigned i = 0; i < 2000; i++) {
        struct m2c_wave w;
        const struct m2c_wave_config cfg = {.base_packets_per_s =
                                                0.5 + tp_random_below(&random, 1000) / 10.0,
                                            .factor = 0.5 + tp_random_below(&random, 45) / 100.0,
                                            .slot_s = 0.1 + tp_random_below(&random, 300) / 10.0,
                                            .layers = 1 + tp_random_below(&random, 30)};
        if (m2c_wave_init(&w, &cfg) < 0)
            continue;
        const unsigned m = 1 + tp_random_below(&random, w.cfg.layers);
        const double tau = tp_random_below(&random, 1000) / 1000.0;
        assert_near(m2c_wave_cumulative(&w, m, 1),
                    m2c_wave_cumulative(&w, m - 1, 0) + cfg.factor * cfg.base_packets_per_s);
        double sum = 0;
        for (unsigned layer = 0; layer <= m; layer++)
            sum += m2c_wave_rate(&w, layer, tau);
        assert_near(m2c_wave_cumulative(&w, m, tau), sum);
        /* Packets are the integral of the rate: two parts add up to the whole. */
        assert_near(m2c_wave_packets(&w, m, 0, tau) + m2c_wave_packets(&w, m, tau, 1),
                    m2c_wave_packets(&w, m, 0, 1));
    }
}

/* Each rate occurs at one moment of one layer, except for gaps of P BCR: the amount that the leave
 * at the slot's end takes away. */
static void test_any_rate(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(16);
    uint64_t random = 4;
    unsigned in_gaps = 0;

    for (unsigned i = 0; i < 2000; i++) {
        const double rate = 1.0 + tp_random_below(&random, 3300) / 10.0;
        unsigned reached = 0, gaps = 0;
        for (unsigned layer = 0; layer <= w.cfg.layers; layer++) {
            const double tau = m2c_wave_join_tau(&w, layer, rate);
            if (tau >= 0) {
                reached++;
                assert_true(tau <= 1);
                assert_near(m2c_wave_cumulative(&w, layer, tau), rate);
            }
            gaps += layer && rate > m2c_wave_cumulative(&w, layer - 1, 0) &&
                    rate < m2c_wave_cumulative(&w, layer, 1);
        }
        assert_int_equal(reached + gaps, 1);
        in_gaps += gaps;
    }
    /* 16 gaps of 0.75 in 330 packets/s. */
    assert_true(in_gaps > 30 && in_gaps < 120);
    assert_true(m2c_wave_join_tau(&w, 3, 1e9) == -1);
    assert_true(m2c_wave_join_tau(&w, 3, 0) == -1);
}

/* Whole packets: their moments ascend, each interval has the packets whose moments lie in it, and
 * the wave's last is numbered 65,535 (the base's first of a slot: a multiple of L). */
static void test_packets(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(12);
    uint64_t random = 12;

    assert_int_equal(m2c_wave_count(&w, 0, 0, 1), 9);
    /* By hand: 10 / 0.287682 times 4/3 - 1 and (4/3)^2 - 4/3 gives 11.59 and 15.45 packets. At the
     * start of layer 2, 27.04 are left, of which 12 are layer 1's: k + 1/2 < 11.59. */
    assert_int_equal(m2c_wave_count(&w, 1, 0, 1), 12);
    assert_int_equal(m2c_wave_count(&w, 2, 0, 1), 15);
    for (unsigned layer = 0; layer <= w.cfg.layers; layer++) {
        const uint32_t whole = m2c_wave_count(&w, layer, 0, 1);
        assert_true(fabs(whole - m2c_wave_packets(&w, layer, 0, 1)) < 1);
        double before = 0;
        for (uint32_t i = 0; i < whole; i++) {
            const double tau = m2c_wave_packet_tau(&w, layer, i);
            assert_true(tau >= before && tau < 1);
            assert_int_equal(m2c_wave_count(&w, layer, 0, tau + 1e-9), i + 1);
            before = tau;
        }
        for (unsigned i = 0; i < 200; i++) {
            const double cut = tp_random_below(&random, 100000) / 100000.0;
            assert_int_equal(m2c_wave_count(&w, layer, 0, cut) + m2c_wave_count(&w, layer, cut, 1),
                             whole);
        }
    }
    /* One wave through all its layers: consecutive numbers that end with the highest. */
    uint32_t next = m2c_wave_psn(&w, w.cfg.layers, 40, 0);
    for (unsigned layer = w.cfg.layers; layer >= 1; layer--)
        for (uint32_t i = 0; i < m2c_wave_count(&w, layer, 0, 1); i++)
            assert_int_equal(m2c_wave_psn(&w, layer, 40 + w.cfg.layers - layer, i), next++);
    assert_int_equal(next, 65536);
    /* The base: floor(65536 / 9) * 9 = 65,529 numbers, then it starts over at 0. */
    assert_int_equal(m2c_wave_psn(&w, 0, 0, 0), 0);
    assert_int_equal(m2c_wave_psn(&w, 0, 3, 4), 31);
    assert_int_equal(m2c_wave_psn(&w, 0, 7280, 8), 65528);
    assert_int_equal(m2c_wave_psn(&w, 0, 7281, 0), 0);
}

static void test_slots_and_leaves(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(3);
    double tau;

    assert_int_equal(m2c_wave_slot(&w, 0, &tau), 0);
    assert_near(tau, 0);
    assert_int_equal(m2c_wave_slot(&w, 10 * SECOND - 1, &tau), 0);
    assert_true(tau < 1);
    assert_int_equal(m2c_wave_slot(&w, 10 * SECOND, &tau), 1);
    assert_near(tau, 0);
    assert_int_equal(m2c_wave_slot(&w, 437 * SECOND + SECOND / 2, &tau), 43);
    assert_near(tau, 0.75);
    assert_int_equal(m2c_wave_ctsi(&w, 34), 1);
    /* Layer 3 of slot 5 is layer 1 of slot 7 and ends with that slot. */
    assert_int_equal(m2c_wave_leave_ns(&w, 3, 5), 80 * SECOND);
    for (unsigned layer = 1; layer <= 3; layer++) {
        const unsigned channel = m2c_wave_channel(&w, layer, 5);
        const uint64_t left = m2c_wave_slot(&w, m2c_wave_leave_ns(&w, layer, 5), NULL);
        assert_int_equal(m2c_wave_layer(&w, channel, left - 1), 1);
        assert_int_equal(m2c_wave_layer(&w, channel, left), -1);
    }
    assert_true(m2c_wave_leave_ns(&w, 0, 5) == UINT64_MAX);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct m2c_wave_config wrong[] = {
        {.layers = 0},
        {.layers = M2C_LAYERS_MAX + 1},
        {.layers = 1, .factor = 1},
        {.layers = 1, .factor = -0.75},
        {.layers = 1, .factor = NAN},
        {.layers = 1, .slot_s = -1},
        {.layers = 1, .slot_s = INFINITY},
        {.layers = 1, .base_packets_per_s = -1},
        {.layers = 1, .quiescence_s = 2550},      /* 255 slots of rest and one layer */
        {.layers = 1, .slot_s = 1},               /* 300 slots of rest */
        {.layers = 64, .base_packets_per_s = 10}, /* 3.4e10 packets in a wave */
    };
    struct m2c_wave w;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        assert_int_equal(m2c_wave_init(&w, &wrong[i]), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(
        m2c_wave_init(&w, &(struct m2c_wave_config){.layers = 1, .quiescence_s = 2540}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_layers_for_a_rate),
        cmocka_unit_test(test_rates_fall_without_steps),
        cmocka_unit_test(test_period),
        cmocka_unit_test(test_layers_meet),
        cmocka_unit_test(test_any_rate),
        cmocka_unit_test(test_packets),
        cmocka_unit_test(test_slots_and_leaves),
        cmocka_unit_test(test_what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

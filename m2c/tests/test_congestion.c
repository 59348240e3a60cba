/* SPDX-License-Identifier: Apache-2.0
 *
 * What congestion control joins and leaves, without a network: with values worked out by hand from
 * RFC 3738, and with arbitrary packets.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "congestion.h"
#include "feed.h"
#include "sim/random.h"

#define SECOND UINT64_C(1000000000)
#define BEGIN (1000 * SECOND)

static struct m2c_wave wave_of(unsigned layers, enum m2c_cc_kind kind)
{
    struct m2c_wave w;
    const struct m2c_wave_config cfg = {.layers = layers, .is_static = kind == M2C_CC_STATIC};

    assert_int_equal(m2c_wave_init(&w, &cfg), 0);
    return w;
}

/* A receiver and the channels that it has joined. */
struct host {
    struct m2c_wave wave;
    struct m2c_cc *cc;
    bool joined[M2C_WAVE_CHANNELS_MAX + 1];
    unsigned count;
};

static void obey(struct host *h)
{
    struct m2c_change c;

    while (m2c_cc_change(h->cc, &c)) {
        assert_true(c.channel <= h->wave.channels);
        assert_int_equal(h->joined[c.channel], !c.joins);
        h->joined[c.channel] = c.joins;
        h->count += c.joins ? 1u : -1u;
    }
}

static void open_host(struct host *h, unsigned layers, enum m2c_cc_kind kind, uint64_t now_ns)
{
    *h = (struct host){.wave = wave_of(layers, kind)};
    const struct m2c_cc_config cfg = {.kind = kind, .wave = h->wave};
    h->cc = m2c_cc_new(&cfg, now_ns);
    assert_non_null(h->cc);
    assert_int_equal(m2c_cc_deadline(h->cc), UINT64_MAX);
    obey(h);
    assert_true(h->joined[h->wave.channels]);
    assert_int_equal(h->count, 1);
}

static void packet(struct host *h, unsigned ctsi, unsigned channel, uint32_t psn, uint64_t now_ns)
{
    m2c_cc_packet(h->cc, (struct m2c_cci){ctsi, channel, psn}, now_ns);
    obey(h);
}

static void pass(struct host *h, uint64_t now_ns)
{
    while (m2c_cc_deadline(h->cc) <= now_ns) {
        m2c_cc_time(h->cc, m2c_cc_deadline(h->cc));
        obey(h);
    }
}

static struct m2c_cc_stats stats_of(const struct host *h)
{
    struct m2c_cc_stats st;

    m2c_cc_get_stats(h->cc, &st);
    return st;
}

static void assert_near(double found, double expected)
{
    if (!(fabs(found / expected - 1) < 1e-6))
        print_error("found %.9g, expected %.9g\n", found, expected);
    assert_true(fabs(found / expected - 1) < 1e-6);
}

static void test_header(void **state)
{
    (void)state;
    const struct m2c_cci c = m2c_cci_get(0x01e3fffe);

    assert_int_equal(c.ctsi, 1);
    assert_int_equal(c.channel, 0xe3);
    assert_int_equal(c.psn, 0xfffe);
    assert_int_equal(m2c_cci_put(c), 0x01e3fffe);
}

/* Simulates a session in which every SPACING-th packet is lost (0: none). The host receives what it
 * has joined, 20 ms later. Checks that a wave channel is left only while it rests. Returns how many
 * packets the host could have received. */
static uint64_t run(struct host *h, double seconds, unsigned spacing)
{
    struct m2c_feed feed;
    struct m2c_due due;
    uint64_t heard = 0;
    const uint64_t way_ns = SECOND / 50;

    assert_int_equal(m2c_feed_init(&feed, &h->wave, 4000, BEGIN), 0);
    while (m2c_feed_next(&feed, &due) && due.at_ns < BEGIN + (uint64_t)(seconds * 1e9)) {
        const uint64_t now_ns = due.at_ns + way_ns;
        bool before[M2C_WAVE_CHANNELS_MAX + 1];
        for (unsigned i = 0; i <= h->wave.channels; i++)
            before[i] = h->joined[i];
        pass(h, now_ns);
        if (h->joined[due.cci.channel] && ++heard && (!spacing || heard % spacing))
            packet(h, due.cci.ctsi, due.cci.channel, due.cci.psn, now_ns);
        double tau;
        const uint64_t slot = m2c_wave_slot(&h->wave, due.at_ns, &tau);
        for (unsigned i = 0; i <= h->wave.channels; i++)
            if (before[i] && !h->joined[i] && !h->wave.cfg.is_static)
                assert_int_equal(m2c_wave_layer(&h->wave, i, slot), -1);
        /* The lowest layers are joined, once a packet has shown which slot it is. */
        for (unsigned l = 0; tau > 0.4 && l <= h->wave.cfg.layers; l++)
            assert_int_equal(h->joined[m2c_wave_channel(&h->wave, l, slot)], l < h->count);
        assert_int_equal(stats_of(h).layers + 1, h->count);
    }
    m2c_feed_free(&feed);
    return heard;
}

/* Without loss every kind joins all layers and loses nothing. */
static void test_free_line(void **state)
{
    (void)state;

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_STATIC; kind++) {
        struct host h;
        open_host(&h, 12, kind, BEGIN);
        run(&h, 300, 0);
        const struct m2c_cc_stats st = stats_of(&h);
        if (st.layers < 11)
            print_error("kind %d: %u layers\n", (int)kind, st.layers);
        assert_true(st.layers >= 11);
        assert_int_equal(st.lost, 0);
        assert_int_equal(st.loss_events, 0);
        assert_int_equal(st.join_timeouts, 0);
        assert_true(st.rtt_s > 0.001 && st.rtt_s < 0.2);
        m2c_cc_free(h.cc);
    }
}

/* The higher the loss, the lower the rate. */
static void test_loss_lowers_the_rate(void **state)
{
    (void)state;
    static const unsigned spacing[] = {0, 300, 40, 8};

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_STATIC; kind++) {
        uint64_t before = UINT64_MAX;
        for (unsigned i = 0; i < 4; i++) {
            struct host h;
            open_host(&h, 16, kind, BEGIN);
            const uint64_t heard = run(&h, 600, spacing[i]);
            const struct m2c_cc_stats st = stats_of(&h);
            if (!(heard < before))
                print_error("kind %d, 1 of %u lost: %llu, with less loss %llu\n", (int)kind,
                            spacing[i], (unsigned long long)heard, (unsigned long long)before);
            assert_true(heard < before);
            before = heard;
            /* Except the first after each join and the last few. */
            const double lost = spacing[i] ? (double)heard / spacing[i] : 0;
            if (!((double)st.lost >= 0.8 * lost - 3 && (double)st.lost <= lost))
                print_error("found %llu lost of %g\n", (unsigned long long)st.lost, lost);
            assert_true((double)st.lost >= 0.8 * lost - 3 && (double)st.lost <= lost);
            m2c_cc_free(h.cc);
        }
    }
}

/* TRR and ARR begin at the base channel's rate, 1 + 3 log(P)/TSD at PSN 3. Half a second later,
 * with 2 packets, RR is 4; zeta = sqrt(P)/(1 + sqrt(P)) = 0.464102. ARR is bounded by 1. The target
 * of 4 TRR lets the receiver join layer 1, the channel with the slot's number. */
static void test_first_epoch(void **state)
{
    (void)state;
    struct host h;
    const double begin = 1 - 3 * 0.0287682072;

    open_host(&h, 10, M2C_CC_WEBRC, BEGIN);
    packet(&h, 7, h.wave.channels, 9 * 5 + 3, BEGIN + SECOND / 10);
    assert_near(stats_of(&h).received_per_s, begin);
    assert_near(stats_of(&h).rtt_s, 0.1);
    packet(&h, 7, h.wave.channels, 9 * 5 + 4, BEGIN + SECOND / 5);
    pass(&h, BEGIN + SECOND / 10 + SECOND / 2);
    const double trr = begin + 0.46410161514 * (4 - begin);
    assert_near(stats_of(&h).received_per_s, trr);
    assert_near(stats_of(&h).target_per_s, 4 * trr);
    assert_true(h.joined[7]);
    assert_int_equal(h.count, 2);
    m2c_cc_free(h.cc);
}

/* One packet is lost after start-up: the threshold is P TRR, but at least 1 + 4/3 + 16/9, and
 * nothing is joined for ARTT. */
static void test_first_loss(void **state)
{
    (void)state;
    struct host h;

    open_host(&h, 10, M2C_CC_WEBRC, BEGIN);
    packet(&h, 7, h.wave.channels, 9, BEGIN + SECOND * 2);
    for (uint32_t i = 11; i < 14; i++)
        packet(&h, 7, h.wave.channels, i, BEGIN + SECOND * 2 + i * SECOND / 100);
    assert_int_equal(stats_of(&h).lost, 1);
    assert_int_equal(stats_of(&h).loss_events, 1);
    assert_false(stats_of(&h).is_slow_start);
    pass(&h, BEGIN + SECOND * 4);
    assert_int_equal(h.count, 1);
    pass(&h, BEGIN + SECOND * 5);
    assert_near(stats_of(&h).target_per_s, 37.0 / 9);
    m2c_cc_free(h.cc);
}

/* The base channel's first packet arrives after 1 s, layer 1's after 0.8 s, of which its interval
 * explains -log(P)/2/(1-P) P = 0.431523, layer 2's after 0.523642, of which 0.323642: samples of
 * 0.368477 and 0.2 s, of which the first weighs 0.75 P^2 as much. */
static void test_round_trip(void **state)
{
    (void)state;
    struct host h;
    const double kept = 0.75 * 0.75 * 0.75;

    open_host(&h, 20, M2C_CC_M2C, BEGIN);
    packet(&h, 7, h.wave.channels, 0, BEGIN + SECOND);
    assert_near(stats_of(&h).rtt_s, 1);
    pass(&h, BEGIN + SECOND * 3 / 2);
    assert_true(h.joined[7]);
    pass(&h, BEGIN + SECOND * 23 / 10);
    packet(&h, 7, 7, 0, BEGIN + SECOND * 23 / 10);
    const double first_s = 0.8 + log(0.75) / 2 / 0.25 * 0.75;
    assert_near(stats_of(&h).rtt_s, first_s);
    pass(&h, BEGIN + SECOND * 5 / 2);
    assert_true(h.joined[8]);
    const double idle_s = -log(0.75) / 2 / 0.25 * 0.75 * 0.75;
    packet(&h, 7, 8, 0, BEGIN + SECOND * 5 / 2 + (uint64_t)llround((idle_s + 0.2) * 1e9));
    assert_near(stats_of(&h).rtt_s, (kept * first_s + 0.2) / (kept + 1));
    m2c_cc_free(h.cc);
}

/* Loses the base channel's packet after `psn`: two later ones reveal it. */
static uint32_t lose(struct host *h, uint32_t psn, uint64_t now_ns)
{
    const unsigned ctsi = m2c_wave_ctsi(&h->wave, (now_ns - SECOND / 50) / (10 * SECOND));

    for (unsigned i = 0; i < 3; i++)
        packet(h, ctsi, h->wave.channels, psn += i == 0 ? 2 : 1, now_ns);
    return psn;
}

/* The fair rate falls to seven eighths. While more than that is joined, further losses mean nothing
 * new; after half a slot, when the wave has fallen that far, they count again. */
static void test_waits_for_the_wave(void **state)
{
    (void)state;
    struct host h;

    open_host(&h, 8, M2C_CC_M2C, BEGIN);
    run(&h, 200, 0);
    const double all = stats_of(&h).target_per_s;
    assert_near(all, m2c_wave_cumulative(&h.wave, 8, 0));
    const uint64_t slot_ns = BEGIN + 200 * SECOND;
    uint32_t psn = (uint32_t)(slot_ns / (10 * SECOND) * h.wave.base_per_slot % M2C_WAVE_PSN_COUNT);
    packet(&h, m2c_wave_ctsi(&h.wave, slot_ns / (10 * SECOND)), h.wave.channels, psn, slot_ns);
    pass(&h, slot_ns + SECOND * 9 / 10);
    psn = lose(&h, psn, slot_ns + SECOND);
    assert_near(stats_of(&h).target_per_s, all * 7 / 8);
    psn = lose(&h, psn, slot_ns + 2 * SECOND);
    assert_near(stats_of(&h).target_per_s, all * 7 / 8);
    lose(&h, psn, slot_ns + 9 * SECOND);
    assert_near(stats_of(&h).target_per_s, all * 7 / 8 * 7 / 8);
    m2c_cc_free(h.cc);
}

/* A packet that two others overtook is not lost and is not counted twice. */
static void test_reordered(void **state)
{
    (void)state;
    static const uint32_t order[] = {0, 2, 3, 1, 5, 4, 6};

    struct host h;
    open_host(&h, 10, M2C_CC_WEBRC, BEGIN);
    for (uint32_t i = 0; i < 7; i++)
        packet(&h, 3, h.wave.channels, order[i], BEGIN + SECOND + i);
    assert_int_equal(stats_of(&h).lost, 0);
    assert_int_equal(stats_of(&h).reordered, 2);
    /* Nor does a late packet of the previous slot begin a new one, which would be almost a cycle
     * later. */
    packet(&h, 4, h.wave.channels, 9, BEGIN + SECOND * 2);
    packet(&h, 3, h.wave.channels, 8, BEGIN + SECOND * 2);
    assert_int_equal(stats_of(&h).slots, 1);
    m2c_cc_free(h.cc);
}

/* The last packets of a wave are known to be missing only by their numbers. */
static void test_end_of_a_wave(void **state)
{
    (void)state;
    struct host h;

    open_host(&h, 10, M2C_CC_WEBRC, BEGIN);
    packet(&h, 7, h.wave.channels, 0, BEGIN + SECOND / 10);
    packet(&h, 7, h.wave.channels, 1, BEGIN + SECOND / 5);
    pass(&h, BEGIN + SECOND * 7 / 10);
    assert_true(h.joined[7]);
    packet(&h, 7, 7, 65530, BEGIN + SECOND * 8 / 10);
    packet(&h, 8, h.wave.channels, 9, BEGIN + SECOND);
    assert_false(h.joined[7]);
    assert_int_equal(stats_of(&h).lost, 5);
    pass(&h,
         BEGIN +
             SECOND * 2); /* nothing can arrive late any more: seven packets of the base channel */
    assert_int_equal(stats_of(&h).lost, 5 + 7);
    assert_int_equal(stats_of(&h).leaves, 1);
    m2c_cc_free(h.cc);
}

/* A join that brings nothing is abandoned after 10 ARTT. */
static void test_join_times_out(void **state)
{
    (void)state;
    struct host h;

    open_host(&h, 10, M2C_CC_WEBRC, BEGIN);
    packet(&h, 7, h.wave.channels, 0, BEGIN + SECOND / 10);
    packet(&h, 7, h.wave.channels, 1, BEGIN + SECOND / 5);
    pass(&h, BEGIN + SECOND * 6 / 10);
    assert_true(h.joined[7]);
    pass(&h, BEGIN + SECOND * 15 / 10);
    assert_true(h.joined[7]);
    m2c_cc_time(h.cc, BEGIN + SECOND * 16 / 10);
    assert_int_equal(stats_of(&h).join_timeouts, 1);
    m2c_cc_free(h.cc);
}

/* Silence for 10 s, or 20 s without a new slot, ends the session. */
static void test_ends(void **state)
{
    (void)state;
    struct host h;

    open_host(&h, 10, M2C_CC_WEBRC, BEGIN);
    packet(&h, 7, h.wave.channels, 0, BEGIN);
    pass(&h, BEGIN + SECOND * 99 / 10);
    assert_int_equal(m2c_cc_ended(h.cc), M2C_CC_GOES_ON);
    pass(&h, BEGIN + SECOND * 10);
    assert_int_equal(m2c_cc_ended(h.cc), M2C_CC_SILENT);
    assert_int_equal(h.count, 0);
    assert_int_equal(m2c_cc_deadline(h.cc), UINT64_MAX);
    m2c_cc_free(h.cc);

    open_host(&h, 10, M2C_CC_M2C, BEGIN);
    for (uint32_t i = 0; i < 21; i++) {
        packet(&h, 7, h.wave.channels, i, BEGIN + i * SECOND);
        pass(&h, BEGIN + i * SECOND);
    }
    assert_int_equal(m2c_cc_ended(h.cc), M2C_CC_STUCK);
    m2c_cc_free(h.cc);
}

/* Whatever the headers say, only channels of the session are joined. */
static void test_strange_packets(void **state)
{
    (void)state;
    uint64_t random = 18;

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_STATIC; kind++)
        for (unsigned n = 0; n < 40; n++) {
            struct host h;
            uint64_t now_ns = BEGIN;
            open_host(&h, 1 + tp_random_below(&random, 20), kind, now_ns);
            for (unsigned i = 0; i < 3000; i++) {
                now_ns += tp_random_below(&random, 30000000);
                m2c_cc_packet(h.cc, m2c_cci_get(tp_random_bits(&random) >> (n % 2 ? 0 : 8)),
                              now_ns);
                pass(&h, now_ns);
                obey(&h);
                assert_true(h.count <= h.wave.cfg.layers + 1);
                assert_true(m2c_cc_ended(h.cc) != M2C_CC_GOES_ON || h.joined[h.wave.channels]);
                assert_true(isfinite(stats_of(&h).rtt_s) && isfinite(stats_of(&h).target_per_s));
            }
            m2c_cc_free(h.cc);
        }
}

static void test_refuses(void **state)
{
    (void)state;
    const struct m2c_cc_config cfg = {.kind = M2C_CC_WEBRC, .wave = wave_of(5, M2C_CC_STATIC)};

    assert_null(m2c_cc_new(&cfg, 0));
    assert_int_equal(errno, EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_free_line),
        cmocka_unit_test(test_first_epoch),
        cmocka_unit_test(test_loss_lowers_the_rate),
        cmocka_unit_test(test_first_loss),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_waits_for_the_wave),
        cmocka_unit_test(test_reordered),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_end_of_a_wave),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_join_times_out),
        cmocka_unit_test(test_strange_packets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

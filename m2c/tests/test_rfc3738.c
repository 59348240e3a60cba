/* SPDX-License-Identifier: Apache-2.0
 *
 * What RFC 3738 says about a WEBRC session, compared with what ours does, with the recommended
 * values. The expected values are worked out by hand from the RFC's text. Queues and TCP are in
 * test_fairness.c.
 */
#include "feed.h"
#include "sample.h"
#include "webrc.h"
#include "windows.h"

#define SECOND UINT64_C(1000000000)
#define BEGIN (1000 * SECOND)

static const double EPOCH_S = 0.5, SLOT_S = 10, QUIESCENCE_S = 300; /* EL, TSD, QD */

static struct m2c_wave wave_of(unsigned layers)
{
    struct m2c_wave w;
    const struct m2c_wave_config cfg = {.layers = layers};

    assert_int_equal(m2c_wave_init(&w, &cfg), 0);
    return w;
}

/* A receiver on a path without a queue. The sender hears a join `way_ns` later, and packets take as
 * long, so a multicast round trip is twice that plus the wait for a packet. */
struct host {
    struct m2c_wave wave;
    struct m2c_cc *cc;
    uint64_t way_ns;
    uint64_t joined_ns[M2C_WAVE_CHANNELS_MAX + 1]; /* UINT64_MAX: not joined */
    unsigned joining;                              /* the channel joined last */
    bool is_waiting;                               /* waiting for its first packet */
    uint64_t first_ns;
    uint64_t joins;
};

static struct m2c_cc_stats stats_of(const struct host *h)
{
    struct m2c_cc_stats st;

    m2c_cc_get_stats(h->cc, &st);
    return st;
}

/* RFC 3738, 3.2.2.6: in start-up a receiver waits at least one full epoch after a wave's first
 * packet. */
static void obey(struct host *h, uint64_t now_ns)
{
    struct m2c_change c;

    while (m2c_cc_change(h->cc, &c)) {
        h->joined_ns[c.channel] = c.joins ? now_ns : UINT64_MAX;
        if (!c.joins)
            continue;
        if (h->joins > 1 && stats_of(h).is_slow_start) {
            assert_false(h->is_waiting);
            assert_true(now_ns - h->first_ns >= EPOCH_S * SECOND);
        }
        h->joins++;
        h->joining = c.channel;
        h->is_waiting = true;
    }
}

/* `most`: packets/s; 0: no bound. */
static void open_host(struct host *h, unsigned layers, double way_s, double most)
{
    *h = (struct host){.wave = wave_of(layers), .way_ns = (uint64_t)(way_s * SECOND)};
    const struct m2c_cc_config cfg = {
        .kind = M2C_CC_WEBRC, .wave = h->wave, .most_packets_per_s = most};
    for (unsigned i = 0; i <= M2C_WAVE_CHANNELS_MAX; i++)
        h->joined_ns[i] = UINT64_MAX;
    h->cc = m2c_cc_new(&cfg, BEGIN);
    assert_non_null(h->cc);
    obey(h, BEGIN);
}

static void pass(struct host *h, uint64_t now_ns)
{
    for (uint64_t at_ns; (at_ns = m2c_cc_deadline(h->cc)) <= now_ns;) {
        m2c_cc_time(h->cc, at_ns);
        obey(h, at_ns);
    }
}

static void take(struct host *h, const struct m2c_due *due, uint64_t now_ns)
{
    if (h->is_waiting && due->cci.channel == h->joining) {
        h->is_waiting = false;
        h->first_ns = now_ns;
    }
    m2c_cc_packet(h->cc, due->cci, now_ns);
    obey(h, now_ns);
}

/* What a receiver had from `from_s` on. */
struct had {
    double rate;                /* packets/s, including lost ones */
    double target, loss, rtt_s; /* means: TRATE, LOSSP, ARTT */
    double all_layers_s;        /* until it had joined all; 0: it has not */
    double most_growth;         /* in start-up: TRATE by TRR */
    double variation;           /* of the rate over seconds: standard deviation by mean */
};

/* Loses every `lose`-th packet on the way (0: none). */
static struct had run(struct host *h, double from_s, double to_s, unsigned lose)
{
    struct m2c_feed feed;
    struct m2c_due due;
    struct had had = {0};
    const uint64_t from_ns = BEGIN + (uint64_t)(from_s * SECOND);
    uint64_t heard = 0, measured = 0;
    struct windows seconds = {0};

    assert_int_equal(m2c_feed_init(&feed, &h->wave, 4000, BEGIN), 0);
    while (m2c_feed_next(&feed, &due) && due.at_ns < BEGIN + (uint64_t)(to_s * SECOND)) {
        const uint64_t now_ns = due.at_ns + h->way_ns, joined_ns = h->joined_ns[due.cci.channel];
        pass(h, now_ns);
        if (joined_ns == UINT64_MAX || joined_ns + h->way_ns > due.at_ns)
            continue;
        if (!lose || ++heard % lose)
            take(h, &due, now_ns);
        const struct m2c_cc_stats st = stats_of(h);
        if (st.layers == h->wave.cfg.layers && had.all_layers_s == 0)
            had.all_layers_s = (double)(now_ns - BEGIN) / SECOND;
        if (st.is_slow_start && st.received_per_s > 0)
            had.most_growth = fmax(had.most_growth, st.target_per_s / st.received_per_s);
        if (now_ns < from_ns)
            continue;
        measured++;
        windows_count(&seconds, (now_ns - from_ns) / SECOND);
        had.target += st.target_per_s;
        had.loss += st.loss_probability;
        had.rtt_s += st.rtt_s;
    }
    m2c_feed_free(&feed);
    had.rate = (double)measured / (to_s - from_s);
    had.target /= (double)measured;
    had.loss /= (double)measured;
    had.rtt_s /= (double)measured;
    had.variation = windows_variation(&seconds);
    return had;
}

/* RFC 3738, 3.1.1, by hand: L = ceil(10 x 0.25 / 0.28768) = ceil(8.69), Q = 300 / 10, T = N + Q,
 * and the base channel's highest sequence number is one less than 7,281 x 9 = 65,529. */
static void test_sender_parameters(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(16);

    assert_int_equal(w.base_per_slot, 9);
    assert_int_equal(w.quiescent, 30);
    assert_int_equal(w.channels, 46);
    assert_int_equal(m2c_wave_psn_count(&w, w.channels), 65529);
    assert_int_equal(m2c_wave_psn_count(&w, 0), 65536);
}

/* The example of RFC 3738, 3.2: a receiver of four wave channels that stops joining. A slot takes
 * away a quarter of the rate, its end P BCR: 1 + 4/3 + 16/9 + 64/27 + 256/81 = 781/81 packets/s;
 * 781/108 less 3/4 = 175/27; 175/36 less 3/4 = 37/9; 37/12 less 3/4 = 7/3; 7/4 = 1 + P; then the
 * base alone. */
static void test_rate_of_one_that_stops_joining(void **state)
{
    (void)state;
    static const double begins[] = {781.0 / 81, 175.0 / 27, 37.0 / 9, 7.0 / 3, 1};
    static const double ends[] = {781.0 / 108, 175.0 / 36, 37.0 / 12, 7.0 / 4, 3.0 / 4};
    const struct m2c_wave w = wave_of(16);

    for (unsigned slot = 0; slot < 5; slot++) {
        assert_float_equal(m2c_wave_cumulative(&w, 4 - slot, 0), begins[slot], 1e-12);
        assert_float_equal(m2c_wave_cumulative(&w, 4 - slot, 1), ends[slot], 1e-12);
    }
}

/* RFC 3738, 3.1.1, 3.1.2: a channel is silent for QD after each wave, so a leave may take that
 * long. It is silent no longer than that plus the interval of two packets, which is 1 s at the
 * wave's end. */
static void test_quiescence(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(10);
    double longest_s[M2C_WAVE_CHANNELS_MAX + 1] = {0};
    uint64_t last_ns[M2C_WAVE_CHANNELS_MAX + 1] = {0};
    struct m2c_feed feed;
    struct m2c_due due;

    assert_int_equal(m2c_feed_init(&feed, &w, 4000, BEGIN), 0);
    while (m2c_feed_next(&feed, &due) && due.at_ns < BEGIN + 900 * SECOND) {
        const unsigned c = due.cci.channel;
        if (last_ns[c])
            longest_s[c] = fmax(longest_s[c], (double)(due.at_ns - last_ns[c]) / SECOND);
        last_ns[c] = due.at_ns;
    }
    m2c_feed_free(&feed);
    for (unsigned c = 0; c < w.channels; c++)
        assert_within(longest_s[c], QUIESCENCE_S, QUIESCENCE_S + 1);
    assert_true(longest_s[w.channels] < 2); /* the base channel never rests */
}

/* RFC 3738, 3.2.2.6, 3.2.2.7: in start-up the target is 4 TRR. Each join waits for a packet of the
 * previous one and then for a full epoch, and happens at an epoch's end: at least a second per
 * layer. A slot's end takes a layer away: N layers take N + N/10 seconds. */
static void test_start(void **state)
{
    (void)state;
    enum { LAYERS = 12 };
    struct host h;

    open_host(&h, LAYERS, 0.02, 0);
    const struct had had = run(&h, 60, 100, 0);
    SAY("start-up: %d layers after %.1f s\n", LAYERS, had.all_layers_s);
    assert_within(had.all_layers_s, 1.1 * (LAYERS - 1), 2.2 * (LAYERS - 1));
    assert_within(had.most_growth, 3.99, 4.01);
    assert_int_equal(stats_of(&h).lost, 0);
    m2c_cc_free(h.cc);
}

/* The rates by hand, from RFC 3738, 3.2.2.3: 1/(0.1 x 0.1 x (0.816 + 0.0735 x 1.0032)) = 112.4
 * packets/s; 1/(0.04 x 0.05 x (0.816 + 0.018375 x 1.0002)) = 599.2; 1/(0.2 x 0.1414 x (0.816 +
 * 0.147 x 1.0128)) = 36.64. Joining when the target is reached and falling by P until the next
 * slot's join gives (1 - P)/log(1/P) = 0.869 of the target; waiting for an epoch's end costs
 * another 0.7 %. A join's round trip is a mean of few samples, so the rate is only accurate to a
 * tenth. */
static void test_rate_follows_the_equation(void **state)
{
    (void)state;
    static const struct {
        double way_s;
        unsigned lose;
        double reqn;
    } of[] = {{0.05, 100, 112.4}, {0.02, 400, 599.2}, {0.1, 50, 36.64}};
    const double expected = (1 - M2C_WAVE_FACTOR) / log(1 / M2C_WAVE_FACTOR);

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct host h;
        const double reqn = m2c_tcp_rate(2 * of[i].way_s, 1.0 / of[i].lose);
        assert_within(reqn / of[i].reqn, 0.999, 1.001);
        open_host(&h, 20, of[i].way_s, 0);
        const struct had had = run(&h, 20 * SLOT_S, 220 * SLOT_S, of[i].lose);
        SAY("round trip %.0f ms, 1 of %u lost: %.1f packets/s, REQN %.1f: %.2f (expected %.2f); "
            "ARTT %.0f ms, 1/LOSSP %.0f, TRATE %.1f\n",
            2000 * of[i].way_s, of[i].lose, had.rate, reqn, had.rate / reqn, expected,
            1000 * had.rtt_s, 1 / had.loss, had.target);
        assert_within(had.rate / reqn, 0.9 * expected, 1.1 * expected);
        m2c_cc_free(h.cc);
    }
}

/* 3.1.2: whatever the averages, a wave falls by P in each slot, so without any loss and with a
 * constant target (MRR) the rate varies: P^t has the mean (1 - P)/log(1/P) = 0.8690 and the mean
 * square (1 - P^2)/2/log(1/P) = 0.7604, so by sqrt(0.7604 - 0.7552)/0.8690 = 0.083. */
static void test_variation_of_a_wave(void **state)
{
    (void)state;
    static const double most[] = {50, 200};

    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        struct host h;
        open_host(&h, 24, 0.02, most[i]);
        const struct had had = run(&h, 20 * SLOT_S, 120 * SLOT_S, 0);
        SAY("at most %.0f packets/s, no loss: %.1f packets/s, which vary by %.3f over seconds\n",
            most[i], had.rate, had.variation);
        assert_within(had.rate / most[i], 0.8, 0.9);
        assert_within(had.variation, 0.075, 0.095);
        m2c_cc_free(h.cc);
    }
}

/* 3.2.2.6: however much is lost, the threshold is SSMINR, 1 + 4/3 + 16/9 = 37/9 packets/s. With one
 * of two lost REQN is less: 1/(0.1 x 0.7071 x (0.816 + 3.675 x 9)) = 0.417. */
static void test_least_target(void **state)
{
    (void)state;
    struct host h;

    open_host(&h, 16, 0.05, 0);
    run(&h, 50, 100, 2);
    assert_float_equal(stats_of(&h).target_per_s, 37.0 / 9, 1e-9);
    m2c_cc_free(h.cc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sender_parameters),
        cmocka_unit_test(test_rate_of_one_that_stops_joining),
        cmocka_unit_test(test_quiescence),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_rate_follows_the_equation),
        cmocka_unit_test(test_variation_of_a_wave),
        cmocka_unit_test(test_least_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

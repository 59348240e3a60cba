/* SPDX-License-Identifier: Apache-2.0
 *
 * WEBRC's filters: values computed from the text of RFC 3738 with 40 digits in another program, and
 * what must hold whatever is measured.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/random.h"
#include "webrc.h"

static struct m2c_wave wave_of(unsigned layers)
{
    struct m2c_wave w;
    const struct m2c_wave_config cfg = {.layers = layers};

    assert_int_equal(m2c_wave_init(&w, &cfg), 0);
    return w;
}

static void assert_near(double found, double expected)
{
    const double error = fabs(found / expected - 1);

    if (!(error < 1e-11))
        print_error("found %.15g, expected %.15g\n", found, expected);
    assert_true(error < 1e-11);
}

static void packets(struct m2c_loss *l, unsigned count)
{
    while (count--)
        m2c_loss_packet(l);
}

static void test_loss_by_hand(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(10);
    struct m2c_loss l;

    m2c_loss_reset(&l, &w, 0.01);
    packets(&l, 50);
    m2c_loss_event(&l);
    packets(&l, 20);
    assert_near(m2c_loss_epoch(&l), 0.01208512061053);
    packets(&l, 10);
    m2c_loss_event(&l);
    packets(&l, 5);
    m2c_loss_event(&l);
    packets(&l, 1);
    assert_near(m2c_loss_epoch(&l), 0.01983939879043);
    packets(&l, 400);
    assert_near(m2c_loss_epoch(&l), 0.00945023104907);
}

/* Whatever the initial value, an event after every n packets leads to a probability of about
 * 1/n. */
static void test_loss_settles(void **state)
{
    (void)state;
    static const unsigned each[] = {1, 3, 10, 100, 1000};
    const struct m2c_wave w = wave_of(10);

    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        for (double first = 1e-6; first <= 1; first *= 1000) {
            struct m2c_loss l;
            double loss = 0;
            m2c_loss_reset(&l, &w, first);
            for (unsigned epoch = 0; epoch < 2000; epoch++) {
                packets(&l, each[i]);
                m2c_loss_event(&l);
                loss = m2c_loss_epoch(&l);
                assert_true(loss > 0 && loss <= 1);
            }
            if (!(fabs(loss * each[i] - 1) < 0.05))
                print_error("%u packets an event: %.6g\n", each[i], loss);
            assert_true(fabs(loss * each[i] - 1) < 0.05);
        }
}

/* Without loss the probability never rises, and after a long time it falls. */
static void test_loss_falls(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(10);
    struct m2c_loss l;
    double before = 1;

    m2c_loss_reset(&l, &w, 0.1);
    for (unsigned epoch = 0; epoch < 500; epoch++) {
        packets(&l, 10);
        const double loss = m2c_loss_epoch(&l);
        assert_true(loss <= before);
        before = loss;
    }
    assert_true(before < 0.001);
}

static void test_rtt_by_hand(void **state)
{
    (void)state;
    static const struct {
        double waited_s;
        unsigned layers;
        double average_s, square_s2;
    } of[] = {{0.7, 1, 0.23912965218418, 0.05833133781377},
              {0.5, 2, 0.21212895628014, 0.04661894175196},
              {0.1, 3, 0.15909671721010, 0.03714707617753}, /* with a wait below the mean */
              {0.15, 8, 0.14037616845202, 0.02911705902605}};
    const struct m2c_wave w = wave_of(10);
    struct m2c_rtt r;

    m2c_rtt_first(&r, 0.2);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        m2c_rtt_wave(&r, &w, of[i].waited_s, of[i].layers);
        assert_near(r.average_s, of[i].average_s);
        assert_near(r.square_s2, of[i].square_s2);
    }
    assert_int_equal(r.count, 4);
}

/* Whatever the waits: never 0 or negative, never above the longest, never down by more than P. */
static void test_rtt_stays_within(void **state)
{
    (void)state;
    const struct m2c_wave w = wave_of(10);
    uint64_t random = 9;

    for (unsigned n = 0; n < 200; n++) {
        struct m2c_rtt r;
        double longest = (1 + tp_random_below(&random, 1000)) / 1000.0;
        m2c_rtt_first(&r, longest);
        for (unsigned i = 0; i < 60; i++) {
            const double before = r.average_s;
            const double waited = tp_random_below(&random, 2000) / 1000.0;
            longest = waited > longest ? waited : longest;
            m2c_rtt_wave(&r, &w, waited, 1 + tp_random_below(&random, 10));
            assert_true(r.average_s > 0 && r.average_s <= longest);
            assert_true(r.average_s >= w.cfg.factor * before);
            assert_true(isfinite(r.square_s2) && r.square_s2 >= 0);
        }
    }
}

static void test_rate(void **state)
{
    (void)state;
    assert_near(m2c_tcp_rate(0.1, 0.01), 112.392990633617);
    assert_near(m2c_tcp_rate(0.05, 0.001), 768.148844798770);
    assert_near(m2c_tcp_rate(0.2, 0.1), 8.85196971270960);
    assert_near(m2c_tcp_rate(1, 1), 0.004109037416892);
    for (double rtt = 0.01; rtt < 2; rtt *= 1.7)
        for (double loss = 1e-7; loss < 1; loss *= 2.3)
            assert_near(m2c_tcp_loss(rtt, m2c_tcp_rate(rtt, loss)), loss);
    assert_near(m2c_tcp_loss(1, 0.001), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_by_hand),     cmocka_unit_test(test_loss_settles),
        cmocka_unit_test(test_loss_falls),       cmocka_unit_test(test_rtt_by_hand),
        cmocka_unit_test(test_rtt_stays_within), cmocka_unit_test(test_rate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

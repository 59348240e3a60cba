/* SPDX-License-Identifier: Apache-2.0
 *
 * The adaptive rate with a receiver that takes a fixed number of bits per second out of a buffer,
 * in virtual time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rate_control.h"

#define MS UINT64_C(1000000)

struct path {
    double takes_bps, buffer_bits, loses; /* loses: share that the path itself loses */
};

struct outcome {
    double sent, received, dropped;
}; /* datagrams of BITS */

#define BITS 12000.0

/* Runs from millisecond `from` to `to`; what is lost is requested when the buffer has drained. */
static struct outcome run(struct fmtp_rate_control *a, struct path p, unsigned from, unsigned to)
{
    static double reports[20000];
    static double sent, asked;
    struct outcome o = {0};
    double queue = 0, takes = p.takes_bps / 1000 / BITS, buffer = p.buffer_bits / BITS;

    if (!from)
        sent = asked = 0;
    for (unsigned t = from; t < to; t++)
        reports[t] = 0;
    for (unsigned t = from; t < to; t++) {
        unsigned due = t + 1 + (unsigned)(queue / takes);
        asked += reports[t];
        if (fmtp_rate_control_due(a, t * MS))
            fmtp_rate_control_look(a, (uint64_t)sent, (uint64_t)asked, true, t * MS);
        double n = (double)a->rate_bps / 1000 / BITS;
        double arrives = n * (1 - p.loses);
        double kept = arrives < buffer - queue + takes ? arrives : buffer - queue + takes;
        queue += kept;
        queue -= queue < takes ? queue : takes;
        if (due < to)
            reports[due] += n - kept;
        sent += n;
        o.sent += n;
        o.received += kept;
        o.dropped += arrives - kept;
    }
    return o;
}

static void test_finds_the_receivers_rate(void **state)
{
    static const double takes[] = {200e6, 1e9, 5e9};

    (void)state;
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        struct path p = {.takes_bps = takes[i], .buffer_bits = takes[i] * 0.05};
        struct fmtp_rate_control a;
        fmtp_rate_control_init(&a);
        run(&a, p, 0, 4000);
        struct outcome o = run(&a, p, 4000, 14000);
        /* At least 80 % of what the receiver can take, at most 10 % wasted. */
        assert_true(o.received * BITS > 0.8 * takes[i] * 10);
        assert_true(o.dropped < 0.1 * o.sent);
    }
}

/* Loss on the path, up to 5 %, is no reason to slow down. */
static void test_loss_of_the_path(void **state)
{
    static const double loses[] = {0.01, 0.05};

    (void)state;
    for (size_t i = 0; i < sizeof loses / sizeof *loses; i++) {
        struct path p = {.takes_bps = 1e9, .buffer_bits = 5e7, .loses = loses[i]};
        struct fmtp_rate_control a;
        fmtp_rate_control_init(&a);
        run(&a, p, 0, 4000);
        struct outcome o = run(&a, p, 4000, 14000);
        assert_true(o.received * BITS > 0.8e10);
    }
}

static void test_bounds(void **state)
{
    uint64_t sent = 0, asked = 0;

    (void)state;
    struct fmtp_rate_control a;
    fmtp_rate_control_init(&a);
    uint64_t first = a.rate_bps;
    for (unsigned t = 0; t < 1000; t += 10)
        fmtp_rate_control_look(&a, sent += 100, asked, false, t * MS);
    assert_int_equal(a.rate_bps, first); /* the rate was not used up */
    for (unsigned t = 1000; t < 10000; t += 10)
        fmtp_rate_control_look(&a, sent += 100, asked, true, t * MS);
    assert_int_equal(a.rate_bps, 100000000000);
    for (unsigned t = 10000; t < 60000; t += 10)
        fmtp_rate_control_look(&a, sent += 100, asked += 100, true, t * MS);
    assert_int_equal(a.rate_bps, 100000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_receivers_rate),
        cmocka_unit_test(test_loss_of_the_path),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

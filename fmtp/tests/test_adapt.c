/* SPDX-License-Identifier: Apache-2.0
 *
 * The adaptive rate against a receiver that takes a fixed number of bits a second out of a buffer,
 * in virtual time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "adapt.h"

#define MS UINT64_C(1000000)

struct path {
    double takes_bps, buffer_bits, loses;   /* loses: share that the path itself loses */
};

struct outcome { double sent_bits, received_bits, dropped_bits; };

/* Milliseconds `from` to `to` of a run; reports of loss arrive when the buffer has been worked off. */
static struct outcome run(struct fmtp_adapt *a, struct path p, unsigned from, unsigned to)
{
    struct outcome o = {0};
    double queue = 0, seen = 0, lost = 0;
    static double reports[20000];

    for (unsigned t = from; t < to; t++)
        reports[t] = 0;
    for (unsigned t = from; t < to; t++) {
        double loss = seen > 0 ? (lost + reports[t]) / seen : 0;
        double sent = (double)fmtp_adapt_rate(a, loss, true, t * MS) / 1000;
        double arrives = sent * (1 - p.loses), room = p.buffer_bits - queue + p.takes_bps / 1000;
        double kept = arrives < room ? arrives : room;
        unsigned due = t + 1 + (unsigned)(queue / p.takes_bps * 1000);
        queue += kept;
        double out = queue < p.takes_bps / 1000 ? queue : p.takes_bps / 1000;
        queue -= out;
        lost = (lost + reports[t]) * 0.9;
        seen = seen * 0.9 + sent;
        if (due < to)
            reports[due] += sent - kept;
        o.sent_bits += sent;
        o.received_bits += kept;
        o.dropped_bits += arrives - kept;
    }
    return o;
}

static void test_finds_the_receivers_rate(void **state)
{
    static const double takes[] = {50e6, 300e6, 1e9, 5e9};

    (void)state;
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        struct path p = {.takes_bps = takes[i], .buffer_bits = takes[i] * 0.05};
        struct fmtp_adapt a;
        struct outcome o;
        fmtp_adapt_init(&a);
        run(&a, p, 0, 4000);
        o = run(&a, p, 4000, 14000);
        /* At least 80 % of what the receiver can take, at most 10 % for nothing. */
        assert_true(o.received_bits > 0.8 * takes[i] * 10);
        assert_true(o.dropped_bits < 0.1 * o.sent_bits);
    }
}

/* What a path loses by itself, up to 5 %, is no reason to go slower. */
static void test_loss_of_the_path(void **state)
{
    static const double loses[] = {0.01, 0.05};

    (void)state;
    for (size_t i = 0; i < sizeof loses / sizeof *loses; i++) {
        struct path p = {.takes_bps = 1e9, .buffer_bits = 5e7, .loses = loses[i]};
        struct fmtp_adapt a;
        struct outcome o;
        fmtp_adapt_init(&a);
        run(&a, p, 0, 4000);
        o = run(&a, p, 4000, 14000);
        assert_true(o.received_bits > 0.8e10);
    }
}

static void test_bounds(void **state)
{
    struct fmtp_adapt a;
    uint64_t first, last = 0;

    (void)state;
    fmtp_adapt_init(&a);
    first = fmtp_adapt_rate(&a, 0, false, 0);
    for (unsigned t = 0; t < 1000; t++)
        assert_int_equal(fmtp_adapt_rate(&a, 0, false, t * MS), first);   /* not made use of */
    for (unsigned t = 1000; t < 10000; t++)
        last = fmtp_adapt_rate(&a, 0, true, t * MS);
    assert_int_equal(last, 100000000000);
    for (unsigned t = 10000; t < 20000; t++)
        last = fmtp_adapt_rate(&a, 1, true, t * MS);
    assert_int_equal(last, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_receivers_rate), cmocka_unit_test(test_loss_of_the_path),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

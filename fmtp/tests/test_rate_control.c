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
    bool reports;                         /* of what was read, at once */
    unsigned delay_ms;                    /* of all reports */
};

struct outcome {
    double sent, received, dropped;
}; /* datagrams of BITS */

#define BITS 12000.0

/* Runs from millisecond `from` to `to`; what is lost is requested when the buffer has drained. */
static struct outcome run(struct fmtp_rate_control *a, struct path p, unsigned from, unsigned to)
{
    static double reports[20000], reads[20000];
    static double sent, asked, read;
    struct outcome o = {0};
    double queue = 0, takes = p.takes_bps / 1000 / BITS, buffer = p.buffer_bits / BITS;

    if (!from)
        sent = asked = read = 0;
    for (unsigned t = from; t < to; t++)
        reports[t] = reads[t] = 0;
    for (unsigned t = from; t < to; t++) {
        unsigned due = t + 1 + p.delay_ms + (unsigned)(queue / takes);
        asked += reports[t];
        read += reads[t];
        const struct fmtp_rate_seen seen = {.sent = (uint64_t)sent,
                                            .asked = (uint64_t)asked,
                                            .held = true,
                                            .reports = p.reports,
                                            .blocks = (uint64_t)sent,
                                            .read = (uint64_t)read};
        if (fmtp_rate_control_due(a, t * MS))
            fmtp_rate_control_look(a, &seen, t * MS);
        double n = (double)a->rate_bps / 1000 / BITS;
        double arrives = n * (1 - p.loses);
        double kept = arrives < buffer - queue + takes ? arrives : buffer - queue + takes;
        queue += kept;
        queue -= queue < takes ? queue : takes;
        if (due < to)
            reports[due] += n - kept, reads[due] += n;
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

static void look(struct fmtp_rate_control *a, struct fmtp_rate_seen *seen, uint64_t asked,
                 uint64_t now_ns)
{
    seen->sent += 100;
    seen->asked += asked;
    fmtp_rate_control_look(a, seen, now_ns);
}

/* With reports of what was read the rate grows by half, each time when something that was sent at
 * the rate before has been read by all: looks are every 10 ms, and reports take 1 or 101 ms. */
static void test_steps(void **state)
{
    static const unsigned delays[] = {0, 100}, rounds[] = {10, 110};
    static const uint64_t rates[] = {300000000, 450000000, 675000000, 1012500000, 1518750000};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct path p = {
            .takes_bps = 1e11, .buffer_bits = 1e10, .reports = true, .delay_ms = delays[i]};
        for (unsigned n = 0; n < 5; n++) {
            struct fmtp_rate_control a;
            fmtp_rate_control_init(&a);
            run(&a, p, 0, n * rounds[i] + 10);
            assert_int_equal(a.rate_bps, rates[n]);
        }
    }
}

/* A sender that has nothing to send for a second takes the same steps after it. */
static void test_steps_after_a_pause(void **state)
{
    static const uint64_t rates[] = {450000000, 675000000, 1012500000, 1518750000};
    struct fmtp_rate_control a;
    struct fmtp_rate_seen seen = {.reports = true};

    (void)state;
    fmtp_rate_control_init(&a);
    for (unsigned ms = 1000; ms < 2000; ms += 10)
        look(&a, &seen, 0, ms * MS);
    assert_int_equal(a.rate_bps, 300000000);
    seen.held = true;
    for (unsigned n = 0; n < 4; n++) {
        seen.read = seen.blocks + 1;
        seen.blocks += 100;
        look(&a, &seen, 0, (2000 + 10 * n) * MS);
        assert_int_equal(a.rate_bps, rates[n]);
    }
}

/* A receiver that agreed to report and does not: the rate grows as if nobody reported. */
static void test_steps_without_reports(void **state)
{
    struct fmtp_rate_control a;
    struct fmtp_rate_seen seen = {.held = true, .reports = true};

    (void)state;
    fmtp_rate_control_init(&a);
    for (unsigned ms = 5000; ms < 6000; ms += 10)
        look(&a, &seen, 0, ms * MS);
    /* 0.2 s, then 80 times 4 %, less what the looks' times round off. */
    assert_in_range(a.rate_bps, 300e6 * 20, 300e6 * 24);
}

/* Steps that went too far: at most a fifth of what was sent in the first second is for nothing, and
 * the rate is found as without them. */
static void test_steps_too_far(void **state)
{
    static const double takes[] = {200e6, 400e6, 1e9, 1.4e9};
    static const unsigned delays[] = {0, 20, 100};

    (void)state;
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++)
        for (size_t k = 0; k < sizeof delays / sizeof *delays; k++) {
            struct path p = {.takes_bps = takes[i],
                             .buffer_bits = takes[i] * 0.01,
                             .reports = true,
                             .delay_ms = delays[k]};
            struct fmtp_rate_control a;
            fmtp_rate_control_init(&a);
            struct outcome first = run(&a, p, 0, 1000);
            assert_true(first.dropped < 0.2 * first.sent);
            assert_true(first.received * BITS > 0.6 * takes[i]);
            run(&a, p, 1000, 4000);
            struct outcome o = run(&a, p, 4000, 14000);
            assert_true(o.received * BITS > 0.9 * takes[i] * 10);
            assert_true(o.dropped < 0.13 * o.sent);
        }
}

/* A buffer that is nearly full: no more growth, and small steps from then on. */
static void test_full(void **state)
{
    struct fmtp_rate_seen seen = {.held = true, .reports = true, .blocks = 1, .read = 1};

    (void)state;
    struct fmtp_rate_control a;
    fmtp_rate_control_init(&a);
    look(&a, &seen, 0, 0);
    assert_int_equal(a.rate_bps, 450000000);
    seen.full = true;
    look(&a, &seen, 0, 10 * MS);
    assert_int_equal(a.rate_bps, 450000000);
    seen.full = false;
    look(&a, &seen, 0, 20 * MS);
    assert_int_equal(a.rate_bps, 459000000);
}

static void test_bounds(void **state)
{
    struct fmtp_rate_seen seen = {.held = false};

    (void)state;
    struct fmtp_rate_control a;
    fmtp_rate_control_init(&a);
    uint64_t first = a.rate_bps;
    for (unsigned t = 0; t < 1000; t += 10)
        look(&a, &seen, 0, t * MS);
    assert_int_equal(a.rate_bps, first); /* the rate was not used up */
    seen.held = true;
    for (unsigned t = 1000; t < 10000; t += 10)
        look(&a, &seen, 0, t * MS);
    assert_int_equal(a.rate_bps, 100000000000);
    for (unsigned t = 10000; t < 60000; t += 10)
        look(&a, &seen, 100, t * MS);
    assert_int_equal(a.rate_bps, 100000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_receivers_rate),
        cmocka_unit_test(test_loss_of_the_path),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_steps_after_a_pause),
        cmocka_unit_test(test_steps_without_reports),
        cmocka_unit_test(test_steps_too_far),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

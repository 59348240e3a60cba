/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "line.h"

#define MS INT64_C(1000000)
#define US INT64_C(1000)

/* Builds a frame of 14 + 40 bytes (a UDP datagram whose payload begins with `number` or, if `ipv4`
 * is false, the same bytes with another EtherType) and returns whether the line loses it. */
static bool loses(struct line *line, uint32_t number, bool ipv4)
{
    uint8_t frame[54] = {[12] = ipv4 ? 0x08 : 0x88, [14] = 0x45, [17] = 40, [23] = 17};
    for (unsigned i = 0; i < 4; i++)
        frame[42 + i] = (uint8_t)(number >> (24 - 8 * i));
    return line_loses(line, frame, sizeof frame);
}

static void test_constant_delay(void **state)
{
    (void)state;
    struct line line;
    line_init(&line, 18 * MS, 0, 0.0, 1);
    assert_int_equal(line_head(&line, 5 * MS, 5 * MS), 23 * MS);
    /* The same head gives the same answer, whatever the arguments. */
    assert_int_equal(line_head(&line, 99 * MS, 99 * MS), 23 * MS);
    line_pop(&line);
    assert_int_equal(line_head(&line, 6 * MS, 7 * MS), 24 * MS);
}

static void test_clock_set_back(void **state)
{
    (void)state;
    struct line line;
    line_init(&line, 10 * MS, 0, 0.0, 1);
    /* The timestamp is 1 s in the future: the frame must not wait for a second. */
    assert_int_equal(line_head(&line, 1005 * MS, 5 * MS), 15 * MS);
    line_init(&line, 10 * MS, 2 * MS, 0.0, 1);
    line_head(&line, 1000 * MS, 1000 * MS);
    line_pop(&line);
    assert_true(line_head(&line, 5 * MS, 5 * MS) <= 17 * MS);
}

static void test_jitter_keeps_order_and_range(void **state)
{
    (void)state;
    struct line line;
    line_init(&line, 20 * MS, 5 * MS, 0.0, 7);
    int64_t last = 0;
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (int64_t i = 0; i < 2000; i++) {
        int64_t arrival = i * 20 * MS; /* far apart: keeping the order changes no due time */
        int64_t due = line_head(&line, arrival, arrival);
        assert_true(due >= last);
        int64_t delay = due - arrival;
        assert_true(delay >= 15 * MS && delay <= 25 * MS);
        least = delay < least ? delay : least;
        most = delay > most ? delay : most;
        last = due;
        line_pop(&line);
    }
    /* 2000 uniform draws reach both edges of the range to within 1 %. */
    assert_true(least < 15 * MS + 100 * US);
    assert_true(most > 25 * MS - 100 * US);
    line_init(&line, 20 * MS, 5 * MS, 0.0, 7);
    last = 0;
    for (int64_t i = 0; i < 2000; i++) { /* 10 us apart: keeping the order delays frames */
        int64_t due = line_head(&line, i * 10 * US, i * 10 * US);
        assert_true(due >= last);
        last = due;
        line_pop(&line);
    }
}

static void loss_rate_and_seed(bool ipv4)
{
    struct line a;
    line_init(&a, 0, 0, 0.01, 42);
    struct line b;
    line_init(&b, 0, 0, 0.01, 42);
    struct line c;
    line_init(&c, 0, 0, 0.01, 43);
    unsigned differ = 0;
    unsigned lost = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        bool of_a = loses(&a, i, ipv4);
        assert_int_equal(of_a, loses(&b, i, ipv4));
        differ += of_a != loses(&c, i, ipv4);
        lost += of_a;
    }
    /* Binomial with n = 100000, p = 0.01: mean 1000, standard deviation 31.5; the range is 5 of
     * them. */
    assert_in_range(lost, 843, 1157);
    assert_true(differ > 1000);
}

static void test_loss_rate_and_seed(void **state)
{
    (void)state;
    loss_rate_and_seed(true);
    loss_rate_and_seed(false);
}

/* Other frames on the line, jitter and the order of frames change nothing for an IPv4 packet. A
 * frame that is not IPv4 (all ARP requests look alike) gets a new chance each time. */
static void test_loss_is_of_the_packet(void **state)
{
    (void)state;
    struct line a;
    line_init(&a, 0, 0, 0.5, 42);
    struct line b;
    line_init(&b, 5 * MS, 5 * MS, 0.5, 42);
    unsigned lost = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        bool first = loses(&a, i, true);
        line_head(&b, i, i);
        line_pop(&b);
        (void)loses(&b, 0, false);
        assert_int_equal(first, loses(&b, i, true));
        assert_int_equal(first, loses(&b, i, true));
        lost += loses(&a, 0, false);
    }
    assert_in_range(lost, 400, 600);
}

static void test_loss_extremes(void **state)
{
    (void)state;
    struct line none;
    line_init(&none, 0, 0, 0.0, 1);
    struct line all;
    line_init(&all, 0, 0, 1.0, 1);
    for (uint32_t i = 0; i < 2000; i++) {
        assert_false(loses(&none, i, i % 2 == 0));
        assert_true(loses(&all, i, i % 2 == 0));
    }
}

static void test_lateness_quantiles(void **state)
{
    (void)state;
    struct line line;
    line_init(&line, 0, 0, 0.0, 1);
    /* 98 frames 50 us late, one 1 ms, one 10 ms. */
    for (int i = 0; i < 98; i++)
        line_count(&line, LINE_SENT, 0, 50 * US, 1);
    line_count(&line, LINE_SENT, 0, 1 * MS, 1);
    line_count(&line, LINE_SENT, 0, 10 * MS, 1);
    assert_true(line_lateness_us(&line, 0.5) == 50.0);
    double p98 = line_lateness_us(&line, 0.98);
    assert_true(p98 >= 1000.0 && p98 <= 1000.0 * 65 / 64);
    assert_true(line_lateness_us(&line, 0.99) == 10000.0);
    assert_int_equal(line.stats.late_max_ns, 10 * MS);
    assert_int_equal(line.stats.frames, 100);
}

static void test_lateness_buckets(void **state)
{
    (void)state;
    size_t last = 0;
    for (uint64_t us = 0; us < 100000; us++) {
        size_t bucket = lateness_bucket(us);
        assert_true(bucket >= last && bucket <= last + 1);
        assert_true(lateness_bucket_top_us(bucket) >= us);
        assert_true((double)lateness_bucket_top_us(bucket) <= (double)us * (1.0 + 1.0 / 64) + 1);
        last = bucket;
    }
    assert_int_equal(lateness_bucket(UINT64_MAX), LATENESS_BUCKETS - 1);
}

static void test_next_wake(void **state)
{
    (void)state;
    struct line lines[3];
    line_init(&lines[0], 20 * MS, 0, 0.0, 1);
    line_init(&lines[1], 5 * MS, 0, 0.0, 1);
    line_init(&lines[2], 0, 0, 0.0, 1);
    /* Nothing waits: only an arrival wakes the relay, and all lines are watched. */
    assert_true(lines_next_wake(lines, 3, 0, 0, 250 * US) == INT64_MAX);
    for (int i = 0; i < 3; i++)
        assert_true(line_is_watched(&lines[i], false));
    /* A frame waits on line 0 until 20 ms; a frame arriving on line 1 now would be due at 5 ms. */
    line_head(&lines[0], 0, 0);
    assert_int_equal(lines_next_wake(lines, 3, 0, 0, 250 * US), 5 * MS);
    assert_false(line_is_watched(&lines[0], true));
    assert_false(line_is_watched(&lines[1], true));
    assert_true(line_is_watched(&lines[2], true));
    /* At 18 ms the waiting frame is due first. */
    assert_int_equal(lines_next_wake(lines, 3, 18 * MS, 17 * MS, 250 * US), 20 * MS);
    /* The gap limits the wake-ups. */
    assert_int_equal(lines_next_wake(lines, 3, 20 * MS, 20 * MS - 50 * US, 250 * US),
                     20 * MS + 200 * US);
}

/* The relay's loop in virtual time: every frame leaves at or after its due time and at most one
 * gap late, in order, whatever the arrivals. */
static void test_simulated_loop(void **state)
{
    (void)state;
    enum { FRAMES = 5000 };
    static int64_t arrival[FRAMES];
    const int64_t gap = 250 * US;
    uint64_t x = 1;
    int64_t t = 0;
    struct line line;
    line_init(&line, 18 * MS, 0, 0.0, 1);
    for (int i = 0; i < FRAMES; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407U;
        t += (int64_t)((x >> 33) % (uint64_t)(2 * MS)); /* mean 1 ms */
        arrival[i] = t;
    }
    int64_t now = 0;
    unsigned wakes = 0;
    int sent = 0;
    while (sent < FRAMES) {
        wakes++;
        while (sent < FRAMES && arrival[sent] <= now) {
            int64_t due = line_head(&line, arrival[sent], now);
            if (due > now)
                break;
            assert_int_equal(due, arrival[sent] + 18 * MS);
            assert_true(now - due <= gap);
            line_count(&line, LINE_SENT, due, now, 1000);
            line_pop(&line);
            sent++;
        }
        if (sent == FRAMES)
            break;
        int64_t next = lines_next_wake(&line, 1, now, now, gap);
        now = next != INT64_MAX ? next : arrival[sent];
    }
    assert_int_equal(line.stats.frames, FRAMES);
    assert_int_equal(line.stats.bytes, FRAMES * 1000);
    assert_true(wakes <= 2 * FRAMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_delay),
        cmocka_unit_test(test_clock_set_back),
        cmocka_unit_test(test_jitter_keeps_order_and_range),
        cmocka_unit_test(test_loss_rate_and_seed),
        cmocka_unit_test(test_loss_is_of_the_packet),
        cmocka_unit_test(test_loss_extremes),
        cmocka_unit_test(test_lateness_quantiles),
        cmocka_unit_test(test_lateness_buckets),
        cmocka_unit_test(test_next_wake),
        cmocka_unit_test(test_simulated_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

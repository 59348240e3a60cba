/* SPDX-License-Identifier: Apache-2.0
 *
 * Layered multicast beside TCP and beside itself, in virtual time: a line of 1 or 4 Mbit/s with a
 * queue of 25 packets, as in M2C10, and 10 ms one way, unless a comment says otherwise. Prints what
 * it measures. The bounds are those that hold; comments say where they fall short of what is
 * desirable.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bottleneck.h"

enum { LONG_SEEDS = 4, MOST_SEEDS = 20 }; /* M2C10 has 20 runs */
static unsigned seeds = 1;                /* DOWNPOUR_TEST_LONG: LONG_SEEDS; "all": MOST_SEEDS */
static const char *const names[] = {"webrc", "m2c", "static"};
static const double rates_bps[] = {1e6, 4e6};

#define SAY(...) print_message("[   INFO   ] " __VA_ARGS__)

static void assert_within(double found, double least, double most)
{
    if (!(found >= least && found <= most))
        print_error("found %.3f, expected %.3f to %.3f\n", found, least, most);
    assert_true(found >= least && found <= most);
}

/* Values of one quantity over the seeds. */
struct sample {
    double sum, squares;
    unsigned count;
};

static void add(struct sample *s, double value)
{
    s->sum += value;
    s->squares += value * value;
    s->count++;
}

static double mean(const struct sample *s)
{
    return s->sum / s->count;
}

/* Returns half of Student's 95 % interval of the mean. */
static double half(const struct sample *s)
{
    static const double t95[] = {[LONG_SEEDS - 1] = 3.182, [MOST_SEEDS - 1] = 2.093};
    const unsigned free = s->count - 1;

    assert_true(free < sizeof t95 / sizeof *t95 && t95[free] > 0);
    const double variance = (s->squares - s->sum * s->sum / s->count) / free;
    return t95[free] * sqrt(fmax(0, variance) / s->count);
}

/* Formats the mean and, with more than one seed, its interval. The texts of the last four calls
 * remain valid. */
static const char *interval(const struct sample *s, int digits)
{
    static char texts[4][32];
    static unsigned next;
    char *text = texts[next++ % 4];

    if (s->count > 1)
        snprintf(text, sizeof texts[0], "%.*f +- %.*f", digits, mean(s), digits, half(s));
    else
        snprintf(text, sizeof texts[0], "%.*f", digits, mean(s));
    return text;
}

/* Returns the extra tolerance for a single seed, which can be further from the mean. */
static double of_one_seed(void)
{
    return seeds == 1 ? 0.1 : 0;
}

/* Returns the usual scene: one session with one receiver, measured from its tenth slot on. */
static struct bn_config scene(enum m2c_cc_kind kind, double rate_bps, uint64_t seed)
{
    return (struct bn_config){.rate_bps = rate_bps,
                              .queue_packets = 25,
                              .delay_s = 0.01,
                              .kind = kind,
                              .sessions = 1,
                              .receivers = 1,
                              .from_s = 100,
                              .to_s = 700,
                              .seed = seed};
}

static double percent_dropped(const struct bn_flow *f)
{
    return 100.0 * (double)f->dropped / (double)f->arrived;
}

/* Validates the TCP model: two connections share the line and lose about what M2C10 measured at 4
 * Mbit/s, 0.67 %. */
static void test_tcp_alone(void **state)
{
    (void)state;
    struct bn_config cfg = scene(M2C_CC_M2C, 4e6, 1);
    struct bn_result r;

    cfg.sessions = cfg.receivers = 0;
    cfg.tcp = 2;
    bn_run(&cfg, &r);
    SAY("TCP against TCP, 4 Mbit/s: %.0f and %.0f kbit/s, loss %.2f %%\n", r.tcp[0].bps / 1e3,
        r.tcp[1].bps / 1e3, percent_dropped(&r.tcp[0]));
    assert_within(r.tcp[0].bps / r.tcp[1].bps, 0.9, 1.1);
    assert_within((r.tcp[0].bps + r.tcp[1].bps) / cfg.rate_bps, 0.98, 1.001);
    assert_within(percent_dropped(&r.tcp[0]), 0.4, 1);
}

struct beside_tcp {
    double session_bps, tcp_bps, lost, tcp_lost; /* means; percent of packets */
    struct sample share;                         /* the session's rate divided by TCP's */
    struct sample varies, tcp_varies; /* of the rates over seconds: standard deviation by mean */
};

static struct beside_tcp beside_tcp(enum m2c_cc_kind kind, double rate_bps, double delay_s,
                                    double leave_latency_s)
{
    struct beside_tcp sum = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct bn_config cfg = scene(kind, rate_bps, seed);
        struct bn_result r;
        cfg.tcp = 1;
        cfg.delay_s = delay_s;
        cfg.leave_latency_s = leave_latency_s;
        bn_run(&cfg, &r);
        add(&sum.share, r.receivers[0][0].bps / r.tcp[0].bps);
        add(&sum.varies, r.receivers[0][0].variation);
        add(&sum.tcp_varies, r.tcp[0].variation);
        sum.session_bps += r.receivers[0][0].bps / seeds;
        sum.tcp_bps += r.tcp[0].bps / seeds;
        sum.lost += percent_dropped(&r.sessions[0]) / seeds;
        sum.tcp_lost += percent_dropped(&r.tcp[0]) / seeds;
    }
    return sum;
}

/* At this queue's loss rate, TCP's equation gives WEBRC less than TCP gets. */
static void test_share(void **state)
{
    (void)state;
    static const struct {
        double least, most;
    } of[] = {[M2C_CC_WEBRC] = {0.4, 1.25}, [M2C_CC_M2C] = {0.8, 1.25}}; /* bounds of the means */

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_M2C; kind++)
        for (unsigned i = 0; i < 2; i++) {
            const struct beside_tcp b = beside_tcp(kind, rates_bps[i], 0.01, 0);
            SAY("%-6s against TCP, %.0f Mbit/s: %4.0f and %4.0f kbit/s, ratio %s; loss %.2f %%, "
                "TCP's %.2f %%\n",
                names[kind], rates_bps[i] / 1e6, b.session_bps / 1e3, b.tcp_bps / 1e3,
                interval(&b.share, 2), b.lost, b.tcp_lost);
            assert_within(mean(&b.share), of[kind].least, of[kind].most + of_one_seed());
        }
}

/* Jain's index of two sessions from their tenth slot on. */
static void test_two_sessions(void **state)
{
    (void)state;
    static const double least_jain[] = {[M2C_CC_WEBRC] = 0.8, [M2C_CC_M2C] = 0.9};

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_M2C; kind++)
        for (unsigned i = 0; i < 2; i++) {
            double least = 1, mean = 0, used = 0, lost = 0;
            for (uint64_t seed = 1; seed <= seeds; seed++) {
                struct bn_config cfg = scene(kind, rates_bps[i], seed);
                struct bn_result r;
                cfg.sessions = 2;
                bn_run(&cfg, &r);
                const double a = r.receivers[0][0].bps, b = r.receivers[1][0].bps;
                const double jain = (a + b) * (a + b) / (2 * (a * a + b * b));
                least = fmin(least, jain);
                mean += jain / seeds;
                used += (a + b) / rates_bps[i] / seeds;
                lost += percent_dropped(&r.sessions[0]) / seeds;
            }
            SAY("%-6s against itself, %.0f Mbit/s: Jain %.3f (least %.3f), %.0f %% of the line, "
                "loss %.1f %%\n",
                names[kind], rates_bps[i] / 1e6, mean, least, 100 * used, lost);
            assert_within(mean, least_jain[kind], 1);
            assert_within(used, 0.9, 1.001);
        }
}

/* M2C's share does not depend on the round trip: 20, 40 and 100 ms without the queue. RFC 3738, 1:
 * WEBRC gets what TCP gets within a factor of two. */
static void test_round_trips(void **state)
{
    (void)state;
    static const double delays_s[] = {0.01, 0.02, 0.05};
    static const struct {
        double least, most;
    } of[] = {[M2C_CC_WEBRC] = {0.5, 2}, [M2C_CC_M2C] = {0.8, 1.25}};

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_M2C; kind++)
        for (unsigned d = 0; d < 3; d++)
            for (unsigned i = 0; i < 2; i++) {
                const struct beside_tcp b = beside_tcp(kind, rates_bps[i], delays_s[d], 0);
                SAY("%-6s against TCP, %.0f Mbit/s, %.0f ms: ratio %s; rate varies by %s, TCP's by "
                    "%s\n",
                    names[kind], rates_bps[i] / 1e6, 2000 * delays_s[d], interval(&b.share, 2),
                    interval(&b.varies, 2), interval(&b.tcp_varies, 2));
                assert_within(mean(&b.share), of[kind].least - of_one_seed(),
                              of[kind].most + of_one_seed());
            }
}

/* RFC 3738, 1: receivers behind one line get equal rates, because their joins take equally long. */
static void test_proximate_receivers(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct sample jain = {0};
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            struct bn_config cfg = scene(M2C_CC_WEBRC, rates_bps[i], seed);
            struct bn_result r;
            double sum = 0, squares = 0;
            cfg.receivers = 5;
            cfg.tcp = 1;
            bn_run(&cfg, &r);
            for (unsigned n = 0; n < cfg.receivers; n++) {
                sum += r.receivers[0][n].bps;
                squares += r.receivers[0][n].bps * r.receivers[0][n].bps;
            }
            add(&jain, sum * sum / (cfg.receivers * squares));
        }
        SAY("webrc  5 receivers beside TCP, %.0f Mbit/s: Jain %s\n", rates_bps[i] / 1e6,
            interval(&jain, 3));
        assert_within(mean(&jain), 0.95, 1);
    }
}

/* A wave's leaves take place when the channel is silent; a static layer's overload lasts until the
 * leave takes effect. */
static void test_leave_latency(void **state)
{
    (void)state;
    static const double latency_s[] = {0, 1, 3, 9, 290}; /* a channel rests for 300 s */

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_STATIC; kind++) {
        double first = 0, before = 0;
        for (unsigned i = 0; i < (kind == M2C_CC_STATIC ? 4 : 5); i++) {
            const struct beside_tcp b = beside_tcp(kind, 4e6, 0.01, latency_s[i]);
            SAY("%-6s leave latency %.0f s: TCP loses %.3f %% and gets %4.0f kbit/s, the session "
                "%4.0f\n",
                names[kind], latency_s[i], b.tcp_lost, b.tcp_bps / 1e3, b.session_bps / 1e3);
            first = i ? first : b.tcp_lost;
            if (kind != M2C_CC_STATIC)
                assert_within(b.tcp_lost / first, 0.9, 1.1);
            else
                assert_true(b.tcp_lost > before);
            before = b.tcp_lost;
        }
        if (kind == M2C_CC_STATIC)
            assert_true(before > 1.3 * first);
    }
}

struct transfer {
    struct sample all_s, last_s; /* until a receiver has the file: mean of all; the last one */
    struct sample twice,
        lost; /* symbols that it already had; lost packets of the session: percent */
};

struct scene {
    double rate_bps, file_bytes, late_s;
    unsigned receivers, tcp, rivals; /* rivals: other sessions, with a file as long */
};

static struct transfer transfer(enum m2c_cc_kind kind, const struct scene *of)
{
    struct transfer all = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct bn_config cfg = scene(kind, of->rate_bps, seed);
        struct bn_result r;
        double last = 0, sum = 0, twice = 0;
        cfg.sessions = 1 + of->rivals;
        cfg.receivers = of->receivers;
        cfg.tcp = of->tcp;
        cfg.file_bytes = of->file_bytes;
        cfg.late_s = of->late_s;
        cfg.from_s = 0;
        cfg.to_s = 10000;
        bn_run(&cfg, &r);
        for (unsigned i = 0; i < of->receivers; i++) {
            const struct bn_receiver *one = &r.receivers[0][i];
            assert_true(one->time_s > 0);
            last = fmax(last, one->time_s);
            sum += one->time_s;
            twice += 100.0 * (double)one->duplicates / (double)one->symbols;
        }
        add(&all.all_s, sum / of->receivers);
        add(&all.last_s, last);
        add(&all.twice, twice / of->receivers);
        add(&all.lost, percent_dropped(&r.sessions[0]));
    }
    return all;
}

/* Sends the same file to each receiver by its own TCP connection and returns when the last one has
 * it. */
static struct sample by_tcp(double rate_bps, double file_bytes, unsigned receivers)
{
    struct sample all = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct bn_config cfg = scene(M2C_CC_M2C, rate_bps, seed);
        struct bn_result r;
        double last = 0;
        cfg.sessions = cfg.receivers = 0;
        cfg.tcp = receivers;
        cfg.file_bytes = file_bytes;
        cfg.tcp_has_file = true;
        cfg.to_s = 10000;
        bn_run(&cfg, &r);
        for (unsigned i = 0; i < receivers; i++) {
            assert_true(r.tcp[i].time_s > 0);
            last = fmax(last, r.tcp[i].time_s);
        }
        add(&all, last);
    }
    return all;
}

/* Five receivers behind the line take hardly longer than one. WEBRC's take longer if the file takes
 * only 11 slots: the time until all have found the rate is then noticeable. */
static void test_receivers(void **state)
{
    (void)state;
    static const double most[][2] = {
        [M2C_CC_WEBRC] = {1.15, 1.3}, [M2C_CC_M2C] = {1.15, 1.15}}; /* per rate */

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_M2C; kind++)
        for (unsigned tcp = 0; tcp < 2; tcp++)
            for (unsigned i = 0; i < 2; i++) {
                struct scene of = {rates_bps[i], 48e6, 0, 1, tcp, 0};
                const struct transfer one = transfer(kind, &of);
                of.receivers = 5;
                const struct transfer five = transfer(kind, &of);
                const double ratio = mean(&five.all_s) / mean(&one.all_s);
                SAY("%-6s 48 MB, %.0f Mbit/s, %s: 1 receiver %s s, 5 receivers %s s: %.2f "
                    "(the last %.0f s); twice %.2f and %.2f %%\n",
                    names[kind], rates_bps[i] / 1e6, tcp ? "1 TCP" : "alone",
                    interval(&one.all_s, 1), interval(&five.all_s, 1), ratio, mean(&five.last_s),
                    mean(&one.twice), mean(&five.twice));
                assert_within(ratio, 0, most[kind][i]);
                assert_within(fmax(mean(&one.twice), mean(&five.twice)), 0, 0.5);
            }
}

/* M2C10, 5.2: from two receivers on, one session is faster than a TCP connection to each. */
static void test_two_receivers_beat_tcp(void **state)
{
    (void)state;
    static const double files_bytes[] = {48e6, 99e6};

    for (unsigned i = 0; i < 2; i++)
        for (unsigned f = 0; f < 2; f++) {
            const struct scene of = {rates_bps[i], files_bytes[f], 0, 2, 0, 0};
            const struct transfer session = transfer(M2C_CC_M2C, &of);
            const struct sample one = by_tcp(rates_bps[i], files_bytes[f], 1);
            const struct sample two = by_tcp(rates_bps[i], files_bytes[f], 2);
            SAY("%.0f MB to 2 receivers, %.0f Mbit/s: m2c %s s, twice %s %%; TCP %s s, to one %s "
                "s\n",
                files_bytes[f] / 1e6, rates_bps[i] / 1e6, interval(&session.last_s, 1),
                interval(&session.twice, 2), interval(&two, 1), interval(&one, 1));
            assert_within(mean(&session.last_s) / mean(&two), 0, 0.75);
            assert_within(mean(&session.twice), 0, 0.5);
            /* Nothing can be faster than the line. */
            assert_true(mean(&one) >
                        8 * files_bytes[f] * BN_PACKET_BYTES / (BN_SEGMENT_BYTES * rates_bps[i]));
        }
}

/* M2C10, Fig. 5a: a file beside a long stream of TCP, or of M2C (here as long as the file). The
 * files of M2C10 were longer: goodput times time gives 4.4 and 103.8 million bytes. */
static void test_beside_a_stream(void **state)
{
    (void)state;
    static const struct {
        double file_bytes, least, theirs_s[2][2]; /* by rate, by rival */
    } of[] = {{4.4e6, 0.3, {{111, 125}, {48, 62}}}, {103.8e6, 0.5, {{1760, 2330}, {438, 766}}}};

    for (unsigned f = 0; f < 2; f++)
        for (unsigned i = 0; i < 2; i++)
            for (unsigned rivals = 0; rivals < 2; rivals++) {
                const struct scene at = {.rate_bps = rates_bps[i],
                                         .file_bytes = of[f].file_bytes,
                                         .receivers = 1,
                                         .tcp = 1 - rivals,
                                         .rivals = rivals};
                const struct transfer found = transfer(M2C_CC_M2C, &at);
                SAY("%.1f MB, %.0f Mbit/s, beside %s: %s s (M2C10: %.0f s); lost %s %%, twice %s "
                    "%%\n",
                    of[f].file_bytes / 1e6, rates_bps[i] / 1e6, rivals ? "m2c" : "TCP",
                    interval(&found.all_s, 1), of[f].theirs_s[i][rivals], interval(&found.lost, 2),
                    interval(&found.twice, 2));
                assert_within(mean(&found.all_s) / of[f].theirs_s[i][rivals], of[f].least, 1.1);
            }
}

/* A receiver that begins at any buffer of the ring takes as long as one that begins with it: the
 * ring has 84,035 blocks, and a buffer begins every 1.33 s. */
static void test_late_receivers(void **state)
{
    (void)state;
    static const double late_s[] = {0, 1.7, 13, 250, 4000};

    for (unsigned i = 0; i < 2; i++) {
        double first = 0;
        for (unsigned n = 0; n < sizeof late_s / sizeof *late_s; n++) {
            const struct scene of = {rates_bps[i], 48e6, late_s[n], 1, 0, 0};
            const struct transfer found = transfer(M2C_CC_M2C, &of);
            SAY("m2c    48 MB, %.0f Mbit/s, begun %.1f s later: %s s; twice %.2f %%\n",
                rates_bps[i] / 1e6, late_s[n], interval(&found.all_s, 1), mean(&found.twice));
            first = n ? first : mean(&found.all_s);
            assert_within(mean(&found.all_s) / first, 0.95, 1.05);
            assert_within(mean(&found.twice), 0, 0.5);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp_alone),    cmocka_unit_test(test_share),
        cmocka_unit_test(test_round_trips),  cmocka_unit_test(test_proximate_receivers),
        cmocka_unit_test(test_two_sessions),
    };
    const struct CMUnitTest of_means[] = {
        cmocka_unit_test(test_leave_latency),          cmocka_unit_test(test_receivers),
        cmocka_unit_test(test_two_receivers_beat_tcp), cmocka_unit_test(test_beside_a_stream),
        cmocka_unit_test(test_late_receivers),
    };

    const char *asked = getenv("DOWNPOUR_TEST_LONG");
    if (!asked) {
        SAY("not run: leave latency, receivers, files (DOWNPOUR_TEST_LONG=1: means of %d seeds; "
            "all: of %d)\n",
            LONG_SEEDS, MOST_SEEDS);
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    seeds = strcmp(asked, "all") == 0 ? MOST_SEEDS : LONG_SEEDS;
    return cmocka_run_group_tests(tests, NULL, NULL) + cmocka_run_group_tests(of_means, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Files by layered multicast and by TCP behind one line, in virtual time, with the set-up and the
 * criteria of M2C10, 7: 1 and 4 Mbit/s, a queue of 25 packets. 10 ms one way. With the first seeds
 * receivers decode; none of their blocks needed more symbols than the others are given.
 */
#include "bottleneck.h"
#include "file.h"
#include "sample.h"

static unsigned seeds = 1;
static const double rates_bps[] = {1e6, 4e6};
/* Its files of 4, 48 and 99 MB: goodput times time. */
static const double SMALL = 4.4e6, MIDDLE = 49.3e6, LARGE = 103.8e6;
enum { DECODING_SEEDS = 2 };
static const double SHORT_PER_MIN = 10; /* its background */

struct scene {
    double rate_bps, file_bytes, short_per_min;
    unsigned receivers, tcp, rivals; /* rivals: other sessions, with a file as long */
    bool is_anywhere;                /* begins at any buffer of the ring, by seed */
    double delay_s;                  /* 0: 10 ms */
    bool tcp_is_of_2010;
    enum m2c_cc_kind kind;
};

/* Means over the receivers, by seed; last_s: of the last one. Percent, kbit/s. */
struct transfer {
    struct sample time_s, last_s, gput, tput, loss, net, dup, sym;
};

static struct bn_config config_of(const struct scene *of, uint64_t seed)
{
    return (struct bn_config){.rate_bps = of->rate_bps,
                              .queue_packets = 25,
                              .delay_s = of->delay_s > 0 ? of->delay_s : 0.01,
                              .kind = of->kind,
                              .sessions = 1 + of->rivals,
                              .receivers = of->receivers,
                              .tcp = of->tcp,
                              .tcp_is_of_2010 = of->tcp_is_of_2010,
                              .short_per_min = of->short_per_min,
                              .file_bytes = of->file_bytes,
                              .to_s = 20000,
                              .seed = seed};
}

/* A moment of the ring, which takes its symbols' number of buffers of 4/3 s. */
static double anywhere_s(const struct scene *of, uint64_t seed)
{
    const double ring_s = 2.5 * of->file_bytes / BN_SYMBOL_BYTES * 4 / 3;

    return ring_s * fmod((double)seed * 0.6180339887, 1);
}

static void take(struct transfer *all, const struct bn_result *r, unsigned receivers)
{
    struct bn_receiver sum = {0};
    double last = 0;

    for (unsigned i = 0; i < receivers; i++) {
        const struct bn_receiver *one = &r->receivers[0][i];
        assert_true(one->time_s > 0);
        last = fmax(last, one->time_s);
        sum.time_s += one->time_s / receivers;
        sum.gput_bps += one->gput_bps / receivers;
        sum.tput_bps += one->tput_bps / receivers;
        sum.net += one->net / receivers;
        sum.dup += one->dup / receivers;
        sum.sym += one->sym / receivers;
    }
    add(&all->time_s, sum.time_s);
    add(&all->last_s, last);
    add(&all->gput, sum.gput_bps / 1e3);
    add(&all->tput, sum.tput_bps / 1e3);
    add(&all->net, sum.net);
    add(&all->dup, sum.dup);
    add(&all->sym, sum.sym);
    add(&all->loss, bn_percent_dropped(&r->sessions[0]));
}

static struct transfer transfer(const struct scene *of)
{
    struct transfer all = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct bn_config cfg = config_of(of, seed);
        struct bn_result r;
        cfg.sent_s = of->is_anywhere ? anywhere_s(of, seed) : 0;
        cfg.decodes = seed <= DECODING_SEEDS;
        bn_run(&cfg, &r);
        take(&all, &r, of->receivers);
    }
    return all;
}

static void say(const char *what, const struct scene *of, const struct transfer *t)
{
    SAY("%s, %.1f MB, %.0f Mbit/s: %s s; gput %s, tput %s; loss %s, net %s, dup %s, sym %s\n", what,
        of->file_bytes / 1e6, of->rate_bps / 1e6, interval(&t->time_s, 1), interval(&t->gput, 0),
        interval(&t->tput, 0), interval(&t->loss, 2), interval(&t->net, 2), interval(&t->dup, 2),
        interval(&t->sym, 2));
}

/* M2C10, 7.3, 7.4: hardly anything comes twice, and headers and the code cost little. */
static void assert_lean(const struct transfer *t)
{
    assert_within(mean(&t->dup), 0, 0.5);
    assert_within(mean(&t->net), 0, 7);
    assert_within(t->sym.most, 0, 0.4); /* no more than k/256 */
}

/* The same file to each of some receivers by a TCP connection of its own, beside `long_ones` that
 * do not end. */
static struct transfer by_tcp(const struct scene *of, unsigned long_ones)
{
    struct transfer all = {0};

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct bn_config cfg = config_of(of, seed);
        struct bn_result r;
        double last = 0, sum = 0, lost = 0;
        cfg.sessions = cfg.receivers = 0;
        cfg.tcp_files = of->receivers;
        cfg.tcp = of->receivers + long_ones;
        bn_run(&cfg, &r);
        for (unsigned i = 0; i < of->receivers; i++) {
            const struct bn_flow *f = &r.tcp[i];
            assert_true(f->time_s > 0);
            last = fmax(last, f->time_s);
            sum += f->time_s / of->receivers;
            lost += bn_percent_dropped(f) / of->receivers;
        }
        /* Nothing is faster than the line. */
        assert_true(last >
                    8 * of->file_bytes * BN_PACKET_BYTES / (BN_SEGMENT_BYTES * of->rate_bps));
        add(&all.time_s, sum);
        add(&all.last_s, last);
        add(&all.loss, lost);
    }
    return all;
}

/* M2C10, Fig. 5a: a file beside a long stream of TCP, or of M2C (here one as long as the file). */
static void test_beside_a_stream(void **state)
{
    (void)state;
    static const struct {
        const double *file_bytes;
        double least, theirs_s[2][3]; /* by rate; TCP beside TCP, M2C beside TCP, beside M2C */
    } of[] = {{&SMALL, 0.3, {{79, 111, 125}, {20, 48, 62}}},
              {&LARGE, 0.5, {{1737, 1760, 2330}, {434, 438, 766}}}};

    for (unsigned f = 0; f < 2; f++)
        for (unsigned i = 0; i < 2; i++) {
            const double *theirs_s = of[f].theirs_s[i];
            struct scene at = {.rate_bps = rates_bps[i],
                               .file_bytes = *of[f].file_bytes,
                               .receivers = 1,
                               .kind = M2C_CC_M2C};
            const struct transfer tcp = by_tcp(&at, 1);
            SAY("TCP beside TCP, %.1f MB, %.0f Mbit/s: %s s (M2C10: %.0f); loss %s\n",
                at.file_bytes / 1e6, at.rate_bps / 1e6, interval(&tcp.time_s, 1), theirs_s[0],
                interval(&tcp.loss, 2));
            for (at.rivals = 0; at.rivals < 2; at.rivals++) {
                at.tcp = 1 - at.rivals;
                const struct transfer found = transfer(&at);
                say(at.rivals ? "m2c beside m2c" : "m2c beside TCP", &at, &found);
                assert_within(mean(&found.time_s) / theirs_s[1 + at.rivals], of[f].least, 1.1);
                assert_lean(&found);
            }
        }
}

/* TCP loses half of what it does here if its window begins with 3 segments and grows with each
 * acknowledgement, of every other segment, as in Linux of 2010. In a laboratory, with a round trip
 * of 1 ms, that is what M2C10 measured. */
static void test_tcp_of_2010(void **state)
{
    (void)state;
    static const struct {
        const double *file_bytes;
        double rate_bps, theirs;
        unsigned files, streams;
    } of[] = {{&LARGE, 1e6, 0.81, 1, 1},  {&LARGE, 4e6, 0.67, 1, 1},  {&MIDDLE, 1e6, 0.29, 1, 0},
              {&MIDDLE, 4e6, 0.26, 1, 0}, {&MIDDLE, 1e6, 0.92, 2, 0}, {&MIDDLE, 4e6, 0.85, 2, 0},
              {&SMALL, 1e6, 1.09, 1, 1},  {&SMALL, 4e6, 1.1, 1, 1},   {&SMALL, 1e6, 0.76, 1, 0},
              {&SMALL, 4e6, 0.65, 1, 0},  {&SMALL, 1e6, 1.16, 2, 0},  {&SMALL, 4e6, 1.08, 2, 0}};

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct scene at = {.rate_bps = of[i].rate_bps,
                           .file_bytes = *of[i].file_bytes,
                           .short_per_min = of[i].streams ? 0 : SHORT_PER_MIN,
                           .receivers = of[i].files};
        const struct transfer now = by_tcp(&at, of[i].streams);
        at.tcp_is_of_2010 = true;
        at.delay_s = 0.0005;
        const struct transfer then = by_tcp(&at, of[i].streams);
        SAY("%u x TCP, %.1f MB, %.0f Mbit/s: loss %s, as in 2010 %s (M2C10: %.2f)\n", of[i].files,
            at.file_bytes / 1e6, at.rate_bps / 1e6, interval(&now.loss, 2), interval(&then.loss, 2),
            of[i].theirs);
        assert_within(mean(&then.loss) / of[i].theirs, 0.7, 1.15);
        assert_within(mean(&now.loss) / mean(&then.loss), 1.4, 3.5);
    }
}

/* M2C10, Figs. 5b, 5c: beside short connections. Two receivers suffice to beat TCP, and more need
 * no longer. */
static void test_many_receivers(void **state)
{
    (void)state;
    static const double *const files[] = {&SMALL, &MIDDLE, &LARGE};
    static const unsigned receivers[] = {1, 2, 5};
    static const unsigned counts[] = {2, 3, 2}; /* of them, by file, as M2C10 */

    for (unsigned f = 0; f < 3; f++)
        for (unsigned i = 0; i < 2; i++) {
            double one_s = 0;
            for (unsigned n = 0; n < counts[f]; n++) {
                const struct scene of = {.rate_bps = rates_bps[i],
                                         .file_bytes = *files[f],
                                         .short_per_min = SHORT_PER_MIN,
                                         .receivers = receivers[n],
                                         .kind = M2C_CC_M2C};
                const struct transfer m2c = transfer(&of), tcp = by_tcp(&of, 0);
                char what[40];
                snprintf(what, sizeof what, "m2c to %u", of.receivers);
                say(what, &of, &m2c);
                SAY("TCP to %u: the last %s s (m2c's %s), loss %s\n", of.receivers,
                    interval(&tcp.last_s, 1), interval(&m2c.last_s, 1), interval(&tcp.loss, 2));
                one_s = n ? one_s : mean(&m2c.time_s);
                assert_lean(&m2c);
                if (files[f] == &SMALL)
                    continue; /* M2C needs longer to find the rate */
                assert_within(mean(&m2c.time_s) / one_s, 0.9, 1.15);
                if (n)
                    assert_within(mean(&m2c.last_s) / mean(&tcp.last_s), 0, 0.75);
            }
        }
}

/* Five receivers behind the line need hardly longer than one, beside TCP too. WEBRC's do where the
 * file takes but 11 slots: the time until all have found the rate shows. */
static void test_five_receivers(void **state)
{
    (void)state;
    static const double most[][2] = {
        [M2C_CC_WEBRC] = {1.15, 1.3}, [M2C_CC_M2C] = {1.15, 1.15}}; /* by rate */
    static const char *const names[] = {"webrc", "m2c"};

    for (enum m2c_cc_kind kind = M2C_CC_WEBRC; kind <= M2C_CC_M2C; kind++)
        for (unsigned tcp = 0; tcp < 2; tcp++)
            for (unsigned i = 0; i < 2; i++) {
                struct scene of = {.rate_bps = rates_bps[i],
                                   .file_bytes = MIDDLE,
                                   .receivers = 1,
                                   .tcp = tcp,
                                   .kind = kind};
                const struct transfer one = transfer(&of);
                of.receivers = 5;
                const struct transfer five = transfer(&of);
                const double ratio = mean(&five.time_s) / mean(&one.time_s);
                SAY("%-6s %.0f Mbit/s, %s: 1 receiver %s s, 5 receivers %s s: %.2f (the last %s); "
                    "dup %.2f and %.2f\n",
                    names[kind], rates_bps[i] / 1e6, tcp ? "1 TCP" : "alone",
                    interval(&one.time_s, 1), interval(&five.time_s, 1), ratio,
                    interval(&five.last_s, 0), mean(&one.dup), mean(&five.dup));
                assert_within(ratio, 0, most[kind][i]);
                assert_lean(&one);
                assert_lean(&five);
            }
}

/* A receiver that begins at any buffer of the ring needs as long as one that begins with it. */
static void test_any_buffer(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct scene of = {
            .rate_bps = rates_bps[i], .file_bytes = MIDDLE, .receivers = 1, .kind = M2C_CC_M2C};
        const struct transfer first = transfer(&of);
        of.is_anywhere = true;
        const struct transfer any = transfer(&of);
        SAY("%.0f Mbit/s, begun with the ring: %s s; anywhere: %s s, %.1f to %.1f; dup %s\n",
            rates_bps[i] / 1e6, interval(&first.time_s, 1), interval(&any.time_s, 1),
            any.time_s.least, any.time_s.most, interval(&any.dup, 2));
        assert_within(any.time_s.least / mean(&first.time_s), 0.95, 1.05);
        assert_within(any.time_s.most / mean(&first.time_s), 0.95, 1.05);
        assert_lean(&any);
    }
}

/* The numbers of the ring are all symbols of the file, each once. */
static void test_ring(void **state)
{
    (void)state;
    struct file f;

    file_init(&f, 30.1e6, BN_SYMBOL_BYTES);
    assert_true(f.partition.large_blocks && f.partition.large_blocks < f.partition.blocks);
    const uint32_t most = fcast_block_n(&f.fti, f.partition.large);
    uint8_t *seen = calloc(f.partition.blocks, most);
    assert_non_null(seen);
    for (uint32_t i = 0; i < f.symbols; i++) {
        const struct fcast_symbol s = file_symbol(&f, i);
        assert_true(s.id < fcast_block_n(&f.fti, fcast_block_k(&f.partition, s.block)));
        assert_int_equal(seen[s.block * most + s.id]++, 0);
    }
    free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ring),
                                       cmocka_unit_test(test_tcp_of_2010),
                                       cmocka_unit_test(test_beside_a_stream)};
    const struct CMUnitTest of_means[] = {cmocka_unit_test(test_many_receivers),
                                          cmocka_unit_test(test_five_receivers),
                                          cmocka_unit_test(test_any_buffer)};

    seeds = seeds_asked();
    if (seeds)
        return cmocka_run_group_tests(tests, NULL, NULL) +
               cmocka_run_group_tests(of_means, NULL, NULL);
    seeds = 1;
    SAY("not run: receivers, late ones (DOWNPOUR_TEST_LONG=1: means of %d seeds; all: of %d)\n",
        LONG_SEEDS, MOST_SEEDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

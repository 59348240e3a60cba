/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "site/rtstats/bins.h"
#include "site/rtstats/ldmdlog.h"
#include "site/rtstats/minutes.h"
#include "site/rtstats/paths.h"

/* 2015-06-15T00:00:00Z */
#define DAY 1434326400L

static void put(struct bins *b, const char *origin, long creation, long creation_us,
                double latency_s, uint32_t size)
{
    struct pq_info info = {
        .creation = {DAY + creation, creation_us}, .feedtype = 0x00800000, .size = size};
    double at = (double)creation_us / 1e6 + latency_s;
    struct timeval inserted = {DAY + creation + (long)at,
                               (long)((at - (double)(long)at) * 1e6 + 0.5)};

    snprintf(info.origin, sizeof info.origin, "%s", origin);
    bins_add(b, &info, &inserted);
}

/* The columns and widths of the original's line; numbers calculated by hand. */
static void classic_line(void **state)
{
    struct bins b = {0};

    (void)state;
    put(&b, "up.example_v_mid.example", 30, 0, 0.5, 1000);
    put(&b, "up.example_v_mid.example", 61, 250000, 2.5, 3000); /* arrives 63.75 */
    put(&b, "UP.example_v_mid.example", 70, 0, 0.25,
        500); /* the case of a host's name does not matter */
    put(&b, "other.example", 70, 0, 1, 7);
    put(&b, "up.example_v_mid.example", 3600, 0, 1, 7); /* another hour */
    assert_int_equal(b.n, 3);
    /* mean of 0.5, 2.5, 0.25 = 1.083..; the greatest, 2.5, is printed as %.0f: 2 (to even), of
     * 00:01:01 */
    char want[BIN_LINE_MAX];
    snprintf(want, sizeof want,
             "20150615000110 20150615000110 %32s   NGRID %32s %12d %12d 0.25 %10s    2@0101 %20s\n",
             "here.example", "up.example_v_mid.example", 3, 4500, "1.08", "0.1.0");
    char line[BIN_LINE_MAX];
    assert_string_equal(bin_format(&b.list[0], "here.example", "0.1.0", line), want);
    assert_true(b.list[0].changed);
    b.list[0].changed = b.list[1].changed = false;
    bins_expire(&b, DAY + 70 + 7200);
    assert_int_equal(b.n, 3); /* 7200 s: still counted */
    bins_expire(&b, DAY + 72 + 7200);
    assert_int_equal(b.n, 1);
    assert_int_equal(b.list[0].hour, DAY + 3600); /* not yet reported */
    bins_free(&b);
}

static void hostile_origins(void **state)
{
    struct bins b = {0};

    (void)state;
    put(&b, "a b\nc", 0, 0, 1, 1);
    char line[BIN_LINE_MAX];
    assert_non_null(strstr(bin_format(&b.list[0], "h", "v", line), " a?b?c "));
    assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
    char origin[40];
    for (unsigned i = 0; i < BINS_MAX + 10; i++) {
        snprintf(origin, sizeof origin, "o%u", i);
        put(&b, origin, 0, 0, 1, 1);
    }
    assert_int_equal(b.n, BINS_MAX);
    assert_int_equal(b.dropped, 11);
    bins_free(&b);
}

static void add(struct minutes *m, time_t at, uint32_t feed, uint64_t bytes, double latency_s,
                bool by_fmtp)
{
    minutes_add(
        m, &(struct minute_product){
               .at = at, .feed = feed, .bytes = bytes, .latency_s = latency_s, .by_fmtp = by_fmtp});
}

static void minute_record(void **state)
{
    static struct minutes m;

    (void)state;
    assert_false(minutes_over(&m, DAY));
    /* bytes, latency: throughput in bit/s */
    add(&m, DAY + 120, 0x00800000, 1000, 0.5, true);   /* 16000 */
    add(&m, DAY + 121, 0x00800000, 4000, 2, true);     /* 16000 */
    add(&m, DAY + 122, 0x00800000, 100, 1, true);      /* 800: the smallest */
    add(&m, DAY + 123, 0x00800000, 10000, 0.25, true); /* 320000 */
    add(&m, DAY + 124, 0x00800000, 500000, 4, true);   /* 1000000: the slowest */
    add(&m, DAY + 125, 0x00800000, 77, -0.001, true);  /* clocks differ */
    add(&m, DAY + 179, 0x00800000, 9, 100, false);     /* delivered by the backstop */
    add(&m, DAY + 150, 0x40000000, 5, 1, false);
    assert_false(minutes_over(&m, DAY + 179));
    assert_true(minutes_over(&m, DAY + 180));
    assert_int_equal(m.nfeeds, 2);
    /* complete 515186 bytes, 7; received 515177, 6; latencies 0.5+2+1+0.25+4 = 7.75;
     * 80 % of 5 is the 4th: 320000 */
    char line[MINUTE_LINE_MAX];
    assert_string_equal(
        minutes_format(&m, 0, "here", MINUTE_V1, line),
        "20150615T000300Z,here,NGRID,515186,515177,7,6,7.750000,500000,4.000000,100,1.000000,"
        "320000.000,1\n");
    assert_string_equal(
        minutes_format(&m, 1, "here", MINUTE_V1, line),
        "20150615T000300Z,here,EXP,5,0,1,0,0.000000,0,0.000000,0,0.000000,0.000,0\n");
    minutes_next(&m);
    assert_false(minutes_over(&m, DAY + 1000000));
    add(&m, DAY + 61, 0x00800000, 1, 1, true);
    assert_string_equal(
        minutes_format(&m, 0, "h", MINUTE_V1, line),
        "20150615T000200Z,h,NGRID,1,1,1,1,1.000000,1,1.000000,1,1.000000,8.000,0\n");
    minutes_next(&m);
}

/* Five more fields: 2 of 3 by multicast alone; delays are sums of microseconds, one negative. */
static void second_version(void **state)
{
    static struct minutes m;
    static const struct minute_product products[] = {
        {.at = DAY + 1,
         .feed = 1,
         .bytes = 100,
         .latency_s = 1,
         .bop_us = 1500000,
         .by_fmtp = true},
        {.at = DAY + 2,
         .feed = 1,
         .bytes = 200,
         .latency_s = 1,
         .bop_us = -1600001,
         .by_fmtp = true},
        {.at = DAY + 3,
         .feed = 1,
         .bytes = 400,
         .latency_s = 1,
         .bop_us = 20,
         .blocks = 3,
         .by_fmtp = true},
        {.at = DAY + 4, .feed = 1, .bytes = 800, .latency_s = 1}};
    char line[MINUTE_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        minutes_add(&m, &products[i]);
    assert_string_equal(
        minutes_format(&m, 0, "h", MINUTE_V2, line),
        "20150615T000100Z,h,PPS,1500,700,4,3,3.000000,100,1.000000,100,1.000000,3200.000,0,"
        "2,300,-0.100001,3,-0.099981\n");
    minutes_next(&m);
}

/* Nearest rank: ceil(0.8 n) of 1..n. */
static void percentile(void **state)
{
    static const struct {
        unsigned n;
        const char *want;
    } t[] = {{1, ",1.000,0\n"}, {4, ",4.000,0\n"},  {5, ",4.000,0\n"},
             {6, ",5.000,0\n"}, {10, ",8.000,0\n"}, {101, ",81.000,0\n"}};
    static struct minutes m;

    (void)state;
    char line[MINUTE_LINE_MAX];
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        for (unsigned k = t[i].n; k > 0; k--)
            add(&m, DAY, 1, k, 8, true);
        minutes_format(&m, 0, "h", MINUTE_V1, line);
        if (!strstr(line, t[i].want))
            fail_msg("%u: %s", t[i].n, line);
        minutes_next(&m);
    }
    for (unsigned k = 0; k < MINUTE_SAMPLES_MAX + 5; k++)
        add(&m, DAY, 1, 1, 1, true);
    for (uint32_t k = 0; k < MINUTE_FEEDS_MAX + 5; k++)
        add(&m, DAY, k + 1, 1, 1, true);
    assert_int_equal(m.feeds[0].nthroughputs, MINUTE_SAMPLES_MAX);
    assert_int_equal(m.nfeeds, MINUTE_FEEDS_MAX);
    assert_int_equal(m.dropped, 5);
    minutes_next(&m);
}

/* Lines of docs/reference/contracts.md. */
static void log_lines(void **state)
{
    static const char head[] = "20150615T000003.250000Z down7[12]   intake.c:f:1   INFO ";
    static const char *const none[] = {
        "",
        "x",
        "20150615T000003.250000Z down6[12]   a.c:f:1   INFO Inserted:  5 20150615000001.000000 EXP 000  i",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Backlog:  5 20150615000001.000000 EXP 000  i",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Inserted:  5 2015061500000 EXP 000  i",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Inserted:  5 20150615000001.000000 NONSENSE 000  i",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Received: {delay: 1",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Received: {delay: x s, index: 0, retrans: 6, info: \"5 20150615000001.000000 EXP 000  i\"}",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Received: {delay: 1 s, index: 0, info: \"5 20150615000001.000000 EXP 000  i\"}",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Received: {delay: 1 s, index: 0, retrans: -6, info: \"5 20150615000001.000000 EXP 000  i\"}",
        "20150615T000003.250000Z down7[12]   a.c:f:1   INFO Received: {delay: 1 s, index: 0, retrans: 99999999999, info: \"5 20150615000001.000000 EXP 000  i\"}",
        "20150615T000003.250000Z down7[12]"};

    (void)state;
    char line[300];
    snprintf(line, sizeof line,
             "%sReceived: {delay: 0.001701 s, index: 0, retrans: 6, info: \"    120000 "
             "20150615000001.500000 NGRID 000  a , info: \\\"\"}",
             head);
    struct arrival a;
    assert_true(ldmdlog_arrival(line, &a));
    assert_true(a.by_fmtp);
    assert_int_equal(a.bytes, 120000);
    assert_int_equal(a.feed, 0x00800000);
    assert_int_equal(a.delay_us, 1701);
    assert_int_equal(a.retrans, 6);
    assert_int_equal(a.at.tv_sec, DAY + 3);
    assert_int_equal(a.at.tv_usec, 250000);
    assert_int_equal(a.creation.tv_sec, DAY + 1);
    assert_int_equal(a.creation.tv_usec, 500000);
    snprintf(line, sizeof line, "%sInserted:        217 20150615000000.000001 NEXRAD2|EXP 012  i",
             head);
    assert_true(ldmdlog_arrival(line, &a));
    assert_false(a.by_fmtp);
    assert_int_equal(a.bytes, 217);
    assert_int_equal(a.feed, 0x50000000);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (ldmdlog_arrival(none[i], &a))
            fail_msg("%s", none[i]);
}

static void tell(struct paths *p, long pid, const char *message)
{
    char line[400];

    snprintf(line, sizeof line, "20150615T000003.250000Z mldm[%ld]   a.c:f:1   NOTE %s\n", pid,
             message);
    paths_take(p, line);
}

/* Returns the path with that name as recorded at the end of the first minute. */
static const char *recorded(const struct paths *p, const char *name, char line[PATH_LINE_MAX])
{
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].ready && strcmp(p->list[i].name, name) == 0)
            return path_format(&p->list[i], DAY + 60, "pub", line);
    return "none";
}

/* Lines of a publisher's ldmd (mldm.c, pathservice_answers.c). */
static void publisher_paths(void **state)
{
    static struct paths p;
    char line[PATH_LINE_MAX];

    (void)state;
    paths_take(&p, "");
    tell(&p, 7, "Path service: path ready: path=NGRID, root=a:1:2, rate_bps=1, ms=1.1, leaves=0");
    assert_int_equal(p.n, 0); /* the feed is not yet known */
    tell(&p, 7, "Path service: unix:/x.sock: path=NGRID, rate_bps=48000000");
    tell(&p, 7, "Starting up: feed=NGRID|EXP, fmtpSrvr=10.10.1.1:45291, ttl=16");
    assert_string_equal(recorded(&p, "p-NGRID", line), "none");
    tell(&p, 7,
         "Path service: path ready: path=p-NGRID, root=a:1:2, rate_bps=48000000, ms=1.1, leaves=0");
    assert_string_equal(recorded(&p, "p-NGRID", line),
                        "20150615T000100Z,pub,EXP|NGRID,p-NGRID,48000000,0\n");
    tell(&p, 7,
         "Path service: leaf added: path=p-NGRID, endpoint=b:1:2, ms=1.2, users=1, leaves=2");
    tell(&p, 8,
         "Path service: leaf added: path=p-NGRID, endpoint=b:1:2, ms=1.2, users=1, leaves=5");
    tell(&p, 7, "Path service: leaf down: path=p-NGRID, endpoint=b:1:2");
    tell(&p, 7, "Path service: leaf added: path=p-NGRID, leaves=x");
    assert_string_equal(recorded(&p, "p-NGRID", line),
                        "20150615T000100Z,pub,EXP|NGRID,p-NGRID,48000000,2\n");
    tell(&p, 7, "Path service: leaf removed: path=p-NGRID, endpoint=b:1:2, ms=1.0, leaves=1");
    assert_string_equal(recorded(&p, "p-NGRID", line),
                        "20150615T000100Z,pub,EXP|NGRID,p-NGRID,48000000,1\n");
    /* Its process died, and the next one found the existing path. */
    tell(&p, 9, "Starting up: feed=NGRID, fmtpSrvr=10.10.1.1:45291");
    tell(&p, 9, "Path service: path ready: path=p-NGRID, root=a:1:2, rate_bps=5, ms=1, leaves=3");
    assert_string_equal(recorded(&p, "p-NGRID", line), "20150615T000100Z,pub,NGRID,p-NGRID,5,3\n");
    tell(&p, 9, "Path service: path ready: path=p-NGRID, root=a:1:2, rate_bps=-6, ms=1, leaves=3");
    tell(&p, 9, "Path service: path ready: path=, root=a:1:2, rate_bps=6, ms=1, leaves=3");
    assert_string_equal(recorded(&p, "p-NGRID", line), "20150615T000100Z,pub,NGRID,p-NGRID,5,3\n");
    tell(&p, 9, "Path service: path deleted: path=p-NGRID, ms=1.2");
    assert_string_equal(recorded(&p, "p-NGRID", line), "none");
    char message[100];
    for (unsigned i = 0; i < PATHS_MAX + 5; i++) { /* bounded, whatever a log says */
        tell(&p, 100 + i, "Starting up: feed=NGRID, fmtpSrvr=x");
        snprintf(message, sizeof message,
                 "Path service: path ready: path=n%u, rate_bps=1, leaves=1", i);
        tell(&p, 100 + i, message);
    }
    assert_int_equal(p.n, PATHS_MAX);
}

static void write_file(const char *path, const char *mode, const char *text)
{
    FILE *f = fopen(path, mode);

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void following(void **state)
{
    char path[] = "/tmp/test-rtstats-XXXXXX";

    (void)state;
    close(mkstemp(path));
    char other[40];
    snprintf(other, sizeof other, "%s.1", path);
    write_file(path, "w", "before\n");
    struct ldmdlog l;
    assert_int_equal(ldmdlog_open(&l, path), 0);
    assert_string_equal(ldmdlog_line(&l), "before\n");
    assert_null(ldmdlog_line(&l));
    write_file(path, "a", "one\ntw");
    assert_string_equal(ldmdlog_line(&l), "one\n");
    assert_null(ldmdlog_line(&l));
    write_file(path, "a", "o\n");
    assert_string_equal(ldmdlog_line(&l), "two\n");
    rename(path, other);
    write_file(other, "a", "late\n");
    assert_string_equal(ldmdlog_line(&l), "late\n");
    assert_null(ldmdlog_line(&l));
    write_file(path, "w", "three\n");
    assert_string_equal(ldmdlog_line(&l), "three\n");
    write_file(path, "w", "x\n"); /* truncated */
    assert_string_equal(ldmdlog_line(&l), "x\n");
    assert_null(ldmdlog_line(&l));
    ldmdlog_close(&l);
    unlink(path);
    unlink(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classic_line),   cmocka_unit_test(hostile_origins),
        cmocka_unit_test(minute_record),  cmocka_unit_test(percentile),
        cmocka_unit_test(second_version), cmocka_unit_test(log_lines),
        cmocka_unit_test(following),      cmocka_unit_test(publisher_paths)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

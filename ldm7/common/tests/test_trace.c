/* SPDX-License-Identifier: Apache-2.0
 *
 * The times were checked against date -u -d ... +%s.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/splitmix.h"
#include "common/trace.h"

static char *errors_of(const char *text, size_t bytes, struct trace *t, long *bad)
{
    char *out = NULL;
    size_t n;
    FILE *f = open_memstream(&out, &n);
    *bad = trace_parse(text, bytes, "t.txt", t, f);
    fclose(f);
    return out;
}

static void test_good(void **state)
{
    (void)state;
    static const char text[] = "# size time\n"
                               "90654 20150615000000.009\n"
                               "\n"
                               "  1\t20150615000000.009  \r\n"
                               "4294967295 20150615010000.477"; /* no newline at the end */
    struct trace t;
    long bad;
    char *e = errors_of(text, sizeof text - 1, &t, &bad);
    assert_string_equal(e, "");
    assert_int_equal(bad, 0);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.entries[0].size_bytes, 90654);
    assert_int_equal(t.entries[0].time_us, INT64_C(1434326400009000));
    assert_int_equal(t.entries[0].line, 2);
    assert_int_equal(t.entries[1].size_bytes, 1);
    assert_int_equal(t.entries[1].line, 4);
    assert_int_equal(t.entries[2].size_bytes, 4294967295u);
    assert_int_equal(t.entries[2].time_us - t.entries[0].time_us, INT64_C(3600468000));
    assert_int_equal(t.total_bytes, INT64_C(90654) + 1 + 4294967295);
    free(e);
    /* The third product is at first time + 3600.468 s: not before the end. */
    trace_cut(&t, 3600468);
    assert_int_equal(t.count, 2);
    assert_int_equal(t.total_bytes, 90655);
    trace_cut(&t, 1);
    assert_int_equal(t.count, 2);
    trace_free(&t);
    assert_int_equal(t.count, 0);
}

static void test_calendar(void **state)
{
    (void)state;
    static const struct {
        const char *time;
        int64_t s;
    } good[] = {{"19700101000000.000", 0},          {"20000229235959.000", 951868799},
                {"20160229000000.000", 1456704000}, {"20161231235959.000", 1483228799},
                {"20261120233918.000", 1795217958}, {"21000301000000.000", INT64_C(4107542400)}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[64];
        snprintf(text, sizeof text, "5 %s\n", good[i].time);
        struct trace t;
        long bad;
        free(errors_of(text, strlen(text), &t, &bad));
        assert_int_equal(bad, 0);
        assert_int_equal(t.entries[0].time_us, good[i].s * 1000000);
        trace_free(&t);
    }
    static const char *const wrong[] = {
        "20150229000000.000",   "21000229000000.000",    "20151301000000.000",
        "20150001000000.000",   "20150132000000.000",    "20150100000000.000",
        "20150101240000.000",   "20150101006000.000",    "20150101000060.000",
        "19691231235959.999",   "20150615000000",        "20150615000000.0",
        "20150615000000,009",   "2015061500000a.009",    "20150615000000.0099",
        "20150615000000.00900", "20150615000000.00900a", "20150615000000.0090000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64];
        snprintf(text, sizeof text, "5 %s\n", wrong[i]);
        struct trace t;
        long bad;
        free(errors_of(text, strlen(text), &t, &bad));
        assert_int_equal(bad, 1);
        assert_null(t.entries);
    }
}

static void test_microseconds(void **state)
{
    (void)state;
    static const char text[] = "1 20150615000000.009\n"
                               "1 20150615000000.009000\n"
                               "1 20150615000000.010250\n"
                               "1 20150615000000.010\n";
    struct trace t;
    long bad;
    char *e = errors_of(text, sizeof text - 1, &t, &bad);
    assert_int_equal(bad, 1);
    assert_string_equal(
        e,
        "t.txt:4: found \"1 20150615000000.010\"; valid: a time not before that of the product above, 20150615000000.010250\n");
    free(e);
    e = errors_of(text, 69, &t, &bad); /* three lines */
    assert_int_equal(bad, 0);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.entries[1].time_us, t.entries[0].time_us);
    assert_int_equal(t.entries[2].time_us - t.entries[0].time_us, 1250);
    trace_cut(&t, 1);
    assert_int_equal(t.count, 2);
    trace_free(&t);
    free(e);
}

static void test_all_errors_at_once(void **state)
{
    (void)state;
    static const char text[] = "100 20150615000000.009\n"
                               "abc 20150615000000.010\n"
                               "0 20150615000000.011\n"
                               "4294967296 20150615000000.011\n"
                               "7\n"
                               "7 20150615000000.012 x\n"
                               "7 20150615000000.008\n"
                               "7 20150615\x01\xff\"\n";
    static const char form[] =
        "; valid: SIZE YYYYMMDDhhmmss.mmm, size 1 to 4294967295 bytes, a time that exists\n";
    static const char *const found[] = {
        "2: found \"abc 20150615000000.010\"",        "3: found \"0 20150615000000.011\"",
        "4: found \"4294967296 20150615000000.011\"", "5: found \"7\"",
        "6: found \"7 20150615000000.012 x\"",        NULL,
        "8: found \"7 20150615\\x01\\xff\\x22\""};
    char want[2000] = "";
    for (size_t i = 0; i < 7; i++) {
        strcat(want, "t.txt:");
        strcat(
            want,
            found[i]
                ? found[i]
                : "7: found \"7 20150615000000.008\"; valid: a time not before that of the product above, 20150615000000.009\n");
        strcat(want, found[i] ? form : "");
    }
    struct trace t;
    long bad;
    char *e = errors_of(text, sizeof text - 1, &t, &bad);
    assert_int_equal(bad, 7);
    assert_string_equal(e, want);
    assert_null(t.entries);
    free(e);
}

static void test_twenty_errors_are_shown(void **state)
{
    (void)state;
    char text[31 * 2 + 1] = "";
    for (int i = 0; i < 31; i++)
        strcat(text, "x\n");
    struct trace t;
    long bad;
    char *e = errors_of(text, strlen(text), &t, &bad);
    assert_int_equal(bad, 31);
    size_t lines = 0;
    for (char *c = e; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 21);
    assert_non_null(strstr(e, "t.txt:20: "));
    assert_null(strstr(e, "t.txt:21: "));
    assert_non_null(strstr(e, "t.txt: 31 errors in all, the first 20 are shown\n"));
    free(e);
}

static void test_empty(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n\n", "# nothing\n"};
    for (size_t i = 0; i < 3; i++) {
        struct trace t;
        long bad;
        char *e = errors_of(texts[i], strlen(texts[i]), &t, &bad);
        assert_int_equal(bad, 1);
        assert_string_equal(
            e, "t.txt: found no product; valid: at least one line SIZE YYYYMMDDhhmmss.mmm\n");
        free(e);
    }
}

/* SplitMix64's published test vector: the first outputs for the state 1234567. */
static void test_noise_is_splitmix64(void **state)
{
    (void)state;
    static const uint64_t want[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                    UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                    UINT64_C(16408922859458223821)};
    uint8_t bytes[40];
    splitmix_fill(1234567, 0, bytes, sizeof bytes);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(bytes[i], want[i / 8] >> (i % 8 * 8) & 0xff);
    /* in pieces, and with an end that is not a multiple of 8 */
    uint8_t piece[40];
    splitmix_fill(1234567, 0, piece, 16);
    splitmix_fill(1234567, 16, piece + 16, 21);
    assert_memory_equal(piece, bytes, 37);
    assert_int_not_equal(splitmix_key(1, 0), splitmix_key(1, 1));
    assert_int_not_equal(splitmix_key(1, 0), splitmix_key(2, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_microseconds),
        cmocka_unit_test(test_all_errors_at_once),
        cmocka_unit_test(test_twenty_errors_are_shown),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_noise_is_splitmix64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "site/pqact/template.h"

static char err[300];

/* 2015-06-15T13:45:09Z: 16601 days after 1970-01-01, day 166 of the year, a Monday. */
#define CREATED (16601L * 86400 + 13 * 3600 + 45 * 60 + 9)

static const char *expanded(const char *text, const char *ere, const char *ident, time_t created)
{
    static char out[600];
    struct pq_info info = {.creation = {created, 250000}, .seqno = 7};
    struct ere_span spans[20] = {0};

    struct ere *re;
    assert_int_equal(ere_compile_groups(&re, ere, err, sizeof err), 0);
    assert_int_equal(ere_match_groups(re, ident, spans, 20), ERE_YES);
    struct template *t = template_compile(text, ere_groups(re), err, sizeof err);
    if (!t)
        fail_msg("%s: %s", text, err);
    long n = template_expand(t, &info, spans, 20, out, sizeof out, err, sizeof err);
    template_free(t);
    ere_free(re);
    if (n < 0)
        return NULL;
    assert_int_equal(n, strlen(out));
    return out;
}

static void substitutions(void **state)
{
    static const struct {
        const char *text, *ere, *ident, *want;
    } t[] = {
        {"plain", "x", "x", "plain"},
        {"saus_\\1\\2.wmo", "^SAUS.. .... (..)(..)", "SAUS44 KDEN 1213", "saus_1213.wmo"},
        {"\\1\\12\\(1)2", "(a)", "a", "aa2a2"}, /* one digit without parentheses */
        {"\\(12)\\(10)", "(1)(2)(3)(4)(5)(6)(7)(8)(9)(a)(b)(c)", "123456789abc", "ca"},
        {"<\\1>", "(a)?b", "b", "<>"},
        {"\\0", "b+", "abbc", "bb"},
        {"%Y%m%d/%H%M%S %j %a %%", "x", "x", "20150615/134509 166 Mon %"},
        {"%s %-d %e", "x", "x", "1434375909 15 15"},
        {"(seq).(seqx)", "x", "x", "7.(seqx)"},
        {"\\1", "(.*)", "%Y(seq)\\1 `id` $HOME", "%Y(seq)\\1 `id` $HOME"}, /* not expanded again */
        {"a\\b\\", "x", "x", "a\\b\\"},
        {"(\\1)", "(x)", "x", "(x)"},
        {"", "x", "x", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++)
        assert_string_equal(expanded(t[i].text, t[i].ere, t[i].ident, CREATED), t[i].want);
}

/* By calendar: the latest date with that day less than 36 hours after the creation time. */
static void dates(void **state)
{
    enum { DAY = 86400 };
    static const struct {
        long created;
        const char *day, *want;
    } t[] = {
        {16601L * DAY, "15", "2015-06-15 15 jun 166"},
        {16601L * DAY, "16", "2015-06-16 15 jun 167"}, /* 24 hours ahead */
        {16601L * DAY, "17", "2015-05-17 15 may 137"}, /* 48 hours would be too far */
        {16601L * DAY, "31", "2015-05-31 15 may 151"},
        {16601L * DAY, "1", "2015-06-01 15 jun 152"},
        {16601L * DAY, "00", "2015-06-15 15 jun 166"},
        {16861L * DAY, "29", "2016-02-29 16 feb 060"}, /* 1 March 2016 */
        {16861L * DAY, "30", "2016-01-30 16 jan 030"},
        {16861L * DAY, "02", "2016-03-02 16 mar 062"},
        {16435L * DAY + 18 * 3600, "01", "2015-01-01 15 jan 001"}, /* 31 December 2014 */
        {16435L * DAY + 18 * 3600, "02", "2014-12-02 14 dec 336"},
        {6728L * DAY, "01", "1988-06-01 88 jun 153"}, /* 3 June 1988, a leap year */
        {6755L * DAY, "01", "1988-07-01 88 jul 183"}, /* 30 June 1988 */
    };

    (void)state;
    char text[300];
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        const char *got = expanded("(\\1:yyyy)-(\\1:mm)-(\\1:dd) (\\1:yy) (\\1:mmm) (\\1:ddd)",
                                   "^(.*)$", t[i].day, t[i].created);
        snprintf(text, sizeof text, "%s", got ? got : err);
        if (strcmp(text, t[i].want) != 0)
            fail_msg("day %s: \"%s\", not \"%s\"", t[i].day, text, t[i].want);
    }
    assert_string_equal(expanded("(\\1:hh)", "(.*)", "15", CREATED), "13");
    assert_null(expanded("(\\1:yyyy)", "(.*)", "32", CREATED));
    assert_null(expanded("(\\1:yyyy)", "(.*)", "x", CREATED));
    assert_null(expanded("(\\1:yyyy)", "(.*)", "115", CREATED));
    assert_null(expanded("(\\1:yyyy)", "(.*)", "", CREATED));
    assert_string_equal(err, "\"\" is not a day of a month");
    assert_null(expanded("%Y", "x", "x", INT64_MAX));
}

static void refused(void **state)
{
    static const struct {
        const char *text, *why;
    } t[] = {
        {"\\2", "\\2, but the expression has 1 group"},
        {"a(\\3:yy)", "\\3, but"},
        {"\\(11)", "\\11, but"},
        {"(\\1:year)", "\"year)\" is not part of a date"},
        {"%Q", "\"%Q\" is not a conversion"},
        {"100%", "\"%\" is not a conversion"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        assert_null(template_compile(t[i].text, 1, err, sizeof err));
        if (!strstr(err, t[i].why))
            fail_msg("%s: %s", t[i].text, err);
    }
}

static void room(void **state)
{
    struct pq_info info = {.creation = {CREATED, 0}};
    struct template *t = template_compile("ab%Y", 0, err, sizeof err);
    struct ere_span none[1] = {{0}};

    (void)state;
    char out[7];
    assert_int_equal(template_expand(t, &info, none, 1, out, 7, err, sizeof err), 6);
    assert_int_equal(template_expand(t, &info, none, 1, out, 6, err, sizeof err), -1);
    assert_string_equal(err, "longer than 5 bytes");
    assert_false(template_has_groups(t));
    template_free(t);
    t = template_compile("\\1x", 1, err, sizeof err);
    assert_true(template_has_groups(t) && template_begins_with_group(t));
    template_free(t);
    t = template_compile("x(\\1:dd)", 1, err, sizeof err);
    assert_true(template_has_groups(t) && !template_begins_with_group(t));
    template_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(substitutions), cmocka_unit_test(dates),
                                       cmocka_unit_test(refused), cmocka_unit_test(room)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

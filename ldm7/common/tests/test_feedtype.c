/* SPDX-License-Identifier: Apache-2.0
 *
 * Expected values: the table of LDM feed types, combined by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/feedtype.h"

static uint32_t parsed(const char *text)
{
    uint32_t f = 12345;
    char err[300] = "";
    if (!feedtype_parse(text, &f, err, sizeof err))
        fail_msg("%s", err);
    return f;
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(parsed("NGRID"), 0x800000);
    assert_int_equal(parsed("grid"), 0x800000);
    assert_int_equal(parsed("FT23"), 0x800000);
    assert_int_equal(parsed("EXP"), 0x40000000);
    assert_int_equal(parsed("Any"), 0xFFFFFFFF);
    assert_int_equal(parsed("NONE"), 0);
    assert_int_equal(parsed("UNIDATA"), 0x2F);
    assert_int_equal(parsed("NPORT"), 0x07C00000);
    assert_int_equal(parsed("FSL"), 0x7C0);
    assert_int_equal(parsed("NMC"), 0x3800);
    assert_int_equal(parsed("604"), 0x20000);
    assert_int_equal(parsed("CRAFT"), 0x10000000);
}

/* LDM-6.15.0, every line: a value and its names. */
static void test_whole_table(void **state)
{
    static const struct {
        uint32_t bits;
        const char *names;
    } table[] = {
        {0x0, "NONE"},
        {0x1, "PPS FT0"},
        {0x2, "DDS DOMESTIC FT1"},
        {0x3, "DDPLUS"},
        {0x4, "HDS HRS FT2"},
        {0x8, "IDS INTNL FT3"},
        {0xf, "WMO"},
        {0x10, "SPARE NPS FT4"},
        {0x20, "UNIWISC MCIDAS FT5"},
        {0x2f, "UNIDATA"},
        {0x40, "PCWS ACARS FT6"},
        {0x80, "FSL2 PROFILER FT7"},
        {0x100, "FSL3 FT8"},
        {0x200, "FSL4 FT9"},
        {0x400, "FSL5 FT10"},
        {0x7c0, "FSL PROFS"},
        {0x800, "GPSSRC AFOS NMC1 FT11"},
        {0x1000, "CONDUIT NMC2 NCEPH FT12"},
        {0x2000, "FNEXRAD NMC3 FT13"},
        {0x3800, "NMC"},
        {0x4000, "LIGHTNING NLDN FT14"},
        {0x8000, "WSI FT15"},
        {0x10000, "SATELLITE DIFAX FT16"},
        {0x20000, "FAA604 FAA 604 FT17"},
        {0x40000, "GPS FT18"},
        {0x80000, "FNMOC NOGAPS SEISMIC FT19"},
        {0x100000, "GEM CMC FT20"},
        {0x200000, "NIMAGE IMAGE FT21"},
        {0x400000, "NTEXT TEXT FT22"},
        {0x800000, "NGRID GRID FT23"},
        {0x1000000, "NPOINT POINT NBUFR BUFR FT24"},
        {0x2000000, "NGRAPH GRAPH FT25"},
        {0x4000000, "NOTHER OTHER FT26"},
        {0x7c00000, "NPORT"},
        {0x8000000, "NEXRAD3 NNEXRAD NEXRAD FT27"},
        {0x10000000, "NEXRAD2 NEXRD2 CRAFT FT28"},
        {0x20000000, "NXRDSRC FT29"},
        {0x40000000, "EXP FT30"},
        {0xffffffff, "ANY"},
    };

    (void)state;
    char names[64], *rest, err[300];
    uint32_t f;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        snprintf(names, sizeof names, "%s", table[i].names);
        for (char *n = strtok_r(names, " ", &rest); n; n = strtok_r(NULL, " ", &rest))
            if (!feedtype_parse(n, &f, err, sizeof err) || f != table[i].bits)
                fail_msg("%s is not 0x%x", n, table[i].bits);
    }
}

static void test_expressions(void **state)
{
    (void)state;
    assert_int_equal(parsed("PPS|DDS"), 3);
    assert_int_equal(parsed(" IDS +  HDS "), 0xC);
    assert_int_equal(parsed("ANY - EXP"), 0xBFFFFFFF);
    assert_int_equal(parsed("~EXP"), 0xBFFFFFFF);
    assert_int_equal(parsed("~~EXP"), 0x40000000);
    assert_int_equal(parsed("~(WMO|EXP)"), 0xBFFFFFF0);
    assert_int_equal(parsed("WMO-PPS|PPS"), 0xF); /* from left to right */
    assert_int_equal(parsed("WMO-(PPS|DDS)"), 0xC);
}

static void test_errors_quote_the_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *quoted;
    } bad[] = {{"NGIRD", "unknown name \"NGIRD\""}, {"", "a name is missing"},
               {"NGRID|", "a name is missing"},     {"EXP & PPS", "unexpected \"& PPS\""},
               {"0x40", "unknown name \"0x40\""},   {"(EXP", "\")\" missing"},
               {"EXP)", "unexpected \")\""},        {"EXP PPS", "unexpected \"PPS\""},
               {"$", "unexpected \"$\""},           {"12", "unknown name \"12\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t f = 7;
        char err[300] = "";
        assert_false(feedtype_parse(bad[i].text, &f, err, sizeof err));
        assert_int_equal(f, 7);
        if (!strstr(err, bad[i].quoted) || !strstr(err, "valid:"))
            fail_msg("\"%s\" gives: %s", bad[i].text, err);
    }
    char deep[2001];
    memset(deep, '(', 2000);
    deep[2000] = 0;
    char err[300];
    uint32_t f;
    assert_false(feedtype_parse(deep, &f, err, sizeof err));
}

static void test_format(void **state)
{
    (void)state;
    char t[FEEDTYPE_TEXT_MAX];
    assert_string_equal(feedtype_format(0, t, sizeof t), "NONE");
    assert_string_equal(feedtype_format(0x800000, t, sizeof t), "NGRID");
    assert_string_equal(feedtype_format(0xFFFFFFFF, t, sizeof t), "ANY");
    assert_string_equal(feedtype_format(0x40000000, t, sizeof t), "EXP");
    assert_string_equal(feedtype_format(0x3F, t, sizeof t), "UNIDATA|SPARE");
    assert_string_equal(feedtype_format(0x80000001, t, sizeof t), "PPS|0x80000000");
    feedtype_format(~0x40000000u, t, sizeof t);
    assert_int_equal(strncmp(t, "NXRDSRC|NEXRAD2|NEXRAD3|NPORT|", 30), 0);
    assert_string_equal(t + strlen(t) - 17, "|SPARE|0x80000000");
    /* The longest text: no two bits that make a set. It must fit, and be parsed to the same
     * value. */
    uint32_t sparse = 0xFFFFFFFFu & ~(0x40000000u | 0x400000u | 0x40u | 0x800u | 0x1u | 0x8u);
    feedtype_format(sparse & 0x7FFFFFFF, t, sizeof t);
    assert_true(strlen(t) < sizeof t - 12);
    char err[300];
    uint32_t f;
    assert_true(feedtype_parse(t, &f, err, sizeof err));
    assert_int_equal(f, sparse & 0x7FFFFFFF);
    char small[4];
    feedtype_format(sparse, small, sizeof small); /* truncated, no overrun */
    assert_true(strlen(small) < 4);
}

static void test_every_bit_comes_back(void **state)
{
    (void)state;
    for (int b = 0; b < 31; b++) {
        char t[FEEDTYPE_TEXT_MAX];
        assert_int_equal(parsed(feedtype_format(1u << b, t, sizeof t)), 1u << b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),       cmocka_unit_test(test_whole_table),
        cmocka_unit_test(test_expressions), cmocka_unit_test(test_errors_quote_the_text),
        cmocka_unit_test(test_format),      cmocka_unit_test(test_every_bit_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/ere.h"
#include "common/log.h"

static char err[512];

static struct ere *compiled(const char *pattern)
{
    struct ere *re;

    if (ere_compile(&re, pattern, false, err, sizeof err) < 0)
        fail_msg("%s", err);
    return re;
}

/* Expected values: POSIX.1-2017 XBD 9.4. */
static void meaning(void **state)
{
    static const struct {
        const char *pattern, *text;
        enum ere_result want;
    } t[] = {
        {"", "", ERE_YES},
        {"b", "abc", ERE_YES},
        {"^b", "abc", ERE_NO},
        {"b$", "ab", ERE_YES},
        {"b$", "ab\n", ERE_NO}, /* $ is the end of the text, not of a line */
        {"a.b", "a\nb", ERE_YES},
        {"a[^x]b", "a\nb", ERE_YES},
        {"^a", "b\na", ERE_NO},
        {"A", "a", ERE_NO},
        {"^a{2,3}$", "aaaa", ERE_NO},
        {"^a{2,3}$", "aaa", ERE_YES},
        {"^a{2,}$", "aaaaa", ERE_YES},
        {"^(a|ab)(c|bcd)$", "abcd", ERE_YES},
        {"^(a|ab)c$", "abc", ERE_YES},
        {"^[[:digit:]]+$", "0123456789", ERE_YES},
        {"^[\\d]$", "d", ERE_YES}, /* in brackets a backslash has no special meaning */
        {"^[\\d]$", "\\", ERE_YES},
        {"^[\\d]$", "1", ERE_NO},
        {"^[]a]$", "]", ERE_YES},
        {"^[^]a]$", "]", ERE_NO},
        {"[(?*{]", "{", ERE_YES},
        {"^\\(\\?\\{\\\\$", "(?{\\", ERE_YES},
        {"\\.", "a", ERE_NO},
        {".*x", "ax", ERE_YES},
        {".*.*", "", ERE_YES},
        {".*|a", "b", ERE_YES},
        {"#a b", "#a b", ERE_YES},   /* no comments, no ignored blanks */
        {"^.$", "\xc3\xa9", ERE_NO}, /* bytes */
        {"^.$", "\xc3", ERE_YES},
        {"^(10\\.1\\.0\\.[0-9]{1,3}|.*\\.example)$", "10.1.0.22", ERE_YES},
        {"^(a{512}|b{3}){2}$", "bbbbbb", ERE_YES},
        {"^[0-9]{8}T[0-9]{6}_[0-9]{4}_[0-9]{10}$", "20260509T120000_0001_0123456789", ERE_YES},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct ere *re = compiled(t[i].pattern);

        if (ere_match(re, t[i].text) != t[i].want)
            fail_msg("\"%s\" on \"%s\"", t[i].pattern, t[i].text);
        assert_int_equal(ere_limit_hits(re), 0);
        ere_free(re);
    }
}

/* POSIX.1-2017 XBD 9.4.3: groups are numbered by their opening parenthesis. */
static void groups(void **state)
{
    static const struct {
        const char *pattern, *text, *want[4];
    } t[] = {
        {"^(SA)US[0-9]{2} (....)", "SAUS44 KDEN 121251", {"SAUS44 KDEN", "SA", "KDEN"}},
        {"(a(b))|(c)", "xcx", {"c", NULL, NULL, "c"}},
        {".*/(.)", "a/1/2/3", {"a/1/2/3", "3"}}, /* the longest possible .* */
        {"^(x*)y", "y", {"y", ""}},
        {"(a)?b", "b", {"b", NULL}},
        {"\\((.)\\)", "(z)", {"(z)", "z"}},
    };

    (void)state;
    struct ere_span spans[4];
    struct ere *re;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        memset(spans, 0, sizeof spans);
        assert_int_equal(ere_compile_groups(&re, t[i].pattern, err, sizeof err), 0);
        assert_int_equal(ere_match_groups(re, t[i].text, spans, 4), ERE_YES);
        for (unsigned g = 0; g < 4; g++) {
            const char *want = t[i].want[g];

            if (!want)
                assert_null(spans[g].at);
            else if (!spans[g].at || spans[g].bytes != strlen(want) ||
                     memcmp(spans[g].at, want, spans[g].bytes) != 0)
                fail_msg("\"%s\" on \"%s\": group %u", t[i].pattern, t[i].text, g);
        }
        ere_free(re);
    }
    assert_int_equal(ere_compile_groups(&re, "((a)(b))c", err, sizeof err), 0);
    assert_int_equal(ere_groups(re), 3);
    assert_int_equal(ere_match_groups(re, "abd", spans, 4), ERE_NO);
    assert_int_equal(ere_match_groups(re, "abc", spans, 2), ERE_YES);
    ere_free(re);
    re = compiled("((a)(b))c");
    assert_int_equal(ere_groups(re), 0);
    ere_free(re);
}

static void case_ignored(void **state)
{
    (void)state;
    struct ere *re;
    assert_int_equal(ere_compile(&re, "^Host\\.[A-Z]$", true, err, sizeof err), 0);
    assert_int_equal(ere_match(re, "hOST.q"), ERE_YES);
    ere_free(re);
}

static void refused(void **state)
{
    static const char *const bad[] = {
        "(",
        "[",
        "[^]",
        "[[:digit:]",
        "[[:nonsense:]]",
        "[[.a.]]",
        "*",
        "a|*",
        "a\\",
        "(a)\\1",
        "(a*)*\\1b",
        "\\d",
        "\\Qa",
        "\\<a",
        "(?=a)",
        "(?R)",
        "(?C1)a",
        "(*FAIL)",
        "(*LIMIT_MATCH=9)",
        "a++",
        "a{2}+",
        "a**",
        "a{1025}",
        "a{1,5000}",
        "a{99999999999999999999}",
        "a{",
        "a{,3}",
        "a{x}",
        "a{3,2}",
        "a{1,2,3}",
        "(a{999}){999}",
        "(b|(a{33}b)|c){33}",
        "(a{513}b{3}){2}",
        /* 10^10 characters when expanded */
        "((((a{1,100}){1,100}){1,100}){1,100}){1,100}",
        "(((a{1,1000}){1,1000}){1,1000})",
    };

    (void)state;
    struct ere *re;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *err = '\0';
        if (ere_compile(&re, bad[i], false, err, sizeof err) == 0)
            fail_msg("\"%s\" was accepted", bad[i]);
        assert_null(re);
        assert_non_null(strstr(err, bad[i]));
    }
    char longest[ERE_BYTES_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[ERE_BYTES_MAX + 1] = '\0';
    assert_int_equal(ere_compile(&re, longest, false, err, sizeof err), -1);
    longest[ERE_BYTES_MAX] = '\0';
    ere_free(compiled(longest));
}

static size_t lines_with(const char *path, const char *word)
{
    FILE *f = fopen(path, "r");
    size_t n = 0;

    assert_non_null(f);
    char line[LOG_LINE_MAX];
    while (fgets(line, sizeof line, f))
        n += strstr(line, word) ? 1 : 0;
    fclose(f);
    return n;
}

/* Texts without the last character: every way of dividing the x is tried, exponentially many. The
 * patterns end with a class, since PCRE2 rejects a text without searching if a single required byte
 * is missing. */
static void exponential(void **state)
{
    static const char *const evil[] = {"(x+x+)+[yz]",
                                       "(x*)*[yz]",
                                       "(x|x)*[yz]",
                                       "(x|xx)+[yz]",
                                       "((x{1,9}){1,9}){1,9}[yz]",
                                       "^(([a-z])+.)+[A-Z]([a-z])+$"};
    char path[] = "/tmp/test_ere.XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    char text[ERE_BYTES_MAX + 1];
    memset(text, 'x', sizeof text);
    text[ERE_BYTES_MAX] = '\0';
    assert_int_equal(log_set_destination(path), 0);
    for (size_t i = 0; i < sizeof evil / sizeof evil[0]; i++) {
        struct ere *re = compiled(evil[i]);

        for (unsigned n = 1; n <= 3; n++) {
            if (ere_match(re, text) != ERE_LIMIT)
                fail_msg("\"%s\" did not reach the limit", evil[i]);
            assert_int_equal(ere_limit_hits(re), n);
        }
        assert_int_equal(ere_match(re, "none"), ERE_NO); /* It can still be used. */
        ere_free(re);
    }
    log_set_destination("-");
    assert_int_equal(lines_with(path, "exceeds the limits"), sizeof evil / sizeof evil[0]);
    unlink(path);
}

/* 3.4 million steps (the .* choose 2 of 240 x and an end): with PCRE2's own limit, 10 million, this
 * would be answered. */
static void limit_is_ours(void **state)
{
    struct ere *re = compiled("^.*x.*x.*[yz]$");

    (void)state;
    char text[ERE_BYTES_MAX + 1];
    memset(text, 'x', sizeof text);
    text[ERE_BYTES_MAX] = '\0';
    assert_int_equal(ere_match(re, text), ERE_LIMIT);
    ere_free(re);
}

/* What an honest feed requires for the longest identifiers stays below the limits. */
static void honest(void **state)
{
    static const char *const good[] = {"^.*x.*[yz]$", "^.*[.].*[.].*[yz]$", "([a-z]+[.])*x+$",
                                       "^(x|[.])*$"};

    (void)state;
    char text[ERE_BYTES_MAX + 1];
    for (size_t b = 0; b < ERE_BYTES_MAX; b++)
        text[b] = b % 16 == 7 ? '.' : 'x';
    text[ERE_BYTES_MAX] = '\0';
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct ere *re = compiled(good[i]);

        if (ere_match(re, text) != (i < 2 ? ERE_NO : ERE_YES))
            fail_msg("\"%s\"", good[i]);
        assert_int_equal(ere_limit_hits(re), 0);
        ere_free(re);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meaning), cmocka_unit_test(groups),      cmocka_unit_test(case_ignored),
        cmocka_unit_test(refused), cmocka_unit_test(exponential), cmocka_unit_test(limit_is_ours),
        cmocka_unit_test(honest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

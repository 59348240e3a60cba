/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config.h"

static void test_all_statements(void **state)
{
    (void)state;
    const char *text = "# a comment\n"
                       "ready /run/x/ready.json\n"
                       "stats /run/x/stats.json\n"
                       "gap_us 100\n"
                       "priority 10\n"
                       "\n"
                       "line newy:chic forward l0a l0b delay_us=18000 jitter_us=500 loss=0.01 "
                       "seed=7 slots=4096 # trailing\n"
                       "line newy:chic backward l0b l0a\n";
    struct config config;
    char error[256];
    assert_int_equal(config_parse(&config, "f", text, error, sizeof error), 0);
    assert_string_equal(config.ready, "/run/x/ready.json");
    assert_string_equal(config.stats, "/run/x/stats.json");
    assert_int_equal(config.gap_us, 100);
    assert_int_equal(config.priority, 10);
    assert_int_equal(config.n_lines, 2);
    assert_string_equal(config.lines[0].link, "newy:chic");
    assert_string_equal(config.lines[0].direction, "forward");
    assert_string_equal(config.lines[0].in, "l0a");
    assert_string_equal(config.lines[0].out, "l0b");
    assert_int_equal(config.lines[0].delay_us, 18000);
    assert_int_equal(config.lines[0].jitter_us, 500);
    assert_true(config.lines[0].loss == 0.01);
    assert_int_equal(config.lines[0].seed, 7);
    assert_int_equal(config.lines[0].slots, 4096);
    assert_int_equal(config.lines[1].delay_us, 0);
    assert_int_equal(config.lines[1].slots, 1024);
    config_free(&config);
}

static void refused(const char *text, const char *message)
{
    char error[256] = "";
    struct config config;
    assert_int_equal(config_parse(&config, "f", text, error, sizeof error), -1);
    assert_string_equal(error, message);
    assert_null(config.lines);
}

static void test_errors_say_where_found_valid(void **state)
{
    (void)state;
    refused("\nspeed 3\n", "f:2: found 'speed'; valid: ready, stats, gap_us, priority or line");
    refused("gap_us fast\n", "f:1: found 'fast'; valid: gap_us 0 ... 100000");
    refused("gap_us 1 2\n", "f:1: found '2'; valid: one value");
    refused("priority -1\n", "f:1: found '-1'; valid: priority 0 ... 99");
    refused("line a f\n", "f:1: found 'end of line'; valid: an interface name of at most 15 "
                          "characters");
    refused("line a f 1234567890123456 b\n",
            "f:1: found '1234567890123456'; valid: an interface name of at most 15 characters");
    refused("line a f x x\n",
            "f:1: found 'x'; valid: an outgoing interface that is not the incoming one");
    refused("line a f x y\nline a b x z\n",
            "f:2: found 'x'; valid: an incoming interface that no other line reads");
    refused("line a f x y delay_us=-3\n", "f:1: found '-3'; valid: delay_us=0 ... 10000000");
    refused("line a f x y loss=1.5\n", "f:1: found '1.5'; valid: loss=0 ... 1");
    refused("line a f x y loss=nan\n", "f:1: found 'nan'; valid: loss=0 ... 1");
    refused("line a f x y slots=0\n", "f:1: found '0'; valid: slots=8 ... 1048576");
    refused(
        "line a f x y fast\n",
        "f:1: found 'fast'; valid: key=value with key delay_us, jitter_us, loss, seed or slots");
    refused("line a f x y colour=red\n",
            "f:1: found 'colour'; valid: delay_us, jitter_us, loss, seed or slots");
    refused("line a f x y delay_us=10 jitter_us=11\n",
            "f:1: found 'jitter_us'; valid: jitter_us at most delay_us");
    refused("line a\" f x y\n",
            "f:1: found 'a\"'; valid: line LINK DIRECTION IN OUT [key=value ...]");
    refused("", "f:1: found 'no line'; valid: at least one 'line' statement");
}

static void test_too_many_lines(void **state)
{
    (void)state;
    static char text[32 * (CONFIG_MAX_LINES + 1) + 1];
    char *at = text;
    for (int i = 0; i <= CONFIG_MAX_LINES; i++)
        at += snprintf(at, 32, "line a f i%d o%d\n", i, i);
    refused(text, "f:513: found 'line'; valid: at most 512 lines");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_statements),
        cmocka_unit_test(test_errors_say_where_found_valid),
        cmocka_unit_test(test_too_many_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

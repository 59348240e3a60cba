/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "log_limit.h"

#define S UINT64_C(1000000000)

static unsigned take(struct log_limit *l, const char *peer, const char *kind, unsigned times,
                     uint64_t now_ns)
{
    unsigned written = 0;

    uint64_t before;
    for (unsigned i = 0; i < times; i++)
        written += log_limit_take(l, peer, kind, 3, now_ns, &before);
    return written;
}

static void expect_rest(struct log_limit *l, uint64_t now_ns, bool all, const char *peer,
                        uint64_t lines)
{
    struct log_limit_rest rest;

    assert_true(log_limit_rest(l, now_ns, all, &rest));
    assert_string_equal(rest.peer, peer);
    assert_int_equal(rest.lines, lines);
}

static void test_per_peer_and_kind(void **state)
{
    struct log_limit *l = log_limit_new(8, 60 * S);

    (void)state;
    assert_int_equal(take(l, "10.0.0.1", "bad", 1000, S), 3);
    assert_int_equal(take(l, "10.0.0.2", "bad", 2, S), 2);
    assert_int_equal(take(l, "10.0.0.1", "slow", 5, S), 3);
    struct log_limit_rest rest;
    assert_false(log_limit_rest(l, 60 * S, false, &rest));
    expect_rest(l, 61 * S, false, "10.0.0.1", 997);
    expect_rest(l, 61 * S, false, "10.0.0.1", 2);
    assert_false(log_limit_rest(l, 61 * S, false, &rest));
    /* The next line begins the next window and reports how many the last one suppressed. */
    assert_int_equal(take(l, "10.0.0.1", "bad", 10, 62 * S), 3);
    uint64_t before;
    assert_true(log_limit_take(l, "10.0.0.1", "bad", 3, 122 * S, &before));
    assert_int_equal(before, 7);
    assert_false(log_limit_rest(l, 1000 * S, true, &rest));
    log_limit_free(l);
}

/* With more addresses than entries the number of lines stays bounded and every line is counted. */
static void test_many_addresses(void **state)
{
    enum { ENTRIES = 16, LINES = 3, PEERS = 5000, EACH = 7 };
    struct log_limit *l = log_limit_new(ENTRIES, 60 * S);
    uint64_t written = 0, counted = 0;

    (void)state;
    char peer[32];
    for (unsigned i = 0; i < EACH * PEERS; i++) {
        snprintf(peer, sizeof peer, "fd00::%x", i % PEERS);
        written += take(l, peer, "bad", 1, S);
    }
    assert_int_equal(written, (ENTRIES + 1) * LINES);
    struct log_limit_rest rest;
    unsigned told = 0;
    bool others = false;
    for (; log_limit_rest(l, S, true, &rest); told++) {
        counted += rest.lines;
        others = others || strcmp(rest.peer, LOG_LIMIT_OTHERS) == 0;
    }
    assert_true(others);
    assert_int_equal(told, ENTRIES + 1);
    assert_int_equal(written + counted, EACH * PEERS);
    /* A peer that is silent for a window gives up its entry. */
    assert_int_equal(take(l, "10.9.9.9", "bad", 10, 100 * S), 3);
    expect_rest(l, 200 * S, false, "10.9.9.9", 7);
    log_limit_free(l);
}

static void test_long_names(void **state)
{
    struct log_limit *l = log_limit_new(2, S);
    char peer[500], kind[500];

    (void)state;
    memset(peer, 'p', sizeof peer);
    memset(kind, 'k', sizeof kind);
    peer[sizeof peer - 1] = kind[sizeof kind - 1] = '\0';
    assert_int_equal(take(l, peer, kind, 5, S), 3);
    struct log_limit_rest rest;
    assert_true(log_limit_rest(l, S, true, &rest));
    assert_int_equal(strlen(rest.peer), LOG_LIMIT_PEER - 1);
    assert_int_equal(strlen(rest.kind), LOG_LIMIT_KIND - 1);
    log_limit_free(l);
}

/* A peer that reconnects gets a new process but no new allowance. Such a process may be killed at
 * any time. */
static void test_processes_share(void **state)
{
    struct log_limit *l = log_limit_new(4, 60 * S);
    unsigned written = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit((int)take(l, "10.0.0.1", "bad", 10, S));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        written += (unsigned)WEXITSTATUS(status);
    }
    assert_int_equal(written, 3);
    expect_rest(l, 61 * S, false, "10.0.0.1", 197);
    log_limit_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_per_peer_and_kind),
        cmocka_unit_test(test_many_addresses),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_processes_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

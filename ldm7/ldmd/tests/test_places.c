/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ldmd/loop.h"
#include "ldmd/places.h"
#include "ldmd/process.h"

enum { CLIENTS = 256, PER_ADDRESS = 32, UNKNOWN = 64 };
static const struct places_limits limits = {CLIENTS, PER_ADDRESS, UNKNOWN};
static const uint64_t start_ns = 1000 * NS_PER_S;

static struct in_addr address(const char *net, unsigned host)
{
    char text[32];

    snprintf(text, sizeof text, "%s.%u.%u", net, host / 250, 1 + host % 250);
    return (struct in_addr){inet_addr(text)};
}

/* A connection from that address. A connection that has to leave for it has left. */
static size_t arrive(struct places *p, struct in_addr from, bool is_named, uint64_t now_ns)
{
    size_t place, leaves;

    if (places_take(p, from, is_named, now_ns, &place, &leaves) != PLACES_TAKEN)
        return PLACES_NONE;
    if (leaves != PLACES_NONE)
        places_leave(p, leaves);
    places_enter(p, place, from, now_ns);
    return place;
}

static void let_in(struct places *p, size_t place, struct in_addr from, uint64_t now_ns)
{
    struct visitor v = places_visitor(p, place);

    visitors_let_in(v.table, v.place, !v.known, from, now_ns / NS_PER_S);
}

/* Silent strangers from two, three, 30 addresses: a peer that is allowed by its name comes for the
 * first time, and is served whenever it comes. */
static void test_strangers_and_names(void **state)
{
    static const unsigned strangers[] = {1, 2, 3, 30};

    (void)state;
    for (size_t k = 0; k < sizeof strangers / sizeof *strangers; k++) {
        struct places *p = places_new(&limits);
        struct in_addr named = {inet_addr("198.51.100.7")};
        uint64_t now = start_ns;
        unsigned refused = 0;
        for (unsigned i = 0; i < 4000; i++, now += NS_PER_S / 1000) {
            arrive(p, address("10.0", i % strangers[k]), false, now);
            if (i % 400 != 399)
                continue;
            size_t place = arrive(p, named, false, now);
            refused += place == PLACES_NONE;
            if (place == PLACES_NONE)
                continue;
            assert_int_equal(places_visitor(p, place).known, i > 399);
            let_in(p, place, named, now);
        }
        if (refused)
            fail_msg("%u addresses: refused %u of 10 times", strangers[k], refused);
        places_free(p);
    }
}

/* A place that was granted cannot be taken, and does not count as one of an unknown address. */
static void test_let_in(void **state)
{
    struct places *p = places_new(&limits);
    size_t in[100];

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        uint64_t now = start_ns + i * NS_PER_S;
        in[i] = arrive(p, address("10.1", i), false, now);
        assert_int_not_equal(in[i], PLACES_NONE);
        let_in(p, in[i], address("10.1", i), now);
    }
    for (unsigned i = 0; i < 2000; i++) {
        size_t place =
            arrive(p, address("10.2", i), false, start_ns + 200 * NS_PER_S + i * NS_PER_S / 20);
        for (unsigned k = 0; k < 100; k++)
            assert_int_not_equal(place, in[k]);
    }
    /* Known addresses have the rest, whatever strangers do. */
    unsigned known = 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        known += arrive(p, address("10.3", i), true, start_ns + 400 * NS_PER_S) != PLACES_NONE;
    assert_int_equal(known, CLIENTS - 100);
    assert_int_equal(arrive(p, address("10.2", 7), false, start_ns + 500 * NS_PER_S), PLACES_NONE);
    places_free(p);
}

static void test_per_address(void **state)
{
    struct places *p = places_new(&limits);
    unsigned n = 0;

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        n += arrive(p, address("10.0", 0), true, start_ns) != PLACES_NONE;
    assert_int_equal(n, PER_ADDRESS);
    n = 0;
    for (unsigned i = 0; i < 1000; i++)
        n += arrive(p, address("10.0", 1), false, start_ns + i * NS_PER_S) != PLACES_NONE;
    assert_int_equal(n, UNKNOWN / 8);
    assert_int_equal(places_refused(p), 1000 - PER_ADDRESS + 1000 - UNKNOWN / 8);
    places_free(p);
}

/* An address whose connections come and go gets a bounded number of processes, and delays no
 * other. */
static void test_too_fast(void **state)
{
    struct places *p = places_new(&limits);
    unsigned n = 0, other = 0;

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t now = start_ns + i * (NS_PER_S / 1000);
        size_t place = arrive(p, address("10.0", 0), false, now);
        if (place != PLACES_NONE) {
            places_leave(p, place);
            n++;
        }
        if (i % 1000 == 500) {
            place = arrive(p, address("10.0", 1), false, now);
            other += place != PLACES_NONE;
            if (place != PLACES_NONE)
                places_leave(p, place);
        }
    }
    assert_in_range(n, 16, 20); /* 8, and one per second */
    assert_int_equal(other, 10);
    places_free(p);
}

/* An address that was granted a place is forgotten after a day, or when there are too many. */
static void test_memory(void **state)
{
    struct visitors *v = visitors_new(1);
    struct in_addr a = address("10.0", 0);

    (void)state;
    assert_false(visitors_knows(v, a, 5));
    pid_t pid = fork();
    if (pid == 0) {
        visitors_let_in(v, 0, true, a, 5);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    assert_true(visitors_is_in(v, 0));
    assert_true(visitors_knows(v, a, 6));
    assert_true(visitors_knows(v, a, 5 + VISITORS_REMEMBER_S - 1));
    assert_false(visitors_knows(v, a, 5 + VISITORS_REMEMBER_S));
    visitors_arrive(v, 0);
    assert_false(visitors_is_in(v, 0));
    for (unsigned i = 1; i <= VISITORS_REMEMBERED; i++)
        visitors_let_in(v, 0, true, address("10.1", i), 100 + i);
    assert_false(visitors_knows(v, a, 2000));
    assert_true(visitors_knows(v, address("10.1", 1), 2000));
    assert_false(visitors_knows(v, (struct in_addr){0}, 2000));
    visitors_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strangers_and_names),
        cmocka_unit_test(test_let_in),
        cmocka_unit_test(test_per_address),
        cmocka_unit_test(test_too_fast),
        cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

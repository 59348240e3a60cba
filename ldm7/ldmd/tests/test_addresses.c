/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ldmd/addresses.h"

static struct in_addr ip(const char *text)
{
    struct in_addr a;

    assert_int_equal(inet_pton(AF_INET, text, &a), 1);
    return a;
}

static struct addresses *subnet(const char *server, unsigned prefix_len)
{
    struct addresses *a = addresses_new(ip(server), prefix_len);

    assert_non_null(a);
    return a;
}

/* 10.9.8.0/28: .1 to .14, of which the server has .3: 13 for subscribers. */
static void unique_inside(void **state)
{
    struct addresses *a = subnet("10.9.8.3", 28);
    bool seen[16] = {false};

    (void)state;
    struct in_addr got;
    char key[16];
    for (int i = 0; i < 13; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_true(addresses_take(a, key, &got));
        uint32_t host = ntohl(got.s_addr) - 0x0a090800u;
        assert_true(host >= 1 && host <= 14 && host != 3 && !seen[host]);
        seen[host] = true;
    }
    assert_false(addresses_take(a, "one more", &got));
    addresses_free(a);
}

static void released_and_sticky(void **state)
{
    struct addresses *a = subnet("10.9.8.1", 29); /* .2 to .6 */

    (void)state;
    struct in_addr at[5];
    char key[16];
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_true(addresses_take(a, key, &at[i]));
    }
    addresses_give_back(a, at[2]);
    struct in_addr again;
    assert_true(addresses_take(a, "k2", &again));
    assert_int_equal(again.s_addr, at[2].s_addr);
    assert_false(addresses_take(a, "new", &again));
    addresses_give_back(a, at[4]);
    addresses_give_back(a, at[1]);
    assert_true(addresses_take(a, "new", &again)); /* k4's has been free for the longest */
    assert_int_equal(again.s_addr, at[4].s_addr);
    assert_true(addresses_take(a, "k1", &again));
    assert_int_equal(again.s_addr, at[1].s_addr);
    /* The same endpoint twice: free only when both have left. */
    assert_true(addresses_take(a, "k1", &again));
    assert_int_equal(again.s_addr, at[1].s_addr);
    addresses_give_back(a, at[1]);
    assert_false(addresses_take(a, "another", &again));
    addresses_give_back(a, at[1]);
    assert_true(addresses_take(a, "another", &again));
    addresses_free(a);
}

static void same_after_restart(void **state)
{
    struct addresses *a = subnet("10.0.0.1", 16), *b = subnet("10.0.0.1", 16);

    (void)state;
    struct in_addr y;
    assert_true(addresses_take(b, "another", &y));
    struct in_addr x;
    assert_true(addresses_take(a, "10.1.1.1 sw p 5", &x));
    assert_true(addresses_take(b, "10.1.1.1 sw p 5", &y));
    assert_int_equal(x.s_addr, y.s_addr);
    addresses_free(a);
    addresses_free(b);
}

static void edges(void **state)
{
    static const struct {
        unsigned prefix_len, n;
    } cases[] = {{0, 0}, {32, 0}, {31, 1}, {30, 1}};

    (void)state;
    struct in_addr got;
    char key[16];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct addresses *a = subnet("192.0.2.1", cases[i].prefix_len);
        unsigned n = 0;

        while (n < 9) {
            snprintf(key, sizeof key, "k%u", n);
            if (!addresses_take(a, key, &got))
                break;
            n++;
        }
        assert_int_equal(n, cases[i].n);
        addresses_free(a);
    }
}

/* Endpoints that come and go do not grow the table, and those that stay keep theirs. */
static void bounded(void **state)
{
    struct addresses *a = subnet("10.0.0.1", 8);

    (void)state;
    struct in_addr stays;
    assert_true(addresses_take(a, "stays", &stays));
    struct in_addr got;
    char key[32];
    for (unsigned i = 0; i < 3 * ADDRESSES_REMEMBERED; i++) {
        snprintf(key, sizeof key, "k%u", i);
        assert_true(addresses_take(a, key, &got));
        assert_int_not_equal(got.s_addr, stays.s_addr);
        addresses_give_back(a, got);
    }
    struct in_addr again;
    assert_true(addresses_take(a, "stays", &again));
    assert_int_equal(again.s_addr, stays.s_addr);
    addresses_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unique_inside),
        cmocka_unit_test(released_and_sticky),
        cmocka_unit_test(same_after_restart),
        cmocka_unit_test(edges),
        cmocka_unit_test(bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

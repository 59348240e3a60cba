/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ldmd/names.h"

/* The content of the zones: reverse[address] is a name, forward[name] addresses. */
static const char *const reverse[][2] = {
    {"192.0.2.1", "ldm.unidata.ucar.edu"},  /* both ways */
    {"192.0.2.66", "ldm.unidata.ucar.edu"}, /* the owner of 192.0.2 claims it */
    {"192.0.2.67", "10.0.0.1"},             /* would match an entry for that address */
    {"192.0.2.68", "0x0a000001"},
    {"192.0.2.69", "ldm.unidata.ucar.edu\nALLOW ANY"},
    {"192.0.2.70", "many.example.org"},
    {"192.0.2.71", "gone.example.org"},
    {"192.0.2.72", "LDM.Unidata.ucar.edu"},
    {"192.0.2.73", ".."},
    {"192.0.2.74", "12345"},
};
static const char *const forward[][2] = {
    {"ldm.unidata.ucar.edu", "192.0.2.1"}, {"LDM.Unidata.ucar.edu", "192.0.2.72"},
    {"many.example.org", "192.0.2.3"},     {"many.example.org", "192.0.2.4"},
    {"many.example.org", "192.0.2.70"},
};
static unsigned asked;

static bool name_of(struct in_addr addr, char *name, size_t name_bytes)
{
    asked++;
    for (size_t i = 0; i < sizeof reverse / sizeof *reverse; i++)
        if (inet_addr(reverse[i][0]) == addr.s_addr) {
            snprintf(name, name_bytes, "%s", reverse[i][1]);
            return true;
        }
    return false;
}

static size_t addresses_of(const char *name, struct in_addr *out, size_t most)
{
    size_t n = 0;

    asked++;
    for (size_t i = 0; i < sizeof forward / sizeof *forward && n < most; i++)
        if (strcmp(forward[i][0], name) == 0)
            out[n++].s_addr = inet_addr(forward[i][1]);
    return n;
}

static const struct names_source zones = {name_of, addresses_of};

static enum names_verdict look_up(const char *address, char name[NAME_MAX_BYTES])
{
    return names_look_up(&zones, (struct in_addr){inet_addr(address)}, name, NAME_MAX_BYTES);
}

static void test_both_ways(void **state)
{
    char name[NAME_MAX_BYTES];

    (void)state;
    assert_int_equal(look_up("192.0.2.1", name), NAMES_CONFIRMED);
    assert_string_equal(name, "ldm.unidata.ucar.edu");
    assert_int_equal(look_up("192.0.2.70", name), NAMES_CONFIRMED); /* its last address */
    assert_int_equal(look_up("192.0.2.72", name), NAMES_CONFIRMED);
}

static void test_claims(void **state)
{
    char name[NAME_MAX_BYTES];

    (void)state;
    assert_int_equal(look_up("192.0.2.66", name), NAMES_FOREIGN);
    assert_int_equal(look_up("192.0.2.71", name), NAMES_FOREIGN);
    assert_int_equal(look_up("192.0.2.200", name), NAMES_NONE);
    for (int i = 67; i <= 74; i++) {
        char address[32];
        if (i >= 70 && i <= 72)
            continue;
        snprintf(address, sizeof address, "192.0.2.%d", i);
        if (look_up(address, name) != NAMES_INVALID)
            fail_msg("%s", address);
    }
}

/* No answer comes: look_up() returns nevertheless, after at most two queries. */
static bool no_name(struct in_addr addr, char *name, size_t name_bytes)
{
    (void)addr;
    (void)name;
    (void)name_bytes;
    asked++;
    return false;
}

static void test_dead_servers(void **state)
{
    static const struct names_source dead = {no_name, addresses_of};
    char name[NAME_MAX_BYTES] = "before";

    (void)state;
    asked = 0;
    assert_int_equal(names_look_up(&dead, (struct in_addr){1}, name, sizeof name), NAMES_NONE);
    assert_string_equal(name, "");
    assert_int_equal(asked, 1);
    look_up("192.0.2.66", name);
    assert_int_equal(asked, 3);
}

/* The system's resolver: on every Linux this address and name belong together, by /etc/hosts. */
static void test_system(void **state)
{
    char name[NAME_MAX_BYTES];
    enum names_verdict v = names_look_up(&names_of_system, (struct in_addr){htonl(INADDR_LOOPBACK)},
                                         name, sizeof name);

    (void)state;
    assert_true(v == NAMES_CONFIRMED || v == NAMES_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_dead_servers),
        cmocka_unit_test(test_system),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

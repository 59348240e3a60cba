/* SPDX-License-Identifier: Apache-2.0
 *
 * When a receiver lets datagrams gather, and for how long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "input_pause.h"

#define MS UINT64_C(1000000)

enum { BYTES = 1250, BUFFER = 4000000 }; /* 10,000 bits a datagram */

/* Reads `per_ms` datagrams each millisecond for a while; returns the length of the last pause. */
static uint64_t read_at(uint64_t per_ms, size_t buffer_bytes)
{
    struct fmtp_input_pause p = {0};
    uint64_t now_ns = 1000 * MS;

    for (int i = 0; i < 10; i++) {
        now_ns += MS;
        p.datagrams += per_ms;
        fmtp_input_drained(&p, BYTES, buffer_bytes, now_ns);
    }
    return p.until_ns ? p.until_ns - now_ns : 0;
}

static void test_rates(void **state)
{
    (void)state;
    assert_int_equal(read_at(10, BUFFER), 0);      /* 100 Mbit/s */
    assert_int_equal(read_at(24, BUFFER), 0);      /* 240 Mbit/s */
    assert_int_equal(read_at(26, BUFFER), 2 * MS); /* 260 Mbit/s */
    /* An eighth of the buffer holds 4 Mbit: 1 ms at 4 Gbit/s, 0.4 ms at 10. */
    assert_int_equal(read_at(400, BUFFER), MS);
    assert_int_equal(read_at(1000, BUFFER), 0);
}

/* The rate may rise to 1 Gbit/s within a pause, and must not fill a small buffer then. */
static void test_small_buffers(void **state)
{
    (void)state;
    assert_int_equal(read_at(30, 1000000), MS);
    assert_int_equal(read_at(30, 212992), 0);
}

/* Many datagrams at once are no rate, and a lull ends the pauses. */
static void test_bursts(void **state)
{
    struct fmtp_input_pause p = {0};
    uint64_t now_ns = 1000 * MS;

    (void)state;
    fmtp_input_drained(&p, BYTES, BUFFER, now_ns);
    for (int i = 0; i < 9; i++) {
        now_ns += MS / 10;
        p.datagrams += 50;
        fmtp_input_drained(&p, BYTES, BUFFER, now_ns);
        assert_int_equal(p.until_ns, 0);
    }
    now_ns += MS / 10;
    fmtp_input_drained(&p, BYTES, BUFFER, now_ns);
    assert_true(p.until_ns > now_ns);
    now_ns += 20 * MS;
    p.datagrams = 1;
    fmtp_input_drained(&p, BYTES, BUFFER, now_ns);
    assert_int_equal(p.until_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_small_buffers),
        cmocka_unit_test(test_bursts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

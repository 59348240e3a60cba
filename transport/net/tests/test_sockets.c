/* SPDX-License-Identifier: Apache-2.0
 *
 * Round-trip times from the kernel's TCP measurements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/sockets.h"

/* Arguments: smoothed and smallest sample in us. Result: ns. */
static void test_round_trip(void **state)
{
    (void)state;
    assert_int_equal(tp_rtt_ns(0, UINT32_MAX), 0); /* no sample */
    assert_int_equal(tp_rtt_ns(51000, 50000), 51000000);
    assert_int_equal(tp_rtt_ns(109000, 50000), 109000000); /* a queue as long as the path */
    /* The SYN was sent twice: the first sample was 1.05 s, the second 0.05 s. */
    assert_int_equal(tp_rtt_ns(925000, 50000), 110000000);
    assert_int_equal(tp_rtt_ns(4000, 20), 4000000); /* a busy host */
    assert_int_equal(tp_rtt_ns(250000, 20), 10040000);
    assert_int_equal(tp_rtt_ns(7000, 0), 7000000); /* a kernel that does not report it */
    assert_int_equal(tp_rtt_ns(UINT32_MAX, UINT32_MAX), UINT64_C(4294967295000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

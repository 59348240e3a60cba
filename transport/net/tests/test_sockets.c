/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made of the kernel's TCP measurements.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/sockets.h"

/* Smoothed and smallest sample in us; ns. */
static void test_round_trip(void **state)
{
    (void)state;
    assert_int_equal(tp_rtt_ns(0, UINT32_MAX), 0); /* no sample */
    assert_int_equal(tp_rtt_ns(51000, 50000), 51000000);
    assert_int_equal(tp_rtt_ns(109000, 50000), 109000000); /* a queue as long as the path */
    /* A SYN that was sent twice: 1.05 s was the first sample, 0.05 s the second. */
    assert_int_equal(tp_rtt_ns(925000, 50000), 110000000);
    assert_int_equal(tp_rtt_ns(4000, 20), 4000000); /* a busy host */
    assert_int_equal(tp_rtt_ns(250000, 20), 10040000);
    assert_int_equal(tp_rtt_ns(7000, 0), 7000000); /* a kernel that does not say */
    assert_int_equal(tp_rtt_ns(UINT32_MAX, UINT32_MAX), UINT64_C(4294967295000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

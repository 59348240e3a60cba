/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "file_limit.h"

static rlim_t soft_limit(void)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur;
}

static void test_as_far_as_the_hard_limit(void **state)
{
    (void)state;
    const struct rlimit hard = {.rlim_cur = 32, .rlim_max = 100};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &hard), 0);
    assert_int_equal(file_limit_set(64), 64);
    assert_int_equal(soft_limit(), 64);
    assert_int_equal(file_limit_set(101), 100);
    assert_int_equal(soft_limit(), 100);
    assert_int_equal(file_limit_set(40), 40);
    assert_int_equal(soft_limit(), 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_far_as_the_hard_limit)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

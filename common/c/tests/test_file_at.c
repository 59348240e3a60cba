/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "file_at.h"

/* What is written is read back, also beyond 4 GiB; a missing range is an error, and no short read
 * or write counts as success. */
static void test_all_or_an_error(void **state)
{
    static const uint64_t places[] = {0, 5, UINT64_C(5) << 30};
    FILE *f = tmpfile();
    char got[6] = "";

    (void)state;
    assert_non_null(f);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(file_write_at(fileno(f), places[i], "hello", 5), 0);
        assert_int_equal(file_read_at(fileno(f), places[i], got, 5), 0);
        assert_string_equal(got, "hello");
    }
    assert_int_equal(file_read_at(fileno(f), places[2] + 1, got, 5), -1);
    assert_int_equal(errno, EIO);
    assert_int_equal(file_read_at(fileno(f), places[2] + 5, got, 0), 0);
    fclose(f);
    assert_int_equal(file_write_at(-1, 0, "x", 1), -1);
    assert_int_equal(errno, EBADF);
}

/* A limit cuts a write in two: writing the part that fits is not success. */
static void test_a_write_that_is_cut(void **state)
{
    const struct rlimit seven = {7, RLIM_INFINITY};
    struct rlimit before;
    FILE *f = tmpfile();

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &seven), 0);
    int written = file_write_at(fileno(f), 0, "0123456789", 10), why = errno;
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(written, -1);
    assert_int_equal(why, EFBIG);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_or_an_error),
                                       cmocka_unit_test(test_a_write_that_is_cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * File names made from the names that a sender, possibly a hostile one, gives its products.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "../tools/common.h"

static void check(const char *meta, size_t len, const char *want)
{
    char name[256];

    safe_name(meta, len, 7, name);
    assert_string_equal(name, want);
}

static void test_names(void **state)
{
    (void)state;
    check("file.txt", 8, "file.txt");
    check("test metadata\0", 14, "test metadata");
    check("/etc/passwd", 11, "passwd");
    check("../../x", 7, "x");
    check("..", 2, "_.");
    check(".hidden", 7, "_hidden");
    check("a/", 2, "product-7");
    check("", 0, "product-7");
    check("\0abc", 4, "product-7");
    check("a\nb\033c\177", 6, "a_b_c_");
    char longest[1430];
    memset(longest, 'x', sizeof longest);
    char name[256];
    safe_name(longest, sizeof longest, 0, name);
    assert_int_equal(strlen(name), 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

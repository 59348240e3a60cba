/* SPDX-License-Identifier: Apache-2.0
 *
 * An assertion on texts. Include it after cmocka.h.
 */
#ifndef TESTS_MATCHES_H
#define TESTS_MATCHES_H

#include <regex.h>

/* Asserts that the extended regular expression matches the text. */
static inline void assert_matches(const char *text, const char *ere)
{
    regex_t r;
    assert_int_equal(regcomp(&r, ere, REG_EXTENDED | REG_NOSUB), 0);
    int e = regexec(&r, text, 0, NULL, 0);
    regfree(&r);
    if (e)
        fail_msg("\"%s\" is not %s", text, ere);
}

#endif

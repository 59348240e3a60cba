/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses numbers in texts.
 */
#ifndef FCAST_NUMBER_H
#define FCAST_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Parses a whole number without a sign, at most max. Returns false if it is invalid. */
static inline bool fcast_number(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;

    if (!*text)
        return false;
    for (; *text; text++) {
        unsigned digit = (unsigned)(*text - '0');
        if (digit > 9 || digit > max || n > (max - digit) / 10)
            return false;
        n = 10 * n + digit;
    }
    *out = n;
    return true;
}

#endif

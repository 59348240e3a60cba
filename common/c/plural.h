/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of things in messages: "1 entry", "2 entries".
 */
#ifndef COMMON_PLURAL_H
#define COMMON_PLURAL_H

#include <stdint.h>

/* Returns the noun that fits n. */
static inline const char *plural(uint64_t n, const char *one, const char *several)
{
    return n == 1 ? one : several;
}

#endif

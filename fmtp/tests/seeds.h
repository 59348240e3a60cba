/* SPDX-License-Identifier: Apache-2.0
 *
 * How many seeds a test runs: FMTP_SEEDS=N, DOWNPOUR_TEST_LONG, or only one with FMTP_SEED=N.
 */
#ifndef FMTP_TESTS_SEEDS_H
#define FMTP_TESTS_SEEDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

struct seeds {
    uint32_t first, end, many; /* many: unless only one runs */
    bool is_alone;
};

static inline struct seeds seeds_of(uint32_t usual, uint32_t at_length)
{
    const char *alone = getenv("FMTP_SEED"), *many = getenv("FMTP_SEEDS");
    uint32_t n = many                           ? (uint32_t)strtoul(many, NULL, 10)
                 : getenv("DOWNPOUR_TEST_LONG") ? at_length
                                                : usual;
    uint32_t chosen = alone ? (uint32_t)strtoul(alone, NULL, 10) : 0;

    return (struct seeds){chosen, alone ? chosen + 1 : n, n, alone != NULL};
}

#endif

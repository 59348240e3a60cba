/* SPDX-License-Identifier: Apache-2.0
 *
 * Automatic shift between redundant upstreams (LDM-6.15.0 autoshift). Each of the N downstreams of
 * a request decides for itself. If most of its products arrived earlier by another, it requests
 * announcements first (alternate); if it delivers what the others do not, it requests whole
 * products (primary).
 */
#ifndef LDMD_AUTOSHIFT_H
#define LDMD_AUTOSHIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTOSHIFT_S 60u

struct autoshift {
    size_t upstreams; /* N; 1: always primary */
    bool primary;
    uint64_t since_ns;           /* start of the counting */
    uint64_t accepted, rejected; /* products */
};

/* place: of this request among the N; the first one begins as primary. */
void autoshift_init(struct autoshift *a, size_t upstreams, size_t place, uint64_t now);
/* Counts a product that was inserted or was a duplicate. Returns true if it must shift now; primary
 * is then set and counting starts over. */
bool autoshift_product(struct autoshift *a, bool accepted, uint64_t now);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Automatic shift between redundant upstreams (LDM-6.15.0 autoshift). Each of the N downstreams
 * of one request decides for itself: one whose products mostly came by another asks for
 * announcements first (alternate), one that brings what the others do not asks for whole products
 * (primary).
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
    uint64_t since_ns;           /* counted since */
    uint64_t accepted, rejected; /* products */
};

/* place: of this request among the N; the first begins as primary. */
void autoshift_init(struct autoshift *a, size_t upstreams, size_t place, uint64_t now);
/* A product was inserted, or was a duplicate. true: shift now; primary is set, counting starts
 * over. */
bool autoshift_product(struct autoshift *a, bool accepted, uint64_t now);

#endif

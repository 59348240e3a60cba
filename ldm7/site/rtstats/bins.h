/* SPDX-License-Identifier: Apache-2.0
 *
 * The classic statistics of rtstats (LDM-6.15.0 rtstats): products of one feed type and origin, by
 * the hour of their creation. The products bring the time.
 */
#ifndef RTSTATS_BINS_H
#define RTSTATS_BINS_H

#include <stdio.h>

#include "queue/pq.h"

#define BINS_MAX 4096u /* feed types and origins come from the network */
#define BIN_LINE_MAX 512

struct bin {
    time_t hour; /* of creation: its first second */
    uint32_t feed;
    char origin[PQ_ORIGIN_MAX + 1];
    uint64_t products, bytes;
    struct timeval creation, inserted; /* of the latest one */
    double latency_sum_s, latency_max_s;
    time_t slowest; /* creation time of the one with the greatest latency */
    bool changed;   /* since its last report */
};
struct bins {
    struct bin *list;
    size_t n;
    uint64_t dropped; /* products for which there was no room */
};

/* Adds a product that was inserted at that time. */
void bins_add(struct bins *b, const struct pq_info *info, const struct timeval *inserted);
/* Drops hours that ended more than two hours before now and have been reported. */
void bins_expire(struct bins *b, time_t now);
/* Frees the list. */
void bins_free(struct bins *b);
/* Formats recent_creation recent_insertion host feed origin nprods nbytes latency avg_latency
 * max@mmss version, with a newline: the original's columns. Returns out. */
char *bin_format(const struct bin *b, const char *host, const char *version,
                 char out[BIN_LINE_MAX]);

#endif

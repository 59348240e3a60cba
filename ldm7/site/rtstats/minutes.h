/* SPDX-License-Identifier: Apache-2.0
 *
 * The minute record of LDM7's statistics (DRFSM21 3.2): 14 fields, separated by commas, per minute
 * and feed type: timestamp, host, feedtype, completeSize, receivedSize, completeProd, receivedProd,
 * aggregatedLatency, maxLatencySize, maxLatency, minThruSize, minThruLatency, percentile80Thru,
 * negativeLatencyNum.
 *
 * timestamp: the end of the minute, YYYYMMDDThhmmssZ. Sizes are in bytes, latencies (arrival -
 * creation) in seconds, throughputs in bit/s. complete: everything that arrived; received: only by
 * FMTP, without the backstop; latencies and throughputs refer to these. A product with a latency of
 * 0 or less (clocks differ) counts only in the sizes, the numbers and the last field.
 * percentile80Thru: the smallest product throughput that 80 % of the products do not exceed.
 *
 * Version 2 has five more fields, which the metrics of DRFSM21 3.2 need: mcastProd, mcastSize,
 * mcastLatency (of products that arrived by multicast alone), retxBlocks and bopLatency (of all
 * received). These latencies are sums of the time from the BOP to completion, in seconds with six
 * exact decimals, including negative ones: a different quantity from fields 8 to 13.
 */
#ifndef RTSTATS_MINUTES_H
#define RTSTATS_MINUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MINUTE_FEEDS_MAX 256u
#define MINUTE_SAMPLES_MAX 65536u /* products of a feed and minute that enter the percentile */
#define MINUTE_LINE_MAX 1024
enum minute_version { MINUTE_V1 = 1, MINUTE_V2 };

struct minute_feed {
    uint32_t feed;
    uint64_t complete_bytes, received_bytes, complete, received, negative;
    uint64_t mcast, mcast_bytes, blocks;
    int64_t bop_us, mcast_bop_us;
    double latency_sum_s;
    uint64_t slowest_bytes, thinnest_bytes;
    double slowest_s, thinnest_s; /* the greatest latency; that of the smallest throughput */
    double *throughputs_bps;
    size_t nthroughputs;
};
struct minutes {
    time_t minute; /* its first second; 0: no product yet */
    struct minute_feed feeds[MINUTE_FEEDS_MAX];
    size_t nfeeds;
    uint64_t dropped; /* products for whose feed type there was no room */
};

/* Returns whether the current minute is over at `time`, given by an arrival or a clock. If so,
 * report it and call minutes_next(). */
bool minutes_over(const struct minutes *m, time_t time);
/* Begins an empty minute. */
void minutes_next(struct minutes *m);
/* A product that arrived at `at`: not after the end of the minute. */
struct minute_product {
    time_t at;
    uint32_t feed, blocks; /* sent again */
    uint64_t bytes;
    double latency_s;
    int64_t bop_us;
    bool by_fmtp;
};
void minutes_add(struct minutes *m, const struct minute_product *p);
/* Formats the record of a feed, with a newline; returns out. Sorts its samples. */
char *minutes_format(struct minutes *m, size_t feed, const char *host, enum minute_version version,
                     char out[MINUTE_LINE_MAX]);

#endif

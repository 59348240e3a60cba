/* SPDX-License-Identifier: Apache-2.0 */
#include "minutes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/alloc.h"
#include "common/feedtype.h"

bool minutes_over(const struct minutes *m, time_t time)
{
    return m->minute != 0 && time >= m->minute + 60;
}

void minutes_next(struct minutes *m)
{
    for (size_t i = 0; i < m->nfeeds; i++)
        free(m->feeds[i].throughputs_bps);
    m->nfeeds = 0;
    m->minute = 0;
}

static struct minute_feed *find(struct minutes *m, uint32_t feed)
{
    for (size_t i = 0; i < m->nfeeds; i++)
        if (m->feeds[i].feed == feed)
            return &m->feeds[i];
    if (m->nfeeds == MINUTE_FEEDS_MAX)
        return NULL;
    /* Unused parts take no memory. */
    double *room = xcalloc(MINUTE_SAMPLES_MAX, sizeof *room);
    m->feeds[m->nfeeds] = (struct minute_feed){.feed = feed, .throughputs_bps = room};
    return &m->feeds[m->nfeeds++];
}

static void sample(struct minute_feed *f, double throughput_bps)
{
    if (f->nthroughputs < MINUTE_SAMPLES_MAX)
        f->throughputs_bps[f->nthroughputs++] = throughput_bps;
}

void minutes_add(struct minutes *m, const struct minute_product *p)
{
    struct minute_feed *f = find(m, p->feed);
    uint64_t bytes = p->bytes;
    double latency_s = p->latency_s;

    if (m->minute == 0)
        m->minute = p->at / 60 * 60;
    if (!f) {
        m->dropped++;
        return;
    }
    f->complete_bytes += bytes;
    f->complete++;
    if (!p->by_fmtp)
        return;
    f->received_bytes += bytes;
    f->received++;
    f->bop_us += p->bop_us;
    f->blocks += p->blocks;
    if (p->blocks == 0) {
        f->mcast++;
        f->mcast_bytes += bytes;
        f->mcast_bop_us += p->bop_us;
    }
    if (latency_s <= 0) {
        f->negative++;
        return;
    }
    double throughput_bps = (double)bytes * 8 / latency_s;
    f->latency_sum_s += latency_s;
    if (latency_s > f->slowest_s) {
        f->slowest_s = latency_s;
        f->slowest_bytes = bytes;
    }
    if (f->nthroughputs == 0 || throughput_bps < (double)f->thinnest_bytes * 8 / f->thinnest_s) {
        f->thinnest_s = latency_s;
        f->thinnest_bytes = bytes;
    }
    sample(f, throughput_bps);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nearest rank. */
static double percentile_80(struct minute_feed *f)
{
    size_t n = f->nthroughputs;

    if (n == 0)
        return 0;
    qsort(f->throughputs_bps, n, sizeof *f->throughputs_bps, compare);
    return f->throughputs_bps[(n * 4 + 4) / 5 - 1];
}

/* Formats seconds exactly. */
static const char *seconds(int64_t us, char out[32])
{
    uint64_t size = us < 0 ? (uint64_t)-us : (uint64_t)us;

    snprintf(out, 32, "%s%llu.%06llu", us < 0 ? "-" : "", (unsigned long long)(size / 1000000),
             (unsigned long long)(size % 1000000));
    return out;
}

char *minutes_format(struct minutes *m, size_t feed, const char *host, enum minute_version version,
                     char out[MINUTE_LINE_MAX])
{
    struct minute_feed *f = &m->feeds[feed];
    char when[32] = "?";
    time_t end = m->minute + 60;
    struct tm tm;

    if (gmtime_r(&end, &tm))
        strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &tm);
    char name[FEEDTYPE_TEXT_MAX];
    int used = snprintf(
        out, MINUTE_LINE_MAX, "%s,%.255s,%s,%llu,%llu,%llu,%llu,%.6f,%llu,%.6f,%llu,%.6f,%.3f,%llu",
        when, host, feedtype_format(f->feed, name, sizeof name),
        (unsigned long long)f->complete_bytes, (unsigned long long)f->received_bytes,
        (unsigned long long)f->complete, (unsigned long long)f->received, f->latency_sum_s,
        (unsigned long long)f->slowest_bytes, f->slowest_s, (unsigned long long)f->thinnest_bytes,
        f->thinnest_s, percentile_80(f), (unsigned long long)f->negative);
    char mcast[32], all[32];
    if (version == MINUTE_V2)
        used += snprintf(out + used, (size_t)(MINUTE_LINE_MAX - used), ",%llu,%llu,%s,%llu,%s",
                         (unsigned long long)f->mcast, (unsigned long long)f->mcast_bytes,
                         seconds(f->mcast_bop_us, mcast), (unsigned long long)f->blocks,
                         seconds(f->bop_us, all));
    snprintf(out + used, (size_t)(MINUTE_LINE_MAX - used), "\n");
    return out;
}

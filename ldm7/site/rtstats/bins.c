/* SPDX-License-Identifier: Apache-2.0 */
#include "bins.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "common/alloc.h"
#include "common/feedtype.h"

#define HOUR_S 3600L

static double seconds_between(const struct timeval *from, const struct timeval *to)
{
    return (double)(to->tv_sec - from->tv_sec) + (double)(to->tv_usec - from->tv_usec) / 1e6;
}

/* Returns the position of a bin, or NULL. Few are live at once, and the latest are at the end. */
static struct bin *find(struct bins *b, time_t hour, const struct pq_info *info)
{
    for (size_t i = b->n; i-- > 0;) {
        struct bin *x = &b->list[i];

        if (x->hour == hour && x->feed == info->feedtype &&
            strcasecmp(x->origin, info->origin) == 0)
            return x;
    }
    if (b->n == BINS_MAX)
        return NULL;
    b->list = xgrow(b->list, &b->n, sizeof *b->list);
    b->list[b->n - 1] = (struct bin){.hour = hour, .feed = info->feedtype};
    snprintf(b->list[b->n - 1].origin, sizeof b->list->origin, "%s", info->origin);
    return &b->list[b->n - 1];
}

void bins_add(struct bins *b, const struct pq_info *info, const struct timeval *inserted)
{
    time_t hour = info->creation.tv_sec / HOUR_S * HOUR_S;
    struct bin *x = find(b, hour, info);
    double latency_s = seconds_between(&info->creation, inserted);

    if (!x) {
        b->dropped++;
        return;
    }
    x->products++;
    x->bytes += info->size;
    x->creation = info->creation;
    x->inserted = *inserted;
    x->latency_sum_s += latency_s;
    if (latency_s > x->latency_max_s || x->products == 1) {
        x->latency_max_s = latency_s;
        x->slowest = info->creation.tv_sec;
    }
    x->changed = true;
}

void bins_expire(struct bins *b, time_t now)
{
    size_t kept = 0;

    for (size_t i = 0; i < b->n; i++)
        if (b->list[i].changed || b->list[i].inserted.tv_sec >= now - 2 * HOUR_S)
            b->list[kept++] = b->list[i];
    b->n = kept;
}

void bins_free(struct bins *b)
{
    free(b->list);
    *b = (struct bins){0};
}

static void format_time(time_t t, const char *format, char out[32])
{
    struct tm tm;

    if (!gmtime_r(&t, &tm) || strftime(out, 32, format, &tm) == 0)
        snprintf(out, 32, "?");
}

char *bin_format(const struct bin *b, const char *host, const char *version, char out[BIN_LINE_MAX])
{
    size_t n = 0;

    char creation[32];
    format_time(b->creation.tv_sec, "%Y%m%d%H%M%S", creation);
    char inserted[32];
    format_time(b->inserted.tv_sec, "%Y%m%d%H%M%S", inserted);
    char slowest[32];
    format_time(b->slowest, "%M%S", slowest);
    char origin[4 * PQ_ORIGIN_MAX + 1];
    for (const char *c = b->origin; *c != '\0'; c++) /* columns are separated by blanks */
        origin[n++] = *c > ' ' && *c != 0x7f ? *c : '?';
    origin[n] = '\0';
    char feed[FEEDTYPE_TEXT_MAX];
    snprintf(
        out, BIN_LINE_MAX,
        "%14.14s %14.14s %32.255s %7.10s %32.64s %12llu %12llu %.8g %10.2f %4.0f@%4.4s %20.20s\n",
        creation, inserted, host, feedtype_format(b->feed, feed, sizeof feed), origin,
        (unsigned long long)b->products, (unsigned long long)b->bytes,
        seconds_between(&b->creation, &b->inserted), b->latency_sum_s / (double)b->products,
        b->latency_max_s, slowest, version);
    return out;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints how full a product queue is.
 */
#include <stdio.h>

#include "common/log.h"
#include "common/tool.h"
#include "queue/pq.h"

static const char help[] =
    "Usage: pqmon -q QUEUE [-S] [-i SECONDS]\n"
    "Prints, under a header:\n"
    "  nprods    products in the queue        nfree     free extents of the data area\n"
    "  nempty    unused slots                 nbytes    bytes in use\n"
    "  maxprods  most products so far         maxfree   most free extents so far\n"
    "  minempty  fewest unused slots so far   maxext    bytes of the largest free extent\n"
    "  age       seconds since the oldest product was inserted (-1: none)\n"
    "  -S, --summary          instead: isFull dataCapacity dataHighWater dataCurrent prodCapacity\n"
    "                         prodHighWater prodCurrent ageOldest ageYoungest minVirtResTime\n"
    "                         mvrtSize mvrtSlots (the shortest time from a product's creation until it\n"
    "                         made room; bytes and products at that time; -1: none has yet;\n"
    "                         'pqutil reset' starts over)\n"
    "  -i, --interval SECONDS print a line every SECONDS, until SIGINT or SIGTERM (default 0: once)\n"
    "  -q, --queue QUEUE      the queue\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, 2 bad usage, or QUEUE is not a product queue.\n";

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"summary", no_argument, NULL, 'S'},
    {"interval", required_argument, NULL, 'i'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

static void summary_line(const struct pq_stats *s)
{
    bool none = s->min_residence_s < 0;
    printf("%s %llu %llu %llu %u %u %u %.3f %.3f %.3f %lld %lld\n", s->evicted ? "yes" : "no",
           (unsigned long long)s->data_bytes, (unsigned long long)s->high_water_bytes,
           (unsigned long long)s->used_bytes, s->slots, s->high_water_slots, s->used_slots,
           s->age_oldest_s, s->age_youngest_s, s->min_residence_s,
           none ? -1LL : (long long)s->min_residence_bytes,
           none ? -1LL : (long long)s->min_residence_slots);
}

static void line(const struct pq_stats *s)
{
    printf("%u %u %u %llu %u %u %u %llu %.0f\n", s->used_slots, s->free_extents,
           s->slots - s->used_slots - s->reserved_slots, (unsigned long long)s->used_bytes,
           s->high_water_slots, s->high_water_free_extents, s->slots - s->high_water_occupied,
           (unsigned long long)s->largest_free_bytes, s->age_oldest_s);
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    bool summary = false;
    double interval_s = 0;
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:Si:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': path = optarg; break;
        case 'S': summary = true; break;
        case 'i': interval_s = tool_real("-i", optarg, 0, 86400); break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    struct pq *q = tool_open(path, false);
    bool ok = true;
    tool_catch_signals();
    if (!summary)
        printf("nprods nfree nempty nbytes maxprods maxfree minempty maxext age\n");
    do {
        struct pq_stats s;
        pq_get_stats(q, &s);
        (summary ? summary_line : line)(&s);
        ok = fflush(stdout) == 0;
        if (interval_s > 0)
            tool_wait(-1, interval_s);
    } while (ok && interval_s > 0 && !tool_stop);
    pq_close(q);
    return ok ? TOOL_OK : TOOL_SYSTEM;
}

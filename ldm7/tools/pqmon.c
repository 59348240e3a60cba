/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints how a product queue is filled.
 */
#include <stdio.h>

#include "log.h"
#include "pq.h"
#include "tool.h"

static const char help[] =
    "Usage: pqmon -q QUEUE [-S]\n"
    "Prints, under a header:\n"
    "  nprods    products in the queue        nfree     free extents of the data area\n"
    "  nempty    unused slots                 nbytes    bytes in use\n"
    "  maxprods  most products so far         maxfree   most free extents so far\n"
    "  minempty  fewest unused slots so far   maxext    bytes of the largest free extent\n"
    "  age       seconds the oldest product has been there (-1: none)\n"
    "  -S, --summary          instead: isFull dataCapacity dataHighWater dataCurrent prodCapacity\n"
    "                         prodHighWater prodCurrent ageOldest ageYoungest minVirtResTime\n"
    "                         mvrtSize mvrtSlots (the shortest time a product stayed before it\n"
    "                         made room; bytes and products at that time; -1: none has yet)\n"
    "  -q, --queue QUEUE      the queue\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, 2 bad usage, or QUEUE is no product queue.\n";

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'}, {"summary", no_argument, NULL, 'S'}, TOOL_LONG, {NULL, 0, NULL, 0}};

int main(int argc, char **argv)
{
    const char *path = NULL;
    bool summary = false;
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:S", options, NULL)) != -1;) {
        switch (c) {
        case 'q':
            path = optarg;
            break;
        case 'S':
            summary = true;
            break;
        default:
            tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    struct pq *q = tool_open(path, false);
    struct pq_stats s;
    pq_get_stats(q, &s);
    pq_close(q);
    if (summary) {
        printf("%s %llu %llu %llu %u %u %u %.3f %.3f %.3f %lld %d\n", s.evicted ? "yes" : "no",
               (unsigned long long)s.data_bytes, (unsigned long long)s.high_water_bytes,
               (unsigned long long)s.used_bytes, s.slots, s.high_water_slots, s.used_slots, s.age_oldest_s,
               s.age_youngest_s, s.min_residence_s,
               s.min_residence_s < 0 ? -1LL : (long long)s.min_residence_bytes,
               s.min_residence_s < 0 ? -1 : (int)s.min_residence_slots);
    } else {
        printf("nprods nfree nempty nbytes maxprods maxfree minempty maxext age\n");
        printf("%u %u %u %llu %u %u %u %llu %.0f\n", s.used_slots, s.free_extents,
               s.slots - s.used_slots - s.reserved_slots, (unsigned long long)s.used_bytes, s.high_water_slots,
               s.high_water_free_extents, s.slots - s.high_water_occupied,
               (unsigned long long)s.largest_free_bytes, s.age_oldest_s);
    }
    return fflush(stdout) ? TOOL_SYSTEM : TOOL_OK;
}

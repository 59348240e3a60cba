/* SPDX-License-Identifier: Apache-2.0 */
#include "arrival_lines.h"

#include <stdio.h>

#include "tool/command.h"

static void print_file(void *ctx, const struct arrival_file *f)
{
    (void)ctx;
    printf("toi=%llu bytes=%llu seconds=%.3f received=%llu lost=%llu useful=%llu digest=%s "
           "name=%s\n",
           (unsigned long long)f->toi, (unsigned long long)f->bytes, f->seconds,
           (unsigned long long)f->stats.received, (unsigned long long)f->stats.lost,
           (unsigned long long)f->stats.useful, f->has_digest ? "good" : "none", f->name);
    fflush(stdout);
}

static void print_trouble(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "%s: %s\n", program, text);
}

void arrival_lines_open(struct arrival *a, const char *dir_path, uint64_t max_bytes)
{
    struct tp_error err;

    a->news = (struct arrival_news){.file = print_file, .trouble = print_trouble};
    switch (arrival_open(a, dir_path, max_bytes, &err)) {
    case ARRIVAL_OPEN: return;
    case ARRIVAL_NO_DIRECTORY: die_usage("%s", err.text);
    case ARRIVAL_FAILED: break;
    }
    die("%s", err.text);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks whether a product queue is sound.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/tool.h"
#include "queue/pq.h"

enum { UNCLEAN = 3, DAMAGED = 4, CLIENTS_MAX = 512 };

static const char help[] =
    "Usage: pqcheck -q QUEUE [-c] [-F]\n"
    "Checks that all tables of the queue agree. A queue stays sound when its programs are killed, so you\n"
    "can check and use it at any time. This does not hold when the machine stops: data that programs had\n"
    "written may not have reached the disk.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -c, --check            compare the MD5 of each product's data (or of its identifier) with its\n"
    "                         signature\n"
    "  -F, --force            accept the queue as it is after a crash of the machine: exit 0 from now on\n"
    "  -v, --verbose          log how many have the queue open for writing and reading, and how many\n"
    "                         were killed\n" TOOL_HELP_TEXT
    "Exit status: 0 sound, 1 system error, 2 bad usage, or no QUEUE, 3 the machine stopped (or the file\n"
    "was copied) while programs had the queue open for writing: products may be torn ('pqcheck -c' checks,\n"
    "-F accepts), 4 damaged, or not a product queue, or (-c) a signature differs.\n";

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"check", no_argument, NULL, 'c'},
    {"force", no_argument, NULL, 'F'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

/* Returns how many products do not match their signature. */
static unsigned long long differing(struct pq *q)
{
    unsigned long long bad = 0;
    char line[PRODUCT_LINE_MAX];
    struct pq_signature of_data, of_ident;
    struct pq_view v;
    for (uint64_t after = 0; !tool_stop && pq_next(q, after, &v) == PQ_OK;
         after = v.seq, pq_release(q, &v)) {
        if (digest_of(v.data, v.info.size, &of_data) &&
            memcmp(&of_data, &v.info.signature, sizeof of_data) == 0)
            continue;
        if (digest_of(v.info.ident, strlen(v.info.ident), &of_ident) &&
            memcmp(&of_ident, &v.info.signature, sizeof of_ident) == 0)
            continue;
        bad++;
        log_error("Signature differs: %s", product_line_format(&v.info, line, sizeof line));
    }
    return bad;
}

static void tell_clients(struct pq *q, const struct pq_stats *s)
{
    static struct pq_client_info clients[CLIENTS_MAX];
    unsigned n = pq_clients(q, clients, CLIENTS_MAX), writers = 0, readers = 0, dead = 0;
    for (unsigned i = 0; i < n; i++) {
        dead += !clients[i].alive;
        writers += clients[i].alive && clients[i].writes && !clients[i].self;
        readers += clients[i].alive && !clients[i].writes && !clients[i].self;
    }
    log_info("Open: writers=%u readers=%u killed=%u; recoveries=%llu", writers, readers, dead,
             (unsigned long long)s->recoveries);
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    bool check = false, force = false;
    int code = TOOL_OK;
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:cF", options, NULL)) != -1;) {
        switch (c) {
        case 'q': path = optarg; break;
        case 'c': check = true; break;
        case 'F': force = true; break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    if (!path)
        tool_usage("-q QUEUE is missing");
    struct pq *q;
    enum pq_status st = pq_open(path, force, &q);
    if (st == PQ_CORRUPT) {
        log_error("\"%s\" is damaged, or not a product queue of this version", path);
        return DAMAGED;
    }
    if (st)
        q = tool_open(path, force); /* says why, unless it can be opened now */
    tool_catch_signals();
    struct pq_stats s;
    pq_get_stats(q, &s);
    tell_clients(q, &s);
    if (pq_check(q)) {
        log_error("\"%s\" is damaged: its tables do not agree", path);
        code = DAMAGED;
    } else if (check && differing(q)) {
        code = DAMAGED;
    } else if (s.unclean && !force) {
        log_warn(
            "\"%s\": the machine stopped, or the file was copied, while it was open for writing: products may be torn",
            path);
        code = UNCLEAN;
    } else if (force && pq_reset(q, PQ_RESET_UNCLEAN)) {
        code = TOOL_SYSTEM;
    }
    pq_close(q);
    return code;
}

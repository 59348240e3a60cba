/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the data of a queue's products, or a list of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/selection.h"
#include "common/tool.h"
#include "queue/pq.h"

static const char help[] =
    "Usage: pqcat -q QUEUE [-f FEED] [-p PATTERN] [-o SECONDS] [-i SECONDS] [-c] [-s] [-O] [--list] [FILE]\n"
    "Writes the data of the products, oldest first, one after another, to FILE, which appears only when\n"
    "complete (without FILE, or with -, to standard output).\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -f, --feed FEED        only products of these feed types (default ANY)\n"
    "  -p, --pattern ERE      only products whose identifier matches\n"
    "  -o, --offset SECONDS   begin with products inserted SECONDS ago (default: with the oldest)\n"
    "  -i, --interval SECONDS keep running, and write new products, until SIGINT or SIGTERM; check at\n"
    "                         least every SECONDS; 0: end after the last product\n"
    "      --list             instead of the data, a line for each product: MD5 of the data (computed\n"
    "                         now), size, identifier\n"
    "  -c, --check            compare the MD5 of the data with the signature; exit 1 if one differs\n"
    "  -s, --sanity           check that the queue's tables agree with each other and with the products\n"
    "                         read; exit 1 if not\n"
    "  -O, --origin           log (-v) also each product's origin\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, or -c or -s found a difference, 2 bad usage, or QUEUE is\n"
    "not a product queue.\n";

enum { LIST = TOOL_OWN };
static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'},
    {"list", no_argument, NULL, LIST},
    {"check", no_argument, NULL, 'c'},
    {"offset", required_argument, NULL, 'o'},
    {"interval", required_argument, NULL, 'i'},
    {"sanity", no_argument, NULL, 's'},
    {"origin", no_argument, NULL, 'O'},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

struct job {
    struct pq *q;
    FILE *out;
    struct selection wanted;
    bool list, check, origin;
    uint64_t after;
    unsigned long long met, products, differing;
};

/* Returns false if the output cannot be written. */
static bool product(struct job *j, const struct pq_view *v)
{
    if (!selection_has(&j->wanted, &v->info))
        return true;
    j->products++;
    char line[PRODUCT_LINE_MAX];
    log_info("%s%s%s", product_line_format(&v->info, line, sizeof line), j->origin ? " " : "",
             j->origin ? v->info.origin : "");
    struct pq_signature found;
    if ((j->list || j->check) && !digest_of(v->data, v->info.size, &found)) {
        log_error("MD5 is not available");
        exit(TOOL_SYSTEM);
    }
    char hex[33];
    if (j->check && memcmp(&found, &v->info.signature, sizeof found) != 0) {
        j->differing++;
        log_error("Signature differs: data has %s, %s", signature_format(&found, hex),
                  product_line_format(&v->info, line, sizeof line));
    }
    if (j->list) {
        char ident[4 * PQ_IDENT_MAX + 1];
        log_escape(ident, sizeof ident, v->info.ident);
        return fprintf(j->out, "%s %u %s\n", signature_format(&found, hex), v->info.size, ident) >
               0;
    }
    return fwrite(v->data, 1, v->info.size, j->out) == v->info.size;
}

static bool all_there_is(struct job *j)
{
    struct pq_view v;
    while (!tool_stop && pq_next(j->q, j->after, &v) == PQ_OK) {
        bool ok = product(j, &v);
        j->after = v.seq;
        j->met++;
        pq_release(j->q, &v);
        if (!ok)
            return false;
    }
    return fflush(j->out) == 0;
}

static bool follow(struct job *j, double interval_s)
{
    int fd = pq_notify_fd(j->q);
    while (all_there_is(j)) {
        if (tool_stop)
            return true;
        tool_wait(fd, interval_s);
        pq_notify_clear(j->q);
    }
    return false;
}

/* The number of products cannot be checked while others change it; pq_check() compares all tables
 * at one moment. */
static bool is_sane(const struct job *j, const struct pq_stats *before)
{
    enum pq_status s = pq_check(j->q);
    struct pq_stats now;
    pq_get_stats(j->q, &now);
    bool changed = now.inserted != before->inserted || now.evicted != before->evicted ||
                   now.removed != before->removed;
    if (s)
        log_error("The tables of the queue do not agree: %s", pq_strerror(s));
    else if (!changed && j->met != now.used_slots)
        log_error("read %llu products, but the queue has %u", j->met, now.used_slots);
    else
        return true;
    return false;
}

static uint64_t position_at(struct pq *q, double seconds_ago)
{
    uint64_t after = 0;
    struct timeval from;
    gettimeofday(&from, NULL);
    int64_t us = (int64_t)from.tv_sec * 1000000 + from.tv_usec - (int64_t)(seconds_ago * 1e6);
    from = (struct timeval){.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    enum pq_status s = pq_seek(q, &from, &after);
    if (s)
        log_error("Queue: %s", pq_strerror(s));
    return after;
}

/* Writes FILE under a temporary name, unless it is a device or a pipe. */
static FILE *open_output(const char *path, char *tmp, size_t tmp_bytes)
{
    *tmp = 0;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fopen(path, "we");
    if (snprintf(tmp, tmp_bytes, "%s.tmp.%ld", path, (long)getpid()) >= (int)tmp_bytes) {
        *tmp = 0;
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(tmp, "wxe");
}

/* Gives the file its name, or removes it. */
static bool close_output(FILE *out, const char *tmp, const char *path, bool ok)
{
    int e = ok ? 0 : errno;
    if (fclose(out) != 0 && !e)
        e = errno;
    if (*tmp && !e && rename(tmp, path) != 0)
        e = errno;
    if (*tmp && e)
        unlink(tmp);
    errno = e;
    return e == 0;
}

int main(int argc, char **argv)
{
    const char *queue = NULL, *output = NULL;
    char tmp[4096] = "";
    double interval_s = 0, offset_s = -1;
    bool sanity = false;
    struct job j = {.out = stdout, .wanted = {.feed = FEEDTYPE_ANY}};
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:f:p:co:i:sO", options, NULL)) != -1;) {
        switch (c) {
        case 'q': queue = optarg; break;
        case 'f': j.wanted.feed = tool_feed(optarg); break;
        case 'p': selection_pattern(&j.wanted, optarg); break;
        case LIST: j.list = true; break;
        case 'c': j.check = true; break;
        case 's': sanity = true; break;
        case 'O': j.origin = true; break;
        case 'o': offset_s = tool_real("-o", optarg, 0, 1e9); break;
        case 'i': interval_s = tool_real("-i", optarg, 0, 86400); break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc && strcmp(argv[optind], "-") != 0)
        output = argv[optind];
    if (optind + 1 < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind + 1]);
    if (sanity && (interval_s > 0 || offset_s >= 0))
        tool_usage("-s checks the whole queue: it cannot be combined with -o or -i");
    j.q = tool_open(queue, false);
    tool_catch_signals();
    if (output && !(j.out = open_output(output, tmp, sizeof tmp))) {
        log_error("\"%s\" cannot be written: %s", output, strerror(errno));
        pq_close(j.q);
        return TOOL_SYSTEM;
    }
    struct pq_stats before;
    pq_get_stats(j.q, &before);
    if (offset_s >= 0)
        j.after = position_at(j.q, offset_s);
    bool ok = interval_s > 0 ? follow(&j, interval_s) : all_there_is(&j);
    if (ok && interval_s <= 0 && tool_stop) {
        ok = false;
        errno = EINTR;
    }
    if (j.out != stdout)
        ok = close_output(j.out, tmp, output, ok);
    if (!ok)
        log_error("\"%s\" cannot be written: %s", output ? output : "standard output",
                  strerror(errno));
    log_info("Number of products %llu", j.products);
    if (ok && sanity && !is_sane(&j, &before))
        ok = false;
    selection_free(&j.wanted);
    pq_close(j.q);
    return ok && !j.differing ? TOOL_OK : TOOL_SYSTEM;
}

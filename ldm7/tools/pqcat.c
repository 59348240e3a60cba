/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the data of a queue's products, or a list of them.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "digest.h"
#include "ere.h"
#include "feedtype.h"
#include "log.h"
#include "pq.h"
#include "product_line.h"
#include "tool.h"

static const char help[] =
    "Usage: pqcat -q QUEUE [-f FEED] [-p PATTERN] [-c] [--list] [-o FILE] [-i SECONDS]\n"
    "Writes the data of the products, oldest first, one after another.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -f, --feed FEED        only products of these feed types (default ANY)\n"
    "  -p, --pattern ERE      only products whose identifier matches\n"
    "      --list             instead of the data a line for each: MD5 of the data (computed now),\n"
    "                         size, identifier\n"
    "  -c, --check            compare the MD5 of the data with the signature; exit 1 if one differs\n"
    "  -o, --output FILE      write FILE, complete or not at all (default: standard output)\n"
    "  -i, --interval SECONDS stay, and write what is inserted later, until SIGINT or SIGTERM;\n"
    "                         look at least every SECONDS (an insertion is noticed at once)\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error or (-c) a signature differs, 2 bad usage, or QUEUE is\n"
    "no product queue.\n";

enum { LIST = TOOL_OWN };
static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'}, {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'}, {"list", no_argument, NULL, LIST},
    {"check", no_argument, NULL, 'c'}, {"output", required_argument, NULL, 'o'},
    {"interval", required_argument, NULL, 'i'}, TOOL_LONG, {NULL, 0, NULL, 0}};

struct job {
    struct pq *q;
    FILE *out;
    uint32_t feed;
    struct ere *pattern;
    bool list, check;
    uint64_t after;
    unsigned long long products, differing;
};

/* false: the output can not be written. */
static bool product(struct job *j, const struct pq_view *v)
{
    char line[PRODUCT_LINE_MAX], hex[33], ident[4 * PQ_IDENT_MAX + 1];
    struct pq_signature found;
    if (!(v->info.feedtype & j->feed) || (j->pattern && ere_match(j->pattern, v->info.ident) != ERE_YES))
        return true;
    j->products++;
    log_info("%s", product_line_format(&v->info, line, sizeof line));
    if ((j->list || j->check) && !digest_of(v->data, v->info.size, &found)) {
        log_error("MD5 is not available");
        exit(TOOL_SYSTEM);
    }
    if (j->check && memcmp(&found, &v->info.signature, sizeof found) != 0) {
        j->differing++;
        log_error("Signature differs: data has %s, %s", signature_format(&found, hex),
                  product_line_format(&v->info, line, sizeof line));
    }
    if (j->list) {
        log_escape(ident, sizeof ident, v->info.ident);
        return fprintf(j->out, "%s %u %s\n", signature_format(&found, hex), v->info.size, ident) > 0;
    }
    return fwrite(v->data, 1, v->info.size, j->out) == v->info.size;
}

static bool all_there_is(struct job *j)
{
    struct pq_view v;
    while (!tool_stop && pq_next(j->q, j->after, &v) == PQ_OK) {
        bool ok = product(j, &v);
        j->after = v.seq;
        pq_release(j->q, &v);
        if (!ok)
            return false;
    }
    return fflush(j->out) == 0;
}

static bool follow(struct job *j, double interval_s)
{
    struct pollfd p = {.fd = pq_notify_fd(j->q), .events = POLLIN};
    while (all_there_is(j)) {
        if (tool_stop)
            return true;
        poll(&p, 1, interval_s < 0.5 ? (int)(interval_s * 1000) : 500);
        pq_notify_clear(j->q);
    }
    return false;
}

/* FILE is written under a temporary name, unless it is a device or a pipe. */
static FILE *open_output(const char *path, char *tmp, size_t tmp_bytes)
{
    struct stat st;
    *tmp = 0;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return fopen(path, "we");
    if (snprintf(tmp, tmp_bytes, "%s.tmp.%ld", path, (long)getpid()) >= (int)tmp_bytes) {
        *tmp = 0;
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(tmp, "wxe");
}

int main(int argc, char **argv)
{
    const char *queue = NULL, *output = NULL;
    char tmp[4096] = "";
    double interval_s = 0;
    struct job j = {.out = stdout, .feed = FEEDTYPE_ANY};
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:f:p:co:i:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': queue = optarg; break;
        case 'f': j.feed = tool_feed(optarg); break;
        case 'p': {
            char why[512];
            ere_free(j.pattern);
            if (ere_compile(&j.pattern, optarg, false, why, sizeof why) < 0)
                tool_usage("-p: found \"%s\" (%s) ; valid: an extended regular expression", optarg, why);
            break;
        }
        case LIST: j.list = true; break;
        case 'c': j.check = true; break;
        case 'o': output = optarg; break;
        case 'i': interval_s = tool_real("-i", optarg, 0.001, 86400); break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    j.q = tool_open(queue, false);
    tool_catch_signals();
    if (output && !(j.out = open_output(output, tmp, sizeof tmp))) {
        log_error("\"%s\" can not be written: %s", output, strerror(errno));
        pq_close(j.q);
        return TOOL_SYSTEM;
    }
    bool ok = interval_s > 0 ? follow(&j, interval_s) : all_there_is(&j);
    ok = ok && (interval_s > 0 || !tool_stop);
    int e = tool_stop && interval_s == 0 ? EINTR : errno;
    if (j.out != stdout) {
        if (fclose(j.out) != 0 && ok) {
            e = errno;
            ok = false;
        }
        if (*tmp && ok && rename(tmp, output) != 0) {
            e = errno;
            ok = false;
        }
        if (*tmp && !ok)
            unlink(tmp);
    }
    if (!ok)
        log_error("\"%s\" can not be written: %s", output ? output : "standard output", strerror(e));
    log_info("Number of products %llu", j.products);
    ere_free(j.pattern);
    pq_close(j.q);
    return ok && !j.differing ? TOOL_OK : TOOL_SYSTEM;
}

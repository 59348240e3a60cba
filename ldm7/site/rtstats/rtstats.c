/* SPDX-License-Identifier: Apache-2.0
 *
 * rtstats: statistics of what arrived, each minute.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bins.h"
#include "common/alloc.h"
#include "common/digest.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/selection.h"
#include "common/tool.h"
#include "ldmd/push.h"
#include "ldmdlog.h"
#include "minutes.h"
#include "paths.h"
#include "plural.h"
#include "queue/pq.h"

static const char help[] =
    "Usage: rtstats -q QUEUE [-f FEED] [-p ERE] [-o SECONDS] [-i SECONDS] [-H HOST] [-h SERVER] [-P PORT]\n"
    "               [--classic FILE] [--minutes FILE] [--insert] [--ldmd-log FILE]\n"
    "Reports arrivals in a queue every minute; give at least one of -h, --classic, --minutes and --insert.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -f, --feed FEED        only products of these feed types (default \"ANY - EXP\")\n"
    "  -p, --pattern ERE      only products whose identifier matches\n"
    "  -o, --offset SECONDS   begin with products inserted SECONDS ago (default 0: from now on); in a log,\n"
    "                         with the minute of that time\n"
    "  -i, --interval SECONDS look for products at least this often (default 15; an insertion is noticed\n"
    "                         immediately)\n"
    "  -H, --host HOST        this host's name in the reports (default: the system's)\n"
    "  -h, --send-to SERVER   send both as EXP products to an LDM server that accepts them, named as by --insert\n"
    "  -P, --port PORT        its port (default 388)\n"
    "      --classic FILE     append the classic lines, one per feed type, origin and hour of creation\n"
    "      --minutes FILE     append the minute records, one per feed type: of 14 fields, and with\n"
    "                         --ldmd-log also of 19, and at a publisher of 6 about each path\n"
    "      --insert           insert both into the queue as EXP products, which LDM then distributes:\n"
    "                         rtstats-VERSION/HOST/FEED/ORIGIN and ldm7-rtstats-{1,2,path}/HOST/FEED\n"
    "      --ldmd-log FILE    take the minute records from ldmd's log (-v, text), which says what FMTP alone\n"
    "                         delivered, and has a publisher's paths; from the queue, received and\n"
    "                         complete are the same\n"
    "FILE may be - for standard output. Here -h names a server; --help prints the help.\n" TOOL_HELP_TEXT
    "Exit status: 0 ended by SIGTERM or SIGINT, 1 system error, 2 bad usage, or QUEUE is not a product queue.\n";

enum { CLASSIC = TOOL_OWN, MINUTES, INSERT, LDMD_LOG, HELP };
static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'},
    {"offset", required_argument, NULL, 'o'},
    {"interval", required_argument, NULL, 'i'},
    {"host", required_argument, NULL, 'H'},
    {"send-to", required_argument, NULL, 'h'},
    {"port", required_argument, NULL, 'P'},
    {"classic", required_argument, NULL, CLASSIC},
    {"minutes", required_argument, NULL, MINUTES},
    {"insert", no_argument, NULL, INSERT},
    {"ldmd-log", required_argument, NULL, LDMD_LOG},
    /* Before the common option, because -h has another meaning here. */
    {"help", no_argument, NULL, HELP},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

enum { LETTERS_MAX = 4096 }; /* waiting for a server: two days' worth of one feed */

/* A report on its way to a server. */
struct letter {
    struct pq_info info;
    char line[MINUTE_LINE_MAX > BIN_LINE_MAX ? MINUTE_LINE_MAX : BIN_LINE_MAX];
};

struct rtstats {
    struct pq *q;
    struct selection wanted;
    double offset_s, interval_s;
    char host[256];
    const char *classic, *minutes_file, *ldmd_log;
    bool insert;
    struct bins bins;
    struct minutes minutes,
        before;    /* the current one; the previous one, whose last lines may arrive late */
    bool again;    /* the previous one has changed since its report */
    uint64_t late; /* products of earlier minutes, which are in no record */
    struct ldmdlog log;
    time_t log_from;
    struct paths paths;
    uint64_t after;
    uint32_t seqno;
    struct push server; /* host NULL: none */
    struct letter *letters;
    size_t nletters;
};

/* Appends whole lines, so that several programs may write to one file. */
static void append(const char *path, const char *line)
{
    size_t bytes = strlen(line);
    int fd = strcmp(path, "-") == 0 ? STDOUT_FILENO
                                    : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, line, bytes) != (ssize_t)bytes)
        log_error("\"%s\" cannot be written: %s", path, strerror(errno));
    if (fd > STDERR_FILENO)
        close(fd);
}

static void insert(struct rtstats *r, const char *line, const struct pq_info *info)
{
    enum pq_status s = pq_insert(r->q, info, line);

    if (s != PQ_OK && s != PQ_DUP)
        log_error("\"%s\" cannot be inserted: %s", info->ident, pq_strerror(s));
}

static void keep(struct rtstats *r, const char *line, const struct pq_info *info)
{
    if (r->nletters == LETTERS_MAX) {
        log_warn("%s:%u has accepted nothing for a long time; a report is lost", r->server.host,
                 r->server.port);
        memmove(r->letters, r->letters + 1, --r->nletters * sizeof *r->letters);
    }
    r->letters = xgrow(r->letters, &r->nletters, sizeof *r->letters);
    r->letters[r->nletters - 1].info = *info;
    snprintf(r->letters[r->nletters - 1].line, sizeof r->letters->line, "%s", line);
}

/* Sends what was kept, over its own connection: servers come and go. What the server does not
 * accept is sent again with the next reports; a server that has it recognizes its signature. */
static void send_kept(struct rtstats *r)
{
    if (r->nletters == 0)
        return;
    bool taken = false;
    if (client_init(&r->server.c) == 0) {
        bool ok = push_begin(&r->server, FEEDTYPE_EXP);
        for (size_t i = 0; i < r->nletters && ok; i++) {
            struct pq_view v = {.info = r->letters[i].info, .data = (uint8_t *)r->letters[i].line};
            ok = push_product(&r->server, &v);
        }
        taken = ok && push_taken(&r->server);
        if (!taken)
            log_warn("%s:%u: %s; keeps %zu %s for the next time", r->server.host, r->server.port,
                     r->server.c.why, r->nletters, plural(r->nletters, "report", "reports"));
        push_end(&r->server);
        if (r->server.c.loop.stop)
            tool_stop = 1;
        client_end(&r->server.c);
        loop_unblock_signals();
    }
    if (taken)
        r->nletters = 0;
}

static void report(struct rtstats *r, const char *path, const char *line, const char *ident)
{
    struct pq_info info = {
        .feedtype = FEEDTYPE_EXP, .seqno = r->seqno++, .size = (uint32_t)strlen(line)};

    log_info("%s: %.*s", ident, (int)strcspn(line, "\n"), line);
    if (path)
        append(path, line);
    if (!r->insert && !r->server.host)
        return;
    gettimeofday(&info.creation, NULL);
    snprintf(info.origin, sizeof info.origin, "%.*s", PQ_ORIGIN_MAX, r->host);
    snprintf(info.ident, sizeof info.ident, "%s", ident);
    if (!digest_of(line, info.size, &info.signature)) {
        log_error("\"%s\" has no signature: MD5 failed", ident);
        return;
    }
    if (r->insert)
        insert(r, line, &info);
    if (r->server.host)
        keep(r, line, &info);
}

static void report_bins(struct rtstats *r, time_t now)
{
    char line[BIN_LINE_MAX], feed[FEEDTYPE_TEXT_MAX], ident[PQ_IDENT_MAX + 1];

    for (size_t i = 0; i < r->bins.n; i++) {
        struct bin *b = &r->bins.list[i];

        if (!b->changed)
            continue;
        snprintf(ident, sizeof ident, "rtstats-%s/%.64s/%.80s/%s", tool_version(), r->host,
                 feedtype_format(b->feed, feed, sizeof feed), b->origin);
        report(r, r->classic, bin_format(b, r->host, tool_version(), line), ident);
        b->changed = false;
    }
    bins_expire(&r->bins, now);
    if (r->bins.dropped > 0)
        log_warn("%llu products of more than %u feed types, origins and hours are in no line",
                 (unsigned long long)r->bins.dropped, BINS_MAX);
    r->bins.dropped = 0;
}

/* Version 2 needs the log: a queue does not record how long FMTP took, or what it sent again. */
static void report_records(struct rtstats *r, struct minutes *m)
{
    char line[MINUTE_LINE_MAX], feed[FEEDTYPE_TEXT_MAX], ident[PQ_IDENT_MAX + 1];

    for (size_t i = 0; i < m->nfeeds; i++)
        for (enum minute_version v = MINUTE_V1; v <= (r->ldmd_log ? MINUTE_V2 : MINUTE_V1); v++) {
            snprintf(ident, sizeof ident, "ldm7-rtstats-%d/%.64s/%.100s", (int)v, r->host,
                     feedtype_format(m->feeds[i].feed, feed, sizeof feed));
            report(r, r->minutes_file, minutes_format(m, i, r->host, v, line), ident);
        }
    if (m->dropped > 0)
        log_warn("%llu products of more than %u feed types are in no record",
                 (unsigned long long)m->dropped, MINUTE_FEEDS_MAX);
    m->dropped = 0;
}

static void report_minute(struct rtstats *r)
{
    if (r->minutes.minute == 0)
        return;
    report_records(r, &r->minutes);
    minutes_next(&r->before);
    r->before = r->minutes;
    r->minutes = (struct minutes){0};
    r->again = false;
    if (r->late > 0)
        log_warn("%llu products of minutes before the last are in no record",
                 (unsigned long long)r->late);
    r->late = 0;
}

static void report_paths(struct rtstats *r, time_t end)
{
    char line[PATH_LINE_MAX], ident[PQ_IDENT_MAX + 1];

    for (size_t i = 0; i < r->paths.n; i++) {
        const struct feed_path *path = &r->paths.list[i];

        if (!path->ready)
            continue;
        snprintf(ident, sizeof ident, "ldm7-rtstats-path/%.64s/%.100s", r->host, path->feed);
        report(r, r->minutes_file, path_format(path, end, r->host, line), ident);
    }
}

static void arrived(struct rtstats *r, const struct minute_product *p)
{
    if (minutes_over(&r->minutes, p->at))
        report_minute(r);
    time_t begins =
        r->minutes.minute ? r->minutes.minute : (r->before.minute ? r->before.minute + 60 : 0);
    if (p->at >= begins) {
        minutes_add(&r->minutes, p);
    } else if (r->before.minute != 0 && p->at >= r->before.minute &&
               p->at < r->before.minute + 60) {
        minutes_add(&r->before, p); /* its record is sent again, completely */
        r->again = true;
    } else {
        r->late++;
    }
}

static double since(const struct timeval *at, const struct timeval *creation)
{
    return (double)(at->tv_sec - creation->tv_sec) +
           (double)(at->tv_usec - creation->tv_usec) / 1e6;
}

static enum pq_status read_queue(struct rtstats *r)
{
    enum pq_status s = PQ_OK;
    struct pq_view v;

    char line[PRODUCT_LINE_MAX];
    while (!tool_stop && (s = pq_next(r->q, r->after, &v)) == PQ_OK) {
        if (selection_has(&r->wanted, &v.info)) {
            log_debug("%s", product_line_format(&v.info, line, sizeof line));
            bins_add(&r->bins, &v.info, &v.inserted);
            if (!r->ldmd_log)
                arrived(r,
                        &(struct minute_product){.at = v.inserted.tv_sec,
                                                 .feed = v.info.feedtype,
                                                 .bytes = v.info.size,
                                                 .latency_s = since(&v.inserted, &v.info.creation),
                                                 .by_fmtp = true});
        }
        r->after = v.seq;
        pq_release(r->q, &v);
    }
    return s;
}

static void read_log(struct rtstats *r)
{
    struct arrival a;

    const char *line;
    while (r->ldmd_log && (line = ldmdlog_line(&r->log))) {
        paths_take(&r->paths, line);
        if (ldmdlog_arrival(line, &a) && (a.feed & r->wanted.feed) != 0 &&
            a.at.tv_sec >= r->log_from)
            arrived(r, &(struct minute_product){.at = a.at.tv_sec,
                                                .feed = a.feed,
                                                .blocks = a.retrans,
                                                .bytes = a.bytes,
                                                .latency_s = since(&a.at, &a.creation),
                                                .bop_us = a.delay_us,
                                                .by_fmtp = a.by_fmtp});
    }
}

static time_t now_s(void)
{
    struct timeval t;

    gettimeofday(&t, NULL);
    return t.tv_sec;
}

static int run(struct rtstats *r)
{
    enum pq_status s = PQ_OK;
    int insertions = pq_notify_fd(r->q);
    time_t reported = now_s() / 60;

    while (!tool_stop && (s == PQ_OK || s == PQ_END)) {
        /* The clock is checked once a second: a minute also ends when nothing arrives. */
        tool_wait(insertions, r->interval_s < 1 ? r->interval_s : 1);
        pq_notify_clear(r->q);
        s = read_queue(r);
        read_log(r);
        time_t now = now_s();
        if (minutes_over(&r->minutes, now - 1))
            report_minute(r);
        if (r->again)
            report_records(r, &r->before);
        r->again = false;
        if (now / 60 != reported) {
            reported = now / 60;
            report_bins(r, now);
            report_paths(r, reported * 60);
        }
        send_kept(r);
    }
    report_minute(r);
    report_bins(r, now_s());
    report_paths(r, (now_s() / 60 + 1) * 60);
    send_kept(r);
    if (s == PQ_OK || s == PQ_END)
        return TOOL_OK;
    log_error("the queue cannot be read: %s", pq_strerror(s));
    return TOOL_SYSTEM;
}

static void begin(struct rtstats *r)
{
    r->after = pq_last_seq(r->q);
    if (r->offset_s <= 0) {
        const char *line; /* paths from before still exist */
        while (r->ldmd_log && (line = ldmdlog_line(&r->log)))
            paths_take(&r->paths, line);
        return;
    }
    struct timeval from;
    gettimeofday(&from, NULL);
    double whole = (double)from.tv_sec - r->offset_s;
    from.tv_sec = whole < 0 ? 0 : (time_t)whole;
    r->log_from = from.tv_sec / 60 * 60;
    if (pq_seek(r->q, &from, &r->after) != PQ_OK)
        r->after = pq_last_seq(r->q);
}

static void take_arguments(struct rtstats *r, const char **queue, int argc, char **argv)
{
    for (int c; (c = getopt_long(argc, argv, "vxl:q:f:p:o:i:H:h:P:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': *queue = optarg; break;
        case 'f': r->wanted.feed = tool_feed(optarg); break;
        case 'p': selection_pattern(&r->wanted, optarg); break;
        case 'o': r->offset_s = tool_real("-o", optarg, 0, 1e9); break;
        case 'i': r->interval_s = tool_real("-i", optarg, 0.001, 86400); break;
        case 'H':
            if (*optarg == '\0' || strlen(optarg) >= sizeof r->host || strpbrk(optarg, ", \t\n/"))
                tool_usage("-H: found \"%s\"; valid: a host's name", optarg);
            snprintf(r->host, sizeof r->host, "%s", optarg);
            break;
        case 'h': r->server.host = optarg; break;
        case HELP: tool_option('h', help); break;
        case 'P': r->server.port = (uint16_t)tool_u64("--port", optarg, 1, 65535); break;
        case CLASSIC: r->classic = optarg; break;
        case MINUTES: r->minutes_file = optarg; break;
        case INSERT: r->insert = true; break;
        case LDMD_LOG: r->ldmd_log = optarg; break;
        default: tool_option(c, help);
        }
    }
    if (optind < argc)
        tool_usage("unexpected argument \"%s\"", argv[optind]);
    if (!r->classic && !r->minutes_file && !r->insert && !r->server.host)
        tool_usage(
            "nothing to report to; valid: at least one of -h SERVER, --classic FILE, --minutes FILE, --insert");
}

int main(int argc, char **argv)
{
    static struct rtstats r = {.interval_s = 15, .server = {.port = LDM_PORT, .timeout_s = 10}};
    const char *queue = NULL;

    log_init(argc, &argv);
    r.wanted.feed = tool_feed("ANY - EXP");
    if (gethostname(r.host, sizeof r.host - 1) != 0)
        snprintf(r.host, sizeof r.host, "localhost");
    take_arguments(&r, &queue, argc, argv);
    r.q = tool_open(queue, r.insert);
    if (r.ldmd_log && ldmdlog_open(&r.log, r.ldmd_log) < 0) {
        log_error("log \"%s\" cannot be opened: %s", r.ldmd_log, strerror(errno));
        pq_close(r.q);
        return TOOL_USAGE;
    }
    tool_catch_signals();
    begin(&r);
    int result = run(&r);
    ldmdlog_close(&r.log);
    bins_free(&r.bins);
    minutes_next(&r.before);
    free(r.letters);
    selection_free(&r.wanted);
    pq_close(r.q);
    return result;
}

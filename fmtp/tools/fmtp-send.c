/* SPDX-License-Identifier: Apache-2.0
 *
 * fmtp-send: multicasts files to receivers (fmtp-recv) and repairs their losses.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "fmtp_events.h"
#include "notices.h"
#include "qlog.h"
#include "source.h"
#include "stats.h"
#include "tool/confine.h"

enum { PER_ADDRESS = 32 };
#define JOIN_S 0.5
#define NS_PER_S UINT64_C(1000000000)
#define LOOK_S 0.1 /* how often to check whether files have changed */

struct run;

struct offered { /* a file on one feed */
    struct run *run;
    struct feed *feed;
    struct source *file;
    double at_s;
};

struct feed { /* one group with its TCP port */
    struct run *run;
    struct fmtp_server_config cfg;
    struct fmtp_server *server;
    size_t offered, released, not_done;
    uint64_t told_too_long;
};

struct run {
    struct source **files;
    size_t nfiles, capacity;
    struct feed feeds[FEEDS_MAX];
    unsigned ngroups, naddresses, nports, nfeeds; /* the first three as named by options */
    uint16_t ports[FEEDS_MAX];
    double looked_s;   /* when files were last checked */
    struct qlog *qlog; /* NULL: none */
    const char *state; /* file that keeps the product index; NULL: none */
    uint32_t next_index;
    bool open;               /* standard input may still name files */
    char line[PATH_MAX + 1]; /* incomplete line of standard input */
    size_t line_len;
};

static const char *const why_text[] = {"all-done", "failed", "changed", "timeout", "closed"};

static const char usage[] =
    "Usage: fmtp-send --group IP:PORT --address IP [OPTION]... FILE...\n"
    "       fmtp-send --group IP:PORT --address IP --stdin [OPTION]... [FILE]...\n"
    "Multicasts files and repairs losses until every receiver has all files.\n"
    "\n"
    "  --group IP:PORT    multicast group and UDP port ([IP]:PORT with IPv6)\n"
    "  --address IP       address of the interface to send from and to listen on\n"
    "  --port N           TCP port for retransmissions (default: the system chooses)\n"
    "                     (for several groups repeat these three, in the same order;\n"
    "                     every file goes to every group)\n"
    "  --receivers N      wait for N receivers before the first file (default 1)\n"
    "  --layout YEAR      wire layout 2021 (default) or 2017\n"
    "  --mac LEVEL        0 none, 1 HMAC-SHA256, 2 Ed25519 (default auto: 1 with\n"
    "                     AES-GMAC, or 0 if the first receiver is an original)\n"
    "  --key-file FILE    key of 64 hexadecimal digits that every receiver must have\n"
    "  --pdu BYTES        packet size (default: 1460, or less if the path's MTU is smaller)\n"
    "  --repair KIND      multicast (default; FEC, for receivers that support it), blocks:\n"
    "                     the same without FEC, or unicast: by TCP only, as the originals\n"
    "  --rate BPS         multicast rate in bit/s of IP packets, k/M/G allowed (default\n"
    "                     20M), unlimited, or auto: as fast as the receivers can follow\n"
    "  --repair-rate BPS  rate of all retransmissions by TCP together (default unlimited)\n"
    "  --fsnd X           sender timeout factor (default 5000): serve a file for\n"
    "                     X times its transmission time, at least a round trip and 1 s\n"
    "  --dead SECONDS     disconnect a receiver whose host acknowledges nothing for this\n"
    "                     long (default 60)\n"
    "  --held-products N  disconnect a receiver that is more than N files behind the others\n"
    "                     (default 4000; 0: no limit); also by bytes of files, k/M/G\n"
    "  --held-bytes N     allowed (default 0: no limit), and by seconds behind (default\n"
    "  --held-seconds N   3600; 0: no limit)\n"
    "  --ttl N            time to live, or hop limit, of the datagrams (default 1)\n"
    "  --no-gso           pass datagrams to the system one by one\n"
    "  --congestion-control NAME  for the TCP connections (default: the system's)\n"
    "  --first-index N    product index of the first file (default 0)\n"
    "  --state FILE       keep the product index in FILE: a restarted sender continues\n"
    "                     with the index after the last\n"
    "  --stdin            send the files that standard input names, one path per line, as\n"
    "                     they come; end when it is closed and all are delivered\n"
    "  --qlog DIR         write events of files to a file in DIR\n"
    "  --no-sandbox       run without the seccomp and Landlock sandbox\n"
    "  --help, --version\n"
    "\n"
    "Prints a line per file and one for the run. Exit status: 0 if every receiver\n"
    "acknowledged every file, 1 if one did not or on failure, 2 on wrong usage.\n";

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct offered *o = cookie;
    struct source *f = o->file;
    struct feed *feed = ctx;

    if (why == FMTP_RELEASE_WITHDRAWN)
        f->cut = 1; /* no SIGBUS if the system reads it */
    if (!source_is_intact(f))
        why = FMTP_RELEASE_WITHDRAWN;
    feed->released++;
    feed->not_done += why != FMTP_RELEASE_ALL_DONE;
    progress("%s", "");
    printf("index=%u bytes=%zu seconds=%.6f why=%s name=%s\n", index, f->size, now_s() - o->at_s,
           why_text[why], f->name);
    fflush(stdout);
    qlog_event(o->run->qlog, FMTP_EVENT_RELEASED, "\"index\":%u,\"why\":\"%s\",\"feed\":%zu", index,
               why_text[why], (size_t)(feed - o->run->feeds));
    free(o);
    source_leave(f);
}

static void multicasted(void *ctx, uint32_t index, void *cookie)
{
    const struct offered *o = cookie;

    (void)ctx;
    qlog_event(o->run->qlog, FMTP_EVENT_SENT, "\"index\":%u,\"feed\":%zu", index,
               (size_t)(o->feed - o->run->feeds));
}

static void receivers_changed(void *ctx, const struct sockaddr *peer, int change, size_t count)
{
    const struct feed *feed = ctx;

    char text[TP_ADDRESS_TEXT];
    qlog_event(feed->run->qlog, change > 0 ? FMTP_EVENT_JOINED : FMTP_EVENT_LEFT,
               "\"host\":\"%s\",\"receivers\":%zu,\"feed\":%zu", tp_address_text(peer, text), count,
               (size_t)(feed - feed->run->feeds));
}

static void requested(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks,
                      bool multicast)
{
    const struct feed *feed = ctx;

    char text[TP_ADDRESS_TEXT];
    qlog_event(feed->run->qlog, FMTP_EVENT_REQUESTED,
               "\"index\":%u,\"blocks\":%u,\"by\":\"%s\",\"host\":\"%s\",\"feed\":%zu", index,
               blocks, multicast ? "multicast" : "tcp", tp_address_text(peer, text),
               (size_t)(feed - feed->run->feeds));
}

static void repaired(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks)
{
    const struct feed *feed = ctx;

    char text[TP_ADDRESS_TEXT];
    qlog_event(feed->run->qlog, FMTP_EVENT_REPAIRED,
               "\"index\":%u,\"blocks\":%u,\"by\":\"%s\"%s%s%s,\"feed\":%zu", index, blocks,
               peer ? "tcp" : "multicast", peer ? ",\"host\":\"" : "",
               peer ? tp_address_text(peer, text) : "", peer ? "\"" : "",
               (size_t)(feed - feed->run->feeds));
}

static void queue_full(void *ctx, const struct sockaddr *peer, uint32_t index)
{
    const struct feed *feed = ctx;

    char text[TP_ADDRESS_TEXT];
    qlog_event(feed->run->qlog, FMTP_EVENT_FULL, "\"index\":%u,\"host\":\"%s\",\"feed\":%zu", index,
               tp_address_text(peer, text), (size_t)(feed - feed->run->feeds));
}

static void expired(void *ctx, uint32_t index)
{
    const struct feed *feed = ctx;

    qlog_event(feed->run->qlog, FMTP_EVENT_EXPIRED,
               "\"index\":%u,\"timer\":\"tau_snd\",\"feed\":%zu", index,
               (size_t)(feed - feed->run->feeds));
}

/* Adds a file to the list; an invalid one ends the program, before or while it sends. */
static void add_file(struct run *run, const char *path)
{
    if (run->nfiles == run->capacity) {
        run->capacity = run->capacity ? 2 * run->capacity : 64;
        run->files = xreallocarray(run->files, run->capacity, sizeof(struct source *));
    }
    run->files[run->nfiles++] = source_new(path);
}

/* Reads what standard input has to offer now: complete lines are files. */
static void read_names(struct run *run)
{
    ssize_t n = read(STDIN_FILENO, run->line + run->line_len, sizeof run->line - 1 - run->line_len);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0)
        die("standard input: %s", strerror(errno));
    run->line_len += (size_t)n;
    if (n == 0) {
        run->open = false;
        if (run->line_len)
            run->line[run->line_len++] = '\n';
    }
    char *end;
    while ((end = memchr(run->line, '\n', run->line_len))) {
        size_t used = (size_t)(end - run->line) + 1;
        *end = 0;
        if (*run->line)
            add_file(run, run->line);
        run->line_len -= used;
        memmove(run->line, run->line + used, run->line_len);
    }
    if (run->line_len == sizeof run->line - 1)
        die_usage("standard input: line of more than %zu bytes; valid: one path per line",
                  run->line_len);
}

/* Withdraws files that are no longer what was announced; the others continue. */
static void look_at_files(struct run *run)
{
    for (struct source *f = source_first_open(), *next; f; f = next) {
        next = f->next_open;
        if (source_is_intact(f))
            continue;
        for (unsigned i = 0; i < run->nfeeds; i++) {
            bool last = f->users == 1;
            /* The last withdrawal frees it. */
            if (fmtp_server_withdraw(run->feeds[i].server, f->indices[i]) && last)
                break;
        }
    }
}

static void leave_out(struct feed *feed, struct source *f)
{
    feed->released++;
    feed->not_done++;
    source_leave(f);
}

static void offer(struct run *run, struct feed *feed)
{
    struct source *f = run->files[feed->offered++];

    if (!f->users)
        source_open(f, run->nfeeds); /* every feed must release it */
    if (f->unreadable) {
        leave_out(feed, f);
        return;
    }
    struct offered *o = xcalloc(1, sizeof *o);
    *o = (struct offered){.run = run, .feed = feed, .file = f, .at_s = now_s()};
    /* Before the product is visible: no index is used twice, whenever this program ends. */
    if (feed == run->feeds && run->state)
        write_state(run->state, ++run->next_index);
    struct iovec part = {f->data, f->size};
    struct tp_error err;
    uint32_t index;
    if (fmtp_server_offer(feed->server, &part, 1, f->name, (uint16_t)strlen(f->name), o, &index,
                          &err) < 0)
        die("'%s': %s", f->path, err.text);
    f->indices[feed - run->feeds] = index;
    char name[QLOG_TEXT];
    if (run->qlog)
        qlog_event(run->qlog, FMTP_EVENT_STARTED,
                   "\"index\":%u,\"bytes\":%zu,\"name\":%s,\"feed\":%zu", index, f->size,
                   qlog_text(name, f->name), (size_t)(feed - run->feeds));
}

static void service(struct run *run, int timeout_ms, bool *quiet)
{
    /* poll() ignores a negative descriptor. */
    struct pollfd p[FEEDS_MAX + 1] = {{.fd = run->open ? STDIN_FILENO : -1, .events = POLLIN}};

    for (unsigned i = 0; i < run->nfeeds; i++)
        p[1 + i] = (struct pollfd){.fd = fmtp_server_fd(run->feeds[i].server), .events = POLLIN};
    int n = poll(p, 1 + run->nfeeds, timeout_ms);
    if (quiet)
        *quiet = n == 0;
    struct tp_error err;
    for (unsigned i = 0; n > 0 && i < run->nfeeds; i++)
        if (p[1 + i].revents && fmtp_server_service(run->feeds[i].server, &err) < 0)
            die("%s", err.text);
    if (n > 0 && p[0].revents)
        read_names(run);
    if (source_any_cut() || now_s() - run->looked_s > LOOK_S) {
        run->looked_s = now_s();
        look_at_files(run);
    }
}

/* Adds up all feeds; reports at once what deserves a line. */
static struct fmtp_server_stats total(struct run *run)
{
    struct fmtp_server_stats all = {0};

    for (unsigned i = 0; i < run->nfeeds; i++) {
        struct feed *f = &run->feeds[i];
        struct fmtp_server_stats s;
        fmtp_server_get_stats(f->server, &s);
        if (s.too_long && !f->told_too_long) {
            progress("%s", "");
            char text[TP_ADDRESS_TEXT];
            fprintf(stderr, "fmtp-send: the path to %s no longer takes packets of %u bytes\n",
                    tp_address_text((struct sockaddr *)&f->cfg.group, text), s.pdu_bytes);
            f->told_too_long = s.too_long;
        }
        stats_add(&all, &s);
    }
    return all;
}

static size_t receivers(const struct run *run)
{
    size_t n = 0;

    for (unsigned i = 0; i < run->nfeeds; i++)
        n += fmtp_server_receivers(run->feeds[i].server);
    return n;
}

static void wait_for_receivers(struct run *run, size_t wanted)
{
    while (receivers(run) < wanted && !stop_requested) {
        progress("port %u: waiting for receivers, %zu of %zu",
                 fmtp_server_tcp_port(run->feeds[0].server), receivers(run), wanted);
        service(run, 200, NULL);
    }
    progress("%s", "");
    fprintf(stderr, "fmtp-send: %zu receivers connected\n", receivers(run));
    /* Other implementations join the group only after they have connected. */
    for (double from_s = now_s();
         total(run).extended < receivers(run) && !stop_requested && now_s() - from_s < JOIN_S;)
        service(run, 100, NULL);
}

/* Offers what can be offered; returns false when everything is served. */
static bool go_on(struct run *run)
{
    bool more = run->open;

    for (unsigned i = 0; i < run->nfeeds; i++) {
        struct feed *f = &run->feeds[i];
        if (f->offered < run->nfiles && fmtp_server_ready(f->server))
            offer(run, f);
        more = more || f->released < run->nfiles;
    }
    return more;
}

static void send_all(struct run *run)
{
    double shown_s = 0, begun_s = now_s();

    while (!stop_requested && go_on(run)) {
        service(run, 200, NULL);
        if (now_s() - shown_s < 0.2)
            continue;
        shown_s = now_s();
        struct fmtp_server_stats st = total(run);
        progress(
            "%zu of %zu files done, %zu begun; %zu receivers; %.1f MB multicast, %.1f MB repaired, "
            "%.1f s",
            run->feeds[0].released, run->nfiles, run->feeds[0].offered, st.receivers,
            (double)st.datagram_bytes / 1e6, (double)st.retx_bytes / 1e6, shown_s - begun_s);
    }
    /* The receivers must still learn what was rejected at the end. */
    for (bool quiet = stop_requested; !quiet;)
        service(run, 200, &quiet);
    for (unsigned i = 0; i < run->nfeeds && !stop_requested; i++)
        fmtp_server_finish(run->feeds[i].server);
}

/* Makes the feeds that the options name: one address per group or one for all, and no ports or as
 * many. */
static void settle_feeds(struct run *run, const struct fmtp_server_config *common)
{
    unsigned n = run->ngroups;

    if (!n || !run->naddresses)
        die_usage("--group and --address are needed");
    if ((run->naddresses != n && run->naddresses != 1) || (run->nports && run->nports != n))
        die_usage("%u times --group, %u times --address, %u times --port; valid: one address or "
                  "as many as groups, and no port or as many",
                  n, run->naddresses, run->nports);
    for (unsigned i = 0; i < n; i++) {
        struct feed *f = &run->feeds[i];
        struct fmtp_server_config own = *common;
        own.group = f->cfg.group;
        own.address = run->feeds[run->naddresses == 1 ? 0 : i].cfg.address;
        tp_address_set_port(&own.address, run->ports[i]);
        own.first_index = run->next_index;
        own.ctx = f;
        f->cfg = own;
        f->run = run;
    }
    run->nfeeds = n;
}

static struct feed *next_feed(struct run *run, unsigned *count, const char *option)
{
    if (*count == FEEDS_MAX)
        die_usage("%s more than %d times", option, FEEDS_MAX);
    return &run->feeds[(*count)++];
}

static void open_feeds(struct run *run)
{
    struct tp_error err;

    for (unsigned i = 0; i < run->nfeeds; i++) {
        struct feed *f = &run->feeds[i];
        f->server = fmtp_server_open(&f->cfg, &err);
        if (!f->server)
            die("%s", err.text);
        fprintf(stderr, "fmtp-send: TCP port %u\n", fmtp_server_tcp_port(f->server));
    }
}

enum {
    GROUP = OPTION_OWN,
    ADDRESS,
    PORT,
    RECEIVERS,
    RATE,
    REPAIR_RATE,
    FSND,
    DEAD,
    HELD_PRODUCTS,
    HELD_BYTES,
    HELD_SECONDS,
    TTL,
    NO_GSO,
    FIRST,
    STATE,
    STDIN
};
static const struct option options[] = {
    {"group", required_argument, NULL, GROUP},
    {"address", required_argument, NULL, ADDRESS},
    {"port", required_argument, NULL, PORT},
    {"receivers", required_argument, NULL, RECEIVERS},
    {"rate", required_argument, NULL, RATE},
    {"repair-rate", required_argument, NULL, REPAIR_RATE},
    {"fsnd", required_argument, NULL, FSND},
    {"dead", required_argument, NULL, DEAD},
    {"held-products", required_argument, NULL, HELD_PRODUCTS},
    {"held-bytes", required_argument, NULL, HELD_BYTES},
    {"held-seconds", required_argument, NULL, HELD_SECONDS},
    {"ttl", required_argument, NULL, TTL},
    {"no-gso", no_argument, NULL, NO_GSO},
    {"first-index", required_argument, NULL, FIRST},
    {"state", required_argument, NULL, STATE},
    {"stdin", no_argument, NULL, STDIN},
    COMMON_OPTIONS,
    {0},
};

struct arguments {
    struct common_options common;
    struct fmtp_server_config cfg;
    size_t receivers; /* how many to wait for */
    bool first_index;
};

static void take_option(struct run *run, struct arguments *a, int option)
{
    struct fmtp_server_config *cfg = &a->cfg;

    switch (option) {
    case GROUP:
        next_feed(run, &run->ngroups, "--group")->cfg.group = parse_endpoint("--group", optarg);
        break;
    case ADDRESS:
        next_feed(run, &run->naddresses, "--address")->cfg.address = parse_ip("--address", optarg);
        break;
    case PORT:
        next_feed(run, &run->nports, "--port");
        run->ports[run->nports - 1] = (uint16_t)parse_number("--port", optarg, 0, 65535);
        break;
    case RECEIVERS: a->receivers = parse_number("--receivers", optarg, 0, 100000); break;
    case RATE:
        cfg->adaptive_pace = strcmp(optarg, "auto") == 0;
        cfg->pace_bps = cfg->adaptive_pace ? 0 : parse_rate("--rate", optarg);
        break;
    case REPAIR_RATE: cfg->r_uc_bps = parse_rate("--repair-rate", optarg); break;
    case FSND: cfg->f_snd = parse_factor("--fsnd", optarg); break;
    case DEAD: cfg->dead_ns = parse_number("--dead", optarg, 1, 86400) * 1000000000u; break;
    case HELD_PRODUCTS:
        cfg->held.products = parse_number("--held-products", optarg, 0, 1000000000);
        break;
    case HELD_BYTES:
        cfg->held.bytes = parse_number("--held-bytes", optarg, 0, UINT64_C(1) << 62);
        break;
    case HELD_SECONDS:
        cfg->held.behind_ns = parse_number("--held-seconds", optarg, 0, 1000000) * NS_PER_S;
        break;
    case TTL: cfg->ttl = (uint8_t)parse_number("--ttl", optarg, 1, 255); break;
    case NO_GSO: cfg->no_gso = true; break;
    case FIRST:
        run->next_index = (uint32_t)parse_number("--first-index", optarg, 0, UINT32_MAX);
        a->first_index = true;
        break;
    case STATE: run->state = optarg; break;
    case STDIN: run->open = true; break;
    default: take_common_option(&a->common, option, usage);
    }
}

/* Fills in the run's feeds and files; returns how many receivers to wait for. */
static size_t take_arguments(struct run *run, int argc, char **argv, bool *no_sandbox)
{
    struct arguments a = {.common = COMMON_OPTIONS_DEFAULT,
                          .cfg = {.f_snd = 5000,
                                  .tau_snd_min_ns = 1000000000,
                                  .pace_bps = 20000000,
                                  .held = {.products = 4000, .behind_ns = 3600 * NS_PER_S},
                                  .laggard = notices_laggard,
                                  .released = released,
                                  .multicasted = multicasted,
                                  .receivers_changed = receivers_changed},
                          .receivers = 1};

    for (int c; (c = next_option(argc, argv, options)) != -1;)
        take_option(run, &a, c);
    if (run->state && a.first_index)
        die_usage("--first-index and --state together; valid: one of them");
    if (run->state)
        run->next_index = read_state(run->state);
    COMMON_OPTIONS_TO(a.cfg, a.common);
    run->qlog = a.common.qlog;
    if (run->qlog) {
        a.cfg.requested = requested;
        a.cfg.repaired = repaired;
        a.cfg.queue_full = queue_full;
        a.cfg.expired = expired;
    }
    a.cfg.no_parity = a.common.no_parity;
    a.cfg.r_mc_bps = a.cfg.pace_bps ? a.cfg.pace_bps : FMTP_UNLIMITED_BPS;
    a.cfg.max_receivers = a.receivers > 256 ? a.receivers : 256;
    a.cfg.max_per_address = a.receivers > PER_ADDRESS ? a.receivers : PER_ADDRESS;
    a.cfg.notice = notices_tell;
    settle_feeds(run, &a.cfg);
    if (optind == argc && !run->open)
        die_usage("no FILE given");
    for (int i = optind; i < argc; i++)
        add_file(run, argv[i]);
    *no_sandbox = a.common.no_sandbox;
    return a.receivers;
}

/* Restricts the program to what it still needs: read the files (whatever standard input may name),
 * keep its state, listen. */
static void enter_sandbox(const struct run *run, bool off)
{
    char *dirs[SANDBOX_PATHS_MAX] = {0};
    size_t n = 0;

    struct sandbox s;
    sandbox_init(&s, true);
    if (run->state) {
        dirs[n] = directory_of(run->state);
        sandbox_path(&s, dirs[n++], SANDBOX_FILES);
    }
    bool anywhere = run->open;
    for (size_t i = 0; i < run->nfiles && !anywhere; i++) {
        char *dir = directory_of(run->files[i]->path);
        if (n > 0 && strcmp(dirs[n - 1], dir) == 0) {
            free(dir);
            continue;
        }
        anywhere = s.npaths == SANDBOX_PATHS_MAX - 1;
        if (anywhere) {
            free(dir);
            break;
        }
        dirs[n] = dir;
        sandbox_path(&s, dirs[n++], SANDBOX_READ);
    }
    if (anywhere)
        sandbox_path(&s, "/", SANDBOX_READ);
    for (unsigned i = 0; i < run->nfeeds; i++)
        sandbox_bind(&s, tp_address_port(&run->feeds[i].cfg.address));
    confine(&s, off);
    while (n > 0)
        free(dirs[--n]);
}

/* Closes the feeds and frees the files; returns whether every receiver has everything. */
static bool close_feeds(struct run *run)
{
    bool ok = true;
    size_t begun = run->nfiles;

    for (unsigned i = 0; i < run->nfeeds; i++) {
        struct feed *f = &run->feeds[i];
        fmtp_server_close(f->server);
        ok = ok && f->released == run->nfiles && !f->not_done;
    }
    /* Files that some feed never began; the others were freed with their last release. */
    for (unsigned i = 0; i < run->nfeeds; i++)
        begun = run->feeds[i].offered < begun ? run->feeds[i].offered : begun;
    for (size_t i = begun; i < run->nfiles; i++)
        source_free(run->files[i]);
    free(run->files);
    return ok;
}

int main(int argc, char **argv)
{
    static struct run run;

    program = "fmtp-send";
    bool no_sandbox;
    size_t wanted = take_arguments(&run, argc, argv, &no_sandbox);
    enter_sandbox(&run, no_sandbox);
    open_feeds(&run);
    catch_signals();
    source_catch_bus_errors();
    wait_for_receivers(&run, wanted);
    double begun_s = now_s();
    if (!stop_requested)
        send_all(&run);
    struct fmtp_server_stats st = total(&run);
    double seconds = now_s() - begun_s;
    bool ok = close_feeds(&run) && st.unacknowledged == 0 && st.laggards == 0;
    progress("%s", "");
    notices_end();
    stats_print(&st, seconds, ok);
    check_output();
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fmtp-recv: receives the files that fmtp-send multicasts.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"
#include "file_limit.h"
#include "fmtp_events.h"
#include "qlog.h"
#include "stored.h"
#include "tool/confine.h"

enum { EXIT_SENDER_LOST = 3 };

struct run;

struct feed { /* one sender and its group */
    struct run *run;
    struct fmtp_client_config cfg;
    struct fmtp_client *client;
    struct stored *files;
    struct tp_error err;
    int number;
    bool some_failed; /* of `files`, which are to be abandoned */
    bool lost, was_connected, was_extended, finished, told_forged, told_level;
};

struct run {
    struct store store;
    bool sha256;
    struct qlog *qlog;
    struct feed feeds[FEEDS_MAX];
    int nservers, ngroups, ninterfaces; /* as named by the options, in order */
    unsigned nfeeds;
    uint64_t count; /* end after this many files; 0: when every sender has closed */
    uint64_t received, missed, failed, bytes;
};

static const char usage[] =
    "Usage: fmtp-recv --server IP:PORT --group IP:PORT --interface IP [OPTION]... DIR\n"
    "Receives multicast files into DIR, under the sender's names.\n"
    "\n"
    "  --server IP:PORT   the sender's TCP address ([IP]:PORT with IPv6)\n"
    "  --group IP:PORT    multicast group and UDP port\n"
    "  --interface IP     address of the interface to join on and to connect from\n"
    "                     (for several senders repeat these three, in the same order;\n"
    "                     one --interface serves all)\n"
    "  --layout YEAR      wire layout 2021 (default) or 2017\n"
    "  --mac LEVEL        refuse a sender below this MAC level: 0, 1, 2 (default auto:\n"
    "                     accept all, warn about level 0)\n"
    "  --key-file FILE    key of 64 hexadecimal digits that the sender must also have\n"
    "  --pdu BYTES        packet size of a sender without extension (default 1460)\n"
    "  --repair KIND      multicast (default) or unicast: by TCP only, as the\n"
    "                     originals do\n"
    "  --frcv X           receiver timeout factor (default 20)\n"
    "  --rate BPS         the sender's multicast rate, k/M/G allowed, or unlimited\n"
    "                     (default 20M)\n"
    "  --rcvbuf BYTES     UDP receive buffer, k/M/G allowed (default 4M)\n"
    "  --reconnect S      when the connection is lost, retry for S seconds and\n"
    "                     continue where it stopped (default 0)\n"
    "  --congestion-control NAME  for the TCP connection (default: the system's)\n"
    "  --count N          end after N files (default: when every sender has closed)\n"
    "  --sha256           print the digest of every file\n"
    "  --qlog DIR         write events of files to a file in DIR\n"
    "  --no-sandbox       run without the seccomp and Landlock sandbox\n"
    "  --help, --version\n"
    "\n"
    "A file appears in DIR only when complete; it replaces a file of the same name.\n"
    "Exit status: 0 if all files arrived, 1 if a file is missing or on failure, 2 on\n"
    "wrong usage, 3 if all files arrived but the connection to a sender broke before\n"
    "it announced its end.\n";

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct feed *feed = ctx;
    struct stored *f = stored_begin(&feed->run->store, feed->number, index, size, meta, meta_len);

    (void)start;
    if (!f) {
        feed->run->failed++;
        qlog_event(feed->run->qlog, FMTP_EVENT_REFUSED, "\"index\":%u,\"bytes\":%u,\"feed\":%d",
                   index, size, feed->number);
        return FMTP_NO_PLACE;
    }
    qlog_event(feed->run->qlog, FMTP_EVENT_STARTED, "\"index\":%u,\"bytes\":%u,\"feed\":%d", index,
               size, feed->number);
    f->next = feed->files;
    feed->files = f;
    return (void *)f->data;
}

static bool store(void *ctx, uint32_t index, uint32_t at, const struct iovec *parts, int nparts)
{
    struct feed *feed = ctx;
    struct stored *f = stored_find(feed->files, index);

    if (f && stored_write(&feed->run->store, f, at, parts, nparts))
        return true;
    feed->some_failed = true;
    return false;
}

static void print_digest(const struct stored *f)
{
    unsigned n = 0;

    uint8_t digest[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(f->data, f->size, digest, &n, EVP_sha256(), NULL))
        die("cannot compute SHA-256");
    fputs(" sha256=", stdout);
    for (unsigned i = 0; i < n; i++)
        printf("%02x", digest[i]);
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    struct feed *feed = ctx;
    struct run *run = feed->run;
    struct stored *f = stored_take(&feed->files, index);
    struct timespec arrived;

    clock_gettime(CLOCK_REALTIME, &arrived);
    progress("%s", "");
    if (!stored_name(&run->store, f)) {
        run->failed++;
        stored_discard(&run->store, f);
        return;
    }
    qlog_event(run->qlog, FMTP_EVENT_COMPLETED,
               "\"index\":%u,\"retx_blocks\":%u,\"delay_s\":%.6f,\"feed\":%d", index, retx_blocks,
               delay_s, feed->number);
    run->received++;
    run->bytes += f->size;
    printf("index=%u bytes=%zu seconds=%.6f delay_s=%.6f arrived=%lld.%06ld retx_blocks=%u", index,
           f->size, now_s() - f->begun_s, delay_s, (long long)arrived.tv_sec,
           arrived.tv_nsec / 1000, retx_blocks);
    if (run->sha256)
        print_digest(f);
    printf(" name=%s\n", f->name);
    fflush(stdout);
    stored_close(&run->store, f);
}

static void missed(void *ctx, uint32_t index)
{
    struct feed *feed = ctx;
    struct run *run = feed->run;
    struct stored *f = stored_take(&feed->files, index);

    run->missed++;
    qlog_event(run->qlog, FMTP_EVENT_MISSED, "\"index\":%u,\"feed\":%d", index, feed->number);
    progress("%s", "");
    printf("index=%u missed name=%s\n", index, f ? f->name : "?");
    fflush(stdout);
    if (f)
        stored_discard(&run->store, f);
}

/* What arrived was not the sender's. */
static void withdrawn(void *ctx, uint32_t index)
{
    struct feed *feed = ctx;
    struct stored *f = stored_take(&feed->files, index);

    progress("%s", "");
    if (!feed->told_forged)
        fprintf(stderr, "fmtp-recv: forged datagrams; --mac 1 or 2 at the sender prevents them\n");
    feed->told_forged = true;
    qlog_event(feed->run->qlog, FMTP_EVENT_WITHDRAWN, "\"index\":%u,\"feed\":%d", index,
               feed->number);
    if (f)
        stored_discard(&feed->run->store, f);
}

static void lost(void *ctx, uint32_t index, uint32_t first, uint32_t blocks)
{
    const struct feed *feed = ctx;

    qlog_event(feed->run->qlog, FMTP_EVENT_LOST,
               "\"index\":%u,\"first\":%u,\"blocks\":%u,\"feed\":%d", index, first, blocks,
               feed->number);
}

static void requested(void *ctx, uint32_t index, uint32_t blocks, bool multicast)
{
    const struct feed *feed = ctx;

    qlog_event(feed->run->qlog, FMTP_EVENT_REQUESTED,
               "\"index\":%u,\"blocks\":%u,\"by\":\"%s\",\"feed\":%d", index, blocks,
               multicast ? "multicast" : "tcp", feed->number);
}

static void expired(void *ctx, uint32_t index, bool patience)
{
    const struct feed *feed = ctx;

    qlog_event(feed->run->qlog, FMTP_EVENT_EXPIRED, "\"index\":%u,\"timer\":\"%s\",\"feed\":%d",
               index, patience ? "patience" : "tau_rcv", feed->number);
}

static void queue_full(void *ctx, uint32_t index)
{
    const struct feed *feed = ctx;

    qlog_event(feed->run->qlog, FMTP_EVENT_FULL, "\"index\":%u,\"feed\":%d", index, feed->number);
}

/* Makes the feeds that the options name: as many groups as senders, and one interface for each or
 * one for all. */
static unsigned settle_feeds(struct run *run, const struct fmtp_client_config *common)
{
    int n = run->nservers;

    if (!n || !run->ngroups || !run->ninterfaces)
        die_usage("--server, --group and --interface are needed");
    if (run->ngroups != n || (run->ninterfaces != n && run->ninterfaces != 1))
        die_usage("%d times --server, %d times --group, %d times --interface; valid: as many "
                  "groups as senders, and one interface or as many",
                  n, run->ngroups, run->ninterfaces);
    for (int i = 0; i < n; i++) {
        struct feed *f = &run->feeds[i];
        struct fmtp_client_config own = *common;
        own.server = f->cfg.server;
        own.group = f->cfg.group;
        own.interface = run->feeds[run->ninterfaces == 1 ? 0 : i].cfg.interface;
        own.ctx = f;
        f->cfg = own;
        f->run = run;
        f->number = i;
    }
    return (unsigned)n;
}

static struct fmtp_client_config *next_feed(struct run *run, int *count, const char *option)
{
    if (*count == FEEDS_MAX)
        die_usage("%s more than %d times", option, FEEDS_MAX);
    return &run->feeds[(*count)++].cfg;
}

/* Adds up all feeds. */
static struct fmtp_client_stats total(const struct run *run, unsigned nfeeds)
{
    struct fmtp_client_stats all = {0};

    for (unsigned i = 0; i < nfeeds; i++) {
        struct fmtp_client_stats s;
        fmtp_client_get_stats(run->feeds[i].client, &s);
        all.datagrams += s.datagrams;
        all.blocks += s.blocks;
        all.in_place += s.in_place;
        all.duplicate_blocks += s.duplicate_blocks;
        all.retx_requests += s.retx_requests;
        all.retx_blocks += s.retx_blocks;
        all.repair_requests += s.repair_requests;
        all.parity_symbols += s.parity_symbols;
        all.repaired_blocks += s.repaired_blocks;
        all.decoded_blocks += s.decoded_blocks;
        all.bad_messages += s.bad_messages;
        all.mac_failures += s.mac_failures;
        all.forged += s.forged;
        all.socket_drops += s.socket_drops;
        all.connections += s.connections;
        all.rcvbuf_granted_bytes = s.rcvbuf_granted_bytes;
    }
    return all;
}

static void show_progress(const struct run *run, unsigned nfeeds)
{
    struct fmtp_client_stats st = total(run, nfeeds);
    uint64_t repaired = st.retx_blocks + st.repaired_blocks + st.decoded_blocks;
    bool connected = true;

    for (unsigned i = 0; i < nfeeds; i++)
        connected = connected && fmtp_client_connected(run->feeds[i].client);
    progress("%s: %llu files, %.1f MB, %llu blocks by multicast, %llu repaired, %llu missed",
             connected ? "connected" : "connecting", (unsigned long long)run->received,
             (double)run->bytes / 1e6, (unsigned long long)st.blocks, (unsigned long long)repaired,
             (unsigned long long)run->missed);
}

/* Warns once per connection about datagrams without MACs, unless requested explicitly. */
static void tell_level(struct feed *f)
{
    struct fmtp_session session;
    unsigned level;

    if (f->told_level || f->cfg.mac_level != FMTP_MAC_AUTO || !fmtp_client_connected(f->client))
        return;
    f->told_level = true;
    fmtp_client_get_session(f->client, &session, &level);
    if (level)
        return;
    progress("%s", "");
    fprintf(stderr, "fmtp-recv: warning: the sender's datagrams carry no MACs, so they can be "
                    "forged (--mac 0 silences this warning)\n");
}

/* Waits for any of the feeds; returns how many are still connected. */
static int service(struct run *run, unsigned nfeeds)
{
    int left = 0;

    struct pollfd p[FEEDS_MAX];
    for (unsigned i = 0; i < nfeeds; i++)
        p[i] = (struct pollfd){.fd = run->feeds[i].lost ? -1 : fmtp_client_fd(run->feeds[i].client),
                               .events = POLLIN};
    int n = poll(p, nfeeds, 200);
    for (unsigned i = 0; i < nfeeds; i++) {
        struct feed *f = &run->feeds[i];
        if (n > 0 && p[i].revents)
            f->lost = fmtp_client_service(f->client, &f->err) < 0;
        if (fmtp_client_connected(f->client)) {
            struct fmtp_session session;
            unsigned level;
            fmtp_client_get_session(f->client, &session, &level);
            f->was_connected = true;
            f->was_extended = session.extended;
        }
        f->finished = fmtp_client_finished(f->client);
        tell_level(f);
        left += !f->lost;
    }
    return left;
}

enum { SERVER = OPTION_OWN, GROUP, IFACE, FRCV, RATE, RCVBUF, RECONNECT, COUNT, SHA256 };
static const struct option options[] = {
    {"server", required_argument, NULL, SERVER},
    {"group", required_argument, NULL, GROUP},
    {"interface", required_argument, NULL, IFACE},
    {"frcv", required_argument, NULL, FRCV},
    {"rate", required_argument, NULL, RATE},
    {"rcvbuf", required_argument, NULL, RCVBUF},
    {"reconnect", required_argument, NULL, RECONNECT},
    {"count", required_argument, NULL, COUNT},
    {"sha256", no_argument, NULL, SHA256},
    COMMON_OPTIONS,
    {0},
};

struct arguments {
    struct common_options common;
    struct fmtp_client_config cfg;
};

static void take_option(struct run *run, struct arguments *a, int option)
{
    struct fmtp_client_config *cfg = &a->cfg;

    switch (option) {
    case SERVER:
        next_feed(run, &run->nservers, "--server")->server = parse_endpoint("--server", optarg);
        break;
    case GROUP:
        next_feed(run, &run->ngroups, "--group")->group = parse_endpoint("--group", optarg);
        break;
    case IFACE:
        next_feed(run, &run->ninterfaces, "--interface")->interface =
            parse_ip("--interface", optarg);
        break;
    case FRCV: cfg->f_rcv = parse_factor("--frcv", optarg); break;
    case RATE: cfg->r_mc_bps = parse_rate("--rate", optarg); break;
    case RCVBUF: cfg->rcvbuf_bytes = parse_number("--rcvbuf", optarg, 1, 1000000000); break;
    case RECONNECT:
        cfg->reconnect_ns = parse_number("--reconnect", optarg, 0, 1000000) * 1000000000;
        break;
    case COUNT: run->count = parse_number("--count", optarg, 1, UINT64_MAX); break;
    case SHA256: run->sha256 = true; break;
    default: take_common_option(&a->common, option, usage);
    }
}

static void enter_sandbox(const struct run *run, const char *dir, bool off)
{
    struct sandbox s;

    sandbox_init(&s, true);
    sandbox_path(&s, dir, SANDBOX_FILES);
    sandbox_bind(&s, 0);
    for (unsigned i = 0; i < run->nfeeds; i++)
        sandbox_connect(&s, tp_address_port(&run->feeds[i].cfg.server));
    confine(&s, off);
}

/* Each file in flight holds a descriptor; one that gets none is lost. */
static void raise_file_limit(const struct run *run)
{
    enum { OTHERS = 64, PRODUCTS = 4096 }; /* the most in flight: see fmtp.h */

    file_limit_set(OTHERS + (size_t)PRODUCTS * run->nfeeds);
}

static void take_arguments(struct run *run, int argc, char **argv)
{
    struct arguments a = {.common = COMMON_OPTIONS_DEFAULT,
                          .cfg = {.f_rcv = 20,
                                  .r_mc_bps = 20000000,
                                  .rcvbuf_bytes = 4000000,
                                  .begun = begun,
                                  .store = store,
                                  .ended = ended,
                                  .missed = missed,
                                  .withdrawn = withdrawn}};

    for (int c; (c = next_option(argc, argv, options)) != -1;)
        take_option(run, &a, c);
    COMMON_OPTIONS_TO(a.cfg, a.common);
    run->qlog = a.common.qlog;
    if (run->qlog) {
        a.cfg.lost = lost;
        a.cfg.requested = requested;
        a.cfg.expired = expired;
        a.cfg.queue_full = queue_full;
    }
    if (!a.cfg.r_mc_bps)
        a.cfg.r_mc_bps = FMTP_UNLIMITED_BPS;
    run->nfeeds = settle_feeds(run, &a.cfg);
    if (optind + 1 != argc)
        die_usage("found %d directories; valid: one DIR", argc - optind);
    run->store.dir = open(argv[optind], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run->store.dir < 0)
        die_usage("directory '%s': %s", argv[optind], strerror(errno));
    raise_file_limit(run);
    enter_sandbox(run, argv[optind], a.common.no_sandbox);
}

static void open_feeds(struct run *run)
{
    for (unsigned i = 0; i < run->nfeeds; i++) {
        struct feed *f = &run->feeds[i];
        f->client = fmtp_client_open(&f->cfg, &f->err);
        if (!f->client)
            die("%s", f->err.text);
    }
}

/* Abandons, alone, what could not be written, and informs the sender. */
static void abandon_failed(struct feed *feed)
{
    if (!feed->some_failed)
        return;
    feed->some_failed = false;
    for (struct stored *f = feed->files, *next; f; f = next) {
        next = f->next;
        if (!f->failed)
            continue;
        feed->run->failed++;
        fmtp_client_abandon(feed->client, f->index);
        stored_discard(&feed->run->store, stored_take(&feed->files, f->index));
    }
    if (!feed->lost)
        feed->lost = fmtp_client_service(feed->client, &feed->err) < 0;
}

/* Receives until everything has arrived, no sender is left, or a signal arrives. */
static void receive_all(struct run *run)
{
    double shown_s = 0;

    while (!stop_requested &&
           !(run->count && run->received + run->missed + run->failed >= run->count)) {
        if (!service(run, run->nfeeds))
            return;
        for (unsigned i = 0; i < run->nfeeds; i++)
            abandon_failed(&run->feeds[i]);
        if (now_s() - shown_s < 0.2)
            continue;
        shown_s = now_s();
        show_progress(run, run->nfeeds);
    }
}

/* Returns whether its sender left without announcing its end. Senders without extension never
 * announce it. */
static bool is_cut_off(const struct feed *f)
{
    return f->lost && f->was_connected && f->was_extended && !f->finished;
}

/* Returns whether everything was received. Logs which senders were lost before that. */
static bool is_complete(const struct run *run)
{
    bool ok = run->missed == 0 && run->failed == 0 && (!run->count || run->received >= run->count);

    for (unsigned i = 0; i < run->nfeeds; i++) {
        const struct feed *f = &run->feeds[i];
        if (is_cut_off(f))
            fprintf(stderr,
                    "fmtp-recv: the connection broke before the sender announced its end: %s\n",
                    f->err.text);
        else if (f->lost && (!ok || !run->received))
            fprintf(stderr, "fmtp-recv: %s\n", f->err.text);
        ok = ok && f->was_connected;
    }
    return ok;
}

static void print_summary(const struct run *run, const struct fmtp_client_stats *s,
                          const char *result)
{
    printf(
        "products=%llu bytes=%llu missed=%llu failed=%llu datagrams=%llu blocks=%llu in_place=%llu "
        "duplicate_blocks=%llu retx_requests=%llu retx_blocks=%llu repair_requests=%llu "
        "parity_symbols=%llu repaired_blocks=%llu decoded_blocks=%llu bad_messages=%llu "
        "mac_failures=%llu forged=%llu connections=%llu socket_drops=%llu rcvbuf_granted_bytes=%zu "
        "result=%s\n",
        (unsigned long long)run->received, (unsigned long long)run->bytes,
        (unsigned long long)run->missed, (unsigned long long)run->failed,
        (unsigned long long)s->datagrams, (unsigned long long)s->blocks,
        (unsigned long long)s->in_place, (unsigned long long)s->duplicate_blocks,
        (unsigned long long)s->retx_requests, (unsigned long long)s->retx_blocks,
        (unsigned long long)s->repair_requests, (unsigned long long)s->parity_symbols,
        (unsigned long long)s->repaired_blocks, (unsigned long long)s->decoded_blocks,
        (unsigned long long)s->bad_messages, (unsigned long long)s->mac_failures,
        (unsigned long long)s->forged, (unsigned long long)s->connections,
        (unsigned long long)s->socket_drops, s->rcvbuf_granted_bytes, result);
}

int main(int argc, char **argv)
{
    static struct run run;

    program = "fmtp-recv";
    take_arguments(&run, argc, argv);
    open_feeds(&run);
    catch_signals();
    receive_all(&run);
    struct fmtp_client_stats st = total(&run, run.nfeeds);
    for (unsigned i = 0; i < run.nfeeds; i++)
        fmtp_client_close(run.feeds[i].client);
    progress("%s", "");
    bool ok = is_complete(&run);
    bool cut_off = false;
    for (unsigned i = 0; i < run.nfeeds && !run.count; i++)
        cut_off = cut_off || is_cut_off(&run.feeds[i]);
    print_summary(&run, &st, !ok ? "incomplete" : cut_off ? "sender-lost" : "complete");
    check_output();
    return !ok ? EXIT_FAILURE : cut_off ? EXIT_SENDER_LOST : EXIT_SUCCESS;
}

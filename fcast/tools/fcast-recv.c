/* SPDX-License-Identifier: Apache-2.0
 *
 * fcast-recv: tunes in to a carousel, receives its files, and leaves (or stays).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arrival_lines.h"
#include "loop/loop.h"
#include "net/batch_in.h"
#include "net/sockets.h"
#include "options.h"
#include "seed.h"
#include "tool/confine.h"

enum { WAIT_MS = 200, EXIT_INCOMPLETE = 1 };
#define SECOND_NS UINT64_C(1000000000)

static const char usage[] =
    "Usage: fcast-recv --group IP:PORT --interface IP [OPTION]... DIR\n"
    "Receives the files of a carousel into DIR and leaves when it has all of them.\n"
    "\n"
    "  --group IP:PORT    multicast group and UDP port\n"
    "  --interface IP     address of the interface to join on\n"
    "  --session FILE     a session file of fcast-send --sdp, instead of --group\n"
    "  --source IP        accept only this sender (source-specific multicast)\n"
    "  --tsi N            accept only this session (default: the first one heard)\n"
    "  --protocol NAME    fcast (default), flute, or seed: one file in the packets of 1999\n"
    "  --variant KIND     Reed-Solomon code: rfc5510 (default), rizzo (seed: default) or flute\n"
    "  --mode MODE        tiddo (default): leave with all files; satellite: stay, and take\n"
    "                     the next session when one has ended or is silent for ten seconds\n"
    "  --key-file FILE    key of 64 hexadecimal digits that the sender also has\n"
    "  --max-age S        with a key: refuse datagrams sent more than S seconds ago or in\n"
    "                     the future; 0: accept all (default 300)\n"
    "  --timeout S        end if the session is silent for S seconds (default: wait)\n"
    "  --max-object BYTES refuse larger objects, k/M/G allowed (default 64G)\n"
    "  --max-bytes BYTES  limit of all incomplete objects (default 128G)\n"
    "  --max-unpacked BYTES  limit of an unpacked gzip file (default 4G)\n"
    "  --storage SCHEME   where to keep symbols: in-place (default), or with Reed-Solomon as\n"
    "                     in 1999: memory, receive-order, group-area, crowd-bucket, crowd-pool\n"
    "  --crowd N          blocks per write of these schemes (default 4)\n"
    "  --memory BYTES     memory limit of these schemes, k/M/G allowed (default 64M)\n"
    "  --io MODE          cached (default) or direct: bypass the page cache\n"
    "  --rcvbuf BYTES     UDP receive buffer, k/M/G allowed (default 16M)\n"
    "  --no-sandbox       run without the seccomp and Landlock sandbox\n"
    "  --help, --version\n"
    "\n"
    "A file appears in DIR only when complete; it replaces a file of the same name.\n"
    "Incomplete files stay in DIR/.fcast; the next fcast-recv continues them.\n"
    "Exit status: 0 if all files are complete, 1 if some are missing or on failure,\n"
    "2 on wrong usage.\n";

struct run {
    struct session session;
    struct sockaddr_storage interface;
    struct fcast_receiver_config cfg;
    uint8_t key[TP_KEY_BYTES];
    bool satellite, no_sandbox, has_variant;
    uint64_t timeout_ns, rcvbuf_bytes;
    struct keeping keeping;
    struct arrival arrival;
    struct fcast_receiver *core;
    int fd, status_fd;
    struct tp_batch_in *in;
};

/* ------------------------------------------------------------------ options */

enum {
    OPTION_GROUP = 1,
    OPTION_INTERFACE,
    OPTION_SESSION,
    OPTION_SOURCE,
    OPTION_TSI,
    OPTION_PROTOCOL,
    OPTION_VARIANT,
    OPTION_MODE,
    OPTION_KEY,
    OPTION_MAX_AGE,
    OPTION_TIMEOUT,
    OPTION_MAX_OBJECT,
    OPTION_MAX_BYTES,
    OPTION_MAX_UNPACKED,
    OPTION_STORAGE,
    OPTION_CROWD,
    OPTION_MEMORY,
    OPTION_IO,
    OPTION_RCVBUF,
    OPTION_NO_SANDBOX,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {
    {"group", required_argument, NULL, OPTION_GROUP},
    {"interface", required_argument, NULL, OPTION_INTERFACE},
    {"session", required_argument, NULL, OPTION_SESSION},
    {"source", required_argument, NULL, OPTION_SOURCE},
    {"tsi", required_argument, NULL, OPTION_TSI},
    {"protocol", required_argument, NULL, OPTION_PROTOCOL},
    {"variant", required_argument, NULL, OPTION_VARIANT},
    {"mode", required_argument, NULL, OPTION_MODE},
    {"key-file", required_argument, NULL, OPTION_KEY},
    {"max-age", required_argument, NULL, OPTION_MAX_AGE},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"max-object", required_argument, NULL, OPTION_MAX_OBJECT},
    {"max-bytes", required_argument, NULL, OPTION_MAX_BYTES},
    {"max-unpacked", required_argument, NULL, OPTION_MAX_UNPACKED},
    {"storage", required_argument, NULL, OPTION_STORAGE},
    {"crowd", required_argument, NULL, OPTION_CROWD},
    {"memory", required_argument, NULL, OPTION_MEMORY},
    {"io", required_argument, NULL, OPTION_IO},
    {"rcvbuf", required_argument, NULL, OPTION_RCVBUF},
    {"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0}};

/* Takes an option that sets a bound; false: another option. */
static bool take_bound(struct run *run, int option)
{
    const uint64_t most = UINT64_C(1) << 48;

    switch (option) {
    case OPTION_TIMEOUT:
        run->timeout_ns = parse_number("--timeout", optarg, 1, 1000000000) * SECOND_NS;
        break;
    case OPTION_MAX_AGE:
        run->cfg.max_age_s = (uint32_t)parse_number("--max-age", optarg, 0, AGE_MAX);
        break;
    case OPTION_MAX_OBJECT:
        run->cfg.max_object_bytes = parse_number("--max-object", optarg, 1, most);
        break;
    case OPTION_MAX_BYTES: run->cfg.max_bytes = parse_number("--max-bytes", optarg, 1, most); break;
    case OPTION_MAX_UNPACKED:
        run->arrival.max_unpacked_bytes = parse_number("--max-unpacked", optarg, 1, most);
        break;
    case OPTION_RCVBUF:
        run->rcvbuf_bytes = parse_number("--rcvbuf", optarg, 4096, 1000000000);
        break;
    default: return false;
    }
    return true;
}

static const char *const storages[] = {"in-place",   "memory",       "receive-order",
                                       "group-area", "crowd-bucket", "crowd-pool"};
static const char *const modes_of_io[] = {"cached", "direct"};

/* Takes an option that says how to keep symbols; false: another option. */
static bool take_keeping(struct keeping *k, int option)
{
    switch (option) {
    case OPTION_STORAGE: k->storage = option_word("--storage", optarg, storages, 6); break;
    case OPTION_CROWD: k->crowd = (uint32_t)parse_number("--crowd", optarg, 1, 4096); break;
    case OPTION_MEMORY:
        k->memory_bytes = parse_number("--memory", optarg, 4096, UINT64_C(1) << 40);
        break;
    case OPTION_IO: k->is_direct = option_word("--io", optarg, modes_of_io, 2); break;
    default: return false;
    }
    return true;
}

static void take_option(struct run *run, int option)
{
    static const char *const modes[] = {"tiddo", "satellite"};
    struct session *s = &run->session;

    if (take_bound(run, option) || take_keeping(&run->keeping, option))
        return;
    switch (option) {
    case OPTION_GROUP: s->group = option_endpoint("--group", optarg); break;
    case OPTION_INTERFACE: run->interface = parse_ip("--interface", optarg); break;
    case OPTION_SESSION: session_read(optarg, s); break;
    case OPTION_SOURCE: s->source = parse_ip("--source", optarg); break;
    case OPTION_TSI:
        s->tsi = parse_number("--tsi", optarg, 0, (UINT64_C(1) << 48) - 1);
        s->has_tsi = true;
        break;
    case OPTION_PROTOCOL: s->protocol = option_protocol(optarg); break;
    case OPTION_VARIANT:
        run->cfg.rs_kind = option_variant(optarg);
        run->has_variant = true;
        break;
    case OPTION_MODE: run->satellite = option_word("--mode", optarg, modes, 2); break;
    case OPTION_KEY:
        option_key(optarg, run->key);
        run->cfg.key = run->key;
        run->cfg.key_len = sizeof run->key;
        break;
    case OPTION_NO_SANDBOX: run->no_sandbox = true; break;
    case OPTION_HELP: fputs(usage, stdout); exit(EXIT_SUCCESS);
    case OPTION_VERSION: printf("fcast-recv (Downpour) " DOWNPOUR_VERSION "\n"); exit(EXIT_SUCCESS);
    default: break; /* unreachable: next_option() knows all options */
    }
}

static void take_arguments(struct run *run, int argc, char **argv)
{
    for (int c; (c = next_option(argc, argv, options)) != -1;)
        take_option(run, c);
    if (!run->session.group.ss_family || !run->interface.ss_family)
        die_usage("--interface and --group (or --session) are needed");
    if (run->session.group.ss_family != run->interface.ss_family)
        die_usage("the group and --interface are of different families; valid: both IPv4 or IPv6");
    if (run->session.protocol == FCAST_PROTOCOL_SEED && run->cfg.key)
        die_usage("--protocol seed with --key-file; valid: fcast or flute with a key");
    if (optind + 1 != argc)
        die_usage("found %d directories; valid: one DIR", argc - optind);
    arrival_lines_open(&run->arrival, argv[optind], run->cfg.max_bytes);
    run->cfg.protocol = run->session.protocol;
    run->cfg.follows = run->satellite;
    if (run->cfg.protocol == FCAST_PROTOCOL_SEED && !run->has_variant)
        run->cfg.rs_kind = FCAST_SEED_RS;
    run->arrival.places.keeping = run->keeping;
    run->arrival.places.keeping.rs_kind = run->cfg.rs_kind;
    run->arrival.places.keeping.has_header = run->cfg.protocol == FCAST_PROTOCOL_FCAST;
    run->cfg.has_tsi = run->session.has_tsi;
    run->cfg.tsi = run->session.tsi;
}

/* ------------------------------------------------------------------ receiving */

static void enter_sandbox(const struct run *run)
{
    struct sandbox s;

    sandbox_init(&s, false);
    sandbox_path(&s, run->arrival.dir_path, SANDBOX_FILES | SANDBOX_MOVE | SANDBOX_DIRECTORIES);
    confine(&s, run->no_sandbox);
}

static void open_all(struct run *run)
{
    const struct session *s = &run->session;
    struct tp_error err;

    run->fd = tp_open_multicast_in(&s->group, &run->interface,
                                   s->source.ss_family ? &s->source : NULL, &err);
    if (run->fd < 0)
        die("%s", err.text);
    tp_set_rcvbuf(run->fd, run->rcvbuf_bytes);
    run->in = tp_batch_in_new(run->fd);
    arrival_serve(&run->arrival, &run->cfg);
    run->core = run->arrival.core = fcast_receiver_new(&run->cfg);
    explicit_bzero(run->key, sizeof run->key);
    if (!run->in || !run->core)
        die("out of memory");
}

static void take(void *ctx, const uint8_t *bytes, size_t len, const struct sockaddr_storage *from)
{
    struct run *run = ctx;

    fcast_receiver_datagram(run->core, tp_address_number(from), bytes, len, run->arrival.now_ns);
}

/* Returns why it must end early; NULL: continue. */
static const char *why_end(const struct run *run)
{
    static char text[80];
    uint64_t heard_ns = fcast_receiver_heard_ns(run->core);

    if (!run->satellite && fcast_receiver_is_closed(run->core))
        return "the sender ended the session before all files were complete";
    if (heard_ns < run->arrival.begun_ns)
        heard_ns = run->arrival.begun_ns;
    if (!run->timeout_ns || run->arrival.now_ns < heard_ns + run->timeout_ns)
        return NULL;
    snprintf(text, sizeof text, "the session was silent for %llu s (--timeout)",
             (unsigned long long)(run->timeout_ns / SECOND_NS));
    return text;
}

/* Runs until all files are complete, the session ends or is silent, the disk is full, or a signal
 * arrives. */
static void receive(struct run *run)
{
    struct pollfd p = {.fd = run->fd, .events = POLLIN};
    const char *why = NULL;

    run->arrival.begun_ns = run->arrival.now_ns = tp_now_ns();
    while (!stop_requested && !run->arrival.places.error && !why) {
        poll(&p, 1, WAIT_MS);
        arrival_time(&run->arrival);
        tp_batch_in_read(run->in, take, run);
        if (!run->arrival.places.error && !run->satellite && fcast_receiver_has_all(run->core))
            return;
        why = why_end(run);
    }
    if (run->arrival.places.error)
        fprintf(stderr, "fcast-recv: '%s': %s; received parts stay in %s/.fcast\n",
                run->arrival.dir_path, strerror(run->arrival.places.error), run->arrival.dir_path);
    else if (why)
        fprintf(stderr, "fcast-recv: %s\n", why);
}

/* Returns the process's peak memory from /proc/self/status; 0: unknown. getrusage() would include
 * the program that started this one. */
static uint64_t peak_bytes(int status_fd)
{
    char text[4096];
    ssize_t len = status_fd < 0 ? -1 : pread(status_fd, text, sizeof text - 1, 0);

    text[len < 0 ? 0 : len] = '\0';
    const char *line = strstr(text, "VmHWM:");
    return line ? 1024 * strtoull(line + strlen("VmHWM:"), NULL, 10) : 0;
}

/* Prints the disk accesses for the symbols, while they arrived and while they were sorted and
 * decoded, and the peak memory of the schemes of 1999 and of the process. */
static void print_disk(const struct places *p, int status_fd)
{
    const struct disk_counts *one = &p->receiving, *two = &p->sorting;

#define N(count) (unsigned long long)count
    printf(
        "storage=%s io=%s crowd=%u peak_blocks=%llu memory_bytes=%llu rss_bytes=%llu "
        "writes=%llu seeks=%llu written_bytes=%llu write_seconds=%.6f reads=%llu read_bytes=%llu sort_writes=%llu sort_seeks=%llu sort_written_bytes=%llu "
        "sort_reads=%llu sort_read_bytes=%llu ",
        storages[p->keeping.storage], modes_of_io[p->keeping.is_direct], p->keeping.crowd,
        N(p->peak_blocks), N(p->memory_peak), N(peak_bytes(status_fd)), N(one->writes),
        N(one->seeks), N(one->written_bytes), (double)one->write_ns / 1e9, N(one->reads),
        N(one->read_bytes), N(two->writes), N(two->seeks), N(two->written_bytes), N(two->reads),
        N(two->read_bytes));
#undef N
}

static void print_summary(const struct run *run, bool complete)
{
    struct fcast_receiver_stats st;

    fcast_receiver_get_stats(run->core, &st);
#define N(field) (unsigned long long)st.field
    printf(
        "files=%llu bytes=%llu received=%llu lost=%llu out_of_order=%llu redundant=%llu "
        "stray=%llu malformed=%llu forged=%llu stale=%llu conflicting=%llu refused=%llu evicted=%llu "
        "decoded_blocks=%llu restored=%llu wrong=%llu unstored=%llu store_errors=%llu socket_drops=%llu ",
        N(objects_done), (unsigned long long)run->arrival.bytes, N(received), N(lost),
        N(out_of_order), N(redundant), N(stray), N(malformed), N(forged), N(stale), N(conflicting),
        N(refused), N(evicted), N(decoded), N(restored), N(objects_wrong), N(objects_unstored),
        N(store_errors), (unsigned long long)tp_socket_drops(run->fd));
#undef N
    print_disk(&run->arrival.places, run->status_fd);
    printf("seconds=%.3f result=%s\n", (double)(run->arrival.now_ns - run->arrival.begun_ns) / 1e9,
           complete ? "complete" : "incomplete");
}

int main(int argc, char **argv)
{
    static struct run run = {.rcvbuf_bytes = 16 << 20,
                             .arrival = {.max_unpacked_bytes = UINT64_C(4) << 30},
                             .fd = -1,
                             .keeping = {.crowd = 4, .memory_bytes = 64 << 20},
                             .cfg = {.max_bytes = UINT64_C(128) << 30, .max_age_s = AGE}};

    program = "fcast-recv";
    take_arguments(&run, argc, argv);
    open_all(&run);
    catch_signals();
    run.status_fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC); /* the sandbox hides it */
    enter_sandbox(&run);
    receive(&run);
    struct fcast_receiver_stats st;
    fcast_receiver_get_stats(run.core, &st);
    bool complete =
        fcast_receiver_has_all(run.core) && !run.arrival.places.error && !st.objects_unstored;
    print_summary(&run, complete);
    fcast_receiver_free(run.core);
    arrival_close(&run.arrival, complete);
    tp_batch_in_free(run.in);
    check_output();
    return complete ? EXIT_SUCCESS : EXIT_INCOMPLETE;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fcast-recv: tunes in to a carousel, takes its files, and leaves (or stays).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "content.h"
#include "datadir.h"
#include "location.h"
#include "log_limit.h"
#include "loop/loop.h"
#include "net/batch_in.h"
#include "net/sockets.h"
#include "options.h"
#include "place.h"
#include "seed.h"
#include "tool/confine.h"

enum { WAIT_MS = 200, EXIT_INCOMPLETE = 1 };
#define SECOND_NS UINT64_C(1000000000)

static const char usage[] =
    "Usage: fcast-recv --group IP:PORT --interface IP [OPTION]... DIR\n"
    "Receives the files of a carousel into DIR and leaves when it has all.\n"
    "\n"
    "  --group IP:PORT    multicast group and UDP port\n"
    "  --interface IP     address of the interface to join on\n"
    "  --session FILE     a session file of fcast-send --sdp, instead of --group\n"
    "  --source IP        only from this sender (source-specific multicast)\n"
    "  --tsi N            only this session (default: the first that is heard)\n"
    "  --protocol NAME    fcast (default), flute, or seed: one file by the packets of 1999\n"
    "  --variant KIND     of Reed-Solomon: rfc5510 (default), rizzo (seed: default) or flute\n"
    "  --mode MODE        tiddo (default): leave when all is here; satellite: stay\n"
    "  --key-file FILE    key of 64 hexadecimal digits that the sender has, too\n"
    "  --timeout S        end when nothing came for S seconds (default: wait)\n"
    "  --max-object BYTES refuse larger objects, k/M/G allowed (default 64G)\n"
    "  --max-bytes BYTES  of all objects at a time (default 128G)\n"
    "  --max-unpacked BYTES  of a file that is sent as gzip (default 4G)\n"
    "  --storage SCHEME   where symbols wait: in-place (default), or with Reed-Solomon as in\n"
    "                     1999: memory, receive-order, group-area, crowd-bucket, crowd-pool\n"
    "  --crowd N          blocks of a write of these (default 4)\n"
    "  --memory BYTES     for these, k/M/G allowed (default 64M)\n"
    "  --io MODE          cached (default) or direct: past the page cache\n"
    "  --rcvbuf BYTES     UDP receive buffer, k/M/G allowed (default 16M)\n"
    "  --no-sandbox       do without the walls that seccomp and Landlock make\n"
    "  --help, --version\n"
    "\n"
    "A file appears in DIR complete or not at all; one of the same name is replaced.\n"
    "What is incomplete waits in DIR/.fcast; the next fcast-recv goes on with it.\n"
    "Exit status: 0 when all files are here, 1 when some are not or on failure, 2 on\n"
    "wrong usage.\n";

struct run {
    struct session session;
    struct sockaddr_storage interface;
    struct fcast_receiver_config cfg;
    uint8_t key[TP_KEY_BYTES];
    bool satellite, no_sandbox, has_variant;
    uint64_t timeout_ns, rcvbuf_bytes, max_unpacked_bytes;
    struct keeping keeping;
    const char *dir_path;
    struct datadir dir;
    struct places places;
    struct log_limit *log;
    struct fcast_receiver *core;
    int fd, status_fd;
    struct tp_batch_in *in;
    uint64_t now_ns, begun_ns, bytes;
};

/* ------------------------------------------------------------------ objects */

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    struct run *run = ctx;
    enum fcast_begin answer = place_open(&run->places, source, tsi, toi, fti, out);

    const char *why = run->places.why ? run->places.why : strerror(errno);
    uint64_t more;
    if (answer == FCAST_REFUSE && !run->places.error &&
        log_limit_take(run->log, "sender", why, 1, run->now_ns, &more))
        fprintf(stderr, "fcast-recv: toi=%llu bytes=%llu: no place: %s (once a minute)\n",
                (unsigned long long)toi, (unsigned long long)fti->length, why);
    return answer;
}

enum stored { STORED, WRONG_DIGEST, NOT_TAKEN, NO_ROOM };

static const enum stored results[] = {[CONTENT_GOOD] = STORED,
                                      [CONTENT_WRONG] = WRONG_DIGEST,
                                      [CONTENT_REFUSED] = NOT_TAKEN,
                                      [CONTENT_FAILED] = NO_ROOM};

/* Makes the object's own file the data's, if it can be. *moved: whether it was. */
static enum stored move(struct run *run, struct content_job *job, const char *name, bool *moved)
{
    struct datadir_new there;

    *moved = false;
    if (content_is_packed(job->meta) || !place_may_move(job->ctx, job->at, job->bytes) ||
        datadir_aim(&run->dir, name, &there, job->why, sizeof job->why) < 0)
        return STORED;
    job->written = job->bytes;
    enum stored result = job->meta->has_digest ? results[content_copy(job)] : STORED;
    int error = errno;
    if (result == STORED)
        *moved = place_move(job->ctx, job->at, job->bytes, there.dir_fd, there.name);
    close(there.dir_fd);
    errno = error;
    return result;
}

/* Makes a file of the object's data. NO_ROOM: errno; otherwise, and not STORED: why in the job. */
static enum stored store(struct run *run, struct content_job *job, const char *name)
{
    struct datadir_new fresh;
    bool moved;
    enum stored result = move(run, job, name, &moved);

    if (moved || result != STORED)
        return result;
    const unsigned long refused = run->dir.refused;
    if (places_note_copy(&run->places, name) < 0)
        return NO_ROOM;
    errno = 0;
    if (datadir_new(&run->dir, name, &fresh, job->why, sizeof job->why) < 0) {
        int error = errno;
        places_forget_copy(&run->places);
        errno = error;
        /* What a sender can bring about by a name must not end the program. */
        bool is_of_name = error == ENAMETOOLONG || error == EACCES || error == EPERM;
        return run->dir.refused > refused || !error || is_of_name ? NOT_TAKEN : NO_ROOM;
    }
    job->fd = fresh.fd;
    result = results[content_copy(job)];
    int error = errno;
    char why[256];
    if (datadir_new_finish(&fresh, result == STORED, why, sizeof why) < 0 && result == STORED) {
        error = errno;
        result = error == EISDIR ? NOT_TAKEN : NO_ROOM;
        snprintf(job->why, sizeof job->why, "%.*s", (int)sizeof job->why - 1, why);
    }
    places_forget_copy(&run->places);
    errno = error;
    return result;
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    struct run *run = ctx;
    char name[FCAST_NAME_MAX];
    struct content_job job = {.read = place_read,
                              .ctx = place,
                              .at = at,
                              .bytes = bytes,
                              .meta = meta,
                              .most_bytes = run->max_unpacked_bytes,
                              .fd = -1,
                              .why = "Content-Location is no path"};
    enum stored result =
        fcast_location_get(meta->location, name, sizeof name) ? store(run, &job, name) : NOT_TAKEN;

    if (result == NO_ROOM && !run->places.error)
        run->places.error = errno ? errno : EIO;
    place_close(&run->places, place, result == STORED, result == NO_ROOM);
    if (result == WRONG_DIGEST || result == NOT_TAKEN)
        fprintf(stderr, "fcast-recv: toi=%llu bytes=%llu: %s\n", (unsigned long long)toi,
                (unsigned long long)bytes, job.why);
    if (result != STORED)
        return result == WRONG_DIGEST ? FCAST_WRONG : FCAST_UNSTORED;
    run->bytes += job.written;
    struct fcast_receiver_stats st;
    fcast_receiver_get_stats(run->core, &st);
    printf("toi=%llu bytes=%llu seconds=%.3f received=%llu lost=%llu useful=%llu digest=%s "
           "name=%s\n",
           (unsigned long long)toi, (unsigned long long)job.written,
           (double)(run->now_ns - run->begun_ns) / 1e9, (unsigned long long)st.received,
           (unsigned long long)st.lost, (unsigned long long)st.useful,
           meta->has_digest ? "good" : "none", name);
    fflush(stdout);
    return FCAST_STORED;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    struct run *run = ctx;

    (void)toi;
    place_close(&run->places, place, false, keep);
    if (keep)
        places_bound(&run->places, run->cfg.max_bytes);
}

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

/* Bounds; false: another option. */
static bool take_bound(struct run *run, int option)
{
    const uint64_t most = UINT64_C(1) << 48;

    switch (option) {
    case OPTION_TIMEOUT:
        run->timeout_ns = parse_number("--timeout", optarg, 1, 1000000000) * SECOND_NS;
        break;
    case OPTION_MAX_OBJECT:
        run->cfg.max_object_bytes = parse_number("--max-object", optarg, 1, most);
        break;
    case OPTION_MAX_BYTES: run->cfg.max_bytes = parse_number("--max-bytes", optarg, 1, most); break;
    case OPTION_MAX_UNPACKED:
        run->max_unpacked_bytes = parse_number("--max-unpacked", optarg, 1, most);
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

/* How symbols are kept; false: another option. */
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
    default: break; /* none: next_option() knows them all */
    }
}

/* What earlier processes left. */
static void clean(struct run *run)
{
    char name[FCAST_NAME_MAX + 8], why[256];
    pid_t pid;

    if (places_left_copy(&run->places, name, sizeof name, &pid) &&
        datadir_remove_begun(&run->dir, name, pid, why, sizeof why) < 0)
        fprintf(stderr, "fcast-recv: '%s/%s', half made: %s\n", run->dir_path, name, why);
    places_forget_copy(&run->places);
    places_bound(&run->places, run->cfg.max_bytes);
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
    run->dir_path = argv[optind];
    int fd = open(run->dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || datadir_open(&run->dir, run->dir_path) < 0)
        die_usage("directory '%s': %s", run->dir_path, strerror(errno));
    run->dir.own = ".fcast";
    if (places_open(&run->places, fd) < 0) {
        if (errno == EWOULDBLOCK)
            die("'%s': another fcast-recv uses it; valid: a directory for each", run->dir_path);
        die("'%s/.fcast': %s", run->dir_path, strerror(errno));
    }
    close(fd);
    clean(run);
    run->cfg.protocol = run->session.protocol;
    if (run->cfg.protocol == FCAST_PROTOCOL_SEED && !run->has_variant)
        run->cfg.rs_kind = FCAST_SEED_RS;
    run->places.keeping = run->keeping;
    run->places.keeping.rs_kind = run->cfg.rs_kind;
    run->places.keeping.has_header = run->cfg.protocol == FCAST_PROTOCOL_FCAST;
    run->cfg.has_tsi = run->session.has_tsi;
    run->cfg.tsi = run->session.tsi;
}

/* ------------------------------------------------------------------ receiving */

static void enter_sandbox(const struct run *run)
{
    struct sandbox s;

    sandbox_init(&s, false);
    sandbox_path(&s, run->dir_path, SANDBOX_FILES | SANDBOX_MOVE | SANDBOX_DIRECTORIES);
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
    run->cfg.ctx = run;
    run->cfg.begin = begin;
    run->cfg.done = done;
    run->cfg.drop = drop;
    run->core = fcast_receiver_new(&run->cfg);
    explicit_bzero(run->key, sizeof run->key);
    run->log = log_limit_new(16, 60 * SECOND_NS);
    if (!run->in || !run->core || !run->log)
        die("out of memory");
}

/* A number for the sender's address and port. */
static uint64_t number_of(const struct sockaddr_storage *a)
{
    const uint8_t *bytes = (const uint8_t *)a;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t len = a->ss_family == AF_INET6 ? 24 : 8; /* without scope, and without padding */

    for (size_t i = 0; i < len; i++)
        if (a->ss_family != AF_INET6 || i < 4 || i >= 8) /* nor flow label */
            hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void take(void *ctx, const uint8_t *bytes, size_t len, const struct sockaddr_storage *from)
{
    struct run *run = ctx;

    fcast_receiver_datagram(run->core, number_of(from), bytes, len, run->now_ns);
}

/* Why it is to end before all is here, for people; NULL: go on. */
static const char *why_end(const struct run *run)
{
    static char text[80];
    uint64_t heard_ns = fcast_receiver_heard_ns(run->core);

    if (!run->satellite && fcast_receiver_is_closed(run->core))
        return "the sender ended the session before all files were here";
    if (heard_ns < run->begun_ns)
        heard_ns = run->begun_ns;
    if (!run->timeout_ns || run->now_ns < heard_ns + run->timeout_ns)
        return NULL;
    snprintf(text, sizeof text, "nothing came of the session for %llu s (--timeout)",
             (unsigned long long)(run->timeout_ns / SECOND_NS));
    return text;
}

/* Until all is here, the session ends, nothing comes, the disk is full, or a signal. */
static void receive(struct run *run)
{
    struct pollfd p = {.fd = run->fd, .events = POLLIN};
    const char *why = NULL;

    run->begun_ns = run->now_ns = tp_now_ns();
    while (!stop_requested && !run->places.error && !why) {
        poll(&p, 1, WAIT_MS);
        run->now_ns = tp_now_ns();
        tp_batch_in_read(run->in, take, run);
        if (!run->places.error && !run->satellite && fcast_receiver_has_all(run->core))
            return;
        why = why_end(run);
    }
    if (run->places.error)
        fprintf(stderr, "fcast-recv: '%s': %s; what came waits in %s/.fcast\n", run->dir_path,
                strerror(run->places.error), run->dir_path);
    else if (why)
        fprintf(stderr, "fcast-recv: %s\n", why);
}

/* The process's memory at most, of /proc/self/status; 0: not said. getrusage() would count that of
 * the program that started this one. */
static uint64_t peak_bytes(int status_fd)
{
    char text[4096];
    ssize_t len = status_fd < 0 ? -1 : pread(status_fd, text, sizeof text - 1, 0);

    text[len < 0 ? 0 : len] = '\0';
    const char *line = strstr(text, "VmHWM:");
    return line ? 1024 * strtoull(line + strlen("VmHWM:"), NULL, 10) : 0;
}

/* What the disk did for the symbols: while they came, and when they were sorted and decoded; and
 * the memory of schemes of 1999, and of the process, at most. */
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
        "stray=%llu malformed=%llu forged=%llu conflicting=%llu refused=%llu evicted=%llu "
        "decoded_blocks=%llu restored=%llu wrong=%llu unstored=%llu store_errors=%llu socket_drops=%llu ",
        N(objects_done), (unsigned long long)run->bytes, N(received), N(lost), N(out_of_order),
        N(redundant), N(stray), N(malformed), N(forged), N(conflicting), N(refused), N(evicted),
        N(decoded), N(restored), N(objects_wrong), N(objects_unstored), N(store_errors),
        (unsigned long long)tp_socket_drops(run->fd));
#undef N
    print_disk(&run->places, run->status_fd);
    printf("seconds=%.3f result=%s\n", (double)(run->now_ns - run->begun_ns) / 1e9,
           complete ? "complete" : "incomplete");
}

int main(int argc, char **argv)
{
    static struct run run = {.rcvbuf_bytes = 16 << 20,
                             .max_unpacked_bytes = UINT64_C(4) << 30,
                             .fd = -1,
                             .keeping = {.crowd = 4, .memory_bytes = 64 << 20},
                             .cfg = {.max_bytes = UINT64_C(128) << 30}};

    program = "fcast-recv";
    take_arguments(&run, argc, argv);
    open_all(&run);
    catch_signals();
    run.status_fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC); /* the walls hide it */
    enter_sandbox(&run);
    receive(&run);
    struct fcast_receiver_stats st;
    fcast_receiver_get_stats(run.core, &st);
    bool complete = fcast_receiver_has_all(run.core) && !run.places.error && !st.objects_unstored;
    print_summary(&run, complete);
    fcast_receiver_free(run.core);
    if (complete)
        places_forget_done(&run.places);
    places_close(&run.places);
    tp_batch_in_free(run.in);
    log_limit_free(run.log);
    check_output();
    return complete ? EXIT_SUCCESS : EXIT_INCOMPLETE;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Inserts files into a product queue, or replays a trace of sizes and times into it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/tool.h"
#include "common/trace.h"
#include "queue/pq.h"
#include "replay.h"

static const char help[] =
    "Usage: pqinsert -q QUEUE [-f FEED] [-p IDENT] [-s SEQNO] [-i] [-n SIZE] [FILE...]\n"
    "  or:  pqinsert -q QUEUE [-f FEED] --trace FILE [--duration S] [--scale X] [--seed N]\n"
    "Inserts files, each a product, or without FILE standard input as one; or replays a trace in real time: products of its sizes and of\n"
    "pseudo-random bytes, each inserted at its time.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -f, --feed FEED        feed type expression (default EXP)\n"
    "      --origin HOST      origin of the products (default: this host's name)\n"
    "Files:\n"
    "  -p, --ident IDENT      identifier of the product; with several files IDENT.SEQNO (default: FILE\n"
    "                         as given, STDIN for standard input)\n"
    "  -s, --seqno N          sequence number of the first (default 0)\n"
    "  -i                     sign with the MD5 of the identifier instead of the data's\n"
    "  -n, --size SIZE        standard input has SIZE bytes at most: read it straight into the queue\n"
    "  -r                     no effect: pqinsert always reads files and never maps them\n"
    "Replay:\n"
    "      --trace FILE       lines SIZE YYYYMMDDhhmmss.mmm; - reads standard input\n"
    "      --duration S       replay only the first S seconds of the trace\n"
    "      --scale X          replay X times as fast (default 1)\n"
    "      --seed N           seed of the bytes: the same seed gives the same products (default 1)\n"
    "      --start-delay S    wait before the first product (default 0)\n"
    "      --full-wait S      wait for readers when the queue is full (default 60)\n"
    "      --name NAME        identifiers NAME.000000, NAME.000001 ... (default: FILE's name)\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, 2 bad usage or trace, or QUEUE is not a product queue, 3 a FILE\n"
    "cannot be a product (1, 2 or 3 at the start: nothing was inserted), 4 a product was already in the\n"
    "queue (the others were inserted), 6 MD5 is not available.\n";

enum { INPUT = 3, NO_MD5 = 6 }; /* exit status */
enum { TRACE = TOOL_OWN, DURATION, SCALE, SEED, START_DELAY, FULL_WAIT, NAME, ORIGIN };
enum { NAME_MAX_BYTES = 200 };
static const double seconds_max = 1e7;
static const size_t trace_max_bytes = 1u << 30;

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"feed", required_argument, NULL, 'f'},
    {"ident", required_argument, NULL, 'p'},
    {"seqno", required_argument, NULL, 's'},
    {"size", required_argument, NULL, 'n'},
    {"trace", required_argument, NULL, TRACE},
    {"duration", required_argument, NULL, DURATION},
    {"scale", required_argument, NULL, SCALE},
    {"seed", required_argument, NULL, SEED},
    {"start-delay", required_argument, NULL, START_DELAY},
    {"full-wait", required_argument, NULL, FULL_WAIT},
    {"name", required_argument, NULL, NAME},
    {"origin", required_argument, NULL, ORIGIN},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

/* Opens an input file and returns its size, or says why not. */
static int open_input(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, st) == 0) {
        if (S_ISREG(st->st_mode) && st->st_size <= UINT32_MAX)
            return fd;
        log_error("\"%s\" is %s; valid: regular files up to 4294967295 bytes", path,
                  S_ISREG(st->st_mode) ? "too large for a product" : "not a regular file");
    } else {
        log_error("\"%s\" cannot be read: %s", path, strerror(errno));
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* What pqinsert must do, for all its files. */
struct source {
    struct pq *q;
    const char *ident; /* NULL: the file's name */
    bool sign_ident;
    struct pq_info model;
    struct digest *digest;
};

/* Computes the signature; logs and counts the product. Returns an exit code. */
static int finish(struct source *src, struct pq_reservation *r, struct pq_info *info)
{
    if (src->sign_ident ? !digest_of(info->ident, strlen(info->ident), &info->signature)
                        : !digest_end(src->digest, &info->signature)) {
        log_error("MD5 is not available");
        pq_discard(src->q, r);
        return NO_MD5;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    info->creation = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    enum pq_status s = pq_commit(src->q, r, info, 0);
    char line[PRODUCT_LINE_MAX];
    if (s == PQ_OK) {
        log_info("Inserted: %s", product_line_format(info, line, sizeof line));
        return TOOL_OK;
    }
    if (s == PQ_DUP) {
        log_error("Duplicate product: %s", product_line_format(info, line, sizeof line));
        return TOOL_DUPLICATE;
    }
    log_error("\"%s\" cannot be inserted: %s", info->ident, pq_strerror(s));
    pq_discard(src->q, r);
    return TOOL_SYSTEM;
}

/* Reads at most `most` bytes into `to` and into the digest; *have: how many there were. Returns
 * false with errno. */
static bool read_into(struct source *src, int fd, uint8_t *to, uint64_t most, uint64_t *have)
{
    const size_t piece = 1 << 20;
    *have = 0;
    while (*have < most) {
        size_t want = most - *have < piece ? (size_t)(most - *have) : piece;
        ssize_t n = read(fd, to + *have, want);
        if (n < 0 && errno == EINTR && !tool_stop)
            continue;
        if (n < 0)
            return false;
        if (n == 0)
            break;
        if (!src->sign_ident && !digest_add(src->digest, to + *have, (size_t)n)) {
            errno = ENOSYS;
            return false;
        }
        *have += (uint64_t)n;
    }
    return true;
}

/* Returns an exit code, after a message if it is not 0. */
static int insert_file(struct source *src, const char *path, int fd, struct pq_info *info)
{
    struct pq_reservation *r = NULL;
    void *region = NULL;
    uint64_t have = 0;
    enum pq_status s = pq_reserve(src->q, NULL, info->size, &region, &r);
    if (s) {
        log_error("\"%s\" (%u bytes) cannot be inserted: %s", path, info->size, pq_strerror(s));
        return s == PQ_BIG ? INPUT : TOOL_SYSTEM;
    }
    bool ok = digest_begin(src->digest) && read_into(src, fd, region, info->size, &have);
    if (ok && have == info->size)
        return finish(src, r, info);
    log_error("\"%s\" (%u bytes) cannot be read: %s", path, info->size,
              ok ? "it became shorter" : strerror(errno));
    pq_discard(src->q, r);
    return TOOL_SYSTEM;
}

static bool name_product(const struct source *src, const char *file, int count,
                         struct pq_info *info)
{
    const char *name = src->ident ? src->ident : file;
    int n = src->ident && count > 1
                ? snprintf(info->ident, sizeof info->ident, "%s.%u", name, info->seqno)
                : snprintf(info->ident, sizeof info->ident, "%s", name);
    if (n >= 1 && n <= PQ_IDENT_MAX)
        return true;
    log_error("identifier \"%.60s%s\"; valid: 1 to %d characters", name, n > 60 ? "..." : "",
              PQ_IDENT_MAX);
    return false;
}

static int insert_files(struct source *src, char **paths, int count)
{
    int code = TOOL_OK;
    struct pq_info info = src->model;
    struct pq_stats stats;
    pq_get_stats(src->q, &stats);
    struct stat st;
    for (int i = 0; i < count; i++) { /* all must exist before the first is inserted */
        int fd = open_input(paths[i], &st);
        if (fd < 0) {
            code = INPUT;
            continue;
        }
        close(fd);
        if ((uint64_t)st.st_size > stats.data_bytes) {
            log_error("\"%s\" has %lld bytes; valid: at most %llu, the queue's capacity", paths[i],
                      (long long)st.st_size, (unsigned long long)stats.data_bytes);
            code = INPUT;
        }
        info.seqno = src->model.seqno + (uint32_t)i;
        if (!name_product(src, paths[i], count, &info))
            code = INPUT;
    }
    for (int i = 0, blocked = code; !blocked && i < count && !tool_stop; i++) {
        info = src->model;
        int fd = open_input(paths[i], &st);
        if (fd < 0) {
            code = TOOL_SYSTEM;
            continue;
        }
        info.size = (uint32_t)st.st_size;
        info.seqno += (uint32_t)i;
        name_product(src, paths[i], count, &info);
        int c = insert_file(src, paths[i], fd, &info);
        close(fd);
        if (c && code != TOOL_SYSTEM)
            code = c;
    }
    return code;
}

/* Inserts standard input, of unknown length up to `most` bytes, by way of memory. */
static int insert_stream(struct source *src, uint64_t most)
{
    struct pq_info info = src->model;
    struct pq_reservation *r = NULL;
    uint8_t *data = NULL;
    uint64_t have = 0, room = 0;
    int code = TOOL_SYSTEM;
    if (!name_product(src, "STDIN", 1, &info))
        return INPUT;
    if (!digest_begin(src->digest)) {
        log_error("MD5 is not available");
        return NO_MD5;
    }
    uint64_t got;
    do {
        room = room ? 2 * room : 1 << 16;
        uint8_t *more = realloc(data, room < most ? room : most);
        if (!more) {
            log_error("standard input: %s", strerror(errno));
            goto done;
        }
        data = more;
        if (!read_into(src, STDIN_FILENO, data + have, (room < most ? room : most) - have, &got)) {
            log_error("standard input cannot be read: %s", strerror(errno));
            goto done;
        }
        have += got;
    } while (have == room && have < most);
    uint8_t one_more;
    if (have == most && read(STDIN_FILENO, &one_more, 1) > 0) {
        log_error("standard input has more than %llu bytes", (unsigned long long)most);
        code = INPUT;
        goto done;
    }
    void *region;
    enum pq_status s = pq_reserve(src->q, NULL, have, &region, &r);
    if (s) {
        log_error("standard input (%llu bytes) cannot be inserted: %s", (unsigned long long)have,
                  pq_strerror(s));
        goto done;
    }
    if (have)
        memcpy(region, data, have);
    info.size = (uint32_t)have;
    code = finish(src, r, &info);
done:
    free(data);
    return code;
}

/* Does the same, with the room reserved beforehand. */
static int insert_stream_straight(struct source *src, uint64_t most)
{
    struct pq_info info = src->model;
    struct pq_reservation *r = NULL;
    uint64_t have = 0;
    int code = TOOL_SYSTEM;
    if (!name_product(src, "STDIN", 1, &info))
        return INPUT;
    void *region;
    enum pq_status s = pq_reserve(src->q, NULL, most, &region, &r);
    if (s) {
        log_error("standard input (%llu bytes) cannot be inserted: %s", (unsigned long long)most,
                  pq_strerror(s));
        return s == PQ_BIG ? INPUT : TOOL_SYSTEM;
    }
    uint8_t one_more;
    if (!digest_begin(src->digest) || !read_into(src, STDIN_FILENO, region, most, &have)) {
        log_error("standard input cannot be read: %s", strerror(errno));
    } else if (have == most && read(STDIN_FILENO, &one_more, 1) > 0) {
        log_error("-n: standard input has more than %llu bytes", (unsigned long long)most);
        code = INPUT;
    } else {
        info.size = (uint32_t)have;
        return finish(src, r, &info);
    }
    pq_discard(src->q, r);
    return code;
}

static int insert_all(struct source *src, char **paths, int count, uint64_t stdin_bytes)
{
    if (!src->digest) {
        log_error("MD5 is not available");
        return NO_MD5;
    }
    if (count > 0)
        return insert_files(src, paths, count);
    if (stdin_bytes)
        return insert_stream_straight(src, stdin_bytes);
    struct pq_stats stats;
    pq_get_stats(src->q, &stats);
    return insert_stream(src, stats.data_bytes < UINT32_MAX ? stats.data_bytes : UINT32_MAX);
}

/* Returns the whole file, or NULL after a message. */
static char *read_trace(const char *path, size_t *bytes)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    size_t used = 0, room = 0;
    ssize_t n = -1;
    while (fd >= 0) {
        if (used == room) {
            room = room ? 2 * room : 1 << 16;
            char *more = room > trace_max_bytes ? NULL : realloc(text, room);
            if (!more) {
                errno = EFBIG;
                n = -1;
                break;
            }
            text = more;
        }
        n = read(fd, text + used, room - used);
        if (n < 0 && errno == EINTR && !tool_stop)
            continue;
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    if (n < 0) {
        log_error("Trace \"%s\" cannot be read: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    if (fd >= 0)
        close(fd);
    *bytes = used;
    return text;
}

static int run_trace(const char *queue, const struct replay_options *o, double duration_s)
{
    size_t bytes;
    char *text = read_trace(o->trace_name, &bytes);
    if (!text)
        return TOOL_USAGE;
    const char *shown = strcmp(o->trace_name, "-") == 0 ? "standard input" : o->trace_name;
    struct trace t;
    long bad = trace_parse(text, bytes, shown, &t, stderr);
    free(text);
    if (bad)
        return bad < 0 ? TOOL_SYSTEM : TOOL_USAGE;
    if (duration_s > 0)
        trace_cut(&t, (int64_t)(duration_s * 1000 + 0.5));
    struct pq *q = tool_open(queue, true);
    int code = replay(q, &t, o);
    pq_close(q);
    trace_free(&t);
    return code;
}

/* Takes the last component of the path without its extension. */
static void default_name(const char *path, char *out, size_t bytes)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    int len = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    snprintf(out, bytes, "%.*s", len < NAME_MAX_BYTES ? len : NAME_MAX_BYTES, base);
    if (strcmp(path, "-") == 0)
        snprintf(out, bytes, "trace");
}

struct arguments {
    const char *queue, *feed, *origin, *name;
    struct replay_options replay;
    struct source source;
    uint64_t stdin_bytes;
    double duration_s;
    bool for_files, for_replay; /* an option of that kind was given */
    char host[PQ_ORIGIN_MAX + 1], default_name[NAME_MAX_BYTES + 1];
};

static bool is_for_files(int option)
{
    return option == 'p' || option == 's' || option == 'i' || option == 'n';
}

static bool is_for_replay(int option)
{
    return option == DURATION || option == SCALE || option == SEED || option == START_DELAY ||
           option == FULL_WAIT || option == NAME;
}

static void take_option(struct arguments *a, int option)
{
    struct replay_options *r = &a->replay;

    switch (option) {
    case 'q': a->queue = optarg; break;
    case 'f': a->feed = optarg; break;
    case 'p': a->source.ident = optarg; break;
    case 's': a->source.model.seqno = (uint32_t)tool_u64("-s", optarg, 0, UINT32_MAX); break;
    case 'i': a->source.sign_ident = true; break;
    case 'n': a->stdin_bytes = tool_u64("-n", optarg, 1, UINT32_MAX); break;
    case 'r': break;
    case TRACE: r->trace_name = optarg; break;
    case DURATION: a->duration_s = tool_real("--duration", optarg, 0.001, seconds_max); break;
    case SCALE: r->scale = tool_real("--scale", optarg, 1e-6, 1e6); break;
    case SEED: r->seed = tool_u64("--seed", optarg, 0, UINT64_MAX); break;
    case START_DELAY: r->start_delay_s = tool_real("--start-delay", optarg, 0, seconds_max); break;
    case FULL_WAIT: r->full_wait_s = tool_real("--full-wait", optarg, 0, seconds_max); break;
    case NAME: a->name = optarg; break;
    case ORIGIN: a->origin = optarg; break;
    default: tool_option(option, help);
    }
    a->for_files = a->for_files || is_for_files(option);
    a->for_replay = a->for_replay || is_for_replay(option);
}

/* Ends the program if they contradict each other. */
static void take_arguments(struct arguments *a, int argc, char **argv)
{
    *a = (struct arguments){
        .feed = "EXP", .replay = {.scale = 1, .full_wait_s = 60, .seed = 1}, .host = "localhost"};
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:f:p:s:in:r", options, NULL)) != -1;)
        take_option(a, c);
    a->source.model.feedtype = a->replay.feedtype = tool_feed(a->feed);
    if (!a->queue)
        tool_usage("-q QUEUE is missing");
    if (!a->origin) {
        gethostname(a->host, sizeof a->host - 1);
        a->origin = a->host;
    }
    if (!*a->origin || strlen(a->origin) > PQ_ORIGIN_MAX)
        tool_usage("--origin: found \"%s\"; valid: 1 to %d characters", a->origin, PQ_ORIGIN_MAX);
}

static int replay_trace(struct arguments *a, int nfiles)
{
    struct replay_options *r = &a->replay;

    if (nfiles > 0 || a->for_files)
        tool_usage("FILE, -i, -n, -p and -s cannot be combined with --trace");
    default_name(r->trace_name, a->default_name, sizeof a->default_name);
    r->ident = a->name ? a->name : a->default_name;
    if (!*r->ident || strlen(r->ident) > NAME_MAX_BYTES)
        tool_usage("--name: found \"%s\"; valid: 1 to %d characters", r->ident, NAME_MAX_BYTES);
    r->origin = a->origin;
    return run_trace(a->queue, r, a->duration_s);
}

int main(int argc, char **argv)
{
    log_init(argc, &argv);
    struct arguments a;
    take_arguments(&a, argc, argv);
    tool_catch_signals();
    if (a.replay.trace_name)
        return replay_trace(&a, argc - optind);
    if (a.for_replay)
        tool_usage(
            "--duration, --scale, --seed, --start-delay, --full-wait and --name need --trace");
    if (a.stdin_bytes && optind < argc)
        tool_usage("-n is for standard input: it cannot be combined with FILE");
    struct source *src = &a.source;
    snprintf(src->model.origin, sizeof src->model.origin, "%s", a.origin);
    src->q = tool_open(a.queue, true);
    src->digest = digest_new();
    int code = insert_all(src, argv + optind, argc - optind, a.stdin_bytes);
    digest_free(src->digest);
    pq_close(src->q);
    return code;
}

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

#include "digest.h"
#include "feedtype.h"
#include "log.h"
#include "pq.h"
#include "product_line.h"
#include "replay.h"
#include "tool.h"
#include "trace.h"

static const char help[] =
    "Usage: pqinsert -q QUEUE [-f FEED] [-p IDENT] [-s SEQNO] FILE...\n"
    "  or:  pqinsert -q QUEUE [-f FEED] --trace FILE [--duration S] [--scale X] [--seed N]\n"
    "Inserts files, each a product; or replays a trace in real time: products of its sizes and of\n"
    "pseudo-random bytes, each inserted at its time.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -f, --feed FEED        feed type expression (default EXP)\n"
    "      --origin HOST      origin of the products (default: this host's name)\n"
    "Files:\n"
    "  -p, --ident IDENT      identifier of the product (one FILE only; default: FILE as given)\n"
    "  -s, --seqno N          sequence number of the first (default 0)\n"
    "Replay:\n"
    "      --trace FILE       lines SIZE YYYYMMDDhhmmss.mmm; - reads standard input\n"
    "      --duration S       only the products of the first S seconds of the trace\n"
    "      --scale X          X times as fast (default 1)\n"
    "      --seed N           of the bytes: the same seed gives the same products (default 1)\n"
    "      --start-delay S    wait before the first product (default 0)\n"
    "      --full-wait S      wait for readers when the queue is full (default 60)\n"
    "      --name NAME        identifiers NAME.000000, NAME.000001 ... (default: FILE's name)\n" TOOL_HELP_TEXT
    "Exit status: 0 success, 1 system error, 2 bad usage or input (nothing is inserted then),\n"
    "4 a product was in the queue already (the others are inserted).\n";

enum { TRACE = TOOL_OWN, DURATION, SCALE, SEED, START_DELAY, FULL_WAIT, NAME, ORIGIN };
enum { NAME_MAX_BYTES = 200 };
static const double seconds_max = 1e7;
static const size_t trace_max_bytes = 1u << 30;

static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"feed", required_argument, NULL, 'f'},
    {"ident", required_argument, NULL, 'p'},
    {"seqno", required_argument, NULL, 's'},
    {"trace", required_argument, NULL, TRACE},
    {"duration", required_argument, NULL, DURATION},
    {"scale", required_argument, NULL, SCALE},
    {"seed", required_argument, NULL, SEED},
    {"start-delay", required_argument, NULL, START_DELAY},
    {"full-wait", required_argument, NULL, FULL_WAIT},
    {"name", required_argument, NULL, NAME},
    {"origin", required_argument, NULL, ORIGIN},
    TOOL_LONG, {NULL, 0, NULL, 0}};

/* Opens an input file and says how long it is, or says why not. */
static int open_input(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && fstat(fd, st) == 0) {
        if (S_ISREG(st->st_mode) && st->st_size <= UINT32_MAX)
            return fd;
        log_error("\"%s\" is %s ; valid: regular files up to 4294967295 bytes", path,
                  S_ISREG(st->st_mode) ? "too large for a product" : "no regular file");
    } else {
        log_error("\"%s\" can not be read: %s", path, strerror(errno));
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static int insert_file(struct pq *q, const char *path, int fd, struct pq_info *info, struct digest *d)
{
    struct pq_reservation *r = NULL;
    void *region = NULL;
    enum pq_status s = pq_reserve(q, NULL, info->size, &region, &r);
    const char *problem = s ? pq_strerror(s) : NULL;
    bool ok = !s && digest_begin(d);
    for (size_t have = 0; ok && have < info->size;) {
        size_t want = info->size - have < 1 << 20 ? info->size - have : 1 << 20;
        ssize_t n = read(fd, (uint8_t *)region + have, want);
        if (n < 0 && errno == EINTR && !tool_stop)
            continue;
        ok = n > 0 && digest_add(d, (uint8_t *)region + have, (size_t)n);
        if (!ok)
            problem = n < 0 ? strerror(errno) : n == 0 ? "the file became shorter" : NULL;
        else
            have += (size_t)n;
    }
    if (ok && digest_end(d, &info->signature)) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        info->creation = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
        s = pq_commit(q, r, info, 0);
        if (s == PQ_OK || s == PQ_DUP) {
            char line[PRODUCT_LINE_MAX];
            if (s)
                log_error("Duplicate product: %s", product_line_format(info, line, sizeof line));
            else
                log_info("Inserted: %s", product_line_format(info, line, sizeof line));
            return s ? TOOL_DUPLICATE : TOOL_OK;
        }
        problem = pq_strerror(s);
    }
    pq_discard(q, r);
    log_error("\"%s\" (%u bytes) can not be inserted: %s", path, info->size, problem ? problem : "MD5 is not available");
    return s == PQ_BIG ? TOOL_USAGE : TOOL_SYSTEM;
}

static int insert_files(struct pq *q, char **paths, int count, const char *ident, const struct pq_info *model)
{
    int code = TOOL_OK;
    struct stat st;
    struct pq_stats stats;
    pq_get_stats(q, &stats);
    for (int i = 0; i < count; i++) { /* all must be there before the first is inserted */
        const char *name = ident ? ident : paths[i];
        int fd = open_input(paths[i], &st);
        if (fd < 0) {
            code = TOOL_USAGE;
            continue;
        }
        close(fd);
        if ((uint64_t)st.st_size > stats.data_bytes) {
            log_error("\"%s\" has %lld bytes ; valid: at most %llu, what the queue holds", paths[i],
                      (long long)st.st_size, (unsigned long long)stats.data_bytes);
            code = TOOL_USAGE;
        }
        if (!*name || strlen(name) > PQ_IDENT_MAX) {
            log_error("identifier \"%.60s...\" ; valid: 1 to %d characters", name, PQ_IDENT_MAX);
            code = TOOL_USAGE;
        }
    }
    if (code)
        return code;
    struct digest *d = digest_new();
    for (int i = 0; d && i < count && !tool_stop; i++) {
        struct pq_info info = *model;
        int fd = open_input(paths[i], &st);
        if (fd < 0) {
            code = TOOL_SYSTEM;
            continue;
        }
        info.size = (uint32_t)st.st_size;
        info.seqno += (uint32_t)i;
        snprintf(info.ident, sizeof info.ident, "%s", ident ? ident : paths[i]);
        int c = insert_file(q, paths[i], fd, &info, d);
        close(fd);
        if (c && code != TOOL_SYSTEM)
            code = c;
    }
    digest_free(d);
    return d ? code : TOOL_SYSTEM;
}

/* The whole file, or NULL after a message. */
static char *read_trace(const char *path, size_t *bytes)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = NULL;
    size_t used = 0, room = 0;
    if (!f)
        goto failed;
    for (;;) {
        if (used == room) {
            room = room ? 2 * room : 1 << 16;
            char *more = room > trace_max_bytes ? NULL : realloc(text, room);
            if (!more) {
                errno = EFBIG;
                goto failed;
            }
            text = more;
        }
        size_t n = fread(text + used, 1, room - used, f);
        used += n;
        if (!n)
            break;
    }
    if (ferror(f))
        goto failed;
    if (f != stdin)
        fclose(f);
    *bytes = used;
    return text;
failed:
    log_error("Trace \"%s\" can not be read: %s", path, strerror(errno));
    if (f && f != stdin)
        fclose(f);
    free(text);
    return NULL;
}

static int run_trace(const char *queue, const struct replay_options *o, double duration_s)
{
    struct trace t;
    size_t bytes;
    char *text = read_trace(o->trace_name, &bytes);
    if (!text)
        return TOOL_USAGE;
    const char *shown = strcmp(o->trace_name, "-") == 0 ? "standard input" : o->trace_name;
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

/* The last part of the path without its extension. */
static void default_name(const char *path, char *out, size_t bytes)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    int len = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
    snprintf(out, bytes, "%.*s", len < NAME_MAX_BYTES ? len : NAME_MAX_BYTES, base);
    if (strcmp(path, "-") == 0)
        snprintf(out, bytes, "trace");
}

int main(int argc, char **argv)
{
    const char *queue = NULL, *feed = "EXP", *ident = NULL, *origin = NULL, *name = NULL, *replay_only = NULL;
    struct replay_options o = {.scale = 1, .full_wait_s = 60, .seed = 1};
    struct pq_info model = {0};
    double duration_s = 0;
    bool files_only = false;
    char name_buf[NAME_MAX_BYTES + 1], host[PQ_ORIGIN_MAX + 1] = "localhost";
    log_init(argc, &argv);
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:f:p:s:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': queue = optarg; break;
        case 'f': feed = optarg; break;
        case 'p': ident = optarg; files_only = true; break;
        case 's': model.seqno = (uint32_t)tool_u64("-s", optarg, 0, UINT32_MAX); files_only = true; break;
        case TRACE: o.trace_name = optarg; break;
        case DURATION: duration_s = tool_real("--duration", optarg, 0.001, seconds_max); break;
        case SCALE: o.scale = tool_real("--scale", optarg, 1e-6, 1e6); break;
        case SEED: o.seed = tool_u64("--seed", optarg, 0, UINT64_MAX); break;
        case START_DELAY: o.start_delay_s = tool_real("--start-delay", optarg, 0, seconds_max); break;
        case FULL_WAIT: o.full_wait_s = tool_real("--full-wait", optarg, 0, seconds_max); break;
        case NAME: name = optarg; break;
        case ORIGIN: origin = optarg; break;
        default: tool_option(c, help);
        }
        if (c > TRACE && c < ORIGIN)
            replay_only = "--duration, --scale, --seed, --start-delay, --full-wait and --name";
    }
    model.feedtype = o.feedtype = tool_feed(feed);
    if (!queue)
        tool_usage("-q QUEUE is missing");
    if (!origin) {
        gethostname(host, sizeof host - 1);
        origin = host;
    }
    if (!*origin || strlen(origin) > PQ_ORIGIN_MAX)
        tool_usage("--origin: found \"%s\" ; valid: 1 to %d characters", origin, PQ_ORIGIN_MAX);
    tool_catch_signals();

    if (o.trace_name) {
        if (optind < argc || files_only)
            tool_usage("FILE, -p and -s do not go with --trace");
        default_name(o.trace_name, name_buf, sizeof name_buf);
        o.ident = name ? name : name_buf;
        if (!*o.ident || strlen(o.ident) > NAME_MAX_BYTES)
            tool_usage("--name: found \"%s\" ; valid: 1 to %d characters", o.ident, NAME_MAX_BYTES);
        o.origin = origin;
        return run_trace(queue, &o, duration_s);
    }
    if (replay_only)
        tool_usage("%s go with --trace only", replay_only);
    if (optind == argc)
        tool_usage("nothing to insert: FILE or --trace is missing");
    if (ident && argc - optind > 1)
        tool_usage("-p goes with one FILE; found %d", argc - optind);
    strcpy(model.origin, origin);
    struct pq *q = tool_open(queue, true);
    int code = insert_files(q, argv + optind, argc - optind, ident, &model);
    pq_close(q);
    return code;
}

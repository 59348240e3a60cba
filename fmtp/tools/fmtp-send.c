/* SPDX-License-Identifier: Apache-2.0
 *
 * fmtp-send: multicasts files to receivers (fmtp-recv) and repairs what they lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

struct file {
    char *path;
    const char *name;                     /* its last component */
    void *data;
    size_t size;
    double offered_s, seconds;
    uint32_t index;
    bool offered, released;
    enum fmtp_release why;
};

struct run {
    struct file **files;
    size_t nfiles, capacity, offered, released;
    bool open;                            /* standard input may still name files */
    char line[PATH_MAX + 1];              /* of standard input, not yet complete */
    size_t line_len;
};

static const char *const why_text[] = {"all-done", "timeout", "closed"};

static const char usage[] =
    "Usage: fmtp-send --group IP:PORT --address IP [OPTION]... FILE...\n"
    "       fmtp-send --group IP:PORT --address IP --stdin [OPTION]... [FILE]...\n"
    "Multicasts files and serves retransmissions until every receiver has them.\n"
    "\n"
    "  --group IP:PORT    multicast group and UDP port\n"
    "  --address IP       address of the interface to send from and to listen on\n"
    "  --port N           TCP port for retransmissions (default: the system chooses)\n"
    "  --receivers N      wait for N receivers before the first file (default 1)\n"
    "  --layout YEAR      wire layout 2021 (default) or 2017\n"
    "  --rate BPS         multicast rate in bit/s of IP packets, k/M/G allowed (default 20M)\n"
    "  --fsnd X           sender timeout factor (default 5000): a file is served for\n"
    "                     X times its transmission time, at least a round trip and 1 s\n"
    "  --ttl N            time to live of the datagrams (default 1)\n"
    "  --first-index N    product index of the first file (default 0)\n"
    "  --stdin            send the files that standard input names, a path a line, as\n"
    "                     they come; ends when it is closed and all are served\n"
    "  --help, --version\n"
    "\n"
    "Prints a line per file and one for the run. Exit status: 0 if every receiver\n"
    "acknowledged every file, 1 if not or on failure, 2 on wrong usage.\n";

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct run *run = ctx;
    struct file *f = cookie;

    f->released = true;
    f->why = why;
    f->seconds = now_s() - f->offered_s;
    if (f->data)
        munmap(f->data, f->size);
    f->data = NULL;
    run->released++;
    progress("%s", "");
    printf("index=%u bytes=%zu seconds=%.6f why=%s name=%s\n", index, f->size, f->seconds,
           why_text[why], f->name);
    fflush(stdout);
}

/* Takes a file into the list; wrong ones end the program before or while it sends. */
static void add_file(struct run *run, const char *path)
{
    struct file *f = calloc(1, sizeof *f);
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        die_usage("'%s': %s", path, strerror(errno));
    close(fd);
    if (!S_ISREG(st.st_mode))
        die_usage("'%s': not a regular file", path);
    if (st.st_size > UINT32_MAX)
        die_usage("'%s': %lld bytes; FMTP takes files of at most 4294967295", path,
                  (long long)st.st_size);
    if (run->nfiles == run->capacity) {
        run->capacity = run->capacity ? 2 * run->capacity : 64;
        run->files = reallocarray(run->files, run->capacity, sizeof *run->files);
    }
    if (!f || !run->files || !(f->path = strdup(path)))
        die("out of memory");
    f->name = strrchr(f->path, '/') ? strrchr(f->path, '/') + 1 : f->path;
    if (strlen(f->name) > FMTP_MAX_METADATA)
        die_usage("'%s': name of more than %u bytes", path, FMTP_MAX_METADATA);
    run->files[run->nfiles++] = f;
}

/* What standard input has to say now: complete lines are files. */
static void read_names(struct run *run)
{
    char *end;
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
    while ((end = memchr(run->line, '\n', run->line_len))) {
        size_t used = (size_t)(end - run->line) + 1;
        *end = 0;
        if (*run->line)
            add_file(run, run->line);
        run->line_len -= used;
        memmove(run->line, run->line + used, run->line_len);
    }
    if (run->line_len == sizeof run->line - 1)
        die_usage("standard input: line of more than %zu bytes; valid is a path a line", run->line_len);
}

/* Maps the file and hands it over. */
static void offer(struct fmtp_server *s, struct file *f)
{
    struct fmtp_error err;
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        die("'%s': %s", f->path, strerror(errno));
    f->size = (size_t)st.st_size;
    if (f->size) {
        f->data = mmap(NULL, f->size, PROT_READ, MAP_SHARED, fd, 0);
        if (f->data == MAP_FAILED)
            die("'%s': %s", f->path, strerror(errno));
        madvise(f->data, f->size, MADV_SEQUENTIAL);
    }
    close(fd);
    struct iovec part = {f->data, f->size};
    f->offered_s = now_s();
    f->offered = true;
    if (fmtp_server_offer(s, &part, 1, f->name, (uint16_t)strlen(f->name), f, &f->index, &err) < 0)
        die("'%s': %s", f->path, err.text);
}

static void service(struct fmtp_server *s, struct run *run, int timeout_ms, bool *quiet)
{
    /* A negative descriptor is not looked at. */
    struct pollfd p[] = {{.fd = fmtp_server_fd(s), .events = POLLIN},
                         {.fd = run->open ? STDIN_FILENO : -1, .events = POLLIN}};
    struct fmtp_error err;
    int n = poll(p, 2, timeout_ms);

    if (quiet)
        *quiet = n == 0;
    if (n > 0 && p[0].revents && fmtp_server_service(s, &err) < 0)
        die("%s", err.text);
    if (n > 0 && p[1].revents)
        read_names(run);
}

static void wait_for_receivers(struct fmtp_server *s, struct run *run, size_t wanted)
{
    while (fmtp_server_receivers(s) < wanted && !stop_requested) {
        progress("port %u: waiting for receivers, %zu of %zu", fmtp_server_tcp_port(s),
                 fmtp_server_receivers(s), wanted);
        service(s, run, 200, NULL);
    }
    progress("%s", "");
    fprintf(stderr, "fmtp-send: %zu receivers connected\n", fmtp_server_receivers(s));
}

static void send_all(struct fmtp_server *s, struct run *run)
{
    double shown_s = 0, begun_s = now_s();

    while ((run->open || run->released < run->nfiles) && !stop_requested) {
        struct fmtp_server_stats st;
        if (run->offered < run->nfiles && fmtp_server_ready(s))
            offer(s, run->files[run->offered++]);
        service(s, run, 200, NULL);
        if (now_s() - shown_s < 0.2)
            continue;
        shown_s = now_s();
        fmtp_server_get_stats(s, &st);
        progress("%zu of %zu files done, %zu begun; %zu receivers; %.1f MB multicast, %.1f MB repaired, "
                 "%.1f s", run->released, run->nfiles, run->offered, st.receivers,
                 (double)st.datagram_bytes / 1e6, (double)st.retx_bytes / 1e6, shown_s - begun_s);
    }
    /* What was rejected at the end still has to be told to the receivers. */
    for (bool quiet = stop_requested; !quiet;)
        service(s, run, 200, &quiet);
}

enum { GROUP = 1, ADDRESS, PORT, RECEIVERS, LAYOUT, RATE, FSND, TTL, FIRST, STDIN, HELP, VERSION };

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"group", required_argument, NULL, GROUP},   {"address", required_argument, NULL, ADDRESS},
        {"port", required_argument, NULL, PORT},     {"receivers", required_argument, NULL, RECEIVERS},
        {"layout", required_argument, NULL, LAYOUT}, {"rate", required_argument, NULL, RATE},
        {"fsnd", required_argument, NULL, FSND},     {"ttl", required_argument, NULL, TTL},
        {"first-index", required_argument, NULL, FIRST}, {"stdin", no_argument, NULL, STDIN},
        {"help", no_argument, NULL, HELP},           {"version", no_argument, NULL, VERSION},
        {0}};
    struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2021, .f_snd = 5000,
                                     .tau_snd_min_ns = 1000000000, .pace_bps = 20000000, .released = released};
    size_t receivers = 1;
    uint16_t port = 0;
    struct run run = {0};
    struct fmtp_server_stats st;
    struct fmtp_error err;
    bool ok = true;
    int c;

    program = "fmtp-send";
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case GROUP: cfg.group = parse_endpoint("--group", optarg); break;
        case ADDRESS: cfg.address = parse_ip("--address", optarg); break;
        case PORT: port = (uint16_t)parse_number("--port", optarg, 0, 65535); break;
        case RECEIVERS: receivers = parse_number("--receivers", optarg, 0, 256); break;
        case LAYOUT: cfg.layout = parse_layout(optarg); break;
        case RATE: cfg.pace_bps = parse_number("--rate", optarg, 1000, 1000000000000); break;
        case FSND: cfg.f_snd = parse_factor("--fsnd", optarg); break;
        case TTL: cfg.ttl = (uint8_t)parse_number("--ttl", optarg, 1, 255); break;
        case FIRST: cfg.first_index = (uint32_t)parse_number("--first-index", optarg, 0, UINT32_MAX);
            break;
        case STDIN: run.open = true; break;
        case HELP: fputs(usage, stdout); return 0;
        case VERSION: puts("fmtp-send (Downpour) " FMTP_VERSION); return 0;
        default: die_usage("unknown or incomplete option");
        }
    }
    if (!cfg.group.ss_family || !cfg.address.ss_family)
        die_usage("--group and --address are needed");
    set_port(&cfg.address, port);
    if (optind == argc && !run.open)
        die_usage("no FILE given");
    for (int i = optind; i < argc; i++)
        add_file(&run, argv[i]);
    cfg.ctx = &run;
    cfg.r_mc_bps = cfg.pace_bps;
    struct fmtp_server *s = fmtp_server_open(&cfg, &err);
    if (!s)
        die("%s", err.text);
    catch_signals();
    fprintf(stderr, "fmtp-send: TCP port %u\n", fmtp_server_tcp_port(s));
    wait_for_receivers(s, &run, receivers);
    double begun_s = now_s();
    if (!stop_requested)
        send_all(s, &run);
    fmtp_server_get_stats(s, &st);
    fmtp_server_close(s);
    progress("%s", "");
    for (size_t i = 0; i < run.nfiles; i++) {
        ok = ok && run.files[i]->released && run.files[i]->why == FMTP_RELEASE_ALL_DONE;
        free(run.files[i]->path);
        free(run.files[i]);
    }
    ok = ok && st.unacknowledged == 0;
    printf("products=%llu receivers=%zu seconds=%.3f datagrams=%llu datagram_bytes=%llu blocks=%llu "
           "retx_requests=%llu retx_blocks=%llu retx_bytes=%llu rejects=%llu timeouts=%llu acks=%llu "
           "unacknowledged=%llu bad_messages=%llu send_errors=%llu result=%s\n",
           (unsigned long long)st.products, st.receivers, now_s() - begun_s,
           (unsigned long long)st.datagrams, (unsigned long long)st.datagram_bytes,
           (unsigned long long)st.blocks, (unsigned long long)st.retx_requests,
           (unsigned long long)st.retx_blocks, (unsigned long long)st.retx_bytes,
           (unsigned long long)st.rejects, (unsigned long long)st.timeouts,
           (unsigned long long)st.acks, (unsigned long long)st.unacknowledged,
           (unsigned long long)st.bad_messages, (unsigned long long)st.send_errors,
           ok ? "complete" : "incomplete");
    free(run.files);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

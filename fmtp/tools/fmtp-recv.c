/* SPDX-License-Identifier: Apache-2.0
 *
 * fmtp-recv: receives the files that fmtp-send multicasts.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "common.h"

struct file {                             /* being received, under a temporary name */
    struct file *next;
    uint32_t index;
    size_t size;
    void *data;
    double begun_s;
    char temporary[32], name[256];
};

struct run {
    int dir;
    bool sha256;
    struct file *files;
    uint64_t received, missed, failed, bytes;
};

static char empty;                        /* where the bytes of an empty file go */

static const char usage[] =
    "Usage: fmtp-recv --server IP:PORT --group IP:PORT --interface IP [OPTION]... DIR\n"
    "Receives multicast files into DIR, under the names that the sender gave them.\n"
    "\n"
    "  --server IP:PORT   the sender's TCP address\n"
    "  --group IP:PORT    multicast group and UDP port\n"
    "  --interface IP     address of the interface to join on and to connect from\n"
    "  --layout YEAR      wire layout 2021 (default) or 2017\n"
    "  --frcv X           receiver timeout factor (default 20)\n"
    "  --rate BPS         the sender's multicast rate, k/M/G allowed (default 20M)\n"
    "  --rcvbuf BYTES     UDP receive buffer, k/M/G allowed (default 4M)\n"
    "  --count N          end after N files (default: when the sender closes)\n"
    "  --sha256           print the digest of every file\n"
    "  --help, --version\n"
    "\n"
    "A file appears in DIR complete or not at all; one of the same name is replaced.\n"
    "Exit status: 0 if nothing was missed, 1 if something was or on failure, 2 on\n"
    "wrong usage.\n";

static struct file *take(struct run *run, uint32_t index)
{
    for (struct file **link = &run->files; *link; link = &(*link)->next)
        if ((*link)->index == index) {
            struct file *f = *link;
            *link = f->next;
            return f;
        }
    return NULL;
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct run *run = ctx;
    struct file *f = calloc(1, sizeof *f);
    int fd, error;

    (void)start;
    if (!f)
        die("out of memory");
    f->index = index;
    f->size = size;
    f->begun_s = now_s();
    safe_name(meta, meta_len, index, f->name);
    snprintf(f->temporary, sizeof f->temporary, ".fmtp-%d-%u", (int)getpid(), index);
    fd = openat(run->dir, f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    error = fd < 0 ? errno : 0;
    /* Reserved for real: a full disk is told now, not by SIGBUS later. */
    if (!error && size)
        error = posix_fallocate(fd, 0, size);
    f->data = &empty;
    if (!error && size) {
        f->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        error = f->data == MAP_FAILED ? errno : 0;
    }
    if (fd >= 0)
        close(fd);
    if (error) {
        progress("%s", "");
        fprintf(stderr, "fmtp-recv: '%s', %u bytes: %s\n", f->name, size, strerror(error));
        if (fd >= 0)
            unlinkat(run->dir, f->temporary, 0);
        free(f);
        run->failed++;
        return NULL;
    }
    f->next = run->files;
    run->files = f;
    return f->data;
}

static void print_digest(const struct file *f)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (!EVP_Digest(f->data, f->size, digest, &n, EVP_sha256(), NULL))
        die("cannot compute SHA-256");
    fputs(" sha256=", stdout);
    for (unsigned i = 0; i < n; i++)
        printf("%02x", digest[i]);
}

static void discard(struct run *run, struct file *f)
{
    if (f->data != &empty)
        munmap(f->data, f->size);
    unlinkat(run->dir, f->temporary, 0);
    free(f);
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    struct run *run = ctx;
    struct file *f = take(run, index);
    struct timespec arrived;

    clock_gettime(CLOCK_REALTIME, &arrived);
    progress("%s", "");
    if (renameat(run->dir, f->temporary, run->dir, f->name) < 0) {
        fprintf(stderr, "fmtp-recv: '%s': %s\n", f->name, strerror(errno));
        run->failed++;
        discard(run, f);
        return;
    }
    run->received++;
    run->bytes += f->size;
    printf("index=%u bytes=%zu seconds=%.6f delay_s=%.6f arrived=%lld.%06ld retx_blocks=%u", index,
           f->size, now_s() - f->begun_s, delay_s, (long long)arrived.tv_sec, arrived.tv_nsec / 1000,
           retx_blocks);
    if (run->sha256)
        print_digest(f);
    printf(" name=%s\n", f->name);
    fflush(stdout);
    if (f->data != &empty)
        munmap(f->data, f->size);
    free(f);
}

static void missed(void *ctx, uint32_t index)
{
    struct run *run = ctx;
    struct file *f = take(run, index);

    run->missed++;
    progress("%s", "");
    printf("index=%u missed name=%s\n", index, f ? f->name : "?");
    fflush(stdout);
    if (f)
        discard(run, f);
}

enum { SERVER = 1, GROUP, IFACE, LAYOUT, FRCV, RATE, RCVBUF, COUNT, SHA256, HELP, VERSION };

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"server", required_argument, NULL, SERVER},   {"group", required_argument, NULL, GROUP},
        {"interface", required_argument, NULL, IFACE}, {"layout", required_argument, NULL, LAYOUT},
        {"frcv", required_argument, NULL, FRCV},       {"rate", required_argument, NULL, RATE},
        {"rcvbuf", required_argument, NULL, RCVBUF},   {"count", required_argument, NULL, COUNT},
        {"sha256", no_argument, NULL, SHA256},         {"help", no_argument, NULL, HELP},
        {"version", no_argument, NULL, VERSION},       {0}};
    struct fmtp_client_config cfg = {
        .layout = FMTP_LAYOUT_2021, .f_rcv = 20, .r_mc_bps = 20000000, .rcvbuf_bytes = 4000000,
        .begun = begun, .ended = ended, .missed = missed};
    struct fmtp_client_stats st;
    struct fmtp_error err;
    struct run run = {0};
    uint64_t count = 0;
    double shown_s = 0;
    bool lost = false;
    int c;

    program = "fmtp-recv";
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case SERVER: cfg.server = parse_endpoint("--server", optarg); break;
        case GROUP: cfg.group = parse_endpoint("--group", optarg); break;
        case IFACE: cfg.interface = parse_ip("--interface", optarg); break;
        case LAYOUT: cfg.layout = parse_layout(optarg); break;
        case FRCV: cfg.f_rcv = parse_factor("--frcv", optarg); break;
        case RATE: cfg.r_mc_bps = parse_number("--rate", optarg, 1000, 1000000000000); break;
        case RCVBUF: cfg.rcvbuf_bytes = parse_number("--rcvbuf", optarg, 1, 1000000000); break;
        case COUNT: count = parse_number("--count", optarg, 1, UINT64_MAX); break;
        case SHA256: run.sha256 = true; break;
        case HELP: fputs(usage, stdout); return 0;
        case VERSION: puts("fmtp-recv (Downpour) " FMTP_VERSION); return 0;
        default: die_usage("unknown or incomplete option");
        }
    }
    if (!cfg.server.ss_family || !cfg.group.ss_family || !cfg.interface.ss_family)
        die_usage("--server, --group and --interface are needed");
    if (optind + 1 != argc)
        die_usage("one DIR is needed");
    run.dir = open(argv[optind], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (run.dir < 0)
        die_usage("directory '%s': %s", argv[optind], strerror(errno));
    cfg.ctx = &run;
    struct fmtp_client *client = fmtp_client_open(&cfg, &err);
    if (!client)
        die("%s", err.text);
    catch_signals();
    while (!lost && !stop_requested && !(count && run.received + run.missed + run.failed >= count)) {
        struct pollfd p = {.fd = fmtp_client_fd(client), .events = POLLIN};
        if (poll(&p, 1, 200) > 0)
            lost = fmtp_client_service(client, &err) < 0;
        if (now_s() - shown_s < 0.2)
            continue;
        shown_s = now_s();
        fmtp_client_get_stats(client, &st);
        progress("%s: %llu files, %.1f MB, %llu blocks by multicast, %llu repaired, %llu missed",
                 fmtp_client_connected(client) ? "connected" : "connecting",
                 (unsigned long long)run.received, (double)run.bytes / 1e6,
                 (unsigned long long)st.blocks, (unsigned long long)st.retx_blocks,
                 (unsigned long long)run.missed);
    }
    bool was_connected = fmtp_client_connected(client) || run.received + run.missed;
    fmtp_client_get_stats(client, &st);
    fmtp_client_close(client);
    progress("%s", "");
    bool ok = run.missed == 0 && run.failed == 0 && (!count || run.received >= count);
    if (lost && (!ok || !run.received))
        fprintf(stderr, "fmtp-recv: %s\n", err.text);
    ok = ok && (was_connected || run.received);
    printf("products=%llu bytes=%llu missed=%llu failed=%llu datagrams=%llu blocks=%llu "
           "duplicate_blocks=%llu retx_requests=%llu retx_blocks=%llu bad_messages=%llu "
           "socket_drops=%llu rcvbuf_granted_bytes=%zu result=%s\n",
           (unsigned long long)run.received, (unsigned long long)run.bytes,
           (unsigned long long)run.missed, (unsigned long long)run.failed,
           (unsigned long long)st.datagrams, (unsigned long long)st.blocks,
           (unsigned long long)st.duplicate_blocks, (unsigned long long)st.retx_requests,
           (unsigned long long)st.retx_blocks, (unsigned long long)st.bad_messages,
           (unsigned long long)st.socket_drops, st.rcvbuf_granted_bytes,
           ok ? "complete" : "incomplete");
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

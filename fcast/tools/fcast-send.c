/* SPDX-License-Identifier: Apache-2.0
 *
 * fcast-send: sends files as a carousel, to any number of receivers that tune in.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "gzip.h"
#include "loop/loop.h"
#include "options.h"
#include "outgoing.h"
#include "seed.h"
#include "source.h"
#include "tool/confine.h"

static const char usage[] =
    "Usage: fcast-send --group IP:PORT --interface IP [OPTION]... FILE...\n"
    "Multicasts files again and again; receivers tune in at any time.\n"
    "\n"
    "  --group IP:PORT    multicast group and UDP port\n"
    "  --interface IP     address of the interface to send from\n"
    "  --rate BPS         bit/s with all headers, k/M/G allowed (default 10M)\n"
    "  --ttl N            TTL of the datagrams (default 1)\n"
    "  --protocol NAME    fcast (default, RFC 6968), flute (RFC 6726), or seed: one file\n"
    "                     in the packets of 1999, only rs, no key\n"
    "  --fec CODE         ldpc-triangle (default), ldpc-staircase, rs or none\n"
    "  --variant KIND     rs code: rfc5510 (default), rizzo (seed: default) or flute\n"
    "  --k N              source symbols of a block (default 10000; rs: 200, seed: 32)\n"
    "  --overhead PERCENT repair symbols per 100 source symbols (default 50)\n"
    "  --order ORDER      shuffle (default), rotate or sequential\n"
    "  --jitter           vary the time between datagrams by half\n"
    "  --cycles N         end after N rounds (default: send until stopped)\n"
    "  --encoding NAME    gzip: compress each file; none (default)\n"
    "  --digest NAME      sha256 (default), or none: receivers cannot check a file\n"
    "  --symbol BYTES     data of a datagram (default: what the MTU allows; seed: 1024)\n"
    "  --tsi N            number of the session (default: random)\n"
    "  --key-file FILE    key of 64 hexadecimal digits that the receivers also have\n"
    "  --cache DIR        directory for repair symbols (default /var/tmp)\n"
    "  --sdp FILE         write a session file for fcast-recv --session\n"
    "  --no-sandbox       run without the seccomp and Landlock sandbox\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 if all rounds were sent or a signal arrived, 1 on failure, 2 on\n"
    "wrong usage.\n";

struct run {
    struct session session;
    struct fcast_sender_config cfg;
    struct sockaddr_storage from;
    unsigned ttl;
    uint8_t key[TP_KEY_BYTES];
    const char *sdp;
    struct cache cache;
    bool no_sandbox, gzip, no_digest, has_fec, has_variant;
    struct source_file *files;
    int count;
    uint64_t bytes;
    struct outgoing out;
    struct fcast_sender *sender;
};

/* ------------------------------------------------------------------ files */

/* Packs the file if that makes it smaller; returns the number of bytes to send. */
static uint64_t pack(const struct run *run, struct source_file *f, struct fcast_meta *meta)
{
    struct tp_error err;
    int fd = cache_file(run->cache.folder, &err);
    uint64_t packed;

    if (fd < 0)
        die_usage("%s", err.text);
    if (gzip_pack(f->fd, meta->length, fd, &packed) < 0)
        die("'%s': gzip into --cache '%s': %s", f->path, run->cache.folder, strerror(errno));
    if (packed >= meta->length) {
        close(fd);
        return meta->length;
    }
    close(f->fd);
    f->fd = fd;
    strcpy(meta->encoding, "gzip");
    return packed;
}

static void add_file(struct run *run, struct source_file *f)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    struct fcast_meta meta;
    struct tp_error err;
    uint64_t toi;

    if (source_describe(f, !run->no_digest, &meta, &err) < 0)
        die_usage("%s", err.text);
    const uint64_t bytes = run->gzip ? pack(run, f, &meta) : meta.length;
    const struct fcast_store source = source_store(f);
    if (fcast_sender_add(run->sender, &meta, bytes, &source, &toi) < 0)
        die("'%s', %llu bytes: %s", f->path, (unsigned long long)meta.length,
            errno != EFBIG ? strerror(errno)
            : run->cfg.protocol == FCAST_PROTOCOL_SEED
                ? "too large; --protocol seed allows 4 GiB minus about 200 bytes"
                : "too large for this code; larger --symbol or --k help");
    run->bytes += meta.length;
    fprintf(stderr, "fcast-send: toi=%llu bytes=%llu%s", (unsigned long long)toi,
            (unsigned long long)meta.length, meta.encoding[0] ? "" : " ");
    if (meta.encoding[0])
        fprintf(stderr, " packed_bytes=%llu ", (unsigned long long)bytes);
    fprintf(stderr, "name=%s\n", name);
}

/* ------------------------------------------------------------------ options */

enum {
    OPTION_GROUP = 1,
    OPTION_INTERFACE,
    OPTION_RATE,
    OPTION_TTL,
    OPTION_PROTOCOL,
    OPTION_FEC,
    OPTION_VARIANT,
    OPTION_K,
    OPTION_OVERHEAD,
    OPTION_ORDER,
    OPTION_JITTER,
    OPTION_CYCLES,
    OPTION_ENCODING,
    OPTION_DIGEST,
    OPTION_SYMBOL,
    OPTION_TSI,
    OPTION_KEY,
    OPTION_CACHE,
    OPTION_SDP,
    OPTION_NO_SANDBOX,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {{"group", required_argument, NULL, OPTION_GROUP},
                                        {"interface", required_argument, NULL, OPTION_INTERFACE},
                                        {"rate", required_argument, NULL, OPTION_RATE},
                                        {"ttl", required_argument, NULL, OPTION_TTL},
                                        {"protocol", required_argument, NULL, OPTION_PROTOCOL},
                                        {"fec", required_argument, NULL, OPTION_FEC},
                                        {"variant", required_argument, NULL, OPTION_VARIANT},
                                        {"k", required_argument, NULL, OPTION_K},
                                        {"overhead", required_argument, NULL, OPTION_OVERHEAD},
                                        {"order", required_argument, NULL, OPTION_ORDER},
                                        {"jitter", no_argument, NULL, OPTION_JITTER},
                                        {"cycles", required_argument, NULL, OPTION_CYCLES},
                                        {"encoding", required_argument, NULL, OPTION_ENCODING},
                                        {"digest", required_argument, NULL, OPTION_DIGEST},
                                        {"symbol", required_argument, NULL, OPTION_SYMBOL},
                                        {"tsi", required_argument, NULL, OPTION_TSI},
                                        {"key-file", required_argument, NULL, OPTION_KEY},
                                        {"cache", required_argument, NULL, OPTION_CACHE},
                                        {"sdp", required_argument, NULL, OPTION_SDP},
                                        {"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},
                                        {"help", no_argument, NULL, OPTION_HELP},
                                        {"version", no_argument, NULL, OPTION_VERSION},
                                        {0}};

/* Takes an option about what the carousel sends and how; false: another option. */
static bool take_code_option(struct run *run, int option)
{
    static const char *const fecs[] = {"ldpc-triangle", "ldpc-staircase", "rs", "none"};
    static const uint8_t ids[] = {FCAST_TRIANGLE, FCAST_STAIRCASE, FCAST_RS, FCAST_NO_CODE};
    static const char *const encodings[] = {"none", "gzip"};
    static const char *const digests[] = {"sha256", "none"};
    static const char *const orders[] = {"sequential", "rotate", "shuffle"};
    struct fcast_sender_config *cfg = &run->cfg;

    switch (option) {
    case OPTION_FEC:
        cfg->fec = ids[option_word("--fec", optarg, fecs, 4)];
        run->has_fec = true;
        break;
    case OPTION_VARIANT:
        cfg->rs_kind = option_variant(optarg);
        run->has_variant = true;
        break;
    case OPTION_K: cfg->k = (uint32_t)parse_number("--k", optarg, 1, 100000); break;
    case OPTION_OVERHEAD:
        cfg->overhead = (double)parse_number("--overhead", optarg, 0, 700) / 100;
        break;
    case OPTION_ORDER:
        cfg->order = (enum fcast_order)option_word("--order", optarg, orders, 3);
        break;
    case OPTION_ENCODING: run->gzip = option_word("--encoding", optarg, encodings, 2); break;
    case OPTION_DIGEST: run->no_digest = option_word("--digest", optarg, digests, 2); break;
    case OPTION_CYCLES: cfg->cycles = parse_number("--cycles", optarg, 1, UINT32_MAX); break;
    case OPTION_SYMBOL:
        cfg->symbol_bytes = (uint16_t)parse_number("--symbol", optarg, 16, OUTGOING_SYMBOL_MAX);
        break;
    default: return false;
    }
    return true;
}

static void take_option(struct run *run, int option)
{
    if (take_code_option(run, option))
        return;
    switch (option) {
    case OPTION_GROUP: run->session.group = option_endpoint("--group", optarg); break;
    case OPTION_INTERFACE: run->from = parse_ip("--interface", optarg); break;
    case OPTION_RATE:
        run->out.rate_bps = parse_number("--rate", optarg, 1000, UINT64_C(100000000000));
        break;
    case OPTION_TTL: run->ttl = (unsigned)parse_number("--ttl", optarg, 0, 255); break;
    case OPTION_PROTOCOL: run->session.protocol = option_protocol(optarg); break;
    case OPTION_JITTER: run->out.jitter = true; break;
    case OPTION_TSI: run->session.tsi = parse_number("--tsi", optarg, 1, UINT16_MAX); break;
    case OPTION_KEY:
        option_key(optarg, run->key);
        run->cfg.key = run->key;
        run->cfg.key_len = sizeof run->key;
        break;
    case OPTION_CACHE: run->cache.folder = optarg; break;
    case OPTION_SDP: run->sdp = optarg; break;
    case OPTION_NO_SANDBOX: run->no_sandbox = true; break;
    case OPTION_HELP: fputs(usage, stdout); exit(EXIT_SUCCESS);
    case OPTION_VERSION: printf("fcast-send (Downpour) " DOWNPOUR_VERSION "\n"); exit(EXIT_SUCCESS);
    default: break; /* unreachable: next_option() knows all options */
    }
}

/* Applies what the Fcast of 1999 supports and lacks. */
static void settle_seed(struct run *run)
{
    struct fcast_sender_config *cfg = &run->cfg;

    if (run->has_fec && cfg->fec != FCAST_RS)
        die_usage("--protocol seed with another code; valid: --fec rs");
    if (cfg->key)
        die_usage("--protocol seed with --key-file; valid: fcast or flute with a key");
    if (run->count != 1)
        die_usage("found %d files; valid: one FILE with --protocol seed", run->count);
    if (cfg->k > FCAST_SEED_K_MAX)
        die_usage("--k %u; valid: whole numbers from 1 to %d with --protocol seed", cfg->k,
                  FCAST_SEED_K_MAX);
    cfg->fec = FCAST_RS;
    if (!run->has_variant)
        cfg->rs_kind = FCAST_SEED_RS;
    if (!cfg->symbol_bytes)
        cfg->symbol_bytes = FCAST_SEED_BLOCK_BYTES;
}

static void take_arguments(struct run *run, int argc, char **argv)
{
    for (int c; (c = next_option(argc, argv, options)) != -1;)
        take_option(run, c);
    if (!run->session.group.ss_family || !run->from.ss_family)
        die_usage("--group and --interface are needed");
    if (run->session.group.ss_family != run->from.ss_family)
        die_usage("--group and --interface are of different families; valid: both IPv4 or IPv6");
    if (optind == argc)
        die_usage("at least one FILE is needed");
    run->count = argc - optind;
    if (run->session.protocol == FCAST_PROTOCOL_SEED)
        settle_seed(run);
    run->files = xcalloc((size_t)run->count, sizeof *run->files);
    struct tp_error err;
    for (int i = 0; i < run->count; i++)
        if (source_open(&run->files[i], argv[optind + i], &err) < 0)
            die_usage("%s", err.text);
    run->cache.fd = cache_file(run->cache.folder, &err);
    if (run->cache.fd < 0)
        die_usage("%s", err.text);
}

/* ------------------------------------------------------------------ sending */

static void open_socket(struct run *run)
{
    struct tp_error err;

    if (outgoing_open(&run->out, &run->from, &run->session.group, run->ttl, &err) < 0)
        die("%s", err.text);
    const unsigned most = outgoing_symbol_most(&run->out, run->cfg.key);
    if (!run->cfg.symbol_bytes)
        run->cfg.symbol_bytes = outgoing_symbol(&run->out, run->cfg.key);
    if (run->cfg.symbol_bytes > most)
        die_usage("--symbol %u: the path's MTU of %u bytes takes %u", run->cfg.symbol_bytes,
                  run->out.mtu_bytes, most);
}

static void enter_sandbox(const struct run *run)
{
    struct sandbox s;

    sandbox_init(&s, false);
    confine(&s, run->no_sandbox);
}

static void prepare(struct run *run)
{
    if (getrandom(&run->cfg.random, sizeof run->cfg.random, 0) < 0)
        die("random numbers: %s", strerror(errno));
    if (!run->session.tsi)
        run->session.tsi = run->cfg.random % UINT16_MAX + 1;
    run->cfg.tsi = run->session.tsi;
    run->cfg.protocol = run->session.protocol;
    run->cfg.expires = outgoing_expires();
    run->cfg.repair = cache_store(&run->cache);
    run->sender = fcast_sender_new(&run->cfg);
    if (!run->sender)
        die("impossible code: %s", strerror(errno));
    explicit_bzero(run->key, sizeof run->key);
    for (int i = 0; i < run->count; i++)
        add_file(run, &run->files[i]);
    struct tp_error err;
    if (cache_reserve(&run->cache, fcast_sender_repair_bytes(run->sender), &err) < 0)
        die("%s", err.text);
    if (fcast_sender_commit(run->sender) < 0)
        die("descriptor: %s", strerror(errno));
    run->session.source = run->from;
    if (run->sdp)
        session_write(run->sdp, &run->session, run->ttl);
}

int main(int argc, char **argv)
{
    static struct run run;

    program = "fcast-send";
    run.ttl = 1;
    run.cache.folder = "/var/tmp";
    run.cfg = (struct fcast_sender_config){
        .fec = FCAST_TRIANGLE, .overhead = 0.5, .order = FCAST_SHUFFLE};
    run.out.rate_bps = 10000000;
    take_arguments(&run, argc, argv);
    open_socket(&run);
    prepare(&run);
    catch_signals();
    enter_sandbox(&run);
    fprintf(stderr, "fcast-send: tsi=%llu files=%d bytes=%llu symbol_bytes=%u\n",
            (unsigned long long)run.cfg.tsi, run.count, (unsigned long long)run.bytes,
            run.cfg.symbol_bytes);
    uint64_t begun_ns = tp_now_ns();
    outgoing_begin(&run.out, run.sender, run.cfg.symbol_bytes, run.cfg.random);
    while (!stop_requested && outgoing_send(&run.out, tp_now_ns()))
        outgoing_wait(&run.out, tp_now_ns(), -1);
    outgoing_say_goodbye(&run.out);
    if (run.cache.error)
        fprintf(stderr, "fcast-send: --cache '%s': %s\n", run.cache.folder,
                strerror(run.cache.error));
    struct fcast_sender_stats st;
    fcast_sender_get_stats(run.sender, &st);
    printf("files=%d bytes=%llu datagrams=%llu source=%llu repair=%llu control=%llu rounds=%llu "
           "index=%llu read_errors=%llu send_errors=%llu seconds=%.3f\n",
           run.count, (unsigned long long)run.bytes, (unsigned long long)st.sent,
           (unsigned long long)st.source, (unsigned long long)st.repair,
           (unsigned long long)st.control, (unsigned long long)st.rounds,
           (unsigned long long)st.index, (unsigned long long)st.errors,
           (unsigned long long)run.out.batch.send_errors, (double)(tp_now_ns() - begun_ns) / 1e9);
    fcast_sender_free(run.sender);
    check_output();
    return st.errors ? EXIT_FAILURE : EXIT_SUCCESS;
}

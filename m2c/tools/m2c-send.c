/* SPDX-License-Identifier: Apache-2.0
 *
 * m2c-send: sends a file on layers whose rates fall, for receivers that choose their own rate.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "coding.h"
#include "fcast.h"
#include "feed.h"
#include "groups.h"
#include "loop/loop.h"
#include "net/sockets.h"
#include "options.h"
#include "source.h"
#include "tool/confine.h"

enum {
    DATAGRAM_MAX = 2048,
    CLOSE_DATAGRAMS = 3,
    HEADERS = 36,
    MAC = 28 /* with its timestamp */,
    SYMBOL = 1436
};
#define SECOND_NS UINT64_C(1000000000)
#define LATE_NS (SECOND_NS / 4) /* a longer delay shifts the schedule */

static const char usage[] =
    "Usage: m2c-send --base IP:PORT --interface IP [OPTION]... FILE\n"
    "Sends a file again and again, on layers whose rates fall, until a signal arrives.\n"
    "\n"
    "  --base IP:PORT     multicast group of the base channel, and UDP port; the channels\n"
    "                     have the groups above it\n"
    "  --interface IP     address of the interface to send from\n"
    "  --max-rate N       limit of all layers in bit/s, k/M/G allowed (default 4M)\n"
    "  --layers KIND      wave (default): rates fall; static: they do not\n" WAVE_USAGE
    "  --seconds S        end after S seconds (default: on a signal)\n"
    "  --ttl N            TTL of multicast datagrams (default 1)\n"
    "  --symbol BYTES     payload of a datagram (default: what the MTU allows)\n"
    "  --fec CODE         ldpc-triangle (default): three repair symbols for two of the file;\n"
    "                     none: no repair symbols\n"
    "  --k N              source symbols per block at most (default 10000)\n"
    "  --tsi N            number of the session, 1 to 65535 (default: random)\n"
    "  --key-file FILE    key of 64 hexadecimal digits that receivers also have\n"
    "  --cache DIR        directory for repair symbols (default /var/tmp)\n"
    "  --no-sandbox       run without the seccomp and Landlock sandbox\n"
    "  --help, --version\n"
    "\n"
    "Exit status: 0 after --seconds or a signal, 1 on failure, 2 on wrong usage.\n";

struct run {
    struct sockaddr_storage base, from;
    struct fcast_sender_config cfg;
    struct m2c_wave_config wave_cfg;
    uint64_t rate_bps, seconds;
    unsigned ttl;
    uint8_t key[TP_KEY_BYTES];
    bool no_sandbox;
    struct source_file file;
    struct cache cache;
    struct m2c_feed feed;
    struct sockaddr_storage groups[M2C_WAVE_CHANNELS_MAX + 1]; /* per channel */
    struct fcast_sender *sender;
    int fd;
    uint64_t datagrams, bytes, send_errors, late; /* late: by more than LATE_NS */
};

/* ------------------------------------------------------------------ options */

enum {
    OPTION_BASE = 1,
    OPTION_INTERFACE,
    OPTION_MAX_RATE,
    OPTION_LAYERS,
    OPTION_SECONDS,
    OPTION_TTL,
    OPTION_SYMBOL,
    OPTION_FEC,
    OPTION_K,
    OPTION_TSI,
    OPTION_KEY,
    OPTION_CACHE,
    OPTION_NO_SANDBOX,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {{"base", required_argument, NULL, OPTION_BASE},
                                        {"interface", required_argument, NULL, OPTION_INTERFACE},
                                        {"max-rate", required_argument, NULL, OPTION_MAX_RATE},
                                        {"layers", required_argument, NULL, OPTION_LAYERS},
                                        {"seconds", required_argument, NULL, OPTION_SECONDS},
                                        {"ttl", required_argument, NULL, OPTION_TTL},
                                        {"symbol", required_argument, NULL, OPTION_SYMBOL},
                                        {"fec", required_argument, NULL, OPTION_FEC},
                                        {"k", required_argument, NULL, OPTION_K},
                                        {"tsi", required_argument, NULL, OPTION_TSI},
                                        {"key-file", required_argument, NULL, OPTION_KEY},
                                        {"cache", required_argument, NULL, OPTION_CACHE},
                                        {"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},
                                        {"help", no_argument, NULL, OPTION_HELP},
                                        {"version", no_argument, NULL, OPTION_VERSION},
                                        WAVE_OPTIONS,
                                        {0}};

static void take_option(struct run *run, int option)
{
    static const char *const kinds[] = {"wave", "static"};
    static const char *const codes[] = {"ldpc-triangle", "none"};

    if (take_wave_option(&run->wave_cfg, option, optarg))
        return;
    switch (option) {
    case OPTION_BASE: run->base = option_endpoint("--base", optarg); break;
    case OPTION_INTERFACE: run->from = parse_ip("--interface", optarg); break;
    case OPTION_MAX_RATE:
        run->rate_bps = parse_number("--max-rate", optarg, 10000, UINT64_C(10000000000));
        break;
    case OPTION_LAYERS: run->wave_cfg.is_static = option_word("--layers", optarg, kinds, 2); break;
    case OPTION_SECONDS: run->seconds = parse_number("--seconds", optarg, 1, 1000000000); break;
    case OPTION_TTL: run->ttl = (unsigned)parse_number("--ttl", optarg, 0, 255); break;
    case OPTION_SYMBOL:
        run->cfg.symbol_bytes =
            (uint16_t)parse_number("--symbol", optarg, 16, DATAGRAM_MAX - HEADERS - MAC);
        break;
    case OPTION_FEC:
        run->cfg.fec = option_word("--fec", optarg, codes, 2) ? FCAST_NO_CODE : FCAST_TRIANGLE;
        break;
    case OPTION_K: run->cfg.k = (uint32_t)parse_number("--k", optarg, 1, 100000); break;
    case OPTION_TSI: run->cfg.tsi = parse_number("--tsi", optarg, 1, UINT16_MAX); break;
    case OPTION_KEY:
        option_key(optarg, run->key);
        run->cfg.key = run->key;
        run->cfg.key_len = sizeof run->key;
        break;
    case OPTION_CACHE: run->cache.folder = optarg; break;
    case OPTION_NO_SANDBOX: run->no_sandbox = true; break;
    case OPTION_HELP: fputs(usage, stdout); exit(EXIT_SUCCESS);
    case OPTION_VERSION: printf("m2c-send (Downpour) " DOWNPOUR_VERSION "\n"); exit(EXIT_SUCCESS);
    default: break; /* unreachable: next_option() knows all options */
    }
}

static void take_arguments(struct run *run, int argc, char **argv)
{
    for (int c; (c = next_option(argc, argv, options)) != -1;)
        take_option(run, c);
    check_addresses(&run->base, &run->from);
    if (optind + 1 != argc)
        die_usage("found %d files; valid: one FILE", argc - optind);
    struct tp_error err;
    if (source_open(&run->file, argv[optind], &err) < 0 ||
        (run->cache.fd = cache_file(run->cache.folder, &err)) < 0)
        die_usage("%s", err.text);
}

/* ------------------------------------------------------------------ what is sent */

static void open_socket(struct run *run)
{
    struct tp_error err;
    unsigned mtu;

    run->fd = tp_open_multicast_out(&run->from, &run->base, run->ttl, &mtu, &err);
    if (run->fd < 0)
        die("%s", err.text);
    const unsigned headers =
        tp_udp_overhead(run->base.ss_family) + HEADERS + (run->cfg.key ? MAC : 0);
    const unsigned most = mtu > headers + SYMBOL ? SYMBOL : mtu > headers ? mtu - headers : 0;
    if (!run->cfg.symbol_bytes)
        run->cfg.symbol_bytes = (uint16_t)most;
    if (run->cfg.symbol_bytes > most)
        die_usage("--symbol %u: the path's MTU of %u bytes takes %u", run->cfg.symbol_bytes, mtu,
                  most);
    tp_set_sndbuf(run->fd, 4 << 20);
}

static void add_file(struct run *run)
{
    struct fcast_meta meta;
    struct tp_error err;
    uint64_t toi;

    if (source_describe(&run->file, true, &meta, &err) < 0)
        die_usage("%s", err.text);
    if (!meta.length)
        die_usage("'%s': empty; valid: a file that is not empty", run->file.path);
    run->cfg.overhead = run->cfg.fec == FCAST_TRIANGLE ? m2c_overhead(meta.length) : 0;
    const struct fcast_store source = source_store(&run->file);
    run->cfg.repair = cache_store(&run->cache);
    run->sender = fcast_sender_new(&run->cfg);
    explicit_bzero(run->key, sizeof run->key);
    if (!run->sender)
        die("impossible code: %s", strerror(errno));
    if (fcast_sender_add(run->sender, &meta, meta.length, &source, &toi) < 0)
        die("'%s', %llu bytes: %s", run->file.path, (unsigned long long)meta.length,
            errno == EFBIG ? "too large for this code; larger --symbol or --k help"
                           : strerror(errno));
    if (cache_reserve(&run->cache, fcast_sender_repair_bytes(run->sender), &err) < 0)
        die("%s", err.text);
    if (fcast_sender_commit(run->sender) < 0)
        die("descriptor: %s", strerror(errno));
    run->bytes = meta.length;
}

/* Opens as many layers as the rate permits, and their groups. */
static void open_layers(struct run *run)
{
    const unsigned packet = run->cfg.symbol_bytes + HEADERS + (run->cfg.key ? MAC : 0u) +
                            tp_udp_overhead(run->base.ss_family);
    struct m2c_wave wave;

    run->wave_cfg.layers = 1;
    const unsigned above = m2c_wave_layers_for(&run->wave_cfg, (double)run->rate_bps / 8 / packet);
    run->wave_cfg.layers = above > 2 ? above - 1 : 1;
    if (m2c_wave_init(&wave, &run->wave_cfg) < 0)
        die_usage("--slot, --quiescence, --base-rate and --max-rate make more than %d channels or "
                  "impossible layers; valid: a longer slot, a shorter quiescence",
                  M2C_WAVE_CHANNELS_MAX);
    for (unsigned i = 0; i <= wave.channels; i++)
        run->groups[i] = group_of(&run->base, i == wave.channels ? 0 : i + 1);
    const uint64_t symbols = fcast_sender_symbols(run->sender);
    if (symbols > UINT32_MAX || m2c_feed_init(&run->feed, &wave, (uint32_t)symbols, 0) < 0)
        die("'%s': %llu symbols: %s", run->file.path, (unsigned long long)symbols, strerror(errno));
}

/* ------------------------------------------------------------------ sending */

static void send_to(struct run *run, unsigned channel, const uint8_t *bytes, size_t len)
{
    const struct sockaddr_storage *to = &run->groups[channel];

    if (len && sendto(run->fd, bytes, len, 0, (const struct sockaddr *)to, tp_address_len(to)) < 0)
        run->send_errors++; /* counts as lost in the network: the layers cannot wait */
    run->datagrams += len > 0;
}

/* Sleeps until the time, or until a signal. */
static void sleep_until(uint64_t at_ns)
{
    const uint64_t now_ns = tp_now_ns();
    const uint64_t wait_ns = at_ns > now_ns ? at_ns - now_ns : 0;
    const struct timespec t = {.tv_sec = (time_t)(wait_ns / SECOND_NS),
                               .tv_nsec = (long)(wait_ns % SECOND_NS)};

    if (wait_ns)
        ppoll(NULL, 0, &t, NULL);
}

/* Sends until the time is over, a signal arrives, or the file is gone. */
static bool send_layers(struct run *run, struct m2c_due *due)
{
    uint8_t bytes[DATAGRAM_MAX];
    uint64_t origin_ns = tp_now_ns();
    const uint64_t end_ns = run->seconds ? run->seconds * SECOND_NS : UINT64_MAX;

    while (m2c_feed_next(&run->feed, due) && due->at_ns < end_ns) {
        sleep_until(origin_ns + due->at_ns);
        if (stop_requested)
            return true;
        const uint64_t now_ns = tp_now_ns();
        if (now_ns > origin_ns + due->at_ns + LATE_NS) {
            origin_ns = now_ns - due->at_ns;
            run->late++;
        }
        fcast_sender_set_cci(run->sender, m2c_cci_put(due->cci));
        fcast_sender_set_time(run->sender, tp_ntp_s());
        const size_t len = fcast_sender_pick(run->sender, due->block, bytes);
        if (!len)
            return false;
        send_to(run, due->cci.channel, bytes, len);
    }
    return true;
}

/* Announces the end on the base channel, where its next packets would be. */
static void say_goodbye(struct run *run, struct m2c_due *due)
{
    uint8_t bytes[DATAGRAM_MAX];

    for (int i = 0; i < CLOSE_DATAGRAMS; i++) {
        while (due->layer && m2c_feed_next(&run->feed, due))
            continue;
        fcast_sender_set_cci(run->sender, m2c_cci_put(due->cci));
        send_to(run, due->cci.channel, bytes, fcast_sender_close(run->sender, bytes));
        const struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        m2c_feed_next(&run->feed, due);
    }
}

int main(int argc, char **argv)
{
    static struct run run = {.ttl = 1, .rate_bps = 4000000, .cache = {.folder = "/var/tmp"}};
    uint16_t tsi = 0;

    program = "m2c-send";
    run.cfg = (struct fcast_sender_config){.fec = FCAST_TRIANGLE, .n1 = M2C_N1};
    take_arguments(&run, argc, argv);
    if (!run.cfg.tsi && getrandom(&tsi, sizeof tsi, 0) == sizeof tsi)
        run.cfg.tsi = tsi ? tsi : 1;
    open_socket(&run);
    add_file(&run);
    open_layers(&run);
    catch_signals();
    struct sandbox walls;
    sandbox_init(&walls, false);
    confine(&walls, run.no_sandbox);
    const struct m2c_wave *w = &run.feed.wave;
    fprintf(stderr,
            "m2c-send: tsi=%llu bytes=%llu symbol_bytes=%u symbols=%u layers=%u channels=%u "
            "slot_s=%g quiescence_s=%g base_packets_per_s=%g most_packets_per_s=%.1f\n",
            (unsigned long long)run.cfg.tsi, (unsigned long long)run.bytes, run.cfg.symbol_bytes,
            run.feed.schedule.blocks, w->cfg.layers, w->channels, w->cfg.slot_s,
            w->cfg.quiescence_s, w->cfg.base_packets_per_s,
            m2c_wave_cumulative(w, w->cfg.layers, 0));
    const uint64_t begun_ns = tp_now_ns();
    struct m2c_due due = {0};
    const bool good = send_layers(&run, &due);
    say_goodbye(&run, &due);
    if (run.cache.error)
        fprintf(stderr, "m2c-send: --cache '%s': %s\n", run.cache.folder,
                strerror(run.cache.error));
    struct fcast_sender_stats st;
    fcast_sender_get_stats(run.sender, &st);
    printf("bytes=%llu datagrams=%llu source=%llu repair=%llu read_errors=%llu send_errors=%llu "
           "late=%llu seconds=%.3f\n",
           (unsigned long long)run.bytes, (unsigned long long)run.datagrams,
           (unsigned long long)st.source, (unsigned long long)st.repair,
           (unsigned long long)st.errors, (unsigned long long)run.send_errors,
           (unsigned long long)run.late, (double)(tp_now_ns() - begun_ns) / 1e9);
    fcast_sender_free(run.sender);
    m2c_feed_free(&run.feed);
    check_output();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

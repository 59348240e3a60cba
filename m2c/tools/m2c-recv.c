/* SPDX-License-Identifier: Apache-2.0
 *
 * m2c-recv: receives a file on as many layers as the network can carry.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arrival_lines.h"
#include "groups.h"
#include "loop/loop.h"
#include "m2c_receiver.h"
#include "net/batch_in.h"
#include "net/sockets.h"
#include "options.h"
#include "tool/confine.h"

enum { WAIT_MS = 200, EXIT_INCOMPLETE = 1, ETHERNET = 14, JOINED_MAX = M2C_LAYERS_MAX + 2 };
#define SECOND_NS UINT64_C(1000000000)

static const char usage[] =
    "Usage: m2c-recv --base IP:PORT --interface IP [OPTION]... DIR\n"
    "       m2c-recv --base IP:PORT --interface IP --listen [OPTION]...\n"
    "Receives the file of an m2c-send into DIR.\n"
    "\n"
    "  --base IP:PORT     multicast group of the base channel, and UDP port\n"
    "  --interface IP     address of the interface to join on\n"
    "  --cc KIND          m2c (default): additive increase, multiplicative decrease; webrc:\n"
    "                     RFC 3738; static: for m2c-send --layers static\n" WAVE_USAGE
    "  --max-rate N       bit/s at most, k/M/G allowed (default: the sender's rate)\n"
    "  --source IP        accept only this sender (source-specific multicast)\n"
    "  --tsi N            accept only this session (default: the first one heard)\n"
    "  --key-file FILE    key of 64 hexadecimal digits that the sender also has\n"
    "  --max-age S        with a key: refuse datagrams sent more than S seconds ago or in\n"
    "                     the future; 0: accept all (default 300)\n"
    "  --timeout S        end if no packet arrives in the first S seconds (default: wait)\n"
    "  --max-object BYTES refuse larger files, k/M/G allowed (default 4G)\n"
    "  --rcvbuf BYTES     UDP receive buffer of a channel, k/M/G allowed (default 1M)\n"
    "  --listen           join, count and store nothing, until a signal\n"
    "  --no-sandbox       run without the seccomp and Landlock sandbox\n"
    "  --help, --version\n"
    "\n"
    "The file appears in DIR only when complete; it replaces a file of the same name.\n"
    "Exit status: 0 if the file is complete, 1 if it is not or on failure, 2 on wrong\n"
    "usage.\n";

struct channel { /* a socket that has joined a group */
    unsigned group;
    int fd;
    struct tp_batch_in *in;
};

struct run {
    struct sockaddr_storage base, interface, source;
    struct fcast_receiver_config cfg;
    struct m2c_receiver_config m2c;
    uint8_t key[TP_KEY_BYTES];
    bool no_sandbox, is_listening;
    uint64_t timeout_ns, rcvbuf_bytes, rate_bps;
    struct arrival arrival;
    struct fcast_receiver *files;
    struct m2c_receiver *core;
    struct channel channels[JOINED_MAX];
    unsigned count;
    uint64_t first_ns, last_ns, slots, drops; /* first packet; the packet that completed the file */
    uint64_t before_received, before_lost;    /* at the start of the slot */
    uint64_t slot_ns;
};

/* ------------------------------------------------------------------ options */

enum {
    OPTION_BASE = 1,
    OPTION_INTERFACE,
    OPTION_CC,
    OPTION_MAX_RATE,
    OPTION_SOURCE,
    OPTION_TSI,
    OPTION_KEY,
    OPTION_MAX_AGE,
    OPTION_TIMEOUT,
    OPTION_MAX_OBJECT,
    OPTION_RCVBUF,
    OPTION_LISTEN,
    OPTION_NO_SANDBOX,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {{"base", required_argument, NULL, OPTION_BASE},
                                        {"interface", required_argument, NULL, OPTION_INTERFACE},
                                        {"cc", required_argument, NULL, OPTION_CC},
                                        {"max-rate", required_argument, NULL, OPTION_MAX_RATE},
                                        {"source", required_argument, NULL, OPTION_SOURCE},
                                        {"tsi", required_argument, NULL, OPTION_TSI},
                                        {"key-file", required_argument, NULL, OPTION_KEY},
                                        {"max-age", required_argument, NULL, OPTION_MAX_AGE},
                                        {"timeout", required_argument, NULL, OPTION_TIMEOUT},
                                        {"max-object", required_argument, NULL, OPTION_MAX_OBJECT},
                                        {"rcvbuf", required_argument, NULL, OPTION_RCVBUF},
                                        {"listen", no_argument, NULL, OPTION_LISTEN},
                                        {"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},
                                        {"help", no_argument, NULL, OPTION_HELP},
                                        {"version", no_argument, NULL, OPTION_VERSION},
                                        WAVE_OPTIONS,
                                        {0}};

static void take_option(struct run *run, int option)
{
    static const char *const kinds[] = {"webrc", "m2c", "static"}; /* enum m2c_cc_kind */

    if (take_wave_option(&run->m2c.wave, option, optarg))
        return;
    switch (option) {
    case OPTION_BASE: run->base = option_endpoint("--base", optarg); break;
    case OPTION_INTERFACE: run->interface = parse_ip("--interface", optarg); break;
    case OPTION_CC:
        run->m2c.kind = (enum m2c_cc_kind)option_word("--cc", optarg, kinds, 3);
        run->m2c.wave.is_static = run->m2c.kind == M2C_CC_STATIC;
        break;
    case OPTION_MAX_RATE:
        run->rate_bps = parse_number("--max-rate", optarg, 1000, UINT64_C(100000000000));
        break;
    case OPTION_SOURCE: run->source = parse_ip("--source", optarg); break;
    case OPTION_TSI:
        run->cfg.tsi = parse_number("--tsi", optarg, 0, UINT16_MAX);
        run->cfg.has_tsi = true;
        break;
    case OPTION_KEY:
        option_key(optarg, run->key);
        run->cfg.key = run->key;
        run->cfg.key_len = sizeof run->key;
        break;
    case OPTION_MAX_AGE:
        run->cfg.max_age_s = (uint32_t)parse_number("--max-age", optarg, 0, AGE_MAX);
        break;
    case OPTION_TIMEOUT:
        run->timeout_ns = parse_number("--timeout", optarg, 1, 1000000000) * SECOND_NS;
        break;
    case OPTION_MAX_OBJECT:
        run->cfg.max_object_bytes = parse_number("--max-object", optarg, 1, UINT64_C(1) << 48);
        break;
    case OPTION_RCVBUF:
        run->rcvbuf_bytes = parse_number("--rcvbuf", optarg, 4096, 1000000000);
        break;
    case OPTION_LISTEN: run->is_listening = true; break;
    case OPTION_NO_SANDBOX: run->no_sandbox = true; break;
    case OPTION_HELP: fputs(usage, stdout); exit(EXIT_SUCCESS);
    case OPTION_VERSION: printf("m2c-recv (Downpour) " DOWNPOUR_VERSION "\n"); exit(EXIT_SUCCESS);
    default: break; /* unreachable: next_option() knows all options */
    }
}

static void take_arguments(struct run *run, int argc, char **argv)
{
    for (int c; (c = next_option(argc, argv, options)) != -1;)
        take_option(run, c);
    check_addresses(&run->base, &run->interface);
    if (argc - optind != !run->is_listening)
        die_usage("found %d directories; valid: one DIR, none with --listen", argc - optind);
    if (run->is_listening)
        return;
    arrival_lines_open(&run->arrival, argv[optind], run->cfg.max_bytes);
    run->arrival.places.keeping.has_header = true;
}

/* ------------------------------------------------------------------ channels */

static void take(void *ctx, const uint8_t *bytes, size_t len, const struct sockaddr_storage *from)
{
    struct run *run = ctx;
    const uint64_t files = run->arrival.bytes;

    m2c_receiver_datagram(run->core, tp_address_number(from), bytes, len, run->arrival.now_ns);
    if (run->arrival.bytes != files && !run->last_ns)
        run->last_ns = run->arrival.now_ns;
}

static void join(struct run *run, unsigned group)
{
    const struct sockaddr_storage at = group_of(&run->base, group);
    struct tp_error err;

    if (run->count == JOINED_MAX)
        return; /* a session has fewer layers */
    struct channel c = {.group = group};
    c.fd = tp_open_multicast_in(&at, &run->interface, run->source.ss_family ? &run->source : NULL,
                                &err);
    if (c.fd < 0)
        die("%s", err.text);
    tp_set_rcvbuf(c.fd, run->rcvbuf_bytes);
    c.in = tp_batch_in_new(c.fd);
    if (!c.in)
        die("out of memory");
    run->channels[run->count++] = c;
}

static void leave(struct run *run, unsigned group)
{
    unsigned i = 0;

    while (i < run->count && run->channels[i].group != group)
        i++;
    if (i == run->count)
        return;
    run->drops += tp_socket_drops(run->channels[i].fd);
    tp_close_fd(&run->channels[i].fd);
    tp_batch_in_free(run->channels[i].in);
    run->channels[i] = run->channels[--run->count];
}

static void obey(struct run *run)
{
    struct m2c_group_change c;

    while (m2c_receiver_change(run->core, &c))
        (c.joins ? join : leave)(run, c.group);
}

static enum fcast_begin refuse(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                               const struct fcast_fti *fti, struct fcast_place *out)
{
    (void)ctx, (void)source, (void)tsi, (void)toi, (void)fti, (void)out;
    return FCAST_REFUSE;
}

static void open_all(struct run *run)
{
    if (run->is_listening)
        run->cfg.begin = refuse;
    else
        arrival_serve(&run->arrival, &run->cfg);
    run->files = run->arrival.core = fcast_receiver_new(&run->cfg);
    explicit_bzero(run->key, sizeof run->key);
    if (!run->files)
        die("out of memory");
    /* Assumes packets of the usual length: the bound must exist before the first arrives. */
    run->m2c.most_packets_per_s = (double)run->rate_bps / 8 / 1500;
    run->arrival.begun_ns = run->arrival.now_ns = tp_now_ns();
    run->core = m2c_receiver_new(&run->m2c, run->files, run->arrival.now_ns);
    if (!run->core)
        die_usage("--slot, --quiescence and --base-rate make impossible layers; valid: a "
                  "longer slot, a shorter quiescence");
    obey(run);
}

/* ------------------------------------------------------------------ receiving */

/* Prints a line about each time slot. */
static void print_slot(struct run *run)
{
    struct m2c_receiver_stats st;

    m2c_receiver_get_stats(run->core, &st);
    if (st.cc.slots == run->slots)
        return;
    const uint64_t received = st.cc.received - run->before_received;
    const uint64_t lost = st.cc.lost - run->before_lost;
    const double seconds = (double)(run->arrival.now_ns - run->slot_ns) / 1e9;
    if (run->slots)
        printf("slot=%llu seconds=%.3f layers=%u packets_per_s=%.1f target_per_s=%.1f "
               "lost=%llu rtt_ms=%.1f joins=%llu leaves=%llu\n",
               (unsigned long long)run->slots,
               (double)(run->arrival.now_ns - run->arrival.begun_ns) / 1e9, st.cc.layers,
               (double)received / seconds, st.cc.target_per_s, (unsigned long long)lost,
               st.cc.rtt_s * 1e3, (unsigned long long)st.cc.joins,
               (unsigned long long)st.cc.leaves);
    fflush(stdout);
    run->slots = st.cc.slots;
    run->before_received = st.cc.received;
    run->before_lost = st.cc.lost;
    run->slot_ns = run->arrival.now_ns;
}

static bool is_here(const struct run *run)
{
    struct fcast_receiver_stats st;

    fcast_receiver_get_stats(run->files, &st);
    return st.objects_done > 0;
}

/* Returns why the program must end without the complete file; NULL: continue. */
static const char *why_end(const struct run *run)
{
    struct fcast_receiver_stats st;

    fcast_receiver_get_stats(run->files, &st);
    if (run->arrival.places.error)
        return strerror(run->arrival.places.error);
    if (st.objects_unstored)
        return "cannot store the file";
    if (fcast_receiver_is_closed(run->files))
        return "the sender ended the session before the file was complete";
    if (m2c_receiver_ended(run->core) == M2C_CC_SILENT)
        return "the session was silent for too long";
    if (m2c_receiver_ended(run->core) == M2C_CC_STUCK)
        return "the session's time slot has not changed for too long; --slot may differ from the sender's";
    if (run->timeout_ns && !run->first_ns &&
        run->arrival.now_ns >= run->arrival.begun_ns + run->timeout_ns)
        return "no packet arrived in time (--timeout)";
    return NULL;
}

static void wait_for_packets(const struct run *run)
{
    struct pollfd p[JOINED_MAX];
    const uint64_t deadline = m2c_receiver_deadline(run->core), now_ns = tp_now_ns();
    const uint64_t wait_ns = deadline <= now_ns ? 0 : deadline - now_ns;

    for (unsigned i = 0; i < run->count; i++)
        p[i] = (struct pollfd){.fd = run->channels[i].fd, .events = POLLIN};
    poll(p, run->count, wait_ns / 1000000 < WAIT_MS ? (int)(wait_ns / 1000000) + 1 : WAIT_MS);
}

/* Receives until the file is complete, cannot be completed, or a signal arrives. */
static void receive(struct run *run)
{
    const char *why = NULL;

    run->slot_ns = run->arrival.begun_ns;
    while (!stop_requested && !is_here(run) && !why) {
        wait_for_packets(run);
        arrival_time(&run->arrival);
        for (unsigned i = 0; i < run->count; i++)
            tp_batch_in_read(run->channels[i].in, take, run);
        if (!run->first_ns && m2c_receiver_wave(run->core))
            run->first_ns = run->arrival.now_ns;
        m2c_receiver_time(run->core, run->arrival.now_ns);
        obey(run);
        print_slot(run);
        why = is_here(run) ? NULL : why_end(run);
    }
    if (why)
        fprintf(stderr, "m2c-recv: %s\n", why);
}

/* Prints the measures of M2C10, 7.2: overheads in percent of what is needed without them, for
 * packets with Ethernet and IP headers. */
static void print_summary(const struct run *run, bool complete)
{
    const struct arrival *a = &run->arrival;
    struct fcast_receiver_stats st;
    struct m2c_receiver_stats m;

    fcast_receiver_get_stats(run->files, &st);
    m2c_receiver_get_stats(run->core, &m);
    const uint64_t end_ns = tp_now_ns();
    const double time_s = (double)(end_ns - a->begun_ns) / 1e9;
    const double network_s =
        (double)((run->last_ns ? run->last_ns : a->now_ns) - a->begun_ns) / 1e9;
    const unsigned header = ETHERNET + tp_udp_overhead(run->base.ss_family);
    const double link = (double)(m.bytes + m.datagrams * header), file = (double)a->bytes;
    const double k = complete ? (double)fcast_partition_of(&a->fti).symbols : 0,
                 needed = (double)st.useful;
    const double received = (double)(st.useful + st.redundant);
    const double payload = received * a->fti.symbol_bytes;

    printf("bytes=%llu time_s=%.3f gput_kbps=%.1f tput_kbps=%.1f loss=%.3f ",
           (unsigned long long)a->bytes, time_s, file * 8 / time_s / 1e3,
           link * 8 / network_s / 1e3,
           100.0 * (double)m.cc.lost / fmax(1, (double)(m.cc.lost + m.cc.received)));
    if (complete)
        printf("dup=%.3f sym=%.3f head=%.3f net=%.3f comp=%.3f ", 100 * (received / needed - 1),
               100 * (needed / k - 1), 100 * (link / payload - 1), 100 * (link / file - 1),
               100 * (time_s / network_s - 1));
    printf(
        "received=%llu lost=%llu reordered=%llu late=%llu loss_events=%llu joins=%llu "
        "leaves=%llu join_timeouts=%llu slots=%llu stray=%llu malformed=%llu forged=%llu stale=%llu "
        "strange=%llu socket_drops=%llu result=%s\n",
        (unsigned long long)m.cc.received, (unsigned long long)m.cc.lost,
        (unsigned long long)m.cc.reordered, (unsigned long long)m.cc.late,
        (unsigned long long)m.cc.loss_events, (unsigned long long)m.cc.joins,
        (unsigned long long)m.cc.leaves, (unsigned long long)m.cc.join_timeouts,
        (unsigned long long)m.cc.slots, (unsigned long long)st.stray,
        (unsigned long long)st.malformed, (unsigned long long)st.forged,
        (unsigned long long)st.stale, (unsigned long long)m.strange, (unsigned long long)run->drops,
        complete ? "complete" : "incomplete");
}

int main(int argc, char **argv)
{
    static struct run run = {
        .rcvbuf_bytes = 1 << 20,
        .m2c = {.kind = M2C_CC_M2C},
        .arrival = {.max_unpacked_bytes = UINT64_C(4) << 30, .places = {.keeping = {.crowd = 4}}},
        .cfg = {.max_age_s = AGE,
                .max_bytes = UINT64_C(8) << 30,
                .max_object_bytes = UINT64_C(4) << 30}};
    struct sandbox walls;

    program = "m2c-recv";
    take_arguments(&run, argc, argv);
    catch_signals();
    open_all(&run);
    sandbox_init(&walls, false);
    if (!run.is_listening)
        sandbox_path(&walls, run.arrival.dir_path,
                     SANDBOX_FILES | SANDBOX_MOVE | SANDBOX_DIRECTORIES);
    confine(&walls, run.no_sandbox);
    receive(&run);
    const bool complete = is_here(&run);
    while (run.count)
        leave(&run, run.channels[0].group);
    print_summary(&run, complete);
    m2c_receiver_free(run.core);
    fcast_receiver_free(run.files);
    if (!run.is_listening)
        arrival_close(&run.arrival, complete);
    check_output();
    return complete || (run.is_listening && stop_requested) ? EXIT_SUCCESS : EXIT_INCOMPLETE;
}

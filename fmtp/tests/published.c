/* SPDX-License-Identifier: Apache-2.0
 *
 * The published sender's network as MPUP16 set it up, with FMTP's real cores: products wait in one
 * queue of 20 Mbit/s for the multicast, repairs (and with nic1 also pulls of whole files) in
 * another. Simulates an hour in seconds; virtual time runs the programs themselves.
 *
 *   published TRACE SECONDS RECEIVERS LOSS F_SND rate|MICROSECONDS loop|blocking nic1|nic2 SEED
 *
 * TRACE has lines "SIZE YYYYMMDDhhmmss.mmm". The sixth argument is what f_snd multiplies: S/r_mc,
 * or a hand-over time of that many microseconds for each datagram. Round trips take 89 ms. A TCP
 * connection has CTCP's window of 1.2 x 20 Mbit/s x 89 ms = 267 kB in flight and as much in the
 * socket; TCP's own acknowledgements and losses are left out.
 *
 * Prints a line of name=value: the share of files that FMTP delivered (ffdr) and delivered to all
 * receivers (ffdr_all), what the sender's NICs sent until the end of the replay or later (with
 * headers), and the longest wait in the unicast queue.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "loop/timers.h"
#include "receiver.h"
#include "sender.h"
#include "sim/events.h"
#include "sim/random.h"

#define RATE_BPS 20e6
#define DELAY_NS UINT64_C(44500000)
enum {
    WINDOW = 267000,
    SOCKET = 2 * WINDOW,
    SEGMENT = 1448,
    MOST_FILES = 100000,
    MOST_RECEIVERS = 64,
    UDP_HEADERS = 42, /* Ethernet, IP, UDP */
    TCP_HEADERS = 66, /* with time stamps */
    PULL_EXTRA = 300, /* what LDM7 adds to a file */
    LARGEST = 1 << 28
};

enum kind { MULTICAST, TO_RECEIVER, ACKED, TO_SENDER, PULL_ASKED, PULLED };

struct file {
    uint32_t bytes;
    uint64_t at_ns;
    int ended; /* at how many receivers */
};

struct receiver {
    struct fmtp_receiver *core;
    int peer;
    uint64_t ended;
    uint8_t *inbox; /* arrived at the sender, which has not read it */
    size_t inbox_len;
    uint8_t socket[SOCKET]; /* taken from the sender, not sent */
    size_t socket_len, in_flight;
    uint64_t rtt_ns;
    uint64_t pull_left, pull_in_flight; /* bytes */
};

static struct {
    struct file file[MOST_FILES];
    size_t nfiles, offered;
    uint64_t offered_bytes;
    double seconds, loss;
    bool one_nic;
    struct fmtp_sender *sender;
    struct receiver rx[MOST_RECEIVERS];
    int nrx;
    struct tp_events events;
    uint64_t random, now_ns, multicast_free_ns, unicast_free_ns, longest_ns, end_ns;
    uint64_t sent_bytes, pulled_bytes;
    uint8_t *bytes; /* of each product */
} net;

static void push(enum kind kind, const struct receiver *rx, uint64_t at_ns, unsigned number,
                 const void *bytes, size_t len)
{
    struct tp_event e = {
        .at_ns = at_ns, .kind = (int)kind, .to = rx ? (int)(rx - net.rx) : 0, .connection = number};

    tp_events_push_bytes(&net.events, e, bytes, len);
}

/* ------------------------------------------------------------------ queues */

/* Returns when that many bytes leave a queue. */
static uint64_t leave(uint64_t *free_ns, size_t bytes)
{
    if (*free_ns < net.now_ns)
        *free_ns = net.now_ns;
    if (free_ns == &net.unicast_free_ns && *free_ns - net.now_ns > net.longest_ns)
        net.longest_ns = *free_ns - net.now_ns;
    *free_ns += (uint64_t)((double)bytes * 8e9 / RATE_BPS);
    net.sent_bytes += bytes;
    return *free_ns;
}

/* Sends what the window permits of a connection. */
static void send_stream(struct receiver *rx)
{
    uint8_t bytes[sizeof net.now_ns + SEGMENT];
    size_t at = 0;

    while (at < rx->socket_len && rx->in_flight < WINDOW) {
        size_t n = rx->socket_len - at < SEGMENT ? rx->socket_len - at : SEGMENT;
        memcpy(bytes, &net.now_ns, sizeof net.now_ns);
        memcpy(bytes + sizeof net.now_ns, rx->socket + at, n);
        push(TO_RECEIVER, rx, leave(&net.unicast_free_ns, n + TCP_HEADERS) + DELAY_NS, 0, bytes,
             sizeof net.now_ns + n);
        at += n;
        rx->in_flight += n;
    }
    rx->socket_len -= at;
    memmove(rx->socket, rx->socket + at, rx->socket_len);
}

/* Puts into the socket what it takes of the sender's answers. Returns false if it is full. */
static bool fill_socket(struct receiver *rx)
{
    static struct fmtp_stream_out out;

    while (fmtp_sender_peer_pending(net.sender, rx->peer)) {
        size_t used = rx->socket_len + rx->in_flight, taken = 0;
        if (used >= SOCKET)
            return false;
        fmtp_sender_peer_peek(net.sender, rx->peer, &out, net.now_ns);
        for (int i = 0; i < out.niov && taken < SOCKET - used; i++) {
            size_t room = SOCKET - used - taken;
            size_t n = out.iov[i].iov_len < room ? out.iov[i].iov_len : room;
            memcpy(rx->socket + rx->socket_len, out.iov[i].iov_base, n);
            rx->socket_len += n;
            taken += n;
        }
        fmtp_sender_peer_sent(net.sender, rx->peer, taken, net.now_ns);
    }
    return true;
}

/* The sender answers what it wants to read of the receiver's requests. */
static void serve(struct receiver *rx)
{
    while (fill_socket(rx)) {
        size_t wants = fmtp_sender_peer_wants(net.sender, rx->peer);
        size_t n = wants < rx->inbox_len ? wants : rx->inbox_len;
        if (!n)
            break;
        if (fmtp_sender_peer_input(net.sender, rx->peer, rx->inbox, n, net.now_ns) < 0)
            abort();
        rx->inbox_len -= n;
        memmove(rx->inbox, rx->inbox + n, rx->inbox_len);
    }
    send_stream(rx);
}

static void pull(struct receiver *rx)
{
    while (rx->pull_left && (!net.one_nic || rx->pull_in_flight < WINDOW)) {
        size_t n = rx->pull_left < SEGMENT ? rx->pull_left : SEGMENT;
        rx->pull_left -= n;
        net.pulled_bytes += n + TCP_HEADERS;
        if (net.one_nic) {
            rx->pull_in_flight += n;
            push(PULLED, rx, leave(&net.unicast_free_ns, n + TCP_HEADERS) + 2 * DELAY_NS,
                 (unsigned)n, "", 1);
        }
    }
}

/* All that the sender has goes to the multicast queue at once, as with b_snd = 600 MB. */
static void multicast(void)
{
    static struct fmtp_datagram d[64];
    uint8_t bytes[FMTP_HEADER_LEN + FMTP_BOP_FIXED_MAX + 16];
    unsigned n;

    while ((n = fmtp_sender_fill(net.sender, d, 64, net.now_ns)) > 0) {
        for (unsigned i = 0; i < n; i++) {
            struct fmtp_header h;
            size_t len = FMTP_HEADER_LEN;
            fmtp_header_get(d[i].head, &h);
            memcpy(bytes, d[i].head, len);
            if (h.flags == FMTP_BOP) {
                memcpy(bytes + len, d[i].iov[1].iov_base, d[i].iov[1].iov_len);
                len += d[i].iov[1].iov_len;
            }
            push(MULTICAST, NULL, leave(&net.multicast_free_ns, d[i].len + UDP_HEADERS) + DELAY_NS,
                 0, bytes, len);
        }
        fmtp_sender_sent(net.sender, n, net.now_ns);
    }
}

/* ------------------------------------------------------------------ receivers */

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    (void)ctx;
    (void)index;
    (void)size;
    (void)meta;
    (void)meta_len;
    (void)start;
    return net.bytes;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    struct receiver *rx = ctx;

    (void)retx_blocks;
    (void)start;
    rx->ended++;
    net.file[index].ended++;
    net.end_ns = net.now_ns;
}

static void missed(void *ctx, uint32_t index)
{
    push(PULL_ASKED, ctx, net.now_ns + DELAY_NS, index, "", 1);
}

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    (void)ctx;
    (void)index;
    (void)cookie;
    (void)why;
}

static void flush(struct receiver *rx)
{
    const uint8_t *bytes;
    size_t n;

    while ((n = fmtp_receiver_output(rx->core, &bytes)) > 0) {
        push(TO_SENDER, rx, net.now_ns + DELAY_NS, 0, bytes, n);
        fmtp_receiver_sent(rx->core, n);
    }
}

static void on_multicast(const uint8_t *bytes)
{
    struct fmtp_header h;

    fmtp_header_get(bytes, &h);
    const uint8_t *payload = h.flags == FMTP_BOP ? bytes + FMTP_HEADER_LEN : net.bytes;
    for (int i = 0; i < net.nrx; i++) {
        if (tp_random_chance(&net.random, net.loss))
            continue;
        fmtp_receiver_datagram(net.rx[i].core, bytes, payload, h.payloadlen, net.now_ns);
        flush(&net.rx[i]);
    }
}

static void on_event(const struct tp_event *e)
{
    struct receiver *rx = &net.rx[e->to];
    const struct tp_packet *p = e->packet;
    uint64_t sent_ns;

    switch ((enum kind)e->kind) {
    case MULTICAST: on_multicast(p->bytes); break;
    case TO_RECEIVER:
        if (fmtp_receiver_stream(rx->core, p->bytes + sizeof sent_ns, p->len - sizeof sent_ns,
                                 net.now_ns) < 0)
            abort();
        flush(rx);
        push(ACKED, rx, net.now_ns + DELAY_NS, (unsigned)(p->len - sizeof sent_ns), p->bytes,
             sizeof sent_ns);
        break;
    case ACKED:
        memcpy(&sent_ns, p->bytes, sizeof sent_ns);
        rx->rtt_ns += (net.now_ns - sent_ns) / 8 - rx->rtt_ns / 8;
        fmtp_sender_peer_rtt(net.sender, rx->peer, rx->rtt_ns);
        rx->in_flight -= e->connection;
        serve(rx);
        break;
    case TO_SENDER:
        rx->inbox = realloc(rx->inbox, rx->inbox_len + p->len);
        memcpy(rx->inbox + rx->inbox_len, p->bytes, p->len);
        rx->inbox_len += p->len;
        serve(rx);
        break;
    case PULL_ASKED:
        rx->pull_left += net.file[e->connection].bytes + PULL_EXTRA;
        pull(rx);
        break;
    case PULLED:
        rx->pull_in_flight -= e->connection;
        net.end_ns = net.now_ns;
        pull(rx);
        break;
    }
}

/* ------------------------------------------------------------------ time */

static bool may_offer(void)
{
    return net.offered < net.nfiles && fmtp_sender_ready(net.sender);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_time(void)
{
    uint64_t t = earlier(tp_events_next(&net.events), fmtp_sender_deadline(net.sender));

    for (int i = 0; i < net.nrx; i++)
        t = earlier(t, fmtp_receiver_deadline(net.rx[i].core));
    return may_offer() ? earlier(t, net.file[net.offered].at_ns) : t;
}

static void offer(void)
{
    const struct iovec part = {net.bytes, net.file[net.offered++].bytes};
    struct tp_error err;

    if (fmtp_sender_offer(
            net.sender,
            &(struct fmtp_offer){.parts = &part, .nparts = 1, .meta = net.bytes, .meta_len = 16},
            NULL, &err) < 0)
        abort();
    multicast();
}

static void run(void)
{
    for (uint64_t t; (t = next_time()) != TP_NEVER;) {
        net.now_ns = t > net.now_ns ? t : net.now_ns;
        while (tp_events_next(&net.events) <= net.now_ns) {
            struct tp_event e = tp_events_pop(&net.events);
            on_event(&e);
            tp_packet_done(e.packet);
        }
        fmtp_sender_timeout(net.sender, net.now_ns);
        while (may_offer() && net.file[net.offered].at_ns <= net.now_ns)
            offer();
        for (int i = 0; i < net.nrx; i++) {
            fmtp_receiver_timeout(net.rx[i].core, net.now_ns);
            flush(&net.rx[i]);
            serve(&net.rx[i]);
        }
    }
}

/* ------------------------------------------------------------------ start and end */

/* Reads the trace's first seconds. Returns false if there is nothing in them. */
static bool read_trace(FILE *in)
{
    char line[128];
    struct tm day = {0};
    double second, first = 0;

    while (net.nfiles < MOST_FILES && fgets(line, sizeof line, in)) {
        uint32_t bytes;
        if (sscanf(line, "%" SCNu32 " %4d%2d%2d%2d%2d%lf", &bytes, &day.tm_year, &day.tm_mon,
                   &day.tm_mday, &day.tm_hour, &day.tm_min, &second) != 7 ||
            bytes > LARGEST)
            return false;
        day.tm_year -= 1900;
        day.tm_mon--;
        double at = (double)timegm(&day) + second;
        first = net.nfiles ? first : at;
        if (at - first >= net.seconds)
            break;
        net.file[net.nfiles++] = (struct file){bytes, (uint64_t)((at - first) * 1e9), 0};
        net.offered_bytes += bytes;
    }
    return net.nfiles > 0;
}

static bool start(const struct fmtp_sender_config *cfg)
{
    net.sender = fmtp_sender_new(cfg);
    for (int i = 0; i < net.nrx && net.sender; i++) {
        struct receiver *rx = &net.rx[i];
        struct fmtp_receiver_config core = {.layout = cfg->layout,
                                            .f_rcv = 20,
                                            .r_mc_bps = cfg->r_mc_bps,
                                            .max_products = cfg->max_products,
                                            .reorder_blocks = 1024,
                                            .ctx = rx,
                                            .begun = begun,
                                            .ended = ended,
                                            .missed = missed};
        struct fmtp_session session;
        rx->core = fmtp_receiver_new(&core);
        rx->peer = fmtp_sender_peer_add(net.sender, false, &session);
        session.ours = true;
        fmtp_sender_peer_ours(net.sender, rx->peer);
        rx->rtt_ns = 2 * DELAY_NS;
        fmtp_sender_peer_rtt(net.sender, rx->peer, rx->rtt_ns);
        if (!rx->core || fmtp_receiver_session(rx->core, &session, 0) < 0)
            return false;
        fmtp_receiver_rtt(rx->core, rx->rtt_ns);
    }
    return net.sender;
}

static void print(void)
{
    uint64_t ended_files = 0, everywhere = 0,
             sent = net.sent_bytes + (net.one_nic ? 0 : net.pulled_bytes);
    double end_s = (double)net.end_ns / 1e9;

    for (int i = 0; i < net.nrx; i++)
        ended_files += net.rx[i].ended;
    for (size_t i = 0; i < net.nfiles; i++)
        everywhere += net.file[i].ended == net.nrx;
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(net.sender, &stats);
    end_s = end_s > net.seconds ? end_s : net.seconds;
    printf(
        "receivers=%d files=%zu offered_mbps=%.2f ffdr=%.2f ffdr_all=%.2f nics_mbps=%.2f pulls_mbps=%.2f "
        "end_s=%.0f longest_unicast_wait_s=%.1f rejects=%" PRIu64 " acks=%" PRIu64 "\n",
        net.nrx, net.nfiles, (double)net.offered_bytes * 8e-6 / net.seconds,
        100.0 * (double)ended_files / (double)(net.nfiles * (size_t)net.nrx),
        100.0 * (double)everywhere / (double)net.nfiles, (double)sent * 8e-6 / end_s,
        (double)net.pulled_bytes * 8e-6 / end_s, end_s, (double)net.longest_ns / 1e9, stats.rejects,
        stats.acks);
}

static void end(void)
{
    fmtp_sender_free(net.sender);
    for (int i = 0; i < net.nrx; i++) {
        fmtp_receiver_free(net.rx[i].core);
        free(net.rx[i].inbox);
    }
    tp_events_free(&net.events);
    free(net.bytes);
}

static bool either(const char *text, const char *yes, const char *no, bool *out)
{
    *out = strcmp(text, yes) == 0;
    return *out || strcmp(text, no) == 0;
}

int main(int argc, char **argv)
{
    struct fmtp_sender_config cfg = {.layout = FMTP_LAYOUT_2021,
                                     .r_mc_bps = (uint64_t)RATE_BPS,
                                     .queued_bytes = 600000000,
                                     .max_products = 4096,
                                     .max_peers = MOST_RECEIVERS,
                                     .peer_queue_bytes = 4 << 20,
                                     .released = released};

    if (argc == 10) {
        net.seconds = atof(argv[2]);
        net.nrx = atoi(argv[3]);
        net.loss = atof(argv[4]);
        cfg.f_snd = atof(argv[5]);
        cfg.timer_by_handover = strcmp(argv[6], "rate") != 0;
        cfg.handover_ns = (uint64_t)(atof(argv[6]) * 1e3);
        net.random = strtoull(argv[9], NULL, 10);
    }
    if (argc != 10 || !either(argv[7], "blocking", "loop", &cfg.blocking) ||
        !either(argv[8], "nic1", "nic2", &net.one_nic) || !(net.seconds > 0) || net.nrx < 1 ||
        net.nrx > MOST_RECEIVERS || !(net.loss >= 0 && net.loss < 1) || !(cfg.f_snd >= 0)) {
        fprintf(stderr,
                "published: found other arguments; valid: TRACE SECONDS RECEIVERS (to %d) LOSS "
                "F_SND rate|MICROSECONDS loop|blocking nic1|nic2 SEED\n",
                MOST_RECEIVERS);
        return 2;
    }
    FILE *in = fopen(argv[1], "r");
    if (!in || !read_trace(in)) {
        fprintf(stderr,
                "published: found %s (%s); valid: a file with lines 'SIZE YYYYMMDDhhmmss.mmm'\n",
                argv[1], in ? "not such lines" : strerror(errno));
        return 2;
    }
    fclose(in);
    net.bytes = calloc(1, LARGEST);
    if (!net.bytes || !start(&cfg))
        abort();
    run();
    print();
    end();
    return 0;
}

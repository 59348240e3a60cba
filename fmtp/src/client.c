/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's event loop: the multicast input, the connection to the sender and a timer, behind
 * one epoll descriptor.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "check.h"
#include "fmtp.h"
#include "input_pause.h"
#include "keyx.h"
#include "loop/loop.h"
#include "loop/timers.h"
#include "multicast_in.h"
#include "net/sockets.h"

#define SECOND_NS UINT64_C(1000000000)
#define CONNECT_NS (120 * SECOND_NS)     /* how long to try, if not configured */
#define RETRY_NS SECOND_NS               /* between attempts to connect for the first time */
#define RECONNECT_NS (SECOND_NS / 10)    /* between attempts to reconnect: at first, */
#define RECONNECT_MAX_NS (8 * SECOND_NS) /* doubling up to this */
#define HANDSHAKE_NS (30 * SECOND_NS)
#define RTT_REFRESH_NS (SECOND_NS / 10)
enum {
    BATCHES = 8,  /* of datagrams, per round */
    ROUNDS = 16,  /* per call of service */
    EVENTS = 3,   /* the descriptors watched */
    UNASKED = 16, /* calls that read datagrams without asking epoll first */
    CANONICAL_PDU = 1460,
    READ_BYTES = 65536
};

/* EXCHANGING: datagrams wait in the socket until the session is agreed. */
enum state { WAITING, CONNECTING, EXCHANGING, UP, LOST };

struct fmtp_client {
    struct fmtp_client_config cfg;
    struct fmtp_receiver *core;
    struct fmtp_keyx *keyx;
    struct fmtp_mac *mac;
    struct fmtp_multicast_in *in;
    struct fmtp_input_pause pause;
    struct fmtp_session session;
    size_t keyx_sent;
    enum state state;
    struct tp_error lost;
    int epfd, tcp, timer;
    uint32_t tcp_events, udp_events;
    uint64_t armed, give_up_ns, handshake_ends_ns, retry_ns, retry_after_ns, rtt_read_ns;
    uint64_t connections;
    int unasked; /* number of such calls since epoll was last asked */
    uint8_t stream[READ_BYTES];
};

/* ------------------------------------------------------------------ life */

static void on_ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    struct fmtp_client *c = ctx;
    double delay_s = 0;

    if (c->cfg.layout == FMTP_LAYOUT_2021) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        delay_s = difftime(now.tv_sec, start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9;
    }
    c->cfg.ended(c->cfg.ctx, index, retx_blocks, delay_s);
}

static void *on_begun(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                      uint16_t meta_len, struct timespec start)
{
    struct fmtp_client *c = ctx;

    return c->cfg.begun(c->cfg.ctx, index, size_bytes, meta, meta_len, start);
}

static bool on_store(void *ctx, uint32_t index, uint32_t at, const struct iovec *parts, int nparts)
{
    struct fmtp_client *c = ctx;

    return c->cfg.store(c->cfg.ctx, index, at, parts, nparts);
}

static void on_missed(void *ctx, uint32_t index)
{
    struct fmtp_client *c = ctx;

    c->cfg.missed(c->cfg.ctx, index);
}

static void on_withdrawn(void *ctx, uint32_t index)
{
    struct fmtp_client *c = ctx;

    c->cfg.withdrawn(c->cfg.ctx, index);
}

static void on_lost(void *ctx, uint32_t index, uint32_t first, uint32_t blocks)
{
    struct fmtp_client *c = ctx;

    c->cfg.lost(c->cfg.ctx, index, first, blocks);
}

static void on_requested(void *ctx, uint32_t index, uint32_t blocks, bool multicast)
{
    struct fmtp_client *c = ctx;

    c->cfg.requested(c->cfg.ctx, index, blocks, multicast);
}

static void on_expired(void *ctx, uint32_t index, bool patience)
{
    struct fmtp_client *c = ctx;

    c->cfg.expired(c->cfg.ctx, index, patience);
}

static void on_queue_full(void *ctx, uint32_t index)
{
    struct fmtp_client *c = ctx;

    c->cfg.queue_full(c->cfg.ctx, index);
}

static int check(const struct fmtp_client_config *cfg, struct tp_error *err)
{
    if (fmtp_check_session(cfg->layout, &cfg->group, cfg->mac_level, cfg->has_key, err) < 0)
        return -1;
    if (!tp_address_port(&cfg->server))
        return tp_fail(err, "sender's address without a port");
    char group[TP_ADDRESS_TEXT], server[TP_ADDRESS_TEXT], own[TP_ADDRESS_TEXT];
    if (cfg->server.ss_family != cfg->group.ss_family ||
        cfg->interface.ss_family != cfg->group.ss_family)
        return tp_fail(err, "group %s, sender %s and interface %s are not of one family",
                       tp_address_text((const struct sockaddr *)&cfg->group, group),
                       tp_address_text((const struct sockaddr *)&cfg->server, server),
                       tp_address_text((const struct sockaddr *)&cfg->interface, own));
    if (!(cfg->f_rcv > 0) || !cfg->r_mc_bps)
        return tp_fail(err, "f_rcv %g, r_mc %llu bit/s; equation (2) needs both above 0",
                       cfg->f_rcv, (unsigned long long)cfg->r_mc_bps);
    if (cfg->pdu_bytes &&
        (cfg->pdu_bytes < 256 || cfg->pdu_bytes > FMTP_HEADER_LEN + FMTP_MAX_BLOCK))
        return tp_fail(err, "PDU of %u bytes; valid: 256 to %u", cfg->pdu_bytes,
                       FMTP_HEADER_LEN + FMTP_MAX_BLOCK);
    return 0;
}

static void set_defaults(struct fmtp_client_config *cfg)
{
    if (!cfg->max_products)
        cfg->max_products = 4096;
    if (!cfg->pdu_bytes)
        cfg->pdu_bytes = CANONICAL_PDU;
    if (!cfg->parity_bytes)
        cfg->parity_bytes = 16u << 20;
    if (!cfg->reorder_blocks && !cfg->unicast_repair)
        cfg->reorder_blocks = 1024;
    if (!cfg->connect_ns)
        cfg->connect_ns = CONNECT_NS;
}

static int open_core(struct fmtp_client *c, struct tp_error *err)
{
    const struct fmtp_client_config *cfg = &c->cfg;
    struct fmtp_receiver_config core = {.layout = cfg->layout,
                                        .f_rcv = cfg->f_rcv,
                                        .r_mc_bps = cfg->r_mc_bps,
                                        .max_products = cfg->max_products,
                                        .parity_bytes = cfg->parity_bytes,
                                        .reorder_blocks = cfg->reorder_blocks,
                                        .announced_bytes = cfg->announced_bytes,
                                        .ctx = c,
                                        .begun = on_begun,
                                        .store = cfg->store ? on_store : NULL,
                                        .ended = on_ended,
                                        .missed = on_missed,
                                        .withdrawn = cfg->withdrawn ? on_withdrawn : NULL,
                                        .lost = cfg->lost ? on_lost : NULL,
                                        .requested = cfg->requested ? on_requested : NULL,
                                        .expired = cfg->expired ? on_expired : NULL,
                                        .queue_full = cfg->queue_full ? on_queue_full : NULL};

    c->core = fmtp_receiver_new(&core);
    if (!c->core)
        return tp_fail(err, "out of memory");
    if (cfg->layout == FMTP_LAYOUT_2021 &&
        !(c->keyx = fmtp_keyx_new_receiver(!cfg->unicast_repair)))
        return tp_fail(err, "cannot make an RSA key pair for the key exchange");
    if (c->keyx)
        fmtp_keyx_speak(c->keyx, cfg->has_key ? cfg->key : NULL);
    return 0;
}

struct fmtp_client *fmtp_client_open(const struct fmtp_client_config *cfg, struct tp_error *err)
{
    if (check(cfg, err) < 0)
        return NULL;
    struct fmtp_client *c = calloc(1, sizeof *c);
    if (!c) {
        tp_fail(err, "out of memory");
        return NULL;
    }
    c->cfg = *cfg;
    set_defaults(&c->cfg);
    c->epfd = c->tcp = c->timer = -1;
    c->armed = TP_NEVER;
    c->epfd = epoll_create1(EPOLL_CLOEXEC);
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (c->epfd < 0 || c->timer < 0) {
        tp_fail(err, "cannot set up the receiver: %s", strerror(errno));
        goto fail;
    }
    /* Join before connecting: the sender counts us once the connection is up, so nothing that it
     * multicasts for us can pass before we listen. */
    if (tp_try_congestion_control(c->cfg.congestion_control, err) < 0 || open_core(c, err) < 0 ||
        !(c->in = fmtp_multicast_in_open(&c->cfg, err)))
        goto fail;
    fmtp_receiver_buffer(c->core, fmtp_multicast_in_buffer(c->in));
    c->give_up_ns = tp_now_ns() + c->cfg.connect_ns;
    c->retry_after_ns = RETRY_NS;
    c->udp_events = EPOLLIN;
    if (tp_watch(c->epfd, fmtp_multicast_in_fd(c->in), EPOLL_CTL_ADD, EPOLLIN, &c->in) < 0 ||
        tp_watch(c->epfd, c->timer, EPOLL_CTL_ADD, EPOLLIN, &c->timer) < 0) {
        tp_fail(err, "epoll: %s", strerror(errno));
        goto fail;
    }
    c->state = WAITING;
    tp_arm(c->timer, tp_now_ns(), &c->armed);
    return c;
fail:
    fmtp_client_close(c);
    return NULL;
}

void fmtp_client_close(struct fmtp_client *c)
{
    if (!c)
        return;
    fmtp_receiver_free(c->core);
    fmtp_keyx_free(c->keyx);
    fmtp_multicast_in_close(c->in);
    fmtp_mac_free(c->mac);
    tp_close_fd(&c->tcp);
    tp_close_fd(&c->timer);
    tp_close_fd(&c->epfd);
    free(c);
}

int fmtp_client_fd(const struct fmtp_client *c)
{
    return c->epfd;
}

bool fmtp_client_connected(const struct fmtp_client *c)
{
    return c->state == UP;
}

void fmtp_client_get_session(const struct fmtp_client *c, struct fmtp_session *out,
                             unsigned *mac_level)
{
    *out = c->session;
    *mac_level = c->mac ? fmtp_mac_level(c->mac) : 0;
}

void fmtp_client_get_stats(const struct fmtp_client *c, struct fmtp_client_stats *out)
{
    fmtp_receiver_get_stats(c->core, out);
    fmtp_multicast_in_get_stats(c->in, out);
    out->connections = c->connections;
}

/* ------------------------------------------------------------------ connection */

static void lose_for_good(struct fmtp_client *c, const char *why, int error)
{
    if (c->state == LOST)
        return;
    c->state = LOST;
    tp_close_fd(&c->tcp);
    char text[TP_ADDRESS_TEXT];
    tp_fail(&c->lost, "connection to %s: %s%s%s",
            tp_address_text((const struct sockaddr *)&c->cfg.server, text), why, error ? ": " : "",
            error ? strerror(error) : "");
}

static void again_later(struct fmtp_client *c, uint64_t now_ns)
{
    c->retry_ns = now_ns + c->retry_after_ns;
    if (c->connections && c->retry_after_ns < RECONNECT_MAX_NS)
        c->retry_after_ns *= 2;
}

/* A connection that was up is lost: starts over, if configured. */
static void lose(struct fmtp_client *c, const char *why, int error)
{
    uint64_t now_ns = tp_now_ns();

    if (!c->connections || !c->cfg.reconnect_ns) {
        lose_for_good(c, why, error);
        return;
    }
    if (c->state == UP) {
        c->give_up_ns = now_ns + c->cfg.reconnect_ns;
        c->retry_after_ns = RECONNECT_NS;
    }
    tp_close_fd(&c->tcp);
    c->state = WAITING;
    again_later(c, now_ns);
    if (c->retry_ns >= c->give_up_ns)
        lose_for_good(c, why, error);
}

/* An attempt failed: schedules the next one. */
static void retry(struct fmtp_client *c, int error, uint64_t now_ns)
{
    tp_close_fd(&c->tcp);
    c->state = WAITING;
    again_later(c, now_ns);
    if (c->retry_ns >= c->give_up_ns)
        lose_for_good(c, "cannot connect", error);
}

static void refresh_rtt(struct fmtp_client *c, uint64_t now_ns)
{
    if (c->rtt_read_ns && now_ns - c->rtt_read_ns < RTT_REFRESH_NS)
        return;
    c->rtt_read_ns = now_ns;
    uint64_t rtt_ns = tp_tcp_rtt_ns(c->tcp);
    if (rtt_ns)
        fmtp_receiver_rtt(c->core, rtt_ns);
}

/* The session is agreed on (in LAYOUT_2017 there is nothing to agree on). */
static void up(struct fmtp_client *c, uint64_t now_ns)
{
    if (!c->session.extended && !c->session.ours)
        c->session =
            (struct fmtp_session){.block_bytes = (uint16_t)(c->cfg.pdu_bytes - FMTP_HEADER_LEN -
                                                            (c->mac ? fmtp_mac_len(c->mac) : 0)),
                                  .mac = c->session.mac};
    if (fmtp_receiver_session(c->core, &c->session, now_ns) < 0) {
        lose_for_good(c, "the sender's session has impossible sizes", 0);
        return;
    }
    fmtp_multicast_in_set_mac(c->in, c->mac);
    c->state = UP;
    c->connections++;
    c->rtt_read_ns = 0;
    refresh_rtt(c, now_ns);
}

static void connected(struct fmtp_client *c, uint64_t now_ns)
{
    c->session = (struct fmtp_session){0};
    c->keyx_sent = 0;
    if (!c->keyx) {
        up(c, now_ns);
        return;
    }
    fmtp_keyx_rewind(c->keyx);
    c->handshake_ends_ns = now_ns + HANDSHAKE_NS;
    c->state = EXCHANGING;
}

static unsigned least_level(const struct fmtp_client *c)
{
    return c->cfg.mac_level != FMTP_MAC_AUTO ? c->cfg.mac_level : c->cfg.has_key;
}

static void exchanged(struct fmtp_client *c, uint64_t now_ns)
{
    size_t len;
    const uint8_t *key = fmtp_keyx_mac_key(c->keyx, &len);

    fmtp_multicast_in_set_mac(c->in, NULL);
    fmtp_mac_free(c->mac);
    fmtp_keyx_agreed(c->keyx, &c->session);
    c->mac = fmtp_mac_new_verifier_of(c->session.mac, key, len);
    if (!c->mac) {
        lose_for_good(c, "the sender's MAC key is invalid", 0);
    } else if (fmtp_mac_level(c->mac) < least_level(c)) {
        char why[80];
        snprintf(why, sizeof why, "the sender has MAC level %u; valid: at least %u",
                 fmtp_mac_level(c->mac), least_level(c));
        lose_for_good(c, why, 0);
    } else {
        up(c, now_ns);
    }
}

static void start_connect(struct fmtp_client *c, uint64_t now_ns)
{
    c->tcp = tp_open_connection(&c->cfg.interface, &c->cfg.server, c->cfg.congestion_control,
                                c->cfg.dead_ns);
    if (c->tcp < 0) {
        retry(c, errno, now_ns);
        return;
    }
    c->state = CONNECTING;
    c->tcp_events = EPOLLIN | EPOLLOUT;
    if (tp_watch(c->epfd, c->tcp, EPOLL_CTL_ADD, c->tcp_events, &c->tcp) < 0)
        retry(c, errno, now_ns);
}

static void lose_key_exchange(struct fmtp_client *c)
{
    char why[160];

    snprintf(why, sizeof why, "key exchange failed: %s%s", fmtp_keyx_why(c->keyx),
             fmtp_keyx_distrust(c->keyx) ? " (fmtp.key_file, --key-file)"
                                         : " (does the sender use layout 2021?)");
    lose(c, why, 0);
}

static void tcp_input(struct fmtp_client *c, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    if (c->state == EXCHANGING) {
        size_t used = 0;
        switch (fmtp_keyx_input(c->keyx, bytes, len, &used)) {
        case FMTP_KEYX_MORE: return;
        case FMTP_KEYX_BAD: lose_key_exchange(c); return;
        case FMTP_KEYX_DONE: exchanged(c, now_ns); break;
        }
        bytes += used;
        len -= used;
    }
    if (c->state == UP && len && fmtp_receiver_stream(c->core, bytes, len, now_ns) < 0)
        lose(c, "the sender sent no valid FMTP message", 0);
}

static void tcp_events(struct fmtp_client *c, uint32_t what, uint64_t now_ns)
{
    if (c->state == CONNECTING) {
        int error = 0;
        socklen_t len = sizeof error;
        getsockopt(c->tcp, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error) {
            retry(c, error, now_ns);
            return;
        }
        if (!(what & EPOLLOUT))
            return;
        connected(c, now_ns);
    }
    if (c->tcp < 0 || !(what & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t n = recv(c->tcp, c->stream, sizeof c->stream, 0);
    if (n > 0)
        tcp_input(c, c->stream, (size_t)n, now_ns);
    else if (n == 0)
        lose(c,
             c->state == UP ? "closed by the sender"
                            : "closed by the sender before the key exchange was complete "
                              "(not authorized, or another key: fmtp.key_file, --key-file?)",
             0);
    else if (errno != EAGAIN && errno != EINTR)
        lose(c, "lost", errno);
}

static void tcp_output(struct fmtp_client *c)
{
    bool blocked = false;

    while (!blocked && (c->state == EXCHANGING || c->state == UP)) {
        size_t len;
        const uint8_t *bytes;
        if (c->state == EXCHANGING) {
            bytes = fmtp_keyx_output(c->keyx, &len);
            bytes += c->keyx_sent;
            len -= c->keyx_sent;
        } else {
            len = fmtp_receiver_output(c->core, &bytes);
        }
        if (!len)
            break;
        ssize_t n = send(c->tcp, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            if (c->state == EXCHANGING)
                c->keyx_sent += (size_t)n;
            else
                fmtp_receiver_sent(c->core, (size_t)n);
        } else if (errno == EAGAIN) {
            blocked = true;
        } else if (errno != EINTR) {
            lose(c, "lost", errno);
        }
    }
    if (c->state == UP && fmtp_receiver_stuck(c->core))
        lose(c, "the sender does not accept our requests", 0);
    uint32_t events = EPOLLIN | (blocked || c->state == CONNECTING ? (uint32_t)EPOLLOUT : 0);
    if (c->tcp >= 0 && events != c->tcp_events &&
        tp_watch(c->epfd, c->tcp, EPOLL_CTL_MOD, events, &c->tcp) == 0)
        c->tcp_events = events;
}

/* ------------------------------------------------------------------ multicast */

/* Returns whether datagrams are for us: before the connection is up they are not, since the sender
 * does not count us yet. In LAYOUT_2017 they may be as soon as the kernel has the connection, even
 * if we have not noticed. */
static bool is_for_us(struct fmtp_client *c, uint64_t now_ns)
{
    if (c->state == CONNECTING && !c->keyx && tp_tcp_established(c->tcp))
        connected(c, now_ns);
    return c->state == UP;
}

static void deliver(struct fmtp_client *c, uint64_t now_ns)
{
    fmtp_multicast_in_deliver(c->in, c->core, now_ns);
    c->pause.datagrams += fmtp_multicast_in_datagrams(c->in);
}

static bool udp_drained(struct fmtp_client *c, uint64_t now_ns)
{
    if (c->cfg.store)
        fmtp_input_drained(&c->pause, c->session.block_bytes, fmtp_multicast_in_buffer(c->in),
                           now_ns);
    return true;
}

/* Reads datagrams. Returns true when there are no more, or when they must wait. */
static bool udp_input(struct fmtp_client *c, uint64_t now_ns)
{
    for (int batch = 0; batch < BATCHES && c->state != EXCHANGING; batch++) {
        if (!fmtp_multicast_in_read(c->in, c->state == UP ? c->core : NULL))
            return errno != EINTR && udp_drained(c, now_ns);
        if (is_for_us(c, now_ns))
            deliver(c, now_ns);
        if (!fmtp_multicast_in_was_full(c->in))
            return udp_drained(c, now_ns);
    }
    return c->state == EXCHANGING;
}

/* Nothing arrives at a socket that is not watched but its own queue: no wake-up, no callback. */
static void watch_udp(struct fmtp_client *c)
{
    if (c->state != UP)
        c->pause.until_ns = 0;
    uint32_t events = c->state == EXCHANGING || c->pause.until_ns ? 0 : EPOLLIN;
    int op = events ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
    if (events != c->udp_events &&
        tp_watch(c->epfd, fmtp_multicast_in_fd(c->in), op, events, &c->in) == 0)
        c->udp_events = events;
}

/* True if a pause ends now, since a timer must not find missing what has arrived meanwhile. */
static bool pause_ends(const struct fmtp_client *c, uint64_t now_ns)
{
    return c->pause.until_ns &&
           (now_ns >= c->pause.until_ns || now_ns >= fmtp_receiver_deadline(c->core));
}

/* The common case: the caller woke us for datagrams. Read them at once; asking epoll first would
 * cost a second system call per datagram. Returns false if there are none, or if epoll has not been
 * asked for several calls and may report other events. */
static bool datagrams_only(struct fmtp_client *c)
{
    if (c->pause.until_ns && tp_now_ns() < c->pause.until_ns)
        return false; /* something else woke us */
    if (c->state != UP || c->unasked >= UNASKED || !fmtp_multicast_in_read(c->in, c->core)) {
        c->unasked = 0;
        return false;
    }
    c->unasked++;
    uint64_t now_ns = tp_now_ns();
    deliver(c, now_ns);
    if (fmtp_multicast_in_was_full(c->in))
        udp_input(c, now_ns);
    else
        udp_drained(c, now_ns);
    return true;
}

/* ------------------------------------------------------------------ the loop */

static void set_timer(struct fmtp_client *c)
{
    uint64_t next = TP_NEVER;

    if (c->state == WAITING)
        next = c->retry_ns;
    else if (c->state == CONNECTING)
        next = c->give_up_ns;
    else if (c->state == EXCHANGING)
        next = c->handshake_ends_ns;
    else if (c->state == UP)
        next = fmtp_receiver_deadline(c->core);
    if (c->pause.until_ns && c->pause.until_ns < next)
        next = c->pause.until_ns;
    tp_arm(c->timer, next, &c->armed);
}

static void timed(struct fmtp_client *c, uint64_t now_ns)
{
    if (c->state == WAITING && now_ns >= c->retry_ns)
        start_connect(c, now_ns);
    else if (c->state == CONNECTING && now_ns >= c->give_up_ns)
        lose_for_good(c, "cannot connect", ETIMEDOUT);
    else if (c->state == EXCHANGING && now_ns >= c->handshake_ends_ns)
        lose(c, "no key exchange", ETIMEDOUT);
}

static int service_all(struct fmtp_client *c, struct tp_error *err)
{
    struct epoll_event events[EVENTS];

    for (int round = 0; round < ROUNDS && c->state != LOST; round++) {
        int n = epoll_wait(c->epfd, events, EVENTS, 0);
        uint64_t now_ns = tp_now_ns();
        bool drained = !pause_ends(c, now_ns);

        if (n < 0 && errno != EINTR)
            return tp_fail(err, "epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            uint64_t times;
            if (events[i].data.ptr == &c->in)
                drained = false;
            else if (events[i].data.ptr == &c->tcp && c->tcp >= 0)
                tcp_events(c, events[i].events, now_ns);
            else if (events[i].data.ptr == &c->timer && read(c->timer, &times, sizeof times) > 0)
                c->armed = TP_NEVER;
        }
        /* Read what arrived in time before a timer concludes that it did not arrive. */
        if (!drained)
            drained = udp_input(c, now_ns);
        timed(c, now_ns);
        if (drained && c->state == UP) {
            refresh_rtt(c, now_ns);
            fmtp_receiver_timeout(c->core, now_ns);
        }
        tcp_output(c);
        watch_udp(c);
        set_timer(c);
        /* Anything else will wake the caller again. */
        if (drained)
            break;
    }
    return 0;
}

int fmtp_client_service(struct fmtp_client *c, struct tp_error *err)
{
    if (c->state != LOST && datagrams_only(c)) {
        tcp_output(c);
        watch_udp(c);
        set_timer(c);
    } else if (service_all(c, err) < 0) {
        return -1;
    }
    if (c->state == LOST) {
        *err = c->lost;
        return -1;
    }
    return 0;
}

void fmtp_client_abandon(struct fmtp_client *c, uint32_t index)
{
    fmtp_receiver_abandon(c->core, index);
}

bool fmtp_client_finished(const struct fmtp_client *c)
{
    return fmtp_receiver_finished(c->core);
}

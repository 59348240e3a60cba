/* SPDX-License-Identifier: Apache-2.0
 *
 * The receivers' TCP connections at the server: accept, key exchange, requests, retransmissions. A
 * connection starts as a handshake, bounded in number and time and cheap until its first byte. It
 * takes a receiver's place only after the key exchange (places.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "places.h"

#define SECOND_NS UINT64_C(1000000000)
#define RTT_REFRESH_NS (SECOND_NS / 10)
enum {
    ACCEPTS = 64, /* per call */
    WRITES = 8,   /* per connection and round */
    TURNS = 64,   /* requests that one connection may have answered at once, if blocking */
    READ_BYTES = 16384
};

static void enqueue(struct fmtp_server *s, struct conn *c)
{
    if (c->queued || c->fd < 0)
        return;
    c->queued = true;
    TAILQ_INSERT_TAIL(&s->ready, c, work);
}

static void dequeue(struct fmtp_server *s, struct conn *c)
{
    if (c->queued)
        TAILQ_REMOVE(&s->ready, c, work);
    c->queued = false;
}

static void watch(struct fmtp_server *s, struct conn *c, uint32_t events)
{
    if (c->events != events && tp_watch(s->epfd, c->fd, EPOLL_CTL_MOD, events, c) == 0)
        c->events = events;
}

static const struct sockaddr *address(const struct conn *c)
{
    return (const struct sockaddr *)&c->addr;
}

static void notice(const struct fmtp_server *s, const struct conn *c, enum fmtp_notice what)
{
    if (s->cfg.notice)
        s->cfg.notice(s->cfg.ctx, address(c), what);
}

const char *fmtp_notice_text(enum fmtp_notice what)
{
    static const char *const text[FMTP_NOTICES] = {
        "ended before its key exchange was complete",
        "refused: its host already has the most connections allowed",
        "refused: too many key exchanges from its host",
        "refused: no place is free",
        "disconnected: its place went to a host with fewer",
        "supports no extension: it is repaired by TCP, the others by multicast",
        "requests more repairs than the others can bear: it is repaired by TCP alone",
        "requests fewer repairs again: they are multicast",
        "requested again what its connection already carried: not sent again",
        "sent an invalid request",
        "speaks the originals' protocol: datagrams go without MACs until it and all others leave",
        ("refused: it speaks the originals' protocol, and datagrams carry MACs that it does not support "
         "(fmtp.mac_level 0 serves it)"),
        "refused: it has no key, or does not use it (fmtp.key_file)",
        "refused: its key differs, or the connection is intercepted (fmtp.key_file)",
    };

    return text[what];
}

static void drop(struct fmtp_server *s, struct conn *c)
{
    int peer = c->peer;

    if (c->fd < 0)
        return;
    tp_close_fd(&c->fd);
    dequeue(s, c);
    if (peer < 0) {
        TAILQ_REMOVE(&s->handshakes, c, link);
        s->nhandshakes--;
    } else {
        TAILQ_REMOVE(&s->established, c, link);
    }
    fmtp_host_count(c->host, peer < 0 ? FMTP_USE_HANDSHAKE : FMTP_USE_RECEIVER, -1);
    TAILQ_INSERT_TAIL(&s->dead, c, link);
    if (peer < 0)
        return;
    c->peer = -1;
    s->by_peer[peer] = NULL;
    s->receivers--;
    s->extended -= c->extended;
    fmtp_sender_peer_remove(s->core, peer);
    if (s->cfg.receivers_changed)
        s->cfg.receivers_changed(s->cfg.ctx, address(c), -1, s->receivers);
}

static void drop_laggard(struct fmtp_server *s, int peer, const struct fmtp_held *held)
{
    struct conn *c = s->by_peer[peer];

    s->laggards++;
    if (s->cfg.laggard)
        s->cfg.laggard(s->cfg.ctx, address(c), held);
    drop(s, c);
}

void fmtp_conns_bound(struct fmtp_server *s, uint64_t now_ns)
{
    struct fmtp_held held;

    for (int peer; (peer = fmtp_sender_laggard(s->core, now_ns, &held)) >= 0;)
        drop_laggard(s, peer, &held);
}

size_t fmtp_server_let_go(struct fmtp_server *s, uint32_t up_to)
{
    struct fmtp_held held;
    size_t n = 0;

    for (int peer; (peer = fmtp_sender_holder(s->core, up_to, tp_now_ns(), &held)) >= 0; n++)
        drop_laggard(s, peer, &held);
    return n;
}

size_t fmtp_server_get_receivers(struct fmtp_server *s, struct fmtp_receiver_place *out,
                                 size_t room)
{
    fmtp_sender_count_held(s->core, tp_now_ns());
    for (size_t i = 0; i < room && i < s->cfg.max_receivers; i++) {
        const struct conn *c = s->by_peer[i];
        out[i].address.ss_family = AF_UNSPEC;
        if (!c)
            continue;
        out[i].address = c->addr;
        fmtp_sender_peer_counters(s->core, (int)i, &out[i].counts);
    }
    return s->cfg.max_receivers;
}

size_t fmtp_server_disconnect(struct fmtp_server *s, const struct sockaddr_storage *host,
                              size_t keep)
{
    struct conn *c, *oldest = NULL;
    size_t n = 0;

    TAILQ_FOREACH (c, &s->established, link)
        if (tp_address_same_host(&c->addr, host) && n++ == 0)
            oldest = c;
    if (n <= keep)
        return 0;
    drop(s, oldest);
    return 1;
}

static void refresh_rtt(struct fmtp_server *s, struct conn *c, uint64_t now_ns)
{
    if (c->rtt_read_ns && now_ns - c->rtt_read_ns < RTT_REFRESH_NS)
        return;
    c->rtt_read_ns = now_ns;
    fmtp_sender_peer_rtt(s->core, c->peer, tp_tcp_rtt_ns(c->fd));
}

static bool take_place(struct fmtp_server *s, struct conn *c, uint64_t now_ns)
{
    static const enum fmtp_notice why[] = {[FMTP_PLACE_TOO_MANY] = FMTP_NOTICE_TOO_MANY,
                                           [FMTP_PLACE_TOO_FAST] = FMTP_NOTICE_TOO_FAST,
                                           [FMTP_PLACE_NONE] = FMTP_NOTICE_NO_PLACE};
    struct conn *leaves;
    enum fmtp_place place = fmtp_places_receiver(s, c, now_ns, &leaves);

    if (place != FMTP_PLACE_GRANTED) {
        s->refused++;
        notice(s, c, why[place]);
        drop(s, c);
        return false;
    }
    if (leaves) {
        s->displaced++;
        notice(s, leaves, FMTP_NOTICE_DISPLACED);
        drop(s, leaves);
    }
    return true;
}

/* The handshake is complete: from now on the sender counts this receiver. */
static bool begin_receiver(struct fmtp_server *s, struct conn *c, bool extended, uint64_t now_ns)
{
    struct fmtp_session session = {0};
    bool ours = c->keyx && fmtp_keyx_is_ours(c->keyx), first = !s->receivers;

    if (!take_place(s, c, now_ns))
        return false;
    if (!fmtp_server_suits(s, ours)) {
        s->refused++;
        notice(s, c, FMTP_NOTICE_ORIGINAL);
        drop(s, c);
        return false;
    }
    int peer = fmtp_sender_peer_add_from(s->core, c->host->id, extended, &session);
    if (peer < 0) {
        s->refused++;
        drop(s, c);
        return false;
    }
    TAILQ_REMOVE(&s->handshakes, c, link);
    s->nhandshakes--;
    fmtp_host_count(c->host, FMTP_USE_HANDSHAKE, -1);
    fmtp_host_count(c->host, FMTP_USE_RECEIVER, 1);
    TAILQ_INSERT_TAIL(&s->established, c, link);
    c->peer = peer;
    session.ours = ours;
    session.mac = fmtp_mac_kind(s->out.mac);
    session.progress = ours && s->out.adapts && fmtp_keyx_reports(c->keyx);
    if (session.progress)
        fmtp_sender_peer_reports(s->core, peer);
    if (session.ours)
        fmtp_sender_peer_ours(s->core, peer);
    c->extended = session.extended;
    s->by_peer[peer] = c;
    s->receivers++;
    s->extended += c->extended;
    refresh_rtt(s, c, now_ns);
    if (s->cfg.receivers_changed)
        s->cfg.receivers_changed(s->cfg.ctx, address(c), 1, s->receivers);
    if (!c->extended && s->cfg.layout == FMTP_LAYOUT_2021 && !s->cfg.unicast_repair)
        notice(s, c, FMTP_NOTICE_ORDINARY);
    if (first && !ours && s->cfg.mac_level == FMTP_MAC_AUTO && c->keyx)
        notice(s, c, FMTP_NOTICE_NO_MAC);
    if (!c->keyx)
        return true;
    size_t len;
    const uint8_t *key = fmtp_mac_key(s->out.mac, &len);
    if (fmtp_keyx_answer(c->keyx, &session, key, len) < 0) {
        s->bad_handshakes++;
        drop(s, c);
        return false;
    }
    fmtp_sender_peer_blocked(s->core, peer, true); /* the answer goes first */
    enqueue(s, c);
    return true;
}

static void bad_handshake(struct fmtp_server *s, struct conn *c)
{
    s->bad_handshakes++;
    notice(s, c, FMTP_NOTICE_HANDSHAKE);
    drop(s, c);
}

static void refuse_stranger(struct fmtp_server *s, struct conn *c, enum fmtp_notice why)
{
    s->refused++;
    s->strangers++;
    notice(s, c, why);
    drop(s, c);
}

/* Refuses a connection whose message was invalid. */
static void distrusted(struct fmtp_server *s, struct conn *c)
{
    switch (c->keyx ? fmtp_keyx_distrust(c->keyx) : FMTP_KEYX_TRUSTED) {
    case FMTP_KEYX_NO_KEY: refuse_stranger(s, c, FMTP_NOTICE_NO_KEY); break;
    case FMTP_KEYX_OTHER_KEY: refuse_stranger(s, c, FMTP_NOTICE_OTHER_KEY); break;
    default: bad_handshake(s, c);
    }
}

/* The sender's challenge during the key exchange: so short that a new connection accepts it at
 * once. */
static bool write_challenge(struct conn *c)
{
    size_t len;
    const uint8_t *bytes = fmtp_keyx_output(c->keyx, &len);

    len -= c->keyx_sent;
    if (!len)
        return true;
    ssize_t n = send(c->fd, bytes + c->keyx_sent, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    c->keyx_sent += len;
    return n == (ssize_t)len;
}

/* Makes a connection with its host. Returns NULL without memory or if it is not permitted. */
static struct conn *new_conn(struct fmtp_server *s, int fd, const struct sockaddr_storage *addr,
                             uint64_t now_ns)
{
    if (s->cfg.authorize && !s->cfg.authorize(s->cfg.ctx, (const struct sockaddr *)addr))
        return NULL;
    struct fmtp_host *host = fmtp_hosts_of(&s->hosts, addr);
    struct conn *c = host ? calloc(1, sizeof *c) : NULL;
    if (c && tp_watch(s->epfd, fd, EPOLL_CTL_ADD, EPOLLIN, c) < 0) {
        free(c);
        c = NULL;
    }
    if (c)
        *c = (struct conn){.fd = fd,
                           .peer = -1,
                           .addr = *addr,
                           .host = host,
                           .heard_ns = now_ns,
                           .events = EPOLLIN,
                           .handshake_ends_ns = now_ns + s->cfg.handshake_ns};
    return c;
}

static void add(struct fmtp_server *s, int fd, const struct sockaddr_storage *addr, uint64_t now_ns)
{
    struct conn *c = new_conn(s, fd, addr, now_ns);

    if (!c) {
        s->refused++;
        close(fd);
        return;
    }
    struct conn *leaves = fmtp_places_handshake(s, c->host);
    if (leaves)
        bad_handshake(s, leaves);
    tp_tune_tcp(fd, s->cfg.dead_ns);
    TAILQ_INSERT_TAIL(&s->handshakes, c, link);
    s->nhandshakes++;
    fmtp_host_count(c->host, FMTP_USE_HANDSHAKE, 1);
    if (s->cfg.layout == FMTP_LAYOUT_2017)
        begin_receiver(s, c, false, now_ns);
}

void fmtp_conns_accept(struct fmtp_server *s, uint64_t now_ns)
{
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        int fd = accept4(s->listener, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            add(s, fd, &from, now_ns);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR)
            continue;
        if (errno != EAGAIN) {
            /* Out of descriptors or memory: retry in a second instead of in a busy loop. */
            s->accept_again_ns = now_ns + SECOND_NS;
            tp_watch(s->epfd, s->listener, EPOLL_CTL_MOD, 0, &s->listener);
        }
        return;
    }
}

static void input(struct fmtp_server *s, struct conn *c, const uint8_t *bytes, size_t len,
                  uint64_t now_ns)
{
    if (c->peer < 0) {
        size_t used = 0;
        enum fmtp_keyx_status st = FMTP_KEYX_BAD;
        if (!c->keyx && (c->keyx = fmtp_keyx_new_sender()))
            fmtp_keyx_speak(c->keyx, s->cfg.has_key ? s->cfg.key : NULL);
        if (c->keyx)
            st = fmtp_keyx_input(c->keyx, bytes, len, &used);
        if (st == FMTP_KEYX_MORE) {
            if (c->keyx && !write_challenge(c))
                bad_handshake(s, c);
            return;
        }
        if (st == FMTP_KEYX_BAD) {
            distrusted(s, c);
            return;
        }
        if (!begin_receiver(s, c, !s->cfg.unicast_repair && fmtp_keyx_offered(c->keyx), now_ns))
            return;
        bytes += used;
        len -= used;
    }
    const struct fmtp_server_stats *counts = fmtp_sender_counts(s->core);
    uint64_t bad = counts->bad_messages, excess = counts->excess, acks = counts->acks;
    int rc = fmtp_sender_peer_input(s->core, c->peer, bytes, len, now_ns);
    if (counts->bad_messages > bad)
        notice(s, c, FMTP_NOTICE_BAD);
    if (counts->excess > excess)
        notice(s, c, FMTP_NOTICE_EXCESS);
    if (rc < 0) {
        drop(s, c);
        return;
    }
    c->acks += counts->acks - acks;
    if (fmtp_sender_peer_alone(s->core, c->peer) != c->alone) {
        c->alone = !c->alone;
        notice(s, c, c->alone ? FMTP_NOTICE_ALONE : FMTP_NOTICE_TOGETHER);
    }
    refresh_rtt(s, c, now_ns);
}

/* Returns how much to read next. */
static size_t wanted(const struct fmtp_server *s, const struct conn *c)
{
    size_t most = c->peer < 0 ? SIZE_MAX : fmtp_sender_peer_wants(s->core, c->peer);

    return most < READ_BYTES ? most : READ_BYTES;
}

/* Returns whether something was read. */
static bool receive(struct fmtp_server *s, struct conn *c, uint64_t now_ns)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n = recv(c->fd, bytes, wanted(s, c), 0);

    if (n > 0) {
        c->heard_ns = now_ns;
        input(s, c, bytes, (size_t)n, now_ns);
        return true;
    }
    if (n == 0 && c->peer < 0 && c->keyx && fmtp_keyx_is_challenged(c->keyx)) {
        refuse_stranger(s, c, FMTP_NOTICE_OTHER_KEY); /* it did not accept our challenge */
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        drop(s, c);
    }
    return false;
}

/* Writes the rest of the key exchange. Returns true when nothing is left. */
static bool write_keyx(struct fmtp_server *s, struct conn *c)
{
    size_t len;
    const uint8_t *bytes = fmtp_keyx_output(c->keyx, &len);
    ssize_t n = send(c->fd, bytes + c->keyx_sent, len - c->keyx_sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            drop(s, c);
        return false;
    }
    c->keyx_sent += (size_t)n;
    if (c->keyx_sent < len)
        return false;
    fmtp_keyx_free(c->keyx);
    c->keyx = NULL;
    return true;
}

/* Writes what the connection accepts, up to a bound so that it cannot starve the others. */
static void transmit(struct fmtp_server *s, struct conn *c, uint64_t now_ns)
{
    bool blocked = c->keyx && !write_keyx(s, c);

    for (int i = 0; i < WRITES && c->fd >= 0 && !blocked; i++) {
        struct msghdr msg = {0};
        fmtp_sender_peer_peek(s->core, c->peer, &s->stream, now_ns);
        if (!s->stream.len)
            break;
        msg.msg_iov = s->stream.iov;
        msg.msg_iovlen = (size_t)s->stream.niov;
        ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EFAULT && fmtp_sender_unreadable(s->core, c->peer))
            continue;
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            drop(s, c);
            return;
        }
        blocked = n < (ssize_t)s->stream.len;
        fmtp_sender_peer_sent(s->core, c->peer, n > 0 ? (size_t)n : 0, now_ns);
    }
    if (c->fd < 0)
        return;
    fmtp_sender_peer_blocked(s->core, c->peer, blocked);
    watch(s, c, (wanted(s, c) ? (uint32_t)EPOLLIN : 0) | (blocked ? (uint32_t)EPOLLOUT : 0));
}

/* Reads request after request, each when the connection has taken the answer to the one before. */
static void take_turns(struct fmtp_server *s, struct conn *c, uint32_t what, uint64_t now_ns)
{
    int turn = 0;

    while (turn++ < TURNS && wanted(s, c) && receive(s, c, now_ns) && c->fd >= 0 && c->peer >= 0)
        transmit(s, c, now_ns);
    if (c->fd < 0 || wanted(s, c))
        return;
    if (what & (EPOLLHUP | EPOLLERR))
        drop(s, c); /* nothing will be read that shows it */
    else
        watch(s, c, c->events & ~(uint32_t)EPOLLIN); /* transmit() watches it again */
}

void fmtp_conn_events(struct fmtp_server *s, struct conn *c, uint32_t what, uint64_t now_ns)
{
    if (c->fd >= 0 && what & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        if (s->cfg.blocking)
            take_turns(s, c, what, now_ns);
        else
            receive(s, c, now_ns);
    }
    if (c->fd >= 0 && what & EPOLLOUT && c->peer >= 0)
        transmit(s, c, now_ns);
}

static void free_conn(struct conn *c)
{
    tp_close_fd(&c->fd);
    fmtp_keyx_free(c->keyx);
    free(c);
}

static void free_list(struct conn_list *list)
{
    struct conn *c;

    while ((c = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, c, link);
        free_conn(c);
    }
}

uint64_t fmtp_conns_round(struct fmtp_server *s, uint64_t now_ns)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->handshakes)) && now_ns >= c->handshake_ends_ns)
        bad_handshake(s, c);
    while ((c = TAILQ_FIRST(&s->ready))) {
        dequeue(s, c);
        transmit(s, c, now_ns);
    }
    int peer;
    for (size_t i = 0; i < s->receivers && (peer = fmtp_sender_next_ready(s->core, now_ns)) >= 0;
         i++)
        transmit(s, s->by_peer[peer], now_ns);
    free_list(&s->dead);
    c = TAILQ_FIRST(&s->handshakes);
    return c ? c->handshake_ends_ns : TP_NEVER;
}

void fmtp_conns_init(struct fmtp_server *s)
{
    TAILQ_INIT(&s->handshakes);
    TAILQ_INIT(&s->established);
    TAILQ_INIT(&s->dead);
    TAILQ_INIT(&s->ready);
    fmtp_hosts_init(&s->hosts);
}

void fmtp_conns_close(struct fmtp_server *s)
{
    free_list(&s->handshakes);
    free_list(&s->established);
    free_list(&s->dead);
    fmtp_hosts_free(&s->hosts);
}

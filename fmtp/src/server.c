/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's event loop: a UDP socket for the multicast, a listening socket, a connection per
 * receiver, a timer, all behind one epoll descriptor.
 */
#include "fmtp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "keyx.h"
#include "net.h"
#include "sender.h"
#include "timers.h"

#define SECOND_NS UINT64_C(1000000000)
#define HANDSHAKE_NS (30 * SECOND_NS)      /* for the key exchange of a new connection */
#define RTT_REFRESH_NS (SECOND_NS / 10)
#define PACE_BURST_NS UINT64_C(1000000)    /* datagrams of 1 ms may go out together */
#define PACE_CATCH_UP_NS UINT64_C(5000000) /* lateness that is made up for */
enum {
    BATCH = 32,                            /* datagrams per sendmmsg */
    ROUNDS = 16,                           /* per call of service */
    WRITES = 8,                            /* per connection and round */
    READ_BYTES = 16384,
    BACKLOG = 100,
    UDP_OVERHEAD = 28                      /* IP and UDP headers, for pacing */
};

struct conn {
    int fd;                                /* -1: closed, to be freed at the end of the round */
    int peer;                              /* in the sender core; -1: key exchange under way */
    struct in_addr addr;
    struct fmtp_keyx *keyx;                /* until its output has left */
    size_t keyx_sent;
    uint64_t handshake_ends_ns;
    uint32_t events;
};

struct fmtp_server {
    struct fmtp_server_config cfg;
    struct fmtp_sender *core;
    int epfd, udp, listener, timer;
    uint64_t armed;
    uint32_t udp_events;
    bool udp_full;                         /* no room in the socket buffer: wait for EPOLLOUT */
    uint64_t udp_retry_ns;                 /* after ENOBUFS, which no event ends */
    uint64_t accept_again_ns;              /* after a lack of descriptors; 0: listening */
    uint64_t pace_next_ns, rtt_read_ns;
    struct conn **conns;                   /* max_receivers places */
    size_t receivers;
    uint64_t send_errors, bad_handshakes;
    struct fmtp_stream_out stream;
    struct fmtp_datagram batch[BATCH];
};

/* ------------------------------------------------------------------ life */

static int open_udp(struct fmtp_server *s, struct fmtp_error *err)
{
    const struct fmtp_server_config *cfg = &s->cfg;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = cfg->tcp_addr};
    char text[INET_ADDRSTRLEN];
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    s->udp = fd;
    if (fd < 0)
        return fmtp_fail(err, "UDP socket: %s", strerror(errno));
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &cfg->tcp_addr, sizeof cfg->tcp_addr) < 0 ||
        bind(fd, (struct sockaddr *)&from, sizeof from) < 0)
        return fmtp_fail(err, "cannot multicast from %s: %s",
                         inet_ntop(AF_INET, &cfg->tcp_addr, text, sizeof text), strerror(errno));
    if (fmtp_set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, cfg->ttl) < 0 ||
        fmtp_set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 0) < 0)
        return fmtp_fail(err, "multicast TTL %d: %s", cfg->ttl, strerror(errno));
    if (connect(fd, (const struct sockaddr *)&cfg->group, sizeof cfg->group) < 0)
        return fmtp_fail(err, "group %s: %s",
                         inet_ntop(AF_INET, &cfg->group.sin_addr, text, sizeof text),
                         strerror(errno));
    return 0;
}

static int open_listener(struct fmtp_server *s, struct fmtp_error *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = s->cfg.tcp_addr,
                             .sin_port = htons(s->cfg.tcp_port)};
    char text[INET_ADDRSTRLEN];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    s->listener = fd;
    if (fd < 0)
        return fmtp_fail(err, "TCP socket: %s", strerror(errno));
    fmtp_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, BACKLOG) < 0)
        return fmtp_fail(err, "cannot listen on %s:%u: %s",
                         inet_ntop(AF_INET, &at.sin_addr, text, sizeof text), s->cfg.tcp_port,
                         strerror(errno));
    return 0;
}

static int check(const struct fmtp_server_config *cfg, struct fmtp_error *err)
{
    char text[INET_ADDRSTRLEN];

    if (cfg->layout != FMTP_LAYOUT_2017 && cfg->layout != FMTP_LAYOUT_2021)
        return fmtp_fail(err, "layout %d; valid are 2017 and 2021", (int)cfg->layout);
    if (cfg->group.sin_family != AF_INET || !IN_MULTICAST(ntohl(cfg->group.sin_addr.s_addr)) ||
        !cfg->group.sin_port)
        return fmtp_fail(err, "group %s:%u; valid are 224.0.0.0 to 239.255.255.255 with a port",
                         inet_ntop(AF_INET, &cfg->group.sin_addr, text, sizeof text),
                         ntohs(cfg->group.sin_port));
    if (!(cfg->f_snd >= 0))
        return fmtp_fail(err, "f_snd %g; valid are numbers from 0", cfg->f_snd);
    if (cfg->f_snd > 0 && !cfg->r_mc_bps)
        return fmtp_fail(err, "r_mc 0 bit/s; equation (1) needs the multicast rate");
    return 0;
}

struct fmtp_server *fmtp_server_open(const struct fmtp_server_config *cfg, struct fmtp_error *err)
{
    struct fmtp_server *s;

    if (check(cfg, err) < 0)
        return NULL;
    s = calloc(1, sizeof *s);
    if (!s) {
        fmtp_fail(err, "out of memory");
        return NULL;
    }
    s->cfg = *cfg;
    s->epfd = s->udp = s->listener = s->timer = -1;
    s->armed = FMTP_NEVER;
    if (!s->cfg.ttl)
        s->cfg.ttl = 1;
    if (!s->cfg.max_products)
        s->cfg.max_products = 4096;
    if (!s->cfg.max_receivers)
        s->cfg.max_receivers = 256;
    if (!s->cfg.peer_queue_bytes)
        s->cfg.peer_queue_bytes = 4u << 20;
    struct fmtp_sender_config core = {
        .layout = cfg->layout, .first_index = cfg->first_index, .f_snd = cfg->f_snd,
        .r_mc_bps = cfg->r_mc_bps, .tau_snd_min_ns = cfg->tau_snd_min_ns,
        .max_products = s->cfg.max_products,
        .max_peers = s->cfg.max_receivers, .peer_queue_bytes = s->cfg.peer_queue_bytes,
        .ctx = cfg->ctx, .multicasted = cfg->multicasted, .released = cfg->released};
    s->core = fmtp_sender_new(&core);
    s->conns = calloc(s->cfg.max_receivers, sizeof(struct conn *));
    s->epfd = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!s->core || !s->conns || s->epfd < 0 || s->timer < 0) {
        fmtp_fail(err, "cannot set up the sender: %s", strerror(errno));
        goto fail;
    }
    if (open_udp(s, err) < 0 || open_listener(s, err) < 0)
        goto fail;
    if (fmtp_watch(s->epfd, s->udp, EPOLL_CTL_ADD, 0, &s->udp) < 0 ||
        fmtp_watch(s->epfd, s->listener, EPOLL_CTL_ADD, EPOLLIN, &s->listener) < 0 ||
        fmtp_watch(s->epfd, s->timer, EPOLL_CTL_ADD, EPOLLIN, &s->timer) < 0) {
        fmtp_fail(err, "epoll: %s", strerror(errno));
        goto fail;
    }
    return s;
fail:
    fmtp_server_close(s);
    return NULL;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void free_conn(struct conn *c)
{
    close_fd(c->fd);
    fmtp_keyx_free(c->keyx);
    free(c);
}

void fmtp_server_close(struct fmtp_server *s)
{
    if (!s)
        return;
    fmtp_sender_free(s->core);
    for (size_t i = 0; s->conns && i < s->cfg.max_receivers; i++)
        if (s->conns[i])
            free_conn(s->conns[i]);
    free(s->conns);
    close_fd(s->udp);
    close_fd(s->listener);
    close_fd(s->timer);
    close_fd(s->epfd);
    free(s);
}

int fmtp_server_fd(const struct fmtp_server *s)
{
    return s->epfd;
}

uint16_t fmtp_server_tcp_port(const struct fmtp_server *s)
{
    struct sockaddr_in at = {0};
    socklen_t len = sizeof at;

    if (getsockname(s->listener, (struct sockaddr *)&at, &len) < 0)
        return 0;
    return ntohs(at.sin_port);
}

size_t fmtp_server_receivers(const struct fmtp_server *s)
{
    return s->receivers;
}

bool fmtp_server_ready(const struct fmtp_server *s)
{
    return fmtp_sender_ready(s->core);
}

void fmtp_server_get_stats(const struct fmtp_server *s, struct fmtp_server_stats *out)
{
    fmtp_sender_get_stats(s->core, out);
    out->receivers = s->receivers;
    out->send_errors = s->send_errors;
    out->bad_messages += s->bad_handshakes;
}

/* ------------------------------------------------------------------ connections */

static void watch_conn(struct fmtp_server *s, struct conn *c, uint32_t events)
{
    if (c->fd >= 0 && c->events != events &&
        fmtp_watch(s->epfd, c->fd, EPOLL_CTL_MOD, events, c) == 0)
        c->events = events;
}

static void drop_conn(struct fmtp_server *s, struct conn *c)
{
    int peer = c->peer;

    close(c->fd);
    c->fd = -1;
    c->peer = -1;
    if (peer < 0)
        return;
    s->receivers--;
    fmtp_sender_peer_remove(s->core, peer);
    if (s->cfg.receivers_changed)
        s->cfg.receivers_changed(s->cfg.ctx, c->addr, -1, s->receivers);
}

static void conn_ready(struct fmtp_server *s, struct conn *c)
{
    c->peer = fmtp_sender_peer_add(s->core);
    if (c->peer < 0) {
        drop_conn(s, c);
        return;
    }
    fmtp_sender_peer_rtt(s->core, c->peer, fmtp_tcp_rtt_ns(c->fd));
    s->receivers++;
    if (s->cfg.receivers_changed)
        s->cfg.receivers_changed(s->cfg.ctx, c->addr, 1, s->receivers);
}

static void add_conn(struct fmtp_server *s, int fd, struct in_addr addr, uint64_t now_ns)
{
    struct conn *c = NULL;
    size_t i = 0;

    while (i < s->cfg.max_receivers && s->conns[i])
        i++;
    if (i < s->cfg.max_receivers && (!s->cfg.authorize || s->cfg.authorize(s->cfg.ctx, addr)))
        c = calloc(1, sizeof *c);
    if (!c || fmtp_watch(s->epfd, fd, EPOLL_CTL_ADD, EPOLLIN, c) < 0) {
        close(fd);
        free(c);
        return;
    }
    fmtp_tune_tcp(fd);
    *c = (struct conn){.fd = fd, .peer = -1, .addr = addr, .events = EPOLLIN,
                       .handshake_ends_ns = now_ns + HANDSHAKE_NS};
    s->conns[i] = c;
    if (s->cfg.layout == FMTP_LAYOUT_2017) {
        conn_ready(s, c);
    } else {
        c->keyx = fmtp_keyx_new_sender();
        if (!c->keyx)
            drop_conn(s, c);
    }
}

static void accept_all(struct fmtp_server *s, uint64_t now_ns)
{
    for (;;) {
        struct sockaddr_in from = {0};
        socklen_t len = sizeof from;
        int fd = accept4(s->listener, (struct sockaddr *)&from, &len,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            add_conn(s, fd, from.sin_addr, now_ns);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR)
            continue;
        if (errno != EAGAIN) {
            /* No descriptors or memory: look again in a second, not in a busy loop. */
            s->accept_again_ns = now_ns + SECOND_NS;
            fmtp_watch(s->epfd, s->listener, EPOLL_CTL_MOD, 0, &s->listener);
        }
        return;
    }
}

static void conn_input(struct fmtp_server *s, struct conn *c, const uint8_t *bytes, size_t len)
{
    if (c->peer < 0) {
        size_t used = 0;
        switch (fmtp_keyx_input(c->keyx, bytes, len, &used)) {
        case FMTP_KEYX_MORE:
            return;
        case FMTP_KEYX_BAD:
            s->bad_handshakes++;
            drop_conn(s, c);
            return;
        case FMTP_KEYX_DONE:
            if (fmtp_keyx_answer(c->keyx, NULL, (const uint8_t *)"", 0) < 0)
                drop_conn(s, c);
            else
                conn_ready(s, c);
            break;
        }
        if (c->peer < 0)
            return;
        bytes += used;
        len -= used;
    }
    if (fmtp_sender_peer_input(s->core, c->peer, bytes, len) < 0)
        drop_conn(s, c);
}

static void conn_read(struct fmtp_server *s, struct conn *c)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);

    if (n > 0)
        conn_input(s, c, bytes, (size_t)n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        drop_conn(s, c);
}

/* Is there something to send to this connection? */
static bool conn_pending(const struct fmtp_server *s, const struct conn *c)
{
    return c->fd >= 0 && c->peer >= 0 &&
           (c->keyx || fmtp_sender_peer_pending(s->core, c->peer));
}

/* Writes what the connection takes, with a bound so that it cannot starve the others. */
static void conn_write(struct fmtp_server *s, struct conn *c)
{
    for (int i = 0; i < WRITES && conn_pending(s, c); i++) {
        struct msghdr msg = {0};
        struct iovec iov;
        size_t len;
        if (c->keyx) {
            const uint8_t *bytes = fmtp_keyx_output(c->keyx, &len);
            len -= c->keyx_sent;
            iov = (struct iovec){(void *)(bytes + c->keyx_sent), len};
            msg.msg_iov = &iov;
            msg.msg_iovlen = 1;
        } else {
            fmtp_sender_peer_peek(s->core, c->peer, &s->stream);
            len = s->stream.len;
            msg.msg_iov = s->stream.iov;
            msg.msg_iovlen = (size_t)s->stream.niov;
        }
        ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR)
                drop_conn(s, c);
            break;
        }
        if (!c->keyx) {
            fmtp_sender_peer_sent(s->core, c->peer, (size_t)n);
        } else if ((c->keyx_sent += (size_t)n, (size_t)n == len)) {
            fmtp_keyx_free(c->keyx);
            c->keyx = NULL;
        }
        if ((size_t)n < len)
            break;
    }
    watch_conn(s, c, EPOLLIN | (conn_pending(s, c) ? (uint32_t)EPOLLOUT : 0));
}

/* ------------------------------------------------------------------ multicast */

static void refresh_rtt(struct fmtp_server *s, uint64_t now_ns)
{
    if (s->rtt_read_ns && now_ns - s->rtt_read_ns < RTT_REFRESH_NS)
        return;
    s->rtt_read_ns = now_ns;
    for (size_t i = 0; i < s->cfg.max_receivers; i++) {
        struct conn *c = s->conns[i];
        if (c && c->peer >= 0)
            fmtp_sender_peer_rtt(s->core, c->peer, fmtp_tcp_rtt_ns(c->fd));
    }
}

static uint64_t pace_cost_ns(const struct fmtp_server *s, size_t len)
{
    return s->cfg.pace_bps ? (len + UDP_OVERHEAD) * 8 * SECOND_NS / s->cfg.pace_bps : 0;
}

/* Sends a batch of datagrams; returns how many left. */
static unsigned multicast(struct fmtp_server *s, uint64_t now_ns)
{
    struct mmsghdr msgs[BATCH];
    unsigned n = 0;
    uint64_t pending = fmtp_sender_pending(s->core), pace;
    int sent;

    if (!pending || s->udp_full || now_ns < s->udp_retry_ns)
        return 0;
    if (s->pace_next_ns + PACE_CATCH_UP_NS < now_ns)
        s->pace_next_ns = now_ns - PACE_CATCH_UP_NS;
    pace = s->pace_next_ns;
    if (s->cfg.pace_bps && pace > now_ns)
        return 0;
    while (n < BATCH && (!s->cfg.pace_bps || pace <= now_ns + PACE_BURST_NS) &&
           fmtp_sender_peek(s->core, n, &s->batch[n])) {
        msgs[n] = (struct mmsghdr){.msg_hdr = {.msg_iov = s->batch[n].iov,
                                               .msg_iovlen = (size_t)s->batch[n].niov}};
        pace += pace_cost_ns(s, s->batch[n].len);
        n++;
    }
    if (pending <= n)
        refresh_rtt(s, now_ns);            /* EOP is among them: equation (1) is due */
    sent = sendmmsg(s->udp, msgs, n, MSG_DONTWAIT);
    if (sent < 0) {
        if (errno == EAGAIN) {
            s->udp_full = true;
            return 0;
        }
        if (errno == ENOBUFS || errno == ENOMEM) {
            s->udp_retry_ns = now_ns + SECOND_NS / 1000;
            return 0;
        }
        if (errno == EINTR)
            return 0;
        /* Interface down, no route, refused by a filter: the datagram is lost like any other. */
        s->send_errors++;
        sent = 1;
    }
    for (int i = 0; i < sent; i++)
        s->pace_next_ns += pace_cost_ns(s, s->batch[i].len);
    fmtp_sender_sent(s->core, (uint32_t)sent, now_ns);
    return (unsigned)sent;
}

/* Wakes the caller when the next datagram can go. */
static void watch_udp(struct fmtp_server *s, uint64_t now_ns)
{
    bool waits = now_ns < s->udp_retry_ns || (s->cfg.pace_bps && s->pace_next_ns > now_ns);
    uint32_t events = fmtp_sender_pending(s->core) && (s->udp_full || !waits) ? EPOLLOUT : 0;

    if (events != s->udp_events && fmtp_watch(s->epfd, s->udp, EPOLL_CTL_MOD, events, &s->udp) == 0)
        s->udp_events = events;
}

int fmtp_server_offer(struct fmtp_server *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, uint32_t *index,
                      struct fmtp_error *err)
{
    struct timespec start;

    clock_gettime(CLOCK_REALTIME, &start);
    if (fmtp_sender_offer(s->core, parts, nparts, meta, meta_len, cookie, start, index, err) < 0)
        return -1;
    uint64_t now_ns = fmtp_now_ns();
    if (s->pace_next_ns < now_ns)
        s->pace_next_ns = now_ns;          /* idle time is no credit */
    watch_udp(s, now_ns);
    if (!s->udp_events)
        fmtp_arm(s->timer, s->pace_next_ns > s->udp_retry_ns ? s->pace_next_ns : s->udp_retry_ns,
                 &s->armed);
    return 0;
}

/* ------------------------------------------------------------------ the loop */

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void housekeeping(struct fmtp_server *s, uint64_t now_ns)
{
    uint64_t next;

    if (s->accept_again_ns && now_ns >= s->accept_again_ns) {
        s->accept_again_ns = 0;
        fmtp_watch(s->epfd, s->listener, EPOLL_CTL_MOD, EPOLLIN, &s->listener);
    }
    next = s->accept_again_ns ? s->accept_again_ns : FMTP_NEVER;
    for (size_t i = 0; i < s->cfg.max_receivers; i++) {
        struct conn *c = s->conns[i];
        if (!c)
            continue;
        if (c->fd >= 0 && c->peer < 0) {
            if (now_ns >= c->handshake_ends_ns) {
                s->bad_handshakes++;
                drop_conn(s, c);
            } else {
                next = min64(next, c->handshake_ends_ns);
            }
        }
        if (!(c->events & EPOLLOUT) && conn_pending(s, c))
            conn_write(s, c);
        if (c->fd < 0) {
            s->conns[i] = NULL;
            free_conn(c);
        }
    }
    watch_udp(s, now_ns);
    if (fmtp_sender_pending(s->core) && !s->udp_events)
        next = min64(next, s->pace_next_ns > s->udp_retry_ns ? s->pace_next_ns
                                                             : s->udp_retry_ns);
    fmtp_arm(s->timer, min64(next, fmtp_sender_deadline(s->core)), &s->armed);
}

int fmtp_server_service(struct fmtp_server *s, struct fmtp_error *err)
{
    struct epoll_event events[64];

    for (int round = 0; round < ROUNDS; round++) {
        int n = epoll_wait(s->epfd, events, 64, 0);
        uint64_t now_ns = fmtp_now_ns();
        unsigned sent;

        if (n < 0 && errno != EINTR)
            return fmtp_fail(err, "epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            void *ptr = events[i].data.ptr;
            uint32_t what = events[i].events;
            if (ptr == &s->udp) {
                s->udp_full = false;
            } else if (ptr == &s->listener) {
                accept_all(s, now_ns);
            } else if (ptr == &s->timer) {
                uint64_t times;
                if (read(s->timer, &times, sizeof times) > 0)
                    s->armed = FMTP_NEVER;
            } else {
                struct conn *c = ptr;
                if (c->fd >= 0 && what & (EPOLLIN | EPOLLHUP | EPOLLERR))
                    conn_read(s, c);
                if (c->fd >= 0 && what & EPOLLOUT)
                    conn_write(s, c);
            }
        }
        fmtp_sender_timeout(s->core, now_ns);
        sent = multicast(s, now_ns);
        housekeeping(s, now_ns);
        if (n <= 0 && !sent)
            break;
    }
    return 0;
}

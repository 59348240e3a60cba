/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's event loop: the multicast socket, the connection to the sender, a timer, all
 * behind one epoll descriptor.
 */
#include "fmtp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "keyx.h"
#include "net.h"
#include "receiver.h"
#include "timers.h"

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

#define SECOND_NS UINT64_C(1000000000)
#define CONNECT_NS (120 * SECOND_NS)       /* how long we try */
#define RETRY_NS SECOND_NS
#define HANDSHAKE_NS (30 * SECOND_NS)
enum {
    BATCH = 32,                            /* datagrams per recvmmsg */
    BATCHES = 8,                           /* per round */
    ROUNDS = 16,                           /* per call of service */
    EVENTS = 3,                            /* all that is watched */
    UNASKED = 16,                          /* calls that read datagrams without asking epoll */
    DATAGRAM_ROOM = FMTP_MAX_PACKET + 1,   /* one more, to see that it was too long */
    READ_BYTES = 65536
};

enum state { WAITING, CONNECTING, EXCHANGING, UP, LOST };

struct fmtp_client {
    struct fmtp_client_config cfg;
    struct fmtp_receiver *core;
    struct fmtp_keyx *keyx;
    size_t keyx_sent;
    enum state state;
    struct fmtp_error lost;
    int epfd, udp, tcp, timer;
    uint32_t tcp_events;
    uint64_t armed, give_up_ns, retry_ns;
    size_t rcvbuf_granted;
    int unasked;                           /* such calls since the last that asked */
    uint8_t datagrams[BATCH][DATAGRAM_ROOM];
    uint8_t stream[READ_BYTES];
};

/* ------------------------------------------------------------------ life */

static void on_ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    struct fmtp_client *c = ctx;
    struct timespec now;
    double delay_s = 0;

    if (c->cfg.layout == FMTP_LAYOUT_2021) {
        clock_gettime(CLOCK_REALTIME, &now);
        delay_s = difftime(now.tv_sec, start.tv_sec) +
                  (double)(now.tv_nsec - start.tv_nsec) / 1e9;
    }
    c->cfg.ended(c->cfg.ctx, index, retx_blocks, delay_s);
}

static void *on_begun(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                      uint16_t meta_len, struct timespec start)
{
    struct fmtp_client *c = ctx;

    return c->cfg.begun(c->cfg.ctx, index, size_bytes, meta, meta_len, start);
}

static void on_missed(void *ctx, uint32_t index)
{
    struct fmtp_client *c = ctx;

    c->cfg.missed(c->cfg.ctx, index);
}

static void set_rcvbuf(struct fmtp_client *c)
{
    size_t want = c->cfg.rcvbuf_bytes > INT32_MAX / 2 ? INT32_MAX / 2 : c->cfg.rcvbuf_bytes;
    int granted = 0;
    socklen_t len = sizeof granted;

    if (want && fmtp_set_option(c->udp, SOL_SOCKET, SO_RCVBUFFORCE, (int)want) < 0)
        fmtp_set_option(c->udp, SOL_SOCKET, SO_RCVBUF, (int)want);
    getsockopt(c->udp, SOL_SOCKET, SO_RCVBUF, &granted, &len);
    c->rcvbuf_granted = (size_t)granted / 2;
}

static int join(struct fmtp_client *c)
{
    const struct fmtp_client_config *cfg = &c->cfg;

    if (cfg->layout == FMTP_LAYOUT_2021) {
        struct ip_mreq_source m = {.imr_multiaddr = cfg->group.sin_addr,
                                   .imr_interface = cfg->iface_addr,
                                   .imr_sourceaddr = cfg->server.sin_addr};
        return setsockopt(c->udp, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &m, sizeof m);
    }
    struct ip_mreq m = {.imr_multiaddr = cfg->group.sin_addr, .imr_interface = cfg->iface_addr};
    return setsockopt(c->udp, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m);
}

static int open_udp(struct fmtp_client *c, struct fmtp_error *err)
{
    char group[INET_ADDRSTRLEN], iface[INET_ADDRSTRLEN];

    c->udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->udp < 0)
        return fmtp_fail(err, "UDP socket: %s", strerror(errno));
    inet_ntop(AF_INET, &c->cfg.group.sin_addr, group, sizeof group);
    inet_ntop(AF_INET, &c->cfg.iface_addr, iface, sizeof iface);
    fmtp_set_option(c->udp, SOL_SOCKET, SO_REUSEADDR, 1);
    fmtp_set_option(c->udp, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    set_rcvbuf(c);
    if (bind(c->udp, (struct sockaddr *)&c->cfg.group, sizeof c->cfg.group) < 0)
        return fmtp_fail(err, "cannot bind to group %s:%u: %s", group,
                         ntohs(c->cfg.group.sin_port), strerror(errno));
    if (join(c) < 0)
        return fmtp_fail(err, "cannot join group %s on interface %s: %s", group, iface,
                         strerror(errno));
    return 0;
}

static int check(const struct fmtp_client_config *cfg, struct fmtp_error *err)
{
    char text[INET_ADDRSTRLEN];

    if (cfg->layout != FMTP_LAYOUT_2017 && cfg->layout != FMTP_LAYOUT_2021)
        return fmtp_fail(err, "layout %d; valid are 2017 and 2021", (int)cfg->layout);
    if (cfg->group.sin_family != AF_INET || !IN_MULTICAST(ntohl(cfg->group.sin_addr.s_addr)) ||
        !cfg->group.sin_port)
        return fmtp_fail(err, "group %s:%u; valid are 224.0.0.0 to 239.255.255.255 with a port",
                         inet_ntop(AF_INET, &cfg->group.sin_addr, text, sizeof text),
                         ntohs(cfg->group.sin_port));
    if (cfg->server.sin_family != AF_INET || !cfg->server.sin_port)
        return fmtp_fail(err, "sender's address without a port");
    if (!(cfg->f_rcv > 0) || !cfg->r_mc_bps)
        return fmtp_fail(err, "f_rcv %g, r_mc %llu bit/s; equation (2) needs both above 0",
                         cfg->f_rcv, (unsigned long long)cfg->r_mc_bps);
    return 0;
}

struct fmtp_client *fmtp_client_open(const struct fmtp_client_config *cfg, struct fmtp_error *err)
{
    struct fmtp_client *c;

    if (check(cfg, err) < 0)
        return NULL;
    c = calloc(1, sizeof *c);
    if (!c) {
        fmtp_fail(err, "out of memory");
        return NULL;
    }
    c->cfg = *cfg;
    c->epfd = c->udp = c->tcp = c->timer = -1;
    c->armed = FMTP_NEVER;
    if (!c->cfg.max_products)
        c->cfg.max_products = 4096;
    struct fmtp_receiver_config core = {
        .layout = cfg->layout, .f_rcv = cfg->f_rcv, .r_mc_bps = cfg->r_mc_bps,
        .max_products = c->cfg.max_products, .parity_bytes = 16 << 20, .stash_blocks = 1024,
        .ctx = c, .begun = on_begun, .ended = on_ended,
        .missed = on_missed};
    c->core = fmtp_receiver_new(&core);
    c->epfd = epoll_create1(EPOLL_CLOEXEC);
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!c->core || c->epfd < 0 || c->timer < 0) {
        fmtp_fail(err, "cannot set up the receiver: %s", strerror(errno));
        goto fail;
    }
    if (cfg->layout == FMTP_LAYOUT_2021 && !(c->keyx = fmtp_keyx_new_receiver(false))) {
        fmtp_fail(err, "cannot make an RSA key pair for the key exchange");
        goto fail;
    }
    /* We join before we connect: the sender counts us after the connection stands, so nothing
     * that it multicasts for us can pass before we listen. */
    if (open_udp(c, err) < 0)
        goto fail;
    c->give_up_ns = fmtp_now_ns() + CONNECT_NS;
    if (fmtp_watch(c->epfd, c->udp, EPOLL_CTL_ADD, EPOLLIN, &c->udp) < 0 ||
        fmtp_watch(c->epfd, c->timer, EPOLL_CTL_ADD, EPOLLIN, &c->timer) < 0) {
        fmtp_fail(err, "epoll: %s", strerror(errno));
        goto fail;
    }
    c->state = WAITING;
    fmtp_arm(c->timer, fmtp_now_ns(), &c->armed);
    return c;
fail:
    fmtp_client_close(c);
    return NULL;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void fmtp_client_close(struct fmtp_client *c)
{
    if (!c)
        return;
    fmtp_receiver_free(c->core);
    fmtp_keyx_free(c->keyx);
    close_fd(&c->udp);
    close_fd(&c->tcp);
    close_fd(&c->timer);
    close_fd(&c->epfd);
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

void fmtp_client_get_stats(const struct fmtp_client *c, struct fmtp_client_stats *out)
{
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof info;

    fmtp_receiver_get_stats(c->core, out);
    if (getsockopt(c->udp, SOL_SOCKET, SO_MEMINFO, info, &len) == 0)
        out->socket_drops = info[SK_MEMINFO_DROPS];
    out->rcvbuf_granted_bytes = c->rcvbuf_granted;
}

/* ------------------------------------------------------------------ connection */

static void lose(struct fmtp_client *c, const char *why, int error)
{
    char text[INET_ADDRSTRLEN];

    if (c->state == LOST)
        return;
    c->state = LOST;
    close_fd(&c->tcp);
    fmtp_fail(&c->lost, "connection to %s:%u: %s%s%s",
              inet_ntop(AF_INET, &c->cfg.server.sin_addr, text, sizeof text),
              ntohs(c->cfg.server.sin_port), why, error ? ": " : "",
              error ? strerror(error) : "");
}

static void connected(struct fmtp_client *c)
{
    c->give_up_ns = fmtp_now_ns() + HANDSHAKE_NS;
    c->state = c->keyx ? EXCHANGING : UP;
}

/* The attempt failed: try again in a while. */
static void retry(struct fmtp_client *c, int error, uint64_t now_ns)
{
    close_fd(&c->tcp);
    c->state = WAITING;
    c->retry_ns = now_ns + RETRY_NS;
    if (c->retry_ns >= c->give_up_ns)
        lose(c, "cannot connect", error);
}

static void start_connect(struct fmtp_client *c, uint64_t now_ns)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = c->cfg.iface_addr};

    c->tcp = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->tcp < 0 || bind(c->tcp, (struct sockaddr *)&from, sizeof from) < 0) {
        retry(c, errno, now_ns);
        return;
    }
    fmtp_tune_tcp(c->tcp);
    if (connect(c->tcp, (struct sockaddr *)&c->cfg.server, sizeof c->cfg.server) < 0 &&
        errno != EINPROGRESS) {
        retry(c, errno, now_ns);
        return;
    }
    c->state = CONNECTING;
    c->tcp_events = EPOLLIN | EPOLLOUT;
    if (fmtp_watch(c->epfd, c->tcp, EPOLL_CTL_ADD, c->tcp_events, &c->tcp) < 0)
        retry(c, errno, now_ns);
}

/* Does the kernel have the connection? Asked after a datagram was read: if not, the sender cannot
 * have counted us yet when it sent it. */
static bool established(const struct fmtp_client *c)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;

    if (c->state != CONNECTING)
        return c->state == EXCHANGING || c->state == UP;
    return getsockopt(c->tcp, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           info.tcpi_state == 1 /* TCP_ESTABLISHED */;
}

static void tcp_input(struct fmtp_client *c, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    if (c->state == EXCHANGING) {
        size_t used = 0;
        switch (fmtp_keyx_input(c->keyx, bytes, len, &used)) {
        case FMTP_KEYX_MORE:
            return;
        case FMTP_KEYX_BAD:
            lose(c, "key exchange failed (is the sender of layout 2021 and MAC level 0?)", 0);
            return;
        case FMTP_KEYX_DONE:
            break;
        }
        fmtp_keyx_free(c->keyx);
        c->keyx = NULL;
        c->state = UP;
        bytes += used;
        len -= used;
    }
    if (fmtp_receiver_stream(c->core, bytes, len, now_ns) < 0)
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
        connected(c);
    }
    if (!(what & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t n = recv(c->tcp, c->stream, sizeof c->stream, 0);
    if (n > 0)
        tcp_input(c, c->stream, (size_t)n, now_ns);
    else if (n == 0)
        lose(c, c->state == UP ? "closed by the sender"
                               : "closed by the sender before the key exchange was done "
                                 "(not authorized?)", 0);
    else if (errno != EAGAIN && errno != EINTR)
        lose(c, "lost", errno);
}

static void tcp_output(struct fmtp_client *c)
{
    bool blocked = false;

    while (!blocked && (c->state == EXCHANGING || c->state == UP)) {
        const uint8_t *bytes;
        size_t len;
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
    if (fmtp_receiver_stuck(c->core))
        lose(c, "the sender does not take our requests", 0);
    uint32_t events = EPOLLIN | (blocked || c->state == CONNECTING ? (uint32_t)EPOLLOUT : 0);
    if (c->tcp >= 0 && events != c->tcp_events &&
        fmtp_watch(c->epfd, c->tcp, EPOLL_CTL_MOD, events, &c->tcp) == 0)
        c->tcp_events = events;
}

/* ------------------------------------------------------------------ multicast */

/* A batch of datagrams: how many came, -1 with errno if none. */
static int receive(struct fmtp_client *c, struct mmsghdr *msgs)
{
    struct iovec iov[BATCH];

    for (int i = 0; i < BATCH; i++) {
        iov[i] = (struct iovec){c->datagrams[i], DATAGRAM_ROOM};
        msgs[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov[i], .msg_iovlen = 1}};
    }
    return recvmmsg(c->udp, msgs, BATCH, MSG_DONTWAIT, NULL);
}

static void datagram(struct fmtp_client *c, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    if (len < FMTP_HEADER_LEN)
        fmtp_receiver_bad_datagram(c->core);
    else
        fmtp_receiver_datagram(c->core, bytes, bytes + FMTP_HEADER_LEN, len - FMTP_HEADER_LEN,
                               now_ns);
}

/* Reads datagrams; returns true when there are no more. */
static bool udp_input(struct fmtp_client *c, uint64_t now_ns)
{
    for (int batch = 0; batch < BATCHES; batch++) {
        struct mmsghdr msgs[BATCH];
        int n = receive(c, msgs);
        if (n < 0)
            return errno != EINTR;
        if (!established(c))
            continue;
        for (int i = 0; i < n; i++)
            datagram(c, c->datagrams[i], msgs[i].msg_len, now_ns);
        if (n < BATCH)
            return true;
    }
    return false;
}

/* The common case: the caller woke us for datagrams. They are read at once; asking epoll first
 * would be a second system call per datagram.
 * False: there are none, or epoll was not asked for some calls and may have other things. */
static bool datagrams_only(struct fmtp_client *c)
{
    struct mmsghdr msgs[BATCH];
    uint64_t now_ns;
    int n;

    if (c->state != UP || c->unasked >= UNASKED || (n = receive(c, msgs)) < 1) {
        c->unasked = 0;
        return false;
    }
    c->unasked++;
    now_ns = fmtp_now_ns();
    for (int i = 0; i < n; i++)
        datagram(c, c->datagrams[i], msgs[i].msg_len, now_ns);
    return true;
}

/* ------------------------------------------------------------------ the loop */

static void set_timer(struct fmtp_client *c)
{
    uint64_t next = FMTP_NEVER;

    if (c->state == WAITING)
        next = c->retry_ns;
    else if (c->state != UP)
        next = c->give_up_ns;
    if (c->state == UP || c->state == EXCHANGING) {
        uint64_t deadline = fmtp_receiver_deadline(c->core);
        next = deadline < next ? deadline : next;
    }
    fmtp_arm(c->timer, next, &c->armed);
}

static int service_all(struct fmtp_client *c, struct fmtp_error *err)
{
    struct epoll_event events[EVENTS];

    for (int round = 0; round < ROUNDS && c->state != LOST; round++) {
        int n = epoll_wait(c->epfd, events, EVENTS, 0);
        uint64_t now_ns = fmtp_now_ns();
        bool drained = true;

        if (n < 0 && errno != EINTR)
            return fmtp_fail(err, "epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            uint64_t times;
            if (events[i].data.ptr == &c->udp)
                drained = false;
            else if (events[i].data.ptr == &c->tcp && c->tcp >= 0)
                tcp_events(c, events[i].events, now_ns);
            else if (events[i].data.ptr == &c->timer &&
                     read(c->timer, &times, sizeof times) > 0)
                c->armed = FMTP_NEVER;
        }
        /* What came in time is looked at before a timer says that it did not come. */
        if (!drained)
            drained = udp_input(c, now_ns);
        if (c->state == WAITING && now_ns >= c->retry_ns)
            start_connect(c, now_ns);
        else if ((c->state == CONNECTING || c->state == EXCHANGING) && now_ns >= c->give_up_ns)
            lose(c, c->state == CONNECTING ? "cannot connect" : "no key exchange", ETIMEDOUT);
        if (drained && (c->state == UP || c->state == EXCHANGING))
            fmtp_receiver_timeout(c->core, now_ns);
        tcp_output(c);
        set_timer(c);
        /* What else comes wakes the caller again. */
        if (drained)
            break;
    }
    return 0;
}

int fmtp_client_service(struct fmtp_client *c, struct fmtp_error *err)
{
    if (c->state != LOST && datagrams_only(c)) {
        tcp_output(c);
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

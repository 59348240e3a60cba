/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's event loop: multicast output, a listening socket, one connection per receiver and a
 * timer, behind one epoll descriptor.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "check.h"
#include "fec.h"
#include "server_impl.h"

#define BOUND_NS UINT64_C(100000000)
#define HANDSHAKE_NS UINT64_C(10000000000)
enum {
    PER_ADDRESS = 32,
    ROUNDS = 16, /* per call of service */
    EVENTS = 64
};

/* ------------------------------------------------------------------ life */

static int check(const struct fmtp_server_config *cfg, struct tp_error *err)
{
    if (fmtp_check_session(cfg->layout, &cfg->group, cfg->mac_level, cfg->has_key, err) < 0)
        return -1;
    char group[TP_ADDRESS_TEXT], own[TP_ADDRESS_TEXT];
    if (cfg->address.ss_family != cfg->group.ss_family)
        return tp_fail(err, "group %s and address %s are not of one family",
                       tp_address_text((const struct sockaddr *)&cfg->group, group),
                       tp_address_text((const struct sockaddr *)&cfg->address, own));
    if (!(cfg->f_snd >= 0))
        return tp_fail(err, "f_snd %g; valid: numbers from 0", cfg->f_snd);
    if (cfg->f_snd > 0 && !cfg->r_mc_bps)
        return tp_fail(err, "r_mc 0 bit/s; equation (1) needs the multicast rate");
    return 0;
}

static void set_defaults(struct fmtp_server_config *cfg)
{
    if (!cfg->ttl)
        cfg->ttl = 1;
    if (!cfg->max_products)
        cfg->max_products = 4096;
    if (!cfg->max_receivers)
        cfg->max_receivers = 256;
    if (!cfg->max_handshakes)
        cfg->max_handshakes = 256;
    if (!cfg->max_per_address)
        cfg->max_per_address =
            cfg->max_receivers / 8 > PER_ADDRESS ? cfg->max_receivers / 8 : PER_ADDRESS;
    if (!cfg->handshake_ns)
        cfg->handshake_ns = HANDSHAKE_NS;
    if (!cfg->peer_queue_bytes)
        cfg->peer_queue_bytes = 4u << 20;
}

static uint16_t block_bytes(const struct fmtp_server *s)
{
    return (uint16_t)(s->out.pdu_bytes - FMTP_HEADER_LEN - fmtp_mac_len(s->out.mac));
}

static void on_requested(void *ctx, int peer, uint32_t index, uint32_t blocks, bool multicast)
{
    const struct fmtp_server *s = ctx;

    s->cfg.requested(s->cfg.ctx, (const struct sockaddr *)&s->by_peer[peer]->addr, index, blocks,
                     multicast);
}

static void on_repaired(void *ctx, int peer, uint32_t index, uint32_t blocks)
{
    const struct fmtp_server *s = ctx;

    s->cfg.repaired(s->cfg.ctx, peer < 0 ? NULL : (const struct sockaddr *)&s->by_peer[peer]->addr,
                    index, blocks);
}

static void on_queue_full(void *ctx, int peer, uint32_t index)
{
    const struct fmtp_server *s = ctx;

    s->cfg.queue_full(s->cfg.ctx, (const struct sockaddr *)&s->by_peer[peer]->addr, index);
}

static int open_core(struct fmtp_server *s, struct tp_error *err)
{
    const struct fmtp_server_config *cfg = &s->cfg;
    struct fmtp_sender_config core = {
        .layout = cfg->layout,
        .first_index = cfg->first_index,
        .f_snd = cfg->f_snd,
        .timer_from_bop = cfg->timer_from_bop,
        .timer_by_handover = cfg->timer_by_handover,
        .handover_ns = cfg->handover_ns,
        .blocking = cfg->blocking,
        .r_mc_bps = cfg->r_mc_bps,
        .tau_snd_min_ns = cfg->tau_snd_min_ns,
        .max_products = cfg->max_products,
        .max_peers = cfg->max_receivers,
        .peer_queue_bytes = cfg->peer_queue_bytes,
        .held = cfg->held,
        .r_uc_bps = cfg->r_uc_bps,
        .queued_bytes = cfg->sndbuf_bytes,
        .block_bytes = block_bytes(s),
        .overhead_bytes = (uint16_t)s->out.io.pace.overhead,
        .fec_k = cfg->layout == FMTP_LAYOUT_2021 && !cfg->unicast_repair ? FMTP_FEC_DEFAULT_K : 0,
        .no_parity = cfg->no_parity,
        .ctx = cfg->ctx,
        .multicasted = cfg->multicasted,
        .released = cfg->released,
        .expired = cfg->expired,
        .peers_ctx = s,
        .requested = cfg->requested ? on_requested : NULL,
        .repaired = cfg->repaired ? on_repaired : NULL,
        .queue_full = cfg->queue_full ? on_queue_full : NULL};

    if (getrandom(&core.session_id, sizeof core.session_id, 0) != sizeof core.session_id)
        return tp_fail(err, "random numbers: %s", strerror(errno));
    s->core = fmtp_sender_new(&core);
    return s->core ? 0 : tp_fail(err, "out of memory");
}

bool fmtp_server_suits(struct fmtp_server *s, bool ours)
{
    enum fmtp_mac_kind kind = fmtp_mac_kind(s->out.mac), wanted = FMTP_MAC_GMAC;
    uint64_t id;

    if (s->cfg.mac_level != FMTP_MAC_AUTO || s->cfg.layout == FMTP_LAYOUT_2017)
        return true;
    if (!ours && !s->cfg.has_key)
        wanted = FMTP_MAC_NONE;
    if (kind == wanted)
        return ours || kind == FMTP_MAC_NONE;
    /* No receiver is connected that would be affected. */
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s->core, &stats);
    if (!s->receivers && !stats.retained && getrandom(&id, sizeof id, 0) == sizeof id &&
        fmtp_multicast_out_set_kind(&s->out, wanted) == 0 &&
        !fmtp_sender_renew(s->core, id, block_bytes(s)))
        fmtp_multicast_out_set_kind(&s->out, kind);
    return fmtp_mac_kind(s->out.mac) == FMTP_MAC_NONE || ours;
}

static int open_listener(struct fmtp_server *s, struct tp_error *err)
{
    s->listener = tp_open_listener(&s->cfg.address, err);
    if (s->listener < 0)
        return -1;
    return tp_set_congestion_control(s->listener, s->cfg.congestion_control, err);
}

struct fmtp_server *fmtp_server_open(const struct fmtp_server_config *cfg, struct tp_error *err)
{
    if (check(cfg, err) < 0)
        return NULL;
    struct fmtp_server *s = calloc(1, sizeof *s);
    if (!s) {
        tp_fail(err, "out of memory");
        return NULL;
    }
    s->cfg = *cfg;
    set_defaults(&s->cfg);
    s->epfd = s->out.io.fd = s->listener = s->timer = -1;
    s->armed = TP_NEVER;
    fmtp_conns_init(s);
    s->by_peer = calloc(s->cfg.max_receivers, sizeof(struct conn *));
    s->epfd = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (!s->by_peer || s->epfd < 0 || s->timer < 0) {
        tp_fail(err, "cannot set up the sender: %s", strerror(errno));
        goto fail;
    }
    if (fmtp_multicast_out_open(&s->out, &s->cfg, err) < 0 || open_core(s, err) < 0 ||
        open_listener(s, err) < 0)
        goto fail;
    if (tp_watch(s->epfd, s->out.io.fd, EPOLL_CTL_ADD, 0, &s->out) < 0 ||
        tp_watch(s->epfd, s->listener, EPOLL_CTL_ADD, EPOLLIN, &s->listener) < 0 ||
        tp_watch(s->epfd, s->timer, EPOLL_CTL_ADD, EPOLLIN, &s->timer) < 0) {
        tp_fail(err, "epoll: %s", strerror(errno));
        goto fail;
    }
    return s;
fail:
    fmtp_server_close(s);
    return NULL;
}

void fmtp_server_close(struct fmtp_server *s)
{
    if (!s)
        return;
    fmtp_sender_free(s->core);
    fmtp_conns_close(s);
    free(s->by_peer);
    fmtp_multicast_out_close(&s->out);
    tp_close_fd(&s->listener);
    tp_close_fd(&s->timer);
    tp_close_fd(&s->epfd);
    free(s);
}

int fmtp_server_fd(const struct fmtp_server *s)
{
    return s->epfd;
}

uint16_t fmtp_server_tcp_port(const struct fmtp_server *s)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;

    if (getsockname(s->listener, (struct sockaddr *)&at, &len) < 0)
        return 0;
    return tp_address_port(&at);
}

size_t fmtp_server_receivers(const struct fmtp_server *s)
{
    return s->receivers;
}

bool fmtp_server_ready(const struct fmtp_server *s)
{
    return fmtp_sender_ready(s->core);
}

bool fmtp_server_withdraw(struct fmtp_server *s, uint32_t index)
{
    return fmtp_sender_withdraw(s->core, index);
}

void fmtp_server_finish(struct fmtp_server *s)
{
    fmtp_sender_finish_all(s->core);
    fmtp_conns_round(s, tp_now_ns());
}

void fmtp_server_get_stats(const struct fmtp_server *s, struct fmtp_server_stats *out)
{
    fmtp_sender_get_stats(s->core, out);
    out->receivers = s->receivers;
    out->extended = s->extended;
    out->handshakes = s->nhandshakes;
    out->refused = s->refused;
    out->laggards = s->laggards;
    out->displaced = s->displaced;
    out->strangers = s->strangers;
    out->send_errors = s->out.io.send_errors;
    out->too_long = s->out.io.too_long;
    out->pdu_bytes = s->out.pdu_bytes;
    out->sndbuf_granted_bytes = s->out.sndbuf_granted;
    out->bad_messages += s->bad_handshakes;
}

/* ------------------------------------------------------------------ the loop */

/* Wakes the caller when the next datagram can be sent: by EPOLLOUT, otherwise returns the time. */
static uint64_t watch_out(struct fmtp_server *s, uint64_t now_ns)
{
    bool waits = fmtp_sender_has_output(s->core, now_ns);
    uint64_t until = waits ? tp_batch_out_waits_until(&s->out.io, now_ns) : 0;
    if (waits && s->out.full_until_ns > until)
        until = s->out.full_until_ns;
    uint32_t events = waits && !until ? EPOLLOUT : 0;

    if (events != s->udp_events &&
        tp_watch(s->epfd, s->out.io.fd, EPOLL_CTL_MOD, events, &s->out) == 0)
        s->udp_events = events;
    return until ? until : TP_NEVER;
}

int fmtp_server_offer(struct fmtp_server *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, uint32_t *index,
                      struct tp_error *err)
{
    struct timespec start;
    clock_gettime(CLOCK_REALTIME, &start);
    fmtp_conns_bound(s, tp_now_ns());
    if (fmtp_sender_offer(s->core,
                          &(struct fmtp_offer){.parts = parts,
                                               .nparts = nparts,
                                               .meta = meta,
                                               .meta_len = meta_len,
                                               .cookie = cookie,
                                               .start = start},
                          index, err) < 0)
        return -1;
    uint64_t now_ns = tp_now_ns();
    tp_pace_begin(&s->out.io.pace, now_ns);
    uint64_t until = watch_out(s, now_ns);
    if (until < s->armed)
        tp_arm(s->timer, until, &s->armed);
    return 0;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns true if a stream accepts more: its turn was over, which causes no event. */
static bool housekeeping(struct fmtp_server *s, uint64_t now_ns)
{
    if (now_ns >= s->bound_ns) {
        fmtp_conns_bound(s, now_ns);
        s->bound_ns = now_ns + BOUND_NS;
    }
    uint64_t next = fmtp_conns_round(s, now_ns);

    if (s->accept_again_ns && now_ns >= s->accept_again_ns) {
        s->accept_again_ns = 0;
        tp_watch(s->epfd, s->listener, EPOLL_CTL_MOD, EPOLLIN, &s->listener);
    }
    if (s->accept_again_ns)
        next = min64(next, s->accept_again_ns);
    next = min64(next, watch_out(s, now_ns));
    bool more = fmtp_sender_streams_ready(s->core);
    if (!more)
        tp_arm(s->timer, min64(next, fmtp_sender_deadline(s->core)), &s->armed);
    return more;
}

int fmtp_server_service(struct fmtp_server *s, struct tp_error *err)
{
    struct epoll_event events[EVENTS];

    bool more = false;
    for (int round = 0; round < ROUNDS; round++) {
        int n = epoll_wait(s->epfd, events, EVENTS, 0);
        uint64_t now_ns = tp_now_ns();

        if (n < 0 && errno != EINTR)
            return tp_fail(err, "epoll: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            void *ptr = events[i].data.ptr;
            if (ptr == &s->out) {
                s->out.io.full = false;
            } else if (ptr == &s->listener) {
                fmtp_conns_accept(s, now_ns);
            } else if (ptr == &s->timer) {
                uint64_t times;
                if (read(s->timer, &times, sizeof times) > 0)
                    s->armed = TP_NEVER;
            } else {
                fmtp_conn_events(s, ptr, events[i].events, now_ns);
            }
        }
        fmtp_sender_timeout(s->core, now_ns);
        unsigned sent = fmtp_multicast_out_send(&s->out, s->core, s->receivers, now_ns);
        more = housekeeping(s, now_ns);
        if (n <= 0 && !sent && !more)
            break;
    }
    if (more)
        tp_arm(s->timer, 0, &s->armed); /* wakes the caller at once */
    return 0;
}

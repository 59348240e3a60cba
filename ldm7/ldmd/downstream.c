/* SPDX-License-Identifier: Apache-2.0 */
#include "downstream.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"

#define CONNECT_S 30

int downstream_open(struct downstream *d, const struct options *opt,
                    const struct downstream_role *role, void *ctx, const char *host, uint16_t port)
{
    *d = (struct downstream){.opt = opt,
                             .role = *role,
                             .ctx = ctx,
                             .host = host,
                             .port = port,
                             .fd = -1,
                             .src = {.fd = -1}};
    d->role.sink.ctx = ctx;
    log_set_prog(role->prog);
    if (loop_open(&d->loop) < 0) {
        log_error("cannot start: errno %d", errno);
        return -1;
    }
    enum pq_status st = pq_open(opt->queue, true, &d->queue);
    if (st == PQ_OK)
        return 0;
    log_error("cannot open product queue %s: %s", opt->queue, pq_strerror(st));
    loop_close(&d->loop);
    return -1;
}

void downstream_close(struct downstream *d)
{
    pq_close(d->queue);
    loop_close(&d->loop);
}

void downstream_fails(struct downstream *d, bool denied)
{
    d->failed = true;
    d->denied = d->denied || denied;
}

void downstream_asked(struct downstream *d, uint32_t xid)
{
    d->xid = xid;
    d->state = DS_ASKING;
    d->since_ns = now_ns();
}

void downstream_feeding(struct downstream *d)
{
    d->state = DS_FEEDING;
    d->since_ns = now_ns();
}

bool downstream_refused(struct downstream *d, const struct rpc_msg *m)
{
    if (!m->denied && m->stat == RPC_SUCCESS)
        return false;
    log_error("%s:%u refused the request: %s, status %u", d->host, d->port,
              m->denied ? "authentication" : "RPC error", m->denied ? m->auth_stat : m->stat);
    downstream_fails(d, true);
    return true;
}

static void on_connected(struct downstream *d)
{
    int rc = dial_result(d->fd);

    if (rc != 0) {
        log_info("cannot connect to %s:%u: %s", d->host, d->port, strerror(rc));
        downstream_fails(d, false);
        return;
    }
    peer_init(&d->peer, d->fd, &d->role.sink, now_ns());
    d->fd = -1;
    downstream_asked(d, 0);
    d->role.ask(d->ctx);
}

static void on_socket(void *ctx, uint32_t events)
{
    struct downstream *d = ctx;
    char why[128] = "";

    if (d->state == DS_CONNECTING) {
        on_connected(d);
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    int rc = peer_read(&d->peer, d->loop.now_ns, why, sizeof why);
    if (rc == 0)
        return;
    log_note("connection to %s:%u ended: %s", d->host, d->port, why);
    downstream_fails(d, rc < 0 && errno == EPROTO);
}

static void connect_now(struct downstream *d, uint64_t now)
{
    char why[256] = "cannot watch the socket";

    d->failed = d->denied = false;
    d->fd = dial(d->host, d->port, why, sizeof why);
    if (d->fd < 0 || loop_add(&d->loop, &d->src, d->fd, EPOLLOUT, on_socket, d) < 0) {
        log_warn("%s", why);
        downstream_fails(d, false);
    }
    d->state = DS_CONNECTING;
    d->since_ns = now;
}

static void end_session(struct downstream *d, uint64_t now)
{
    d->failed = true;
    if (d->state > DS_CONNECTING && d->role.ended)
        d->role.ended(d->ctx);
    loop_del(&d->loop, &d->src);
    if (d->state == DS_CONNECTING && d->fd >= 0)
        close(d->fd);
    else if (d->state > DS_CONNECTING)
        peer_close(&d->peer);
    d->fd = -1;
    d->state = DS_IDLE;
    d->next_try_ns = retry_at(&d->retry, now, d->denied);
    d->failed = d->denied = false;
}

/* Tends the feed, or ends what takes too long. Returns when to look again. */
static uint64_t deadline(struct downstream *d, uint64_t now)
{
    uint64_t due = LOOP_FOREVER;

    switch (d->state) {
    case DS_IDLE: return d->next_try_ns;
    case DS_CONNECTING: due = d->since_ns + CONNECT_S * NS_PER_S; break;
    case DS_ASKING: due = d->since_ns + d->role.reply_s * NS_PER_S; break;
    case DS_FEEDING: return d->failed ? now : d->role.tend(d->ctx, now);
    }
    if (now >= due && !d->failed) {
        log_note("%s:%u does not answer", d->host, d->port);
        downstream_fails(d, false);
    }
    return due;
}

static void turn(struct downstream *d)
{
    uint64_t now = d->loop.now_ns, due = deadline(d, now);
    bool ended = false;

    if (d->state > DS_CONNECTING && !d->failed && peer_write(&d->peer, now) < 0) {
        log_note("connection to %s:%u lost: %s", d->host, d->port, strerror(errno));
        downstream_fails(d, false);
    }
    if (d->failed) {
        end_session(d, now);
        ended = true;
    }
    if (d->state == DS_IDLE && now >= d->next_try_ns) {
        connect_now(d, now);
        due = d->failed ? now : deadline(d, now);
    }
    if (d->state == DS_IDLE)
        due = d->next_try_ns;
    if (d->state > DS_CONNECTING)
        loop_events(&d->loop, &d->src,
                    (uint32_t)EPOLLIN | (peer_has_output(&d->peer) ? (uint32_t)EPOLLOUT : 0u));
    loop_once(&d->loop, ended ? now : due); /* the role's step may depend on it */
}

void downstream_run(struct downstream *d, void (*step)(void *ctx))
{
    retry_start(&d->retry, now_ns());
    while (!d->loop.stop) {
        turn(d);
        if (step)
            step(d->ctx);
    }
    if (d->state != DS_IDLE)
        end_session(d, now_ns());
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "common/tool.h"
#include "process.h"

uint64_t client_deadline(double seconds)
{
    return now_ns() + (uint64_t)(seconds * 1e9);
}

int client_init(struct client *c)
{
    *c = (struct client){.fd = -1, .src = {.fd = -1}};
    if (loop_open(&c->loop) == 0)
        return 0;
    log_error("cannot start: %s", strerror(errno));
    return -1;
}

void client_end(struct client *c)
{
    client_disconnect(c);
    loop_close(&c->loop);
}

void client_disconnect(struct client *c)
{
    loop_del(&c->loop, &c->src);
    if (c->open)
        peer_close(&c->peer);
    else if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->open = c->waits = false;
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct client *c = ctx;

    return c->sink.call && c->sink.call(c->sink.ctx, m, args);
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct client *c = ctx;

    if (!c->waits || m->xid != c->xid)
        return false;
    c->waits = false;
    if (m->denied)
        snprintf(c->why, sizeof c->why, "not authorized by the server (auth_stat %u)",
                 m->auth_stat);
    else if (m->stat == RPC_PROG_MISMATCH)
        snprintf(c->why, sizeof c->why, "the server offers versions %u to %u", m->low, m->high);
    else if (m->stat != RPC_SUCCESS)
        snprintf(c->why, sizeof c->why, "RPC error, accept_stat %u", m->stat);
    else if (!c->take || c->take(body, c->arg))
        return true;
    return false;
}

static void on_socket(void *ctx, uint32_t events)
{
    struct client *c = ctx;
    char why[128] = "";

    if (!c->open || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    if (peer_read(&c->peer, c->loop.now_ns, why, sizeof why) == 0)
        return;
    if (c->why[0] == '\0')
        snprintf(c->why, sizeof c->why, "%s", why);
    client_disconnect(c);
}

static bool failed(struct client *c, enum client_state state, const char *what)
{
    c->state = state;
    if (what)
        snprintf(c->why, sizeof c->why, "%s", what);
    client_disconnect(c);
    return false;
}

bool client_connect(struct client *c, const char *host, uint16_t port, double timeout_s,
                    const struct rpc_sink *sink)
{
    struct rpc_sink own = {.ctx = c, .call = on_call, .reply = on_reply};
    uint64_t due = client_deadline(timeout_s);

    c->sink = !sink ? (struct rpc_sink){0} : *sink;
    c->why[0] = '\0';
    c->fd = dial(host, port, c->why, sizeof c->why);
    if (c->fd < 0)
        return failed(c, strstr(c->why, "resolve") ? CLIENT_NAMED : CLIENT_UNAVAILABLE, NULL);
    if (loop_add(&c->loop, &c->src, c->fd, EPOLLOUT, on_socket, c) < 0)
        return failed(c, CLIENT_UNAVAILABLE, strerror(errno));
    loop_once(&c->loop, c->loop.now_ns);
    while (now_ns() < due && !c->loop.stop) {
        struct sockaddr_in a;
        socklen_t n = sizeof a;

        int rc = dial_result(c->fd);
        if (rc != 0)
            return failed(c, rc == ETIMEDOUT ? CLIENT_ADDRESSED : CLIENT_UNAVAILABLE, strerror(rc));
        if (getpeername(c->fd, (struct sockaddr *)&a, &n) == 0) {
            peer_init(&c->peer, c->fd, &own, now_ns());
            c->fd = -1;
            c->open = true;
            c->state = CLIENT_CONNECTED;
            return true;
        }
        loop_once(&c->loop, due);
    }
    return failed(c, CLIENT_ADDRESSED, c->loop.stop ? "interrupted" : "no connection in time");
}

static bool write_now(struct client *c)
{
    return c->open &&
           (peer_write(&c->peer, c->loop.now_ns) == 0 || failed(c, c->state, strerror(errno)));
}

bool client_turn(struct client *c, uint64_t deadline_ns)
{
    if (!write_now(c))
        return false;
    loop_events(&c->loop, &c->src,
                (uint32_t)EPOLLIN | (peer_has_output(&c->peer) ? (uint32_t)EPOLLOUT : 0u));
    loop_once(&c->loop, deadline_ns);
    return c->open;
}

bool client_answer(struct client *c, uint32_t xid, double timeout_s,
                   bool (*take)(struct xin *body, void *arg), void *arg)
{
    uint64_t due = client_deadline(timeout_s), moved = c->peer.bytes_out;

    c->waits = true;
    c->xid = xid;
    c->take = take;
    c->arg = arg;
    while (c->waits && client_turn(c, due)) {
        if (c->peer.bytes_out != moved)
            due = client_deadline(timeout_s);
        moved = c->peer.bytes_out;
        if (c->loop.stop)
            return failed(c, c->state, "interrupted");
        if (c->waits && now_ns() >= due)
            return failed(c, c->state, "no answer in time");
    }
    if (c->open)
        c->state = CLIENT_RESPONDING;
    return c->open;
}

bool client_flush(struct client *c, double timeout_s)
{
    uint64_t due = client_deadline(timeout_s), moved = c->peer.bytes_out;

    while (write_now(c) && peer_has_output(&c->peer)) {
        if (!client_turn(c, due))
            return false;
        if (c->peer.bytes_out != moved)
            due = client_deadline(timeout_s);
        moved = c->peer.bytes_out;
        if (c->loop.stop || now_ns() >= due)
            return failed(c, c->state, c->loop.stop ? "interrupted" : "nothing can be sent");
    }
    return c->open;
}

static bool nothing(struct xin *body, void *arg)
{
    (void)arg;
    return xin_done(body);
}

bool client_null(struct client *c, double timeout_s)
{
    return client_answer(c, peer_call(&c->peer, LDM_VERS6, LDM6_NULL, NULL, NULL), timeout_s,
                         nothing, NULL);
}

uint16_t client_port(char *host, uint16_t default_port)
{
    char *colon = strrchr(host, ':');

    if (!colon)
        return default_port;
    *colon = '\0';
    return (uint16_t)tool_u64("host:PORT", colon + 1, 1, 65535);
}

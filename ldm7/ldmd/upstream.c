/* SPDX-License-Identifier: Apache-2.0 */
#include "upstream.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "common/alloc.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "names.h"

#define FIRST_CALL_S 120    /* LDM-6.15.0 */
#define STRANGER_CALL_S 10u /* for a peer that no entry names by its address */
#define LOOK_NS (NS_PER_S / 10)

bool upstream_open_queue(struct upstream *u)
{
    if (u->queue)
        return true;
    enum pq_status st = pq_open(u->env->opt->queue, false, &u->queue);
    if (st == PQ_OK)
        return true;
    log_error("cannot open product queue %s: %s", u->env->opt->queue, pq_strerror(st));
    u->queue = NULL;
    return false;
}

const char *upstream_name(struct upstream *u)
{
    if (u->looked_up)
        return u->names[u->nnames - 1];
    u->looked_up = true;
    switch (names_look_up(&names_of_system, u->peer.addr, u->host_name, sizeof u->host_name)) {
    case NAMES_CONFIRMED: u->names[u->nnames++] = u->host_name; break;
    case NAMES_INVALID:
        log_peer_warn(u->peer.host, "%s: its reverse name \"%s\" is not a host name: not used",
                      u->peer.host, u->host_name);
        break;
    case NAMES_FOREIGN:
        log_peer_warn(u->peer.host, "%s: its reverse name %s does not have this address: not used",
                      u->peer.host, u->host_name);
        break;
    default: break;
    }
    return u->names[u->nnames - 1];
}

void upstream_let_in(struct upstream *u)
{
    const struct visitor *v = &u->env->visitor;

    if (v->table)
        visitors_let_in(v->table, v->place, !v->known, u->peer.addr, now_ns() / NS_PER_S);
}

uint32_t upstream_allowed(struct upstream *u, uint32_t want)
{
    const struct conf *c = u->env->opt->conf;
    uint32_t got = conf_allowed(c, want, u->names, u->nnames);

    if (got != want && !u->looked_up) {
        upstream_name(u);
        got = conf_allowed(c, want, u->names, u->nnames);
    }
    if (got != 0)
        upstream_let_in(u);
    return got;
}

static bool first_call(struct upstream *u, const struct rpc_msg *m, struct xin *args)
{
    if (m->vers == LDM_VERS7 && m->proc == LDM7_SUBSCRIBE)
        return up7_subscribe(u, m, args);
    if (m->vers == LDM_VERS6 && m->proc == LDM6_FEEDME)
        return up6_feedme(u, m, args, false);
    if (m->vers == LDM_VERS6 && m->proc == LDM6_NOTIFYME)
        return up6_feedme(u, m, args, true);
    if (m->vers == LDM_VERS6 && m->proc == LDM6_HIYA)
        return ingest6_call(u, m, args);
    if (m->vers == LDM_VERS6 && m->proc == LDM6_IS_ALIVE) {
        uint32_t id = xin_u32(args);

        if (!xin_done(args))
            return false;
        peer_reply_u32(&u->peer, m->xid, u->env->is_alive(id));
        u->closing = true;
        return true;
    }
    log_peer_note(u->peer.host, "%s called procedure %u of version %u, which is not offered",
                  u->peer.host, m->proc, m->vers);
    peer_reply_error(&u->peer, m->xid, RPC_PROC_UNAVAIL);
    return true;
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct upstream *u = ctx;

    if (u->closing)
        return true;
    if (u->peer.out_messages >= PEER_OUT_MESSAGES + UP7_READ_CHUNK_REQUESTS)
        return false; /* it sends calls without reading the replies */
    if (m->prog != LDM_PROGRAM) {
        peer_reply_error(&u->peer, m->xid, RPC_PROG_UNAVAIL);
        return true;
    }
    if (m->proc == LDM6_NULL && u->role != UP_LDM7 && m->vers >= LDM_VERS5 &&
        m->vers <= LDM_VERS7) {
        peer_reply(&u->peer, m->xid, NULL, NULL); /* the original ldmping uses version 5 */
        return true;
    }
    if (m->vers != LDM_VERS6 && m->vers != LDM_VERS7) {
        peer_reply_error(&u->peer, m->xid, RPC_PROG_MISMATCH);
        return true;
    }
    if (u->role == UP_WAITING)
        return first_call(u, m, args);
    if (u->role == UP_HIYA && m->vers == LDM_VERS6)
        return m->proc == LDM6_HIYA ? ingest6_call(u, m, args)
                                    : m->proc == LDM6_COMINGSOON && ingest6_coming(u, m, args);
    if (u->role == UP_LDM7 && m->vers == LDM_VERS7)
        return up7_call(u, m, args);
    return false;
}

static bool product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                          const struct pq_info *info, uint8_t **region)
{
    struct upstream *u = ctx;

    (void)index;
    if (u->role != UP_HIYA || m->vers != LDM_VERS6)
        return false;
    intake_begin(&u->in, info, region);
    return true;
}

static bool block_begin(void *ctx, const struct ldm_block *b, uint8_t **region)
{
    struct upstream *u = ctx;

    return u->role == UP_HIYA && intake_block(&u->in, b, region);
}

static bool product_end(void *ctx)
{
    struct upstream *u = ctx;

    intake_end(&u->in);
    return true;
}

static void product_abort(void *ctx)
{
    struct upstream *u = ctx;

    intake_abort(&u->in);
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct upstream *u = ctx;

    return u->role == UP_LDM6 && up6_reply(u, m, body);
}

static void on_peer(void *ctx, uint32_t events)
{
    struct upstream *u = ctx;
    char why[128] = "";

    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    int rc = peer_read(&u->peer, u->loop.now_ns, why, sizeof why);
    if (rc == 0)
        return;
    u->finished = true;
    if (rc > 0)
        log_peer_note(u->peer.host, "%s: connection %s", u->peer.host, why);
    else
        log_peer_warn(u->peer.host, "%s: connection dropped: %s", u->peer.host, why);
}

static bool pump(struct upstream *u, uint64_t now)
{
    if (u->closing || u->role == UP_WAITING || u->role == UP_HIYA)
        return false;
    return u->role == UP_LDM6 ? up6_pump(u, now) : up7_pump(u, now);
}

static uint64_t deadline(const struct upstream *u)
{
    switch (u->role) {
    case UP_LDM6: return up6_deadline(u);
    case UP_HIYA: return ingest6_deadline(u);
    case UP_LDM7: return up7_deadline(u);
    default:
        return u->born_ns + (u->env->visitor.known ? FIRST_CALL_S : STRANGER_CALL_S) * NS_PER_S;
    }
}

/* Returns whether a process waits for room in the queue that this peer keeps by not reading or not
 * sending. */
static bool must_let_go(struct upstream *u)
{
    uint64_t up_to;

    if (u->role == UP_HIYA && intake_must_go(&u->in, u->peer.last_in_ns, u->loop.now_ns))
        return true;
    if (!u->queue || !pq_room_asked(u->queue, &up_to))
        return false;
    bool announced = u->role == UP_LDM6 && u->coming.waits && u->coming.view.seq <= up_to;
    if (!announced && !peer_keeps(&u->peer, up_to))
        return false;
    log_peer_warn(
        u->peer.host,
        "%s: does not read while the product queue is full; disconnected; it may connect again",
        u->peer.host);
    return true;
}

/* Returns when to check at the latest whether room is requested: while the peer keeps some. */
static uint64_t look_by(const struct upstream *u, uint64_t due)
{
    uint64_t look = u->loop.now_ns + LOOK_NS;

    bool keeps = u->in.reservation || (u->queue && peer_has_output(&u->peer));
    return keeps && look < due ? look : due;
}

static void serve(struct upstream *u)
{
    while (!u->finished && !u->loop.stop) {
        uint64_t now = u->loop.now_ns;
        bool more = pump(u, now);

        if (peer_write(&u->peer, now) < 0) {
            log_peer_note(u->peer.host, "%s: connection lost: errno %d", u->peer.host, errno);
            return;
        }
        if (u->finished || (u->closing && !peer_has_output(&u->peer)))
            return;
        if ((u->role == UP_WAITING || u->role == UP_HIYA) && now >= deadline(u)) {
            log_peer_note(u->peer.host, "%s: silent for too long", u->peer.host);
            return;
        }
        if (must_let_go(u))
            return;
        bool may_read = u->role != UP_LDM7 || up7_may_read(u);
        loop_events(&u->loop, &u->peer_src,
                    (may_read ? (uint32_t)EPOLLIN : 0u) |
                        (peer_has_output(&u->peer) ? (uint32_t)EPOLLOUT : 0u));
        loop_once(&u->loop, more && peer_has_room(&u->peer) ? now : look_by(u, deadline(u)));
    }
}

int upstream_run(const struct upstream_env *env, int fd)
{
    struct upstream *u = xcalloc(1, sizeof *u);
    struct rpc_sink sink = {.call = on_call,
                            .reply = on_reply,
                            .product_begin = product_begin,
                            .product_end = product_end,
                            .product_abort = product_abort,
                            .block_begin = block_begin};

    if (loop_open(&u->loop) < 0)
        return 1;
    sink.ctx = u;
    u->env = env;
    u->born_ns = now_ns();
    u->queue_src.fd = u->channel_src.fd = u->peer_src.fd = -1;
    peer_init(&u->peer, fd, &sink, u->born_ns);
    u->peer.reads_per_call = 1;
    u->names[0] = u->peer.host;
    u->nnames = 1;
    log_info("Connection from %s", u->peer.host);
    if (loop_add(&u->loop, &u->peer_src, fd, EPOLLIN, on_peer, u) == 0)
        serve(u);
    if (u->role == UP_LDM6)
        up6_end(u);
    if (u->role == UP_HIYA)
        ingest6_end(u);
    if (u->role == UP_LDM7)
        up7_end(u);
    loop_del(&u->loop, &u->peer_src);
    peer_close(&u->peer);
    loop_del(&u->loop, &u->queue_src);
    if (u->queue)
        pq_close(u->queue);
    loop_close(&u->loop);
    free(u);
    return 0;
}

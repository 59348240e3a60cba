/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM6 upstream: one process and one TCP connection per subscriber (reference 3.4). Primary mode
 * only: an alternate request (max_hereis small) is fed by HEREIS as well.
 */
#include "upstream.h"

#include "log.h"
#include "product_line.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#define TURN_AROUND_S 1                /* reference 3.4 (4): the original's client still reads */
#define IDLE_S 30
#define REPLY_S 60

static void on_queue(void *ctx, uint32_t events)
{
    struct upstream *u = ctx;

    (void)events;
    pq_notify_clear(u->queue);
    u->at_end = false;
}

struct fornme { uint32_t code, id; const struct ldm_class *cls; };

static void put_fornme(struct xout *x, const void *arg)
{
    const struct fornme *r = arg;

    xout_u32(x, r->code);
    if (r->code == LDM6_OK)
        xout_u32(x, r->id);
    else if (r->code == LDM6_RECLASS)
        xout_class(x, r->cls);
}

/* Takes away what ALLOW does not grant. True if that changed anything. */
static bool reduce(struct upstream *u, struct ldm_class *c)
{
    bool changed = false;
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t got = upstream_allowed(u, c->specs[i].feedtype);

        changed = changed || got != c->specs[i].feedtype || got == 0;
        if (got == 0)
            continue;
        c->specs[n] = c->specs[i];
        c->specs[n++].feedtype = got;
    }
    c->n = n;
    return changed || n == 0;
}

static void set_cursor(struct upstream *u, bool has_sig, const struct pq_signature *sig)
{
    struct pq_view v;

    u->cursor = 0;
    if (!has_sig || pq_find(u->queue, sig, &v) != PQ_OK)
        return;
    u->cursor = v.seq;
    u->match.ignore_from = true;       /* it continues exactly where it stopped */
    pq_release(u->queue, &v);
}

bool up6_feedme(struct upstream *u, const struct rpc_msg *m, struct xin *args, bool notify)
{
    struct ldm_class c;
    struct pq_signature sig;
    struct fornme answer = {.code = LDM6_OK, .id = (uint32_t)getpid(), .cls = &c};
    uint32_t max_hereis = LDM_PRIMARY_HEREIS;
    char text[1024], hex[33] = "NONE", why[512];
    bool has_sig;

    xin_class(args, &c);
    if (!notify)
        max_hereis = xin_u32(args);
    if (!xin_done(args)) {
        peer_reply_error(&u->peer, m->xid, RPC_GARBAGE_ARGS);
        u->closing = true;
        return true;
    }
    has_sig = class_take_signature(&c, &sig);
    if (reduce(u, &c)) {
        log_note("%s: class reduced to what ALLOW grants: %s", u->peer.host,
                 class_format(&c, text, sizeof text));
        answer.code = LDM6_RECLASS;
        if (c.n == 0) {
            c.from = c.to = LDM_TIME_ZERO;
            u->closing = true;
        }
        peer_reply(&u->peer, m->xid, put_fornme, &answer);
        return true;
    }
    if (matcher_init(&u->match, &c, why, sizeof why) < 0) {
        log_note("%s: bad pattern: %s", u->peer.host, why);
        answer.code = LDM6_BADPATTERN;
        peer_reply(&u->peer, m->xid, put_fornme, &answer);
        return true;
    }
    if (!upstream_open_queue(u) ||
        loop_add(&u->loop, &u->queue_src, pq_notify_fd(u->queue), EPOLLIN, on_queue, u) < 0) {
        peer_reply_error(&u->peer, m->xid, RPC_SYSTEM_ERR);
        u->closing = true;
        return true;
    }
    u->role = UP_LDM6;
    u->notify = notify;
    u->unflushed = true;               /* at the queue's end NULLPROC tells so, from the start */
    u->start_ns = now_ns() + TURN_AROUND_S * NS_PER_S;
    set_cursor(u, has_sig, &sig);
    log_set_prog("up6");
    log_note("Starting Up(6): %s %s, SIG=%s, %s", u->peer.host, class_format(&c, text, sizeof text),
             has_sig ? signature_format(&sig, hex) : hex,
             notify ? "Notifier" : max_hereis > UINT32_MAX / 2 ? "Primary" : "Primary (asked: Alternate)");
    peer_reply(&u->peer, m->xid, put_fornme, &answer);
    return true;
}

bool up6_reply(struct upstream *u, const struct rpc_msg *m)
{
    if (!u->null_outstanding || m->xid != u->null_xid || m->denied || m->stat != RPC_SUCCESS)
        return false;
    u->null_outstanding = false;
    return true;
}

static void put_info(struct xout *x, const void *arg)
{
    xout_info(x, arg);
}

static void send_product(struct upstream *u, struct pq_view *v)
{
    char line[PRODUCT_LINE_MAX];

    if (!matcher_wants(&u->match, &v->info) ||
        !conf_allows_product(u->env->opt->conf, &v->info, u->names, u->nnames)) {
        pq_release(u->queue, v);
        return;
    }
    u->unflushed = true;
    if (u->notify) {
        log_info("notifying: %s", product_line_format(&v->info, line, sizeof line));
        peer_call(&u->peer, LDM_VERS6, LDM6_NOTIFICATION, put_info, &v->info);
        pq_release(u->queue, v);
        return;
    }
    if (log_enabled(LOG_LVL_INFO))
        log_info("sending: %s", product_line_format(&v->info, line, sizeof line));
    peer_send_product(&u->peer, LDM_VERS6, LDM6_HEREIS, false, 0, u->queue, v);
}

static void send_null(struct upstream *u, uint64_t now)
{
    u->null_xid = peer_call(&u->peer, LDM_VERS6, LDM6_NULL, NULL, NULL);
    u->null_ns = now;
    u->null_outstanding = true;
    u->unflushed = false;
}

/* Counted from when the question had left: a large product may be written before it. */
static uint64_t answer_due(const struct upstream *u)
{
    uint64_t out = u->peer.last_out_ns;

    return (out > u->null_ns ? out : u->null_ns) + REPLY_S * NS_PER_S;
}

bool up6_pump(struct upstream *u, uint64_t now)
{
    struct pq_view v;

    if (now < u->start_ns)
        return false;
    if (u->null_outstanding && !peer_has_output(&u->peer) && now >= answer_due(u)) {
        log_warn("%s: no answer within %d s", u->peer.host, REPLY_S);
        u->finished = true;
        return false;
    }
    for (int i = 0; i < PUMP_STEPS && !u->at_end && peer_has_room(&u->peer); i++) {
        enum pq_status st = pq_next(u->queue, u->cursor, &v);

        if (st == PQ_END) {
            u->at_end = true;
        } else if (st != PQ_OK) {
            log_error("product queue: %s", pq_strerror(st));
            u->finished = true;
        } else {
            u->cursor = v.seq;
            send_product(u, &v);
        }
        if (u->finished)
            return false;
    }
    if (!u->null_outstanding && u->at_end &&
        (u->unflushed || now >= u->peer.last_out_ns + IDLE_S * NS_PER_S))
        send_null(u, now);
    return !u->at_end;
}

uint64_t up6_deadline(const struct upstream *u)
{
    uint64_t idle = u->peer.last_out_ns + IDLE_S * NS_PER_S;

    if (u->start_ns > u->loop.now_ns)
        return u->start_ns;
    if (!u->at_end || peer_has_output(&u->peer))
        return LOOP_FOREVER;           /* the socket is full: it says when */
    return u->null_outstanding ? answer_due(u) : idle;
}

void up6_end(struct upstream *u)
{
    matcher_free(&u->match);
}

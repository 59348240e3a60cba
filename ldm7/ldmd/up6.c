/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM6 upstream: one process and one TCP connection per subscriber (LDM-6.15.0 up6). Primary:
 * HEREIS product after product. Alternate: each product is announced (COMINGSOON) and then sent
 * (BLKDATA) if the subscriber does not have it; one announcement at a time, as the original
 * expects.
 */
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "common/log_peer.h"
#include "common/product_line.h"
#include "plural.h"
#include "upstream.h"

#define TURN_AROUND_S 1 /* LDM-6.15.0: the original's client is still reading */
#define IDLE_S 30
#define REPLY_S 60
#define CLOCKS_APART_S 60

static void on_queue(void *ctx, uint32_t events)
{
    struct upstream *u = ctx;

    (void)events;
    pq_notify_clear(u->queue);
    u->at_end = false;
}

static void put_reply(struct xout *x, const void *arg)
{
    xout_ldm6_reply(x, false, arg);
}

/* Removes what ALLOW does not grant. Returns whether that changed anything. */
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

/* Sets the cursor after the product with that signature, or at what was inserted from cls->from on,
 * minus a margin, because the time of creation, which decides, is from another clock. */
static void set_cursor(struct upstream *u, bool has_sig, const struct pq_signature *sig,
                       const struct ldm_class *cls)
{
    struct timeval from = {(time_t)cls->from.sec - CLOCKS_APART_S, cls->from.usec};

    u->cursor = 0;
    struct pq_view v;
    if (!has_sig || pq_find(u->queue, sig, &v) != PQ_OK) {
        if (cls->from.sec > CLOCKS_APART_S)
            pq_seek(u->queue, &from, &u->cursor);
        return;
    }
    u->cursor = v.seq;
    u->match.ignore_from = true; /* it continues exactly where it stopped */
    pq_release(u->queue, &v);
}

/* Returns whether everything requested is granted. If not, answers with what is granted. */
static bool granted(struct upstream *u, const struct rpc_msg *m, struct ldm6_reply *r, bool notify)
{
    const char *why = "what ALLOW grants";
    unsigned ended = 0;
    bool changed = reduce(u, &r->cls);

    if (!changed && !notify && u->env->opt->conf->set.anti_dos && u->env->feeds) {
        changed = !feeds_enter(u->env->feeds, u->peer.addr, &r->cls, &ended);
        why = "what this address is not being sent already";
    }
    if (ended > 0)
        log_peer_served(u->peer.host, "%s: %u older feed%s of the same address ended", u->peer.host,
                        ended, plural(ended, "", "s"));
    if (!changed)
        return true;
    char text[1024];
    log_peer_note(u->peer.host, "%s: class reduced to %s: %s", u->peer.host, why,
                  class_format(&r->cls, text, sizeof text));
    r->code = LDM6_RECLASS;
    if (r->cls.n == 0) {
        r->cls.from = r->cls.to = LDM_TIME_ZERO;
        u->closing = true;
    }
    peer_reply(&u->peer, m->xid, put_reply, r);
    return false;
}

/* The peer's clock determines where its first request begins. */
static void warn_clock(const struct upstream *u, const struct ldm_class *cls)
{
    double ahead_s = (double)cls->from.sec - (double)wall_time(0).sec;

    if (ahead_s > CLOCKS_APART_S && cls->from.sec < LDM_TIME_END.sec)
        log_peer_warn(u->peer.host,
                      "%s requests products of the future, by %.0f s: is its clock wrong, or that "
                      "of this host?",
                      u->peer.host, ahead_s);
}

bool up6_feedme(struct upstream *u, const struct rpc_msg *m, struct xin *args, bool notify)
{
    struct ldm6_reply r = {.code = LDM6_OK, .value = (uint32_t)getpid()};
    uint32_t max_hereis = LDM_PRIMARY_HEREIS;
    char hex[33] = "NONE";

    xin_class(args, &r.cls);
    if (!notify)
        max_hereis = xin_u32(args);
    if (!xin_done(args)) {
        peer_reply_error(&u->peer, m->xid, RPC_GARBAGE_ARGS);
        u->closing = true;
        return true;
    }
    struct pq_signature sig;
    bool has_sig = class_take_signature(&r.cls, &sig);
    char why[512];
    if (matcher_init(&u->match, &r.cls, why, sizeof why) < 0) {
        log_peer_note(u->peer.host, "%s: bad pattern: %s", u->peer.host, why);
        r.code = LDM6_BADPATTERN;
        peer_reply(&u->peer, m->xid, put_reply, &r);
        return true;
    }
    if (!granted(u, m, &r, notify)) {
        matcher_free(&u->match);
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
    u->alternate = max_hereis <= UINT32_MAX / 2;
    u->unflushed = true; /* NULLPROC says so at the queue's end, from the start */
    u->start_ns = now_ns() + TURN_AROUND_S * NS_PER_S;
    set_cursor(u, has_sig, &sig, &r.cls);
    warn_clock(u, &r.cls);
    log_set_prog("up6");
    char text[1024];
    log_peer_served(u->peer.host, "Starting Up(6): %s %s, SIG=%s, %s", u->peer.host,
                    class_format(&r.cls, text, sizeof text),
                    has_sig ? signature_format(&sig, hex) : hex,
                    notify         ? "Notifier"
                    : u->alternate ? "Alternate"
                                   : "Primary");
    peer_reply(&u->peer, m->xid, put_reply, &r);
    return true;
}

static void answered_coming(struct upstream *u, uint32_t code)
{
    u->coming.waits = false;
    if (code == LDM6_OK)
        peer_send_product(&u->peer, LDM_VERS6, LDM6_BLKDATA, false, 0, u->queue, &u->coming.view);
    else
        pq_release(u->queue, &u->coming.view);
}

/* Ignores answers that no call waits for: the original notifyme answers every NOTIFICATION, and
 * NULLPROC, with PROC_UNAVAIL. */
bool up6_reply(struct upstream *u, const struct rpc_msg *m, struct xin *body)
{
    if (u->null_outstanding && m->xid == u->null_xid)
        u->null_outstanding = false;
    if (!u->coming.waits || m->xid != u->coming.xid)
        return true;
    if (m->denied || m->stat != RPC_SUCCESS)
        return false;
    uint32_t code = xin_u32(body);
    if (!xin_done(body) || (code != LDM6_OK && code != LDM6_DONT_SEND))
        return false;
    answered_coming(u, code);
    return true;
}

static void put_info(struct xout *x, const void *arg)
{
    xout_info(x, arg);
}

static void put_coming(struct xout *x, const void *arg)
{
    const struct pq_info *info = arg;

    xout_info(x, info);
    xout_u32(x, info->size); /* one block */
}

static void send_product(struct upstream *u, struct pq_view *v)
{
    if (!matcher_wants(&u->match, &v->info) ||
        !conf_allows_product(u->env->opt->conf, &v->info, u->names, u->nnames)) {
        pq_release(u->queue, v);
        return;
    }
    u->unflushed = true;
    char line[PRODUCT_LINE_MAX];
    if (u->notify) {
        log_info("notifying: %s", product_line_format(&v->info, line, sizeof line));
        peer_call(&u->peer, LDM_VERS6, LDM6_NOTIFICATION, put_info, &v->info);
        pq_release(u->queue, v);
        return;
    }
    if (log_enabled(LOG_LVL_INFO))
        log_info("sending: %s", product_line_format(&v->info, line, sizeof line));
    if (u->alternate) {
        u->coming.xid = peer_call(&u->peer, LDM_VERS6, LDM6_COMINGSOON, put_coming, &v->info);
        u->coming.view = *v;
        u->coming.since_ns = u->loop.now_ns;
        u->coming.waits = true;
        return;
    }
    peer_send_product(&u->peer, LDM_VERS6, LDM6_HEREIS, false, 0, u->queue, v);
}

static void send_null(struct upstream *u, uint64_t now)
{
    u->null_xid = peer_call(&u->peer, LDM_VERS6, LDM6_NULL, NULL, NULL);
    u->null_ns = now;
    u->null_outstanding = true;
    u->unflushed = false;
}

static bool unanswered(const struct upstream *u)
{
    return u->null_outstanding || u->coming.waits;
}

/* Returns when the answer is due, counted from when the question was sent: a large product may be
 * written before it. */
static uint64_t answer_due(const struct upstream *u)
{
    uint64_t out = u->peer.last_out_ns;
    uint64_t asked = u->coming.waits ? u->coming.since_ns : u->null_ns;

    return (out > asked ? out : asked) + REPLY_S * NS_PER_S;
}

bool up6_pump(struct upstream *u, uint64_t now)
{
    if (now < u->start_ns)
        return false;
    if (unanswered(u) && !peer_has_output(&u->peer) && now >= answer_due(u)) {
        log_peer_warn(u->peer.host, "%s: no answer within %d s", u->peer.host, REPLY_S);
        u->finished = true;
        return false;
    }
    struct pq_view v;
    for (int i = 0; i < PUMP_STEPS && !u->at_end && !u->coming.waits && peer_has_room(&u->peer);
         i++) {
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
    if (!unanswered(u) && u->at_end &&
        (u->unflushed || now >= u->peer.last_out_ns + IDLE_S * NS_PER_S))
        send_null(u, now);
    return !u->at_end && !u->coming.waits;
}

uint64_t up6_deadline(const struct upstream *u)
{
    if (u->start_ns > u->loop.now_ns)
        return u->start_ns;
    if (peer_has_output(&u->peer))
        return LOOP_FOREVER; /* the socket is full and will report when it is not */
    if (unanswered(u))
        return answer_due(u);
    return u->at_end ? u->peer.last_out_ns + IDLE_S * NS_PER_S : LOOP_FOREVER;
}

void up6_end(struct upstream *u)
{
    if (u->coming.waits)
        pq_release(u->queue, &u->coming.view);
    u->coming.waits = false;
    if (u->env->feeds)
        feeds_leave(u->env->feeds, getpid());
    matcher_free(&u->match);
}

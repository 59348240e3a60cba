/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM6 downstream of one REQUEST entry: FEEDME, then products by HEREIS on the turned-around
 * connection, straight into the product queue (reference 3.4). Always primary.
 */
#include "downstream.h"

#include "feedtype.h"
#include "log.h"
#include "product_line.h"

#include <stdio.h>
#include <time.h>

#define REPLY_S 60
#define SILENCE_S 300                  /* 10 x 30 s: reference 3.4 (5) */
#define RECLASS_MAX 3

struct down6 {
    struct downstream ds;
    const struct conf_request *req;
    struct matcher match;              /* of what was last asked for */
    struct ldm_class asked;
    int reclassed;
    bool have_last;
    struct pq_info last;               /* newest product of this feed */
    struct pq_info info;               /* being received */
    struct pq_reservation *reservation;
    uint64_t duplicates, ignored;
};

/* ------------------------------------------------------------------ FEEDME */

static struct ldm_time wall_time(double ago_s)
{
    struct timespec t;
    double at;

    clock_gettime(CLOCK_REALTIME, &t);
    at = (double)t.tv_sec + (double)t.tv_nsec / 1e9 - ago_s;
    if (at < 0)
        at = 0;
    return (struct ldm_time){(int32_t)at, (int32_t)((at - (double)(int64_t)at) * 1e6)};
}

static void put_feedme(struct xout *x, const void *arg)
{
    xout_class(x, arg);
    xout_u32(x, LDM_PRIMARY_HEREIS);
}

static void ask(struct down6 *d, const struct ldm_class *cls)
{
    struct ldm_class with_sig = *cls;
    char why[512];

    d->asked = *cls;
    matcher_free(&d->match);
    if (matcher_init(&d->match, cls, why, sizeof why) < 0) {
        log_error("pattern to request is not usable: %s", why);
        downstream_fails(&d->ds, true);
        return;
    }
    if (d->have_last)
        class_add_signature(&with_sig, &d->last.signature);
    downstream_asked(&d->ds, peer_call(&d->ds.peer, LDM_VERS6, LDM6_FEEDME, put_feedme, &with_sig));
}

static void ask_first(void *ctx)
{
    struct down6 *d = ctx;
    struct ldm_class c = {.from = wall_time(d->ds.opt->conf->set.max_latency_s), .to = LDM_TIME_END,
                          .n = 1};
    struct ldm_time last = {(int32_t)d->last.creation.tv_sec, (int32_t)d->last.creation.tv_usec};

    c.specs[0].feedtype = d->req->feed;
    snprintf(c.specs[0].pattern, sizeof c.specs[0].pattern, "%s", d->req->ere);
    if (d->have_last && ldm_time_cmp(last, c.from) > 0)
        c.from = last;
    d->reclassed = 0;
    ask(d, &c);
}

static bool reclass(struct down6 *d, struct xin *body)
{
    struct ldm_class c;
    char text[1024];

    xin_class(body, &c);
    if (!xin_done(body))
        return false;
    if (c.n == 0) {
        log_error("Request denied by upstream LDM-6 on %s", d->req->host);
        downstream_fails(&d->ds, true);
        return true;
    }
    if (++d->reclassed > RECLASS_MAX)
        return false;
    for (uint32_t i = 0; i < c.n; i++)
        c.specs[i].feedtype &= d->req->feed;
    log_note("Upstream LDM-6 on %s reduced the request to %s", d->req->host,
             class_format(&c, text, sizeof text));
    ask(d, &c);
    return true;
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct down6 *d = ctx;
    uint32_t code;

    if (d->ds.state != DS_ASKING || m->xid != d->ds.xid)
        return false;
    if (downstream_refused(&d->ds, m))
        return true;
    code = xin_u32(body);
    if (code == LDM6_RECLASS)
        return reclass(d, body);
    if (code == LDM6_BADPATTERN) {
        log_error("Upstream LDM-6 on %s rejects the pattern \"%s\"", d->req->host, d->req->ere);
        downstream_fails(&d->ds, true);
        return true;
    }
    xin_u32(body);
    if (code != LDM6_OK || !xin_done(body))
        return false;
    log_note("Upstream LDM-6 on %s is willing to be a primary feeder", d->req->host);
    downstream_feeding(&d->ds);
    retry_established(&d->ds.retry, now_ns());
    return true;
}

/* ------------------------------------------------------------------ products */

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct down6 *d = ctx;

    (void)args;
    if (d->ds.state != DS_FEEDING || m->prog != LDM_PROGRAM || m->vers != LDM_VERS6 ||
        d->ds.peer.out_messages > PEER_OUT_MESSAGES)
        return false;
    if (m->proc == LDM6_NULL)
        peer_reply(&d->ds.peer, m->xid, NULL, NULL);
    else if (m->proc == LDM6_COMINGSOON)
        peer_reply_u32(&d->ds.peer, m->xid, LDM6_DONT_SEND);   /* primary mode only */
    else if (m->proc != LDM6_NOTIFICATION)
        return false;
    return true;
}

/* <creator>_v_<upstream host>, cut to what an origin may hold. */
static void stamp_origin(struct pq_info *info, const char *host)
{
    char text[PQ_ORIGIN_MAX + 1 + 3 + CONF_TEXT], *via = strstr(info->origin, "_v_");

    if (via != NULL)
        *via = '\0';
    snprintf(text, sizeof text, "%s_v_%s", info->origin, host);
    text[PQ_ORIGIN_MAX] = '\0';
    memcpy(info->origin, text, sizeof info->origin);
}

static bool too_old(const struct down6 *d, const struct pq_info *info)
{
    struct ldm_time t = {(int32_t)info->creation.tv_sec, (int32_t)info->creation.tv_usec};

    return ldm_time_cmp(t, wall_time(d->ds.opt->conf->set.max_latency_s)) < 0;
}

static bool product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                          const struct pq_info *info, uint8_t **region)
{
    struct down6 *d = ctx;
    char line[PRODUCT_LINE_MAX];
    enum pq_status st;
    void *at;

    (void)index;
    if (d->ds.state != DS_FEEDING || m->vers != LDM_VERS6)
        return false;
    d->reservation = NULL;
    d->info = *info;
    if (too_old(d, info) || !matcher_wants(&d->match, info)) {
        log_info("ignored (too old or not requested): %s", product_line_format(info, line, sizeof line));
        d->ignored++;
        return true;
    }
    st = pq_reserve(d->ds.queue, &info->signature, info->size, &at, &d->reservation);
    if (st == PQ_OK) {
        *region = at;
        return true;
    }
    d->reservation = NULL;
    if (st == PQ_DUP) {
        log_info("duplicate: %s", product_line_format(info, line, sizeof line));
        d->duplicates++;
        d->last = *info;
        d->have_last = true;
        return true;
    }
    log_warn("ignored: %s: %s", pq_strerror(st), product_line_format(info, line, sizeof line));
    d->ignored++;
    return true;
}

static void dh_saveProd(struct down6 *d)
{
    char line[PRODUCT_LINE_MAX];
    struct pq_info as_sent = d->info;
    enum pq_status st;

    stamp_origin(&d->info, d->req->host);
    st = pq_commit(d->ds.queue, d->reservation, &d->info, 0);
    d->reservation = NULL;
    if (st == PQ_OK)
        log_info("Inserted: %s", product_line_format(&d->info, line, sizeof line));
    else if (st == PQ_DUP)
        d->duplicates++;
    else
        log_error("cannot insert: %s: %s", pq_strerror(st),
                  product_line_format(&d->info, line, sizeof line));
    if (st == PQ_OK || st == PQ_DUP) {
        d->last = as_sent;
        d->have_last = true;
    }
}

static bool product_end(void *ctx)
{
    struct down6 *d = ctx;

    if (d->reservation != NULL)
        dh_saveProd(d);
    return true;
}

static void product_abort(void *ctx)
{
    struct down6 *d = ctx;

    if (d->reservation != NULL)
        pq_discard(d->ds.queue, d->reservation);
    d->reservation = NULL;
}

/* The newest product of the request in the queue: where to resume. */
static void find_last(struct down6 *d)
{
    struct pq_view v;
    struct matcher m;
    char why[512];
    struct ldm_class c = {.from = LDM_TIME_ZERO, .to = LDM_TIME_END, .n = 1};

    c.specs[0].feedtype = d->req->feed;
    snprintf(c.specs[0].pattern, sizeof c.specs[0].pattern, "%s", d->req->ere);
    if (matcher_init(&m, &c, why, sizeof why) < 0)
        return;
    for (uint64_t at = 0; pq_next(d->ds.queue, at, &v) == PQ_OK; at = v.seq) {
        if (matcher_wants(&m, &v.info)) {
            d->last = v.info;
            d->have_last = true;
        }
        pq_release(d->ds.queue, &v);
    }
    matcher_free(&m);
}

static uint64_t tend(void *ctx, uint64_t now)
{
    struct down6 *d = ctx;
    uint64_t due = d->ds.peer.last_in_ns + SILENCE_S * NS_PER_S;

    if (now >= due) {
        log_note("upstream LDM-6 on %s:%u is silent", d->req->host, d->req->port);
        downstream_fails(&d->ds, false);
    }
    return due;
}

int down6_run(const struct options *opt, const struct conf_request *req)
{
    static const struct downstream_role role = {
        .prog = "down6", .reply_s = REPLY_S, .ask = ask_first, .tend = tend,
        .sink = {.call = on_call, .reply = on_reply, .product_begin = product_begin,
                 .product_end = product_end, .product_abort = product_abort}};
    static struct down6 d;
    char feed[FEEDTYPE_TEXT_MAX];

    d = (struct down6){.req = req};
    if (downstream_open(&d.ds, opt, &role, &d, req->host, req->port) < 0)
        return 1;
    find_last(&d);
    log_note("Starting Up(6): %s:%u {%s, \"%s\"}", req->host, req->port,
             feedtype_format(req->feed, feed, sizeof feed), req->ere);
    downstream_run(&d.ds, NULL);
    matcher_free(&d.match);
    downstream_close(&d.ds);
    return 0;
}

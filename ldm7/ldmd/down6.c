/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM6 downstream of one REQUEST entry: FEEDME, then products by HEREIS on the turned-around
 * connection, straight into the product queue (reference 3.4). Always primary.
 */
#include "process.h"

#include "feedtype.h"
#include "log.h"
#include "product_line.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_S 30
#define REPLY_S 60
#define SILENCE_S 300                  /* 10 x 30 s: reference 3.4 (5) */
#define RECLASS_MAX 3

struct down6 {
    const struct options *opt;
    const struct conf_request *req;
    struct loop loop;
    struct loop_source src;
    struct peer peer;
    struct pq *queue;
    struct matcher match;              /* of what was last asked for */
    struct ldm_class asked;
    uint32_t xid;
    int reclassed;
    enum { D6_IDLE, D6_CONNECTING, D6_ASKING, D6_FEEDING } state;
    bool failed, denied;               /* end this session; ... and wait before the next */
    int fd;                            /* while connecting */
    uint64_t since_ns;                 /* of the state */
    struct retry retry;
    uint64_t next_try_ns;
    bool have_last;
    struct pq_info last;               /* newest product of this feed */
    struct pq_info info;               /* being received */
    struct pq_reservation *reservation;
    uint64_t duplicates, ignored;
};

static void session_fails(struct down6 *d, bool denied)
{
    d->failed = true;
    d->denied = d->denied || denied;
}

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
        session_fails(d, true);
        return;
    }
    if (d->have_last)
        class_add_signature(&with_sig, &d->last.signature);
    d->xid = peer_call(&d->peer, LDM_VERS6, LDM6_FEEDME, put_feedme, &with_sig);
    d->state = D6_ASKING;
    d->since_ns = now_ns();
}

static void ask_first(struct down6 *d)
{
    struct ldm_class c = {.from = wall_time(d->opt->conf->set.max_latency_s), .to = LDM_TIME_END,
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
        session_fails(d, true);
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

    if (d->state != D6_ASKING || m->xid != d->xid)
        return false;
    if (m->denied || m->stat != RPC_SUCCESS) {
        log_error("Upstream LDM-6 on %s refused the request: %s, status %u", d->req->host,
                  m->denied ? "authentication" : "RPC error", m->denied ? m->auth_stat : m->stat);
        session_fails(d, true);
        return true;
    }
    code = xin_u32(body);
    if (code == LDM6_RECLASS)
        return reclass(d, body);
    if (code == LDM6_BADPATTERN) {
        log_error("Upstream LDM-6 on %s rejects the pattern \"%s\"", d->req->host, d->req->ere);
        session_fails(d, true);
        return true;
    }
    xin_u32(body);
    if (code != LDM6_OK || !xin_done(body))
        return false;
    log_note("Upstream LDM-6 on %s is willing to be a primary feeder", d->req->host);
    d->state = D6_FEEDING;
    retry_established(&d->retry, now_ns());
    return true;
}

/* ------------------------------------------------------------------ products */

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct down6 *d = ctx;

    (void)args;
    if (d->state != D6_FEEDING || m->prog != LDM_PROGRAM || m->vers != LDM_VERS6 ||
        d->peer.out_messages > PEER_OUT_MESSAGES)
        return false;
    if (m->proc == LDM6_NULL)
        peer_reply(&d->peer, m->xid, NULL, NULL);
    else if (m->proc == LDM6_COMINGSOON)
        peer_reply_u32(&d->peer, m->xid, LDM6_DONT_SEND);   /* primary mode only */
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

    return ldm_time_cmp(t, wall_time(d->opt->conf->set.max_latency_s)) < 0;
}

static bool product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                          const struct pq_info *info, uint8_t **region)
{
    struct down6 *d = ctx;
    char line[PRODUCT_LINE_MAX];
    enum pq_status st;
    void *at;

    (void)index;
    if (d->state != D6_FEEDING || m->vers != LDM_VERS6)
        return false;
    d->reservation = NULL;
    d->info = *info;
    if (too_old(d, info) || !matcher_wants(&d->match, info)) {
        log_info("ignored (too old or not requested): %s", product_line_format(info, line, sizeof line));
        d->ignored++;
        return true;
    }
    st = pq_reserve(d->queue, &info->signature, info->size, &at, &d->reservation);
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
    st = pq_commit(d->queue, d->reservation, &d->info, 0);
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
        pq_discard(d->queue, d->reservation);
    d->reservation = NULL;
}

/* ------------------------------------------------------------------ connection */

static void on_socket(void *ctx, uint32_t events)
{
    struct down6 *d = ctx;
    char why[128] = "";
    struct rpc_sink sink = {.ctx = d, .call = on_call, .reply = on_reply,
                            .product_begin = product_begin, .product_end = product_end,
                            .product_abort = product_abort};
    int rc;

    if (d->state == D6_CONNECTING) {
        rc = dial_result(d->fd);
        if (rc != 0) {
            log_info("cannot connect to %s:%u: %s", d->req->host, d->req->port, strerror(rc));
            session_fails(d, false);
            return;
        }
        peer_init(&d->peer, d->fd, &sink, now_ns());
        d->fd = -1;
        ask_first(d);
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0)
        return;
    rc = peer_read(&d->peer, d->loop.now_ns, why, sizeof why);
    if (rc == 0)
        return;
    log_note("connection to upstream LDM-6 on %s ended: %s", d->req->host, why);
    session_fails(d, rc < 0 && errno == EPROTO);
}

static void connect_now(struct down6 *d, uint64_t now)
{
    char why[256];

    d->failed = d->denied = false;
    d->fd = dial(d->req->host, d->req->port, why, sizeof why);
    if (d->fd < 0 ||
        loop_add(&d->loop, &d->src, d->fd, EPOLLOUT, on_socket, d) < 0) {
        log_warn("%s", why);
        session_fails(d, false);
    }
    d->state = D6_CONNECTING;
    d->since_ns = now;
}

static void end_session(struct down6 *d, uint64_t now)
{
    loop_del(&d->loop, &d->src);
    if (d->state == D6_CONNECTING && d->fd >= 0)
        close(d->fd);
    else if (d->state > D6_CONNECTING)
        peer_close(&d->peer);
    d->fd = -1;
    d->state = D6_IDLE;
    d->next_try_ns = retry_at(&d->retry, now, d->denied);
    d->failed = d->denied = false;
}

static uint64_t deadline(const struct down6 *d)
{
    switch (d->state) {
    case D6_IDLE: return d->next_try_ns;
    case D6_CONNECTING: return d->since_ns + CONNECT_S * NS_PER_S;
    case D6_ASKING: return d->since_ns + REPLY_S * NS_PER_S;
    default: return d->peer.last_in_ns + SILENCE_S * NS_PER_S;
    }
}

static void step(struct down6 *d)
{
    uint64_t now = d->loop.now_ns;

    if (d->state > D6_CONNECTING && !d->failed && peer_write(&d->peer, now) < 0)
        session_fails(d, false);
    if (d->state != D6_IDLE && !d->failed && now >= deadline(d)) {
        log_note("upstream LDM-6 on %s:%u is silent", d->req->host, d->req->port);
        session_fails(d, false);
    }
    if (d->failed)
        end_session(d, now);
    if (d->state == D6_IDLE && now >= d->next_try_ns)
        connect_now(d, now);
    if (d->state > D6_CONNECTING)
        loop_events(&d->loop, &d->src,
                    (uint32_t)EPOLLIN | (peer_has_output(&d->peer) ? (uint32_t)EPOLLOUT : 0u));
    loop_once(&d->loop, d->failed ? now : deadline(d));
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
    for (uint64_t at = 0; pq_next(d->queue, at, &v) == PQ_OK; at = v.seq) {
        if (matcher_wants(&m, &v.info)) {
            d->last = v.info;
            d->have_last = true;
        }
        pq_release(d->queue, &v);
    }
    matcher_free(&m);
}

int down6_run(const struct options *opt, const struct conf_request *req)
{
    static struct down6 d;
    enum pq_status st;
    char feed[FEEDTYPE_TEXT_MAX];

    d = (struct down6){.opt = opt, .req = req, .fd = -1, .src = {.fd = -1}};
    log_set_prog("down6");
    if (loop_open(&d.loop) < 0)
        return 1;
    st = pq_open(opt->queue, true, &d.queue);
    if (st != PQ_OK) {
        log_error("cannot open product queue %s: %s", opt->queue, pq_strerror(st));
        return 1;
    }
    find_last(&d);
    log_note("Starting Up(6): %s:%u {%s, \"%s\"}", req->host, req->port,
             feedtype_format(req->feed, feed, sizeof feed), req->ere);
    retry_start(&d.retry, now_ns());
    while (!d.loop.stop)
        step(&d);
    if (d.state != D6_IDLE)
        end_session(&d, now_ns());
    matcher_free(&d.match);
    pq_close(d.queue);
    loop_close(&d.loop);
    return 0;
}

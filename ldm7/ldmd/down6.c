/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM6 downstream of one REQUEST entry: FEEDME, then products on the turned-around connection,
 * straight into the product queue (LDM-6.15.0 down6). Primary: whole products (HEREIS); alternate:
 * announcements, then blocks of what is not in the queue yet.
 */
#include <errno.h>
#include <stdio.h>

#include "autoshift.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "downstream.h"
#include "intake.h"
#include "resume.h"

#define REPLY_S 60
#define SILENCE_S 300 /* 10 x 30 s: LDM-6.15.0 */
#define SAVE_S 5
#define LOOK_NS (NS_PER_S / 10) /* how soon it makes room in the queue on request */
#define RECLASS_MAX 3

struct down6 {
    struct downstream ds;
    const struct conf_request *req;
    struct intake in;
    struct autoshift shift;
    struct ldm_class asked;
    int reclassed;
    char resume[4096]; /* file to resume from; "": none */
    uint64_t saved_ns;
};

/* ------------------------------------------------------------------ FEEDME */

static void put_feedme(struct xout *x, const void *arg)
{
    const struct down6 *d = arg;

    xout_class(x, &d->asked);
    xout_u32(x, d->shift.primary ? LDM_PRIMARY_HEREIS : 0);
}

static void ask(struct down6 *d, const struct ldm_class *cls)
{
    char why[512];

    if (intake_class(&d->in, cls, why, sizeof why) < 0) {
        log_error("pattern to request is not usable: %s", why);
        downstream_fails(&d->ds, true);
        return;
    }
    d->asked = *cls;
    if (d->in.have_last)
        class_add_signature(&d->asked, &d->in.last.signature);
    downstream_asked(&d->ds, peer_call(&d->ds.peer, LDM_VERS6, LDM6_FEEDME, put_feedme, d));
}

static void ask_first(void *ctx)
{
    struct down6 *d = ctx;
    struct ldm_class c = {
        .from = wall_time(d->ds.opt->conf->set.time_offset_s), .to = LDM_TIME_END, .n = 1};

    c.specs[0].feedtype = d->req->feed;
    snprintf(c.specs[0].pattern, sizeof c.specs[0].pattern, "%s", d->req->ere);
    if (d->in.have_last && ldm_time_cmp(info_time(&d->in.last), c.from) > 0)
        c.from = info_time(&d->in.last);
    d->reclassed = 0;
    ask(d, &c);
}

static bool reclass(struct down6 *d, struct ldm_class *c)
{
    uint32_t n = 0;

    struct pq_signature sig;
    class_take_signature(c, &sig);
    for (uint32_t i = 0; i < c->n; i++) {
        c->specs[n] = c->specs[i];
        c->specs[n].feedtype &= d->req->feed;
        n += c->specs[n].feedtype != 0;
    }
    c->n = n;
    if (n == 0) {
        log_error("Request denied by upstream LDM-6 on %s", d->req->host);
        downstream_fails(&d->ds, true);
        return true;
    }
    if (++d->reclassed > RECLASS_MAX)
        return false;
    char text[1024];
    log_note("Upstream LDM-6 on %s reduced the request to %s", d->req->host,
             class_format(c, text, sizeof text));
    ask(d, c);
    return true;
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct down6 *d = ctx;

    if (d->ds.state != DS_ASKING || m->xid != d->ds.xid)
        return false;
    if (downstream_refused(&d->ds, m))
        return true;
    struct ldm6_reply r;
    xin_ldm6_reply(body, false, &r);
    if (!xin_done(body))
        return false;
    if (r.code == LDM6_RECLASS)
        return reclass(d, &r.cls);
    if (r.code == LDM6_BADPATTERN) {
        log_error("Upstream LDM-6 on %s rejects the pattern \"%s\"", d->req->host, d->req->ere);
        downstream_fails(&d->ds, true);
        return true;
    }
    if (r.code != LDM6_OK)
        return false;
    log_note("Upstream LDM-6 on %s is willing to be %s feeder", d->req->host,
             d->shift.primary ? "a primary" : "an alternate");
    downstream_feeding(&d->ds);
    retry_established(&d->ds.retry, now_ns());
    return true;
}

/* ------------------------------------------------------------------ products */

/* Counts what happened to products, and changes the mode if that requires it. */
static void counted(struct down6 *d, uint64_t accepted, uint64_t duplicates)
{
    bool is_new = d->in.accepted != accepted;

    if (!is_new && d->in.duplicates == duplicates)
        return;
    if (!autoshift_product(&d->shift, is_new, d->ds.loop.now_ns))
        return;
    log_note("Shifting to %s feed by %s:%u", d->shift.primary ? "primary" : "alternate",
             d->req->host, d->req->port);
    downstream_fails(&d->ds, false);
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct down6 *d = ctx;
    uint64_t accepted = d->in.accepted, duplicates = d->in.duplicates;

    if (d->ds.state != DS_FEEDING || m->prog != LDM_PROGRAM || m->vers != LDM_VERS6 ||
        d->ds.peer.out_messages > PEER_OUT_MESSAGES)
        return false;
    if (m->proc == LDM6_NULL) {
        peer_reply(&d->ds.peer, m->xid, NULL, NULL);
        return true;
    }
    if (m->proc != LDM6_COMINGSOON)
        return m->proc == LDM6_NOTIFICATION;
    struct pq_info info;
    xin_info(args, &info);
    xin_u32(args);
    if (!xin_done(args))
        return false;
    peer_reply_u32(&d->ds.peer, m->xid, intake_coming(&d->in, &info) ? LDM6_OK : LDM6_DONT_SEND);
    counted(d, accepted, duplicates);
    return true;
}

static bool product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                          const struct pq_info *info, uint8_t **region)
{
    struct down6 *d = ctx;
    uint64_t accepted = d->in.accepted, duplicates = d->in.duplicates;

    (void)index;
    if (d->ds.state != DS_FEEDING || m->vers != LDM_VERS6)
        return false;
    intake_begin(&d->in, info, region);
    counted(d, accepted, duplicates);
    return true;
}

static bool block_begin(void *ctx, const struct ldm_block *b, uint8_t **region)
{
    struct down6 *d = ctx;

    return d->ds.state == DS_FEEDING && intake_block(&d->in, b, region);
}

static bool product_end(void *ctx)
{
    struct down6 *d = ctx;
    uint64_t accepted = d->in.accepted, duplicates = d->in.duplicates;

    intake_end(&d->in);
    counted(d, accepted, duplicates);
    return true;
}

static void product_abort(void *ctx)
{
    struct down6 *d = ctx;

    intake_abort(&d->in);
}

/* ------------------------------------------------------------------ session */

static void save(struct down6 *d, uint64_t now)
{
    d->saved_ns = now;
    if (!d->in.last_changed || d->resume[0] == '\0')
        return;
    d->in.last_changed = false;
    if (resume_save(d->resume, &d->in.last) < 0)
        log_warn("cannot write %s: %s", d->resume, strerror(errno));
}

static uint64_t tend(void *ctx, uint64_t now)
{
    struct down6 *d = ctx;
    uint64_t due = d->ds.peer.last_in_ns + SILENCE_S * NS_PER_S;

    if (now >= due) {
        log_note("upstream LDM-6 on %s:%u is silent", d->req->host, d->req->port);
        downstream_fails(&d->ds, false);
    }
    if (intake_must_go(&d->in, d->ds.peer.last_in_ns, now))
        downstream_fails(&d->ds, false);
    if (d->in.reservation && now + LOOK_NS < due)
        due = now + LOOK_NS;
    if (d->in.last_changed && now >= d->saved_ns + SAVE_S * NS_PER_S)
        save(d, now);
    uint64_t save_at = d->saved_ns + SAVE_S * NS_PER_S;
    return d->in.last_changed && save_at < due ? save_at : due;
}

static void ended(void *ctx)
{
    struct down6 *d = ctx;

    intake_abort(&d->in);
    save(d, now_ns());
}

/* Returns whether the product's origin says that it arrived from this upstream. */
static bool came_by(const struct pq_info *info, const char *host)
{
    const char *via = strstr(info->origin, "_v_");

    return via && strcmp(via + 3, host) == 0;
}

struct newest {
    bool any, by_us;
    struct pq_info of_any, of_us;
    struct timeval inserted;
};

/* Finds the newest product of the request in the queue, and the newest that arrived from this
 * upstream. */
static void look_in_queue(struct down6 *d, struct newest *n)
{
    struct ldm_class c = {.from = LDM_TIME_ZERO, .to = LDM_TIME_END, .n = 1};

    c.specs[0].feedtype = d->req->feed;
    snprintf(c.specs[0].pattern, sizeof c.specs[0].pattern, "%s", d->req->ere);
    char why[512];
    if (intake_class(&d->in, &c, why, sizeof why) < 0)
        return;
    struct pq_view v;
    for (uint64_t at = 0; pq_next(d->ds.queue, at, &v) == PQ_OK; at = v.seq) {
        if (matcher_wants(&d->in.match, &v.info)) {
            n->of_any = v.info;
            n->any = true;
            if (came_by(&v.info, d->req->host)) {
                n->of_us = v.info;
                n->inserted = v.inserted;
                n->by_us = true;
            }
        }
        pq_release(d->ds.queue, &v);
    }
}

/* Finds where to resume: what the last session noted, or what arrived after it was written (the
 * process may have been killed); else the queue's newest (a redundant upstream may have delivered
 * it). With a new queue it requests everything. */
static void find_last(struct down6 *d)
{
    struct newest n = {0};
    struct timeval noted = {0};

    if (!resume_path(d->resume, sizeof d->resume, d->ds.opt->queue, d->req))
        d->resume[0] = '\0';
    if (pq_last_seq(d->ds.queue) == 0)
        return;
    d->in.have_last = d->resume[0] != '\0' && resume_load(d->resume, &d->in.last, &noted);
    look_in_queue(d, &n);
    if (n.by_us && (!d->in.have_last || timercmp(&n.inserted, &noted, >)))
        d->in.last = n.of_us;
    else if (n.any && !d->in.have_last)
        d->in.last = n.of_any;
    d->in.have_last = d->in.have_last || n.any;
}

int down6_run(const struct options *opt, const struct conf_request *req)
{
    static const struct downstream_role role = {.prog = "down6",
                                                .reply_s = REPLY_S,
                                                .ask = ask_first,
                                                .tend = tend,
                                                .ended = ended,
                                                .sink = {.call = on_call,
                                                         .reply = on_reply,
                                                         .product_begin = product_begin,
                                                         .product_end = product_end,
                                                         .product_abort = product_abort,
                                                         .block_begin = block_begin}};
    static struct down6 d;
    size_t place, upstreams = conf_redundant(opt->conf, req, &place);

    d = (struct down6){.req = req};
    if (downstream_open(&d.ds, opt, &role, &d, req->host, req->port) < 0)
        return 1;
    d.in = (struct intake){.queue = d.ds.queue,
                           .from = req->host,
                           .max_latency_s = opt->conf->set.max_latency_s,
                           .verify = opt->conf->set.verify_md5_6 >= VERIFY_ALL};
    autoshift_init(&d.shift, upstreams, place, now_ns());
    char feed[FEEDTYPE_TEXT_MAX];
    feedtype_format(req->feed, feed, sizeof feed);
    find_last(&d);
    log_note("Starting Up(6): %s:%u {%s, \"%s\"}", req->host, req->port, feed, req->ere);
    downstream_run(&d.ds, NULL);
    intake_free(&d.in);
    downstream_close(&d.ds);
    return 0;
}

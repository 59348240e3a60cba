/* SPDX-License-Identifier: Apache-2.0
 *
 * Backstop and backlog (LDM-6.13.17 down7.c).
 */
#include "common/log.h"
#include "common/log_peer.h"
#include "common/product_line.h"
#include "down7.h"

/* ------------------------------------------------------------------ asking */

static void put_u32(struct xout *x, const void *arg)
{
    xout_u32(x, *(const uint32_t *)arg);
}

static void request(struct down7 *d, uint32_t index)
{
    peer_call(&d->ds.peer, LDM_VERS7, LDM7_REQUEST_PRODUCT, put_u32, &index);
    d->last_request_ns = now_ns();
}

void down7_request_missed(struct down7 *d, uint32_t index)
{
    if (!session_add_missed(&d->session, index))
        return;
    if (d->ds.state == DS_FEEDING && !d->ds.failed)
        request(d, index);
}

void down7_request_all_missed(struct down7 *d)
{
    for (size_t i = 0; i < d->session.nmissed; i++)
        request(d, d->session.missed[i]);
}

static void put_backlog(struct xout *x, const void *arg)
{
    xout_backlog(x, arg);
}

/* before: NULL for everything. (The original also sends up to the end of its queue if it does not
 * find that signature.) */
static void request_backlog(struct down7 *d, const struct pq_signature *before)
{
    const struct conf_settings *set = &d->ds.opt->conf->set;
    double offset_s = set->time_offset_s >= 0 ? set->time_offset_s : set->max_latency_s;
    struct ldm7_backlog b = {.after_is_set = d->has_after, .time_offset_s = (uint32_t)offset_s};

    if (d->has_after)
        b.after = d->after;
    if (before)
        b.before = *before;
    peer_call(&d->ds.peer, LDM_VERS7, LDM7_REQUEST_BACKLOG, put_backlog, &b);
    d->fence_xid = peer_call(&d->ds.peer, LDM_VERS7, LDM7_NULL, NULL, NULL);
    d->last_request_ns = now_ns();
}

void down7_backlog_begin(struct down7 *d)
{
    d->backlog = BACKLOG_TO_END;
    request_backlog(d, NULL);
}

static void to_first(struct down7 *d)
{
    d->backlog = BACKLOG_TO_FIRST;
    request_backlog(d, &d->first);
}

void down7_backlog_first(struct down7 *d, const struct pq_signature *sig)
{
    if (d->has_first)
        return;
    d->has_first = true;
    d->first = *sig;
    if (d->backlog == BACKLOG_AT_END)
        to_first(d);
}

bool down7_backlog_fence(struct down7 *d, const struct rpc_msg *m)
{
    if (m->xid != d->fence_xid || (d->backlog != BACKLOG_TO_END && d->backlog != BACKLOG_TO_FIRST))
        return false;
    if (m->denied || m->stat != RPC_SUCCESS)
        return false;
    if (d->backlog == BACKLOG_TO_FIRST) {
        d->backlog = BACKLOG_DONE;
        return true;
    }
    d->backlog = BACKLOG_AT_END;
    if (d->has_after)
        session_set_last(&d->session, &d->after);
    if (d->has_first)
        to_first(d);
    return true;
}

/* ------------------------------------------------------------------ receiving */

static const char *origin_of(const struct down7 *d)
{
    return d->is_backlog ? "Backlog" : "Inserted";
}

/* The product has arrived, or never will. */
static void settle(struct down7 *d, const struct pq_signature *sig)
{
    if (d->is_backlog) {
        if (d->backlog == BACKLOG_TO_END && sig) {
            d->after = *sig; /* they arrive in order */
            d->has_after = true;
        }
        return;
    }
    session_remove_missed(&d->session, d->index);
    progress_settled(&d->progress, d->index, sig);
}

bool down7_product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                         const struct pq_info *info, uint8_t **region)
{
    struct down7 *d = ctx;

    if (d->ds.state != DS_FEEDING || m->vers != LDM_VERS7)
        return false;
    d->is_backlog = m->proc == LDM7_DELIVER_BACKLOG;
    d->info = *info;
    d->index = index;
    d->reservation = NULL;
    d->is_wanted = d->is_backlog ? d->backlog == BACKLOG_TO_END || d->backlog == BACKLOG_TO_FIRST
                                 : session_has_missed(&d->session, index);
    if (!d->is_wanted) {
        log_peer_warn(d->rcv->host, "unrequested product: %s", info->ident);
        return true;
    }
    void *at;
    enum pq_status st = pq_reserve(d->ds.queue, &info->signature, info->size, &at, &d->reservation);
    if (st == PQ_OK) {
        *region = d->region = at;
        uint64_t up_to;
        if (!d->nflights)
            pq_room_asked(d->ds.queue, &up_to); /* an earlier request does not concern this one */
        d->stalled = (struct stalled){.began_ns = now_ns()};
        return true;
    }
    d->reservation = NULL;
    char hex[33];
    if (st == PQ_DUP)
        log_info("%s product is in the queue already: sig=%s, size=%u", origin_of(d),
                 signature_format(&info->signature, hex), info->size);
    else
        log_error("cannot insert product \"%s\" of %u bytes: %s", info->ident, info->size,
                  pq_strerror(st));
    return true;
}

static void count_inserted(struct down7 *d, enum pq_status st)
{
    struct down7_counters *c = &d->counts;

    if (st != PQ_OK) {
        ++*(st == PQ_DUP ? &c->duplicates : &c->rejected);
        return;
    }
    ++*(d->is_backlog ? &c->backlog_products : &c->backstop_products);
    *(d->is_backlog ? &c->backlog_bytes : &c->backstop_bytes) += d->info.size;
    c->last_product_timestamp_seconds = counters_timestamp();
}

bool down7_product_end(void *ctx)
{
    struct down7 *d = ctx;

    if (d->reservation) {
        char line[PRODUCT_LINE_MAX];
        product_line_format(&d->info, line, sizeof line);
        if (d->ds.opt->conf->set.verify_md5 && down7_md5_differs(&d->info, d->region)) {
            d->counts.rejected++;
            log_error("digest differs from the signature: %s", line);
            pq_discard(d->ds.queue, d->reservation);
        } else {
            enum pq_status st = pq_commit(d->ds.queue, d->reservation, &d->info, 0);
            count_inserted(d, st);
            if (st == PQ_OK)
                log_info("%s: %s", origin_of(d), line);
            else
                log_warn("not inserted: %s: %s", pq_strerror(st), line);
        }
        d->reservation = NULL;
    }
    if (d->is_wanted)
        settle(d, &d->info.signature);
    return true;
}

bool down7_product_must_go(struct down7 *d, bool asked, uint64_t now)
{
    if (!d->reservation || !stalled_must_go(&d->stalled, asked, d->ds.peer.last_in_ns, now))
        return false;
    log_peer_warn(d->rcv->host,
                  "%s: a stalled product of %u bytes was dropped to make room in the full queue; "
                  "disconnected: %s",
                  d->rcv->host, d->info.size, d->info.ident);
    return true;
}

/* It stays in the list of missed products, or in the backlog. */
void down7_product_abort(void *ctx)
{
    struct down7 *d = ctx;

    if (d->reservation)
        pq_discard(d->ds.queue, d->reservation);
    d->reservation = NULL;
}

bool down7_no_such_product(struct down7 *d, struct xin *args)
{
    uint32_t index = xin_u32(args);

    if (!xin_done(args))
        return false;
    if (session_remove_missed(&d->session, index)) {
        d->counts.unavailable++;
        log_peer_warn(d->rcv->host, "No such product at %s: index=%u", d->rcv->host, index);
        progress_settled(&d->progress, index, NULL);
    }
    return true;
}

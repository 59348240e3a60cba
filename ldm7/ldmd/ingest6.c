/* SPDX-License-Identifier: Apache-2.0
 *
 * The LDM6 server's side of HIYA: a peer that ACCEPT entries match pushes products to this server
 * (LDM-6.15.0), by HEREIS or by COMINGSOON and BLKDATA.
 */
#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/log_peer.h"
#include "plural.h"
#include "upstream.h"

#define SILENCE_S 300

static bool same_class(const struct ldm_class *a, const struct ldm_class *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->specs[i].feedtype != b->specs[i].feedtype ||
            strcmp(a->specs[i].pattern, b->specs[i].pattern) != 0)
            return false;
    return true;
}

static void put_reply(struct xout *x, const void *arg)
{
    xout_ldm6_reply(x, true, arg);
}

static bool open_intake(struct upstream *u, const struct ldm_class *cls)
{
    u->in.from = upstream_name(u);
    u->in.max_latency_s = u->env->opt->conf->set.max_latency_s;
    u->in.verify = u->env->opt->conf->set.verify_md5_6 >= VERIFY_PUSHED;
    char why[512];
    if (intake_class(&u->in, cls, why, sizeof why) < 0) {
        log_peer_note(u->peer.host, "%s: bad pattern: %s", u->peer.host, why);
        return false;
    }
    if (u->in.queue)
        return true;
    enum pq_status st = pq_open(u->env->opt->queue, true, &u->in.queue);
    if (st == PQ_OK)
        return true;
    log_error("cannot open product queue %s: %s", u->env->opt->queue, pq_strerror(st));
    u->in.queue = NULL;
    return false;
}

bool ingest6_call(struct upstream *u, const struct rpc_msg *m, struct xin *args)
{
    struct ldm6_reply r = {.code = LDM6_OK, .value = LDM_PRIMARY_HEREIS};

    struct ldm_class offer;
    xin_class(args, &offer);
    if (!xin_done(args)) {
        peer_reply_error(&u->peer, m->xid, RPC_GARBAGE_ARGS);
        u->closing = true;
        return true;
    }
    upstream_name(u);
    conf_accepted(u->env->opt->conf, &offer, u->names, u->nnames, &r.cls);
    char text[1024];
    if (r.cls.n == 0) {
        log_peer_warn(u->peer.host, "%s offers products that no ACCEPT entry matches: %s",
                      u->peer.host, class_format(&offer, text, sizeof text));
        peer_deny(&u->peer, m->xid, RPC_AUTH_TOOWEAK);
        u->closing = true;
        return true;
    }
    if (!open_intake(u, &r.cls)) {
        peer_reply_error(&u->peer, m->xid, RPC_SYSTEM_ERR);
        u->closing = true;
        return true;
    }
    upstream_let_in(u);
    if (!same_class(&offer, &r.cls))
        r.code = LDM6_RECLASS;
    u->role = UP_HIYA;
    log_set_prog("ingest6");
    log_peer_served(u->peer.host, "%s sends us %s", u->peer.host,
                    class_format(&r.cls, text, sizeof text));
    peer_reply(&u->peer, m->xid, put_reply, &r);
    return true;
}

bool ingest6_coming(struct upstream *u, const struct rpc_msg *m, struct xin *args)
{
    struct pq_info info;

    xin_info(args, &info);
    xin_u32(args);
    if (!xin_done(args))
        return false;
    peer_reply_u32(&u->peer, m->xid, intake_coming(&u->in, &info) ? LDM6_OK : LDM6_DONT_SEND);
    return true;
}

uint64_t ingest6_deadline(const struct upstream *u)
{
    return u->peer.last_in_ns + SILENCE_S * NS_PER_S;
}

void ingest6_end(struct upstream *u)
{
    log_peer_served(
        u->peer.host, "%s: %" PRIu64 " %s inserted, %" PRIu64 " %s, %" PRIu64 " ignored",
        u->peer.host, u->in.accepted, plural(u->in.accepted, "product", "products"),
        u->in.duplicates, plural(u->in.duplicates, "duplicate", "duplicates"), u->in.ignored);
    intake_free(&u->in);
    if (u->in.queue)
        pq_close(u->in.queue);
}

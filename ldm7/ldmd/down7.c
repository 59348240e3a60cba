/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM7 downstream of one RECEIVE entry (reference 4.3, 4.4): subscription over the control network
 * (NIC2), products by FMTP on the path (NIC1) straight into the product queue, backstop and backlog
 * over the control connection.
 */
#include "downstream.h"

#include "feedtype.h"
#include "fmtp.h"
#include "log.h"
#include "product_line.h"
#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SUBSCRIBE_S 600                /* reference 4.3 (5) */
#define TEST_S 30
#define SAVE_S 30
#define BUCKETS 1024u

/* A product that FMTP is receiving into the queue. */
struct flight {
    struct flight *next;
    uint32_t index, size;
    struct pq_signature sig;
    struct pq_reservation *reservation;
    uint8_t *region;
};

struct down7 {
    struct downstream ds;
    const struct conf_receive *rcv;
    struct loop_source fmtp_src;
    struct fmtp_client *fmtp;
    struct flight *flights[BUCKETS];
    bool receiving;
    uint64_t last_request_ns, saved_ns;
    struct session session;
    struct pq_signature after;         /* last product of the previous session */
    bool has_after, backlog_requested;
    char path[4096], feed[FEEDTYPE_TEXT_MAX];
    /* product arriving over the control connection */
    struct pq_info info;
    struct pq_reservation *reservation;
    uint8_t *region;
    bool is_backlog;
    uint32_t index;
};

static bool md5_differs(const struct pq_info *info, const uint8_t *data)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    return EVP_Digest(data, info->size, digest, &n, EVP_md5(), NULL) != 1 || n != 16 ||
           memcmp(digest, info->signature.bytes, 16) != 0;
}

/* ------------------------------------------------------------------ backstop */

static void put_u32(struct xout *x, const void *arg)
{
    xout_u32(x, *(const uint32_t *)arg);
}

static void request(struct down7 *d, uint32_t index)
{
    peer_call(&d->ds.peer, LDM_VERS7, LDM7_REQUEST_PRODUCT, put_u32, &index);
    d->last_request_ns = now_ns();
}

static void request_missed(struct down7 *d, uint32_t index)
{
    if (!session_add_missed(&d->session, index))
        return;
    if (d->ds.state == DS_FEEDING && !d->ds.failed)
        request(d, index);
}

static void put_backlog(struct xout *x, const void *arg)
{
    xout_backlog(x, arg);
}

static void request_backlog(struct down7 *d, const struct pq_signature *before)
{
    struct ldm7_backlog b = {.before = *before,
                             .time_offset_s = (uint32_t)d->ds.opt->conf->set.max_latency_s};

    d->backlog_requested = true;
    b.after_is_set = d->has_after;
    if (d->has_after)
        b.after = d->after;
    peer_call(&d->ds.peer, LDM_VERS7, LDM7_REQUEST_BACKLOG, put_backlog, &b);
    d->last_request_ns = now_ns();
}

static const char *origin_of(const struct down7 *d)
{
    return d->is_backlog ? "Backlog" : "Inserted";
}

static bool product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                          const struct pq_info *info, uint8_t **region)
{
    struct down7 *d = ctx;
    char hex[33];
    enum pq_status st;
    void *at;

    if (d->ds.state != DS_FEEDING || m->vers != LDM_VERS7)
        return false;
    d->is_backlog = m->proc == LDM7_DELIVER_BACKLOG;
    d->info = *info;
    d->index = index;
    d->reservation = NULL;
    if (d->is_backlog ? !d->backlog_requested : !session_remove_missed(&d->session, index)) {
        log_warn("product that nobody asked for: %s", info->ident);
        return true;
    }
    st = pq_reserve(d->ds.queue, &info->signature, info->size, &at, &d->reservation);
    if (st == PQ_OK) {
        *region = d->region = at;
        return true;
    }
    d->reservation = NULL;
    if (st == PQ_DUP)
        log_info("%s product is in the queue already: sig=%s, size=%u", origin_of(d),
                 signature_format(&info->signature, hex), info->size);
    else
        log_error("cannot insert product \"%s\" of %u bytes: %s", info->ident, info->size,
                  pq_strerror(st));
    return true;
}

static bool product_end(void *ctx)
{
    struct down7 *d = ctx;
    char line[PRODUCT_LINE_MAX];
    enum pq_status st;

    if (d->reservation == NULL)
        return true;
    product_line_format(&d->info, line, sizeof line);
    if (d->ds.opt->conf->set.verify_md5 && md5_differs(&d->info, d->region)) {
        log_error("digest differs from the signature: %s", line);
        pq_discard(d->ds.queue, d->reservation);
        d->reservation = NULL;
        return true;
    }
    st = pq_commit(d->ds.queue, d->reservation, &d->info, 0);
    d->reservation = NULL;
    if (st == PQ_OK)
        log_info("%s: %s", origin_of(d), line);
    else
        log_warn("not inserted: %s: %s", pq_strerror(st), line);
    return true;
}

static void product_abort(void *ctx)
{
    struct down7 *d = ctx;

    if (d->reservation == NULL)
        return;
    pq_discard(d->ds.queue, d->reservation);
    d->reservation = NULL;
    if (!d->is_backlog)
        session_add_missed(&d->session, d->index);
}

/* ------------------------------------------------------------------ FMTP */

static struct flight **find_flight(struct down7 *d, uint32_t index)
{
    struct flight **at = &d->flights[index % BUCKETS];

    while (*at != NULL && (*at)->index != index)
        at = &(*at)->next;
    return at;
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct down7 *d = ctx;
    struct flight *f, **at = find_flight(d, index);
    struct pq_signature sig;
    struct pq_reservation *r = NULL;
    enum pq_status st;
    char hex[33];
    void *region;

    (void)start;
    if (meta_len != sizeof sig.bytes || *at != NULL) {
        log_warn("product %u without a signature ignored", index);
        return NULL;
    }
    memcpy(sig.bytes, meta, sizeof sig.bytes);
    if (!d->backlog_requested)
        request_backlog(d, &sig);
    st = pq_reserve(d->ds.queue, &sig, size, &region, &r);
    if (st == PQ_DUP) {
        log_warn("Duplicate product: sig=%s, size=%u", signature_format(&sig, hex), size);
        session_set_last(&d->session, &sig);
        return NULL;
    }
    if (st != PQ_OK) {
        log_warn("no room for product %u of %u bytes: %s", index, size, pq_strerror(st));
        if (st == PQ_FULL)
            request_missed(d, index);
        return NULL;
    }
    f = calloc(1, sizeof *f);
    if (f == NULL)
        abort();
    *f = (struct flight){.index = index, .size = size, .sig = sig, .reservation = r,
                         .region = region};
    *at = f;
    return region;
}

static void drop_flight(struct flight **at)
{
    struct flight *f = *at;

    *at = f->next;
    free(f);
}

/* The region holds prod_info, data and (from an XDR encoder) padding: nothing else. */
static bool decode(const struct flight *f, struct pq_info *info, uint32_t *offset)
{
    struct xin x;
    size_t rest;

    xin_init(&x, f->region, f->size);
    xin_info(&x, info);
    if (x.st != XIN_OK)
        return false;
    rest = xin_left(&x);
    *offset = (uint32_t)xin_used(&x);
    return (rest == info->size || rest == info->size + xdr_pad(info->size)) &&
           memcmp(info->signature.bytes, f->sig.bytes, sizeof f->sig.bytes) == 0;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    struct down7 *d = ctx;
    struct flight **at = find_flight(d, index), *f = *at;
    struct pq_info info;
    uint32_t offset;
    char line[PRODUCT_LINE_MAX], hex[33];
    enum pq_status st;

    if (f == NULL)
        return;
    if (!decode(f, &info, &offset)) {
        log_error("product %u of %u bytes is malformed", index, f->size);
        pq_discard(d->ds.queue, f->reservation);
        drop_flight(at);
        return;
    }
    if (d->ds.opt->conf->set.verify_md5 && md5_differs(&info, f->region + offset)) {
        log_error("digest differs from the signature: product %u", index);
        pq_discard(d->ds.queue, f->reservation);
        drop_flight(at);
        request_missed(d, index);
        return;
    }
    st = pq_commit(d->ds.queue, f->reservation, &info, offset);
    drop_flight(at);
    session_set_last(&d->session, &info.signature);
    if (st == PQ_OK)
        log_info("Received: {delay: %.6f s, index: %u, retrans: %u, info: \"%s\"}", delay_s, index,
                 retx_blocks, product_line_format(&info, line, sizeof line));
    else if (st == PQ_DUP)
        log_warn("Duplicate product: sig=%s, size=%u", signature_format(&info.signature, hex),
                 info.size);
    else
        log_error("cannot insert product %u: %s", index, pq_strerror(st));
}

static void missed(void *ctx, uint32_t index)
{
    struct down7 *d = ctx;
    struct flight **at = find_flight(d, index);

    log_note("Missed: index=%u", index);
    if (*at != NULL) {
        pq_discard(d->ds.queue, (*at)->reservation);
        drop_flight(at);
    }
    request_missed(d, index);
}

static void on_fmtp(void *ctx, uint32_t events)
{
    struct down7 *d = ctx;
    struct fmtp_error err;

    (void)events;
    if (fmtp_client_service(d->fmtp, &err) < 0) {
        log_warn("FMTP connection lost: %s", err.text);
        downstream_fails(&d->ds, false);
        return;
    }
    if (!d->receiving && fmtp_client_connected(d->fmtp)) {
        d->receiving = true;
        log_note("Receiving");
        retry_established(&d->ds.retry, now_ns());
    }
}

static void log_stats(const struct down7 *d)
{
    struct fmtp_client_stats s;

    if (d->fmtp == NULL)
        return;
    fmtp_client_get_stats(d->fmtp, &s);
    log_note("FMTP receiver: datagrams=%lu blocks=%lu duplicate_blocks=%lu products=%lu missed=%lu "
             "retx_requests=%lu retx_blocks=%lu bad_messages=%lu socket_drops=%lu "
             "rcvbuf_granted_bytes=%zu",
             s.datagrams, s.blocks, s.duplicate_blocks, s.products, s.missed, s.retx_requests,
             s.retx_blocks, s.bad_messages, s.socket_drops, s.rcvbuf_granted_bytes);
}

/* ------------------------------------------------------------------ subscription */

static bool parse_endpoint(const char *text, struct sockaddr_in *out)
{
    char host[64], *colon, *end;
    unsigned long port;

    snprintf(host, sizeof host, "%s", text);
    colon = strchr(host, ':');
    if (colon == NULL)
        return false;
    *colon++ = '\0';
    port = strtoul(colon, &end, 10);
    *out = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return port > 0 && port <= 65535 && *end == '\0' && inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

static bool start_fmtp(struct down7 *d, const struct ldm7_reply *r)
{
    const struct conf_settings *set = &d->ds.opt->conf->set;
    struct sockaddr_in group, server;
    struct fmtp_error err;
    struct fmtp_client_config cfg = {
        .layout = (enum fmtp_layout)set->fmtp_layout,
        .interface = fmtp_ipv4(d->rcv->iface, 0),
        .mac_level = set->mac_level,
        .unicast_repair = set->unicast_repair,
        .pdu_bytes = (unsigned)set->pdu_bytes,
        .congestion_control = set->congestion_control,
        .f_rcv = set->f_rcv,
        .r_mc_bps = set->r_mc_bps,
        .rcvbuf_bytes = set->b_rcv_bytes,
        .ctx = d,
        .begun = begun,
        .ended = ended,
        .missed = missed,
    };

    if (!parse_endpoint(r->group, &group) || !parse_endpoint(r->server, &server) ||
        !IN_MULTICAST(ntohl(group.sin_addr.s_addr))) {
        log_error("unusable subscription reply");
        return false;
    }
    if (server.sin_addr.s_addr == htonl(INADDR_ANY))
        server.sin_addr = d->ds.peer.addr;
    cfg.group = fmtp_ipv4(group.sin_addr, ntohs(group.sin_port));
    cfg.server = fmtp_ipv4(server.sin_addr, ntohs(server.sin_port));
    d->fmtp = fmtp_client_open(&cfg, &err);
    if (d->fmtp == NULL) {
        log_error("cannot start the FMTP receiver: %s", err.text);
        return false;
    }
    if (loop_add(&d->ds.loop, &d->fmtp_src, fmtp_client_fd(d->fmtp), EPOLLIN, on_fmtp, d) == 0)
        return true;
    log_error("cannot watch the FMTP receiver: errno %d", errno);
    return false;
}

static void run(struct down7 *d, const struct ldm7_reply *r)
{
    char feed[FEEDTYPE_TEXT_MAX], addr[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &r->addr, addr, sizeof addr);
    log_note("Subscription reply from %s: mcastGroup={feed=%s, mcastGrp=%s, fmtpSrvr=%s}, "
             "ifaceCidrAddr=%s/%u", d->rcv->host, feedtype_format(r->feed, feed, sizeof feed),
             r->group, r->server, addr, r->prefix_len);
    downstream_feeding(&d->ds);
    d->receiving = false;
    d->backlog_requested = false;
    d->has_after = d->session.has_last;
    d->after = d->session.last;
    d->last_request_ns = now_ns();
    if (!start_fmtp(d, r)) {
        downstream_fails(&d->ds, false);       /* NIC1 may not be up yet */
        return;
    }
    for (size_t i = 0; i < d->session.nmissed; i++)
        request(d, d->session.missed[i]);
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct down7 *d = ctx;
    struct ldm7_reply r;

    if (d->ds.state != DS_ASKING || m->xid != d->ds.xid)
        return false;
    if (downstream_refused(&d->ds, m))
        return true;
    xin_subscription_reply(body, &r);
    if (!xin_done(body))
        return false;
    if (r.status != LDM7_OK) {
        log_error("%s refused the subscription to %s: %s", d->rcv->host, d->feed,
                  ldm7_strstatus(r.status));
        downstream_fails(&d->ds, r.status != LDM7_TIMEDOUT && r.status != LDM7_MCAST);
        return true;
    }
    run(d, &r);
    return true;
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct down7 *d = ctx;
    uint32_t index;

    if (d->ds.state != DS_FEEDING || m->prog != LDM_PROGRAM || m->vers != LDM_VERS7)
        return false;
    switch (m->proc) {
    case LDM7_NULL:
        if (d->ds.peer.out_messages > PEER_OUT_MESSAGES)
            return false;
        peer_reply(&d->ds.peer, m->xid, NULL, NULL);
        return true;
    case LDM7_TEST_CONNECTION:
    case LDM7_END_BACKLOG: return true;
    case LDM7_NO_SUCH_PRODUCT:
        index = xin_u32(args);
        if (!xin_done(args))
            return false;
        if (session_remove_missed(&d->session, index))
            log_warn("No such product at %s: index=%u", d->rcv->host, index);
        return true;
    default: return false;
    }
}

static void put_subscription(struct xout *x, const void *arg)
{
    const struct conf_receive *r = arg;
    struct ldm7_subscription s = {.feed = r->feed, .vlan = r->vlan};

    snprintf(s.switch_id, sizeof s.switch_id, "%s", r->switch_id);
    snprintf(s.port_id, sizeof s.port_id, "%s", r->port_id);
    xout_subscription(x, &s);
}

/* ------------------------------------------------------------------ connection */

static void ask(void *ctx)
{
    struct down7 *d = ctx;

    downstream_asked(&d->ds, peer_call(&d->ds.peer, LDM_VERS7, LDM7_SUBSCRIBE, put_subscription,
                                       d->rcv));
}

static void save(struct down7 *d, uint64_t now)
{
    d->saved_ns = now;
    if (d->session.dirty && d->path[0] != '\0' && session_save(&d->session, d->path) < 0)
        log_warn("cannot write %s: errno %d", d->path, errno);
}

static void ended_session(void *ctx)
{
    struct down7 *d = ctx;

    log_stats(d);
    loop_del(&d->ds.loop, &d->fmtp_src);
    if (d->fmtp != NULL)
        fmtp_client_close(d->fmtp);
    d->fmtp = NULL;
    for (size_t i = 0; i < BUCKETS; i++)
        while (d->flights[i] != NULL) {
            pq_discard(d->ds.queue, d->flights[i]->reservation);
            drop_flight(&d->flights[i]);
        }
    rpc_stream_end(&d->ds.peer.in);    /* a product cut off is noted as missed before saving */
    save(d, now_ns());
}

static uint64_t tend(void *ctx, uint64_t now)
{
    struct down7 *d = ctx;
    uint64_t test, save_at;

    if (now >= d->last_request_ns + TEST_S * NS_PER_S) {
        peer_call(&d->ds.peer, LDM_VERS7, LDM7_TEST_CONNECTION, NULL, NULL);
        d->last_request_ns = now;
    }
    if (d->session.dirty && now >= d->saved_ns + SAVE_S * NS_PER_S)
        save(d, now);
    test = d->last_request_ns + TEST_S * NS_PER_S;
    save_at = d->saved_ns + SAVE_S * NS_PER_S;
    return d->session.dirty && save_at < test ? save_at : test;
}

static void after_turn(void *ctx)
{
    struct down7 *d = ctx;

    if (!d->ds.loop.got_usr1)
        return;
    d->ds.loop.got_usr1 = false;
    log_stats(d);
}

int down7_run(const struct options *opt, const struct conf_receive *rcv)
{
    static const struct downstream_role role = {
        .prog = "down7", .reply_s = SUBSCRIBE_S, .ask = ask, .tend = tend, .ended = ended_session,
        .sink = {.call = on_call, .reply = on_reply, .product_begin = product_begin,
                 .product_end = product_end, .product_abort = product_abort}};
    static struct down7 d;
    char addr[INET_ADDRSTRLEN];

    d = (struct down7){.rcv = rcv, .fmtp_src = {.fd = -1}};
    if (downstream_open(&d.ds, opt, &role, &d, rcv->host, rcv->port) < 0)
        return 1;
    feedtype_format(rcv->feed, d.feed, sizeof d.feed);
    if (!session_path(d.path, sizeof d.path, opt->queue, rcv->host, rcv->port, d.feed))
        d.path[0] = '\0';
    else
        session_load(&d.session, d.path);
    inet_ntop(AF_INET, &rcv->iface, addr, sizeof addr);
    log_note("Downstream LDM7 starting up: remoteLDM7=%s:%u, feed=%s, fmtpIface=%s, "
             "vcEndPoint={switch=%s, port=%s, vlanId=%u}, pq=\"%s\"", rcv->host, rcv->port, d.feed,
             addr, rcv->switch_id, rcv->port_id, rcv->vlan, opt->queue);
    d.saved_ns = now_ns();
    downstream_run(&d.ds, after_turn);
    session_free(&d.session);
    downstream_close(&d.ds);
    return 0;
}

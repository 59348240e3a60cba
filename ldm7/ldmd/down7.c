/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM7 downstream of one RECEIVE entry (LDM-6.13.17 down7): subscription over the control network
 * (NIC2), products by FMTP on the path (NIC1) straight into the product queue, backstop and backlog
 * over the control connection; LDM6 from the same server while there is no multicast.
 */
#include "down7.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "keys.h"
#include "qlog.h"
#include "vlan.h"

#define SUBSCRIBE_S 600 /* LDM-6.13.17 */
#define TEST_S 30
#define SAVE_S 2                /* what a crash makes us request again, at most */
#define FMTP_S 30               /* with a path, FMTP connects within this time */
#define ANNOUNCED_SHARE 16      /* share of the queue for what only datagrams announced */
#define LOOK_NS (NS_PER_S / 10) /* how soon it makes room in the queue on request */
#define FAILURES_MAX 3          /* then LDM6 takes over */

/* LDM7 works again: what LDM6 delivered is complete, and the backlog continues from there. */
static void end_fallback(struct down7 *d)
{
    d->failures = 0;
    d->want_fallback = false;
    struct pq_signature last;
    if (!fallback_stop(&d->fallback, &last))
        return;
    session_set_last(&d->session, &last);
    d->after = last;
    d->has_after = true;
}

/* Counts a failed subscription. hopeless: the next one will also fail. */
static void subscription_fails(struct down7 *d, bool hopeless)
{
    d->hopeless = d->hopeless || hopeless;
    downstream_fails(&d->ds, hopeless);
}

/* Warns once per session if datagrams have no MACs and the configuration did not request that. */
static void warn_of_level(const struct down7 *d)
{
    struct fmtp_session session;
    unsigned level;

    fmtp_client_get_session(d->fmtp, &session, &level);
    if (level == 0 && d->ds.opt->conf->set.mac_level == FMTP_MAC_AUTO)
        log_warn("The datagrams of %s carry no MACs and can be forged%s", d->feed,
                 session.ours ? "" : ": its sender speaks the originals' protocol");
}

static void on_fmtp(void *ctx, uint32_t events)
{
    struct down7 *d = ctx;

    (void)events;
    struct tp_error err;
    if (fmtp_client_service(d->fmtp, &err) < 0) {
        log_warn("FMTP connection lost: %s", err.text);
        downstream_fails(&d->ds, false);
        return;
    }
    if (!d->receiving && fmtp_client_connected(d->fmtp)) {
        d->receiving = true;
        log_note("Receiving");
        warn_of_level(d);
        retry_established(&d->ds.retry, now_ns());
        end_fallback(d);
        down7_backlog_begin(d);
    }
}

static void log_stats(const struct down7 *d)
{
    if (!d->fmtp)
        return;
    struct fmtp_client_stats s;
    fmtp_client_get_stats(d->fmtp, &s);
    log_note("FMTP receiver: datagrams=%" PRIu64 " blocks=%" PRIu64 " duplicate_blocks=%" PRIu64
             " products=%" PRIu64 " missed=%" PRIu64 " "
             "retx_requests=%" PRIu64 " retx_blocks=%" PRIu64 " bad_messages=%" PRIu64
             " socket_drops=%" PRIu64 " "
             "rcvbuf_granted_bytes=%zu forged=%" PRIu64 " mac_failures=%" PRIu64,
             s.datagrams, s.blocks, s.duplicate_blocks, s.products, s.missed, s.retx_requests,
             s.retx_blocks, s.bad_messages, s.socket_drops, s.rcvbuf_granted_bytes, s.forged,
             s.mac_failures);
}

static void show_counters(struct down7 *d)
{
    struct client_counters fmtp = d->before;

    if (!d->page || (!counters_due(&d->pace, d->ds.loop.now_ns) && d->shown == d->ds.state))
        return;
    if (d->fmtp)
        counters_add_client(&fmtp, d->fmtp);
    d->shown = d->ds.state;
    d->counts.receiving = d->receiving;
    d->counts.fallback = d->fallback.pid > 0;
    d->counts.in_flight_products = d->nflights + (d->reservation ? 1 : 0);
    d->counts.awaited_products = d->session.nmissed;
    counters_put_down7(d->page, &d->counts, &fmtp);
}

/* ------------------------------------------------------------------ subscription */

static bool parse_endpoint(const char *text, struct sockaddr_in *out)
{
    char host[64];
    snprintf(host, sizeof host, "%s", text);
    char *colon = strchr(host, ':');
    if (!colon)
        return false;
    *colon++ = '\0';
    char *end;
    unsigned long port = strtoul(colon, &end, 10);
    *out = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return port > 0 && port <= 65535 && *end == '\0' &&
           inet_pton(AF_INET, host, &out->sin_addr) == 1;
}

/* Finds FMTP's address here: of the VLAN's interface, made with the address assigned to us; of the
 * named interface; as configured; or the one by which we reach the server. */
static bool find_interface(struct down7 *d, const struct ldm7_reply *r, struct in_addr server)
{
    const struct conf_receive *rcv = d->rcv;
    struct sockaddr_in here = {0};
    socklen_t n = sizeof here;

    d->iface = rcv->iface;
    if (vlan_is_ours(rcv) && r->prefix_len < 32) {
        vlan_interface(rcv, d->vlan_if, sizeof d->vlan_if);
        d->iface = r->addr;
        return vlan_create(d->ds.opt->conf->set.vlanutil, d->ds.opt->conf->set.nic_tags, d->vlan_if,
                           r, server) == 0;
    }
    if (rcv->iface_name[0] != '\0') {
        if (vlan_address_of(rcv->iface_name, &d->iface))
            return true;
        log_error("interface %s has no IPv4 address", rcv->iface_name);
        return false;
    }
    if (rcv->iface.s_addr == htonl(INADDR_ANY) &&
        getsockname(d->ds.peer.fd, (struct sockaddr *)&here, &n) == 0)
        d->iface = here.sin_addr;
    return true;
}

static bool start_fmtp(struct down7 *d, const struct ldm7_reply *r)
{
    const struct conf_settings *set = &d->ds.opt->conf->set;
    struct fmtp_client_config cfg = {
        .layout = (enum fmtp_layout)set->fmtp_layout,
        .mac_level = set->mac_level,
        .unicast_repair = set->repair == CONF_REPAIR_UNICAST,
        .pdu_bytes = (unsigned)set->pdu_bytes,
        .dead_ns = set->dead_s * NS_PER_S,
        .congestion_control = set->congestion_control,
        .f_rcv = set->f_rcv,
        .r_mc_bps = d->rcv->r_mc_bps,
        .rcvbuf_bytes = set->b_rcv_bytes,
        .ctx = d,
        .begun = down7_begun,
        .ended = down7_ended,
        .missed = down7_missed,
        .withdrawn = down7_withdrawn,
        .lost = d->qlog ? down7_lost : NULL,
        .requested = d->qlog ? down7_requested : NULL,
        .expired = d->qlog ? down7_expired : NULL,
        .queue_full = d->qlog ? down7_queue_full : NULL,
    };

    struct pq_stats queue;
    pq_get_stats(d->ds.queue, &queue);
    cfg.announced_bytes = queue.data_bytes / ANNOUNCED_SHARE;
    struct sockaddr_in group, server;
    if (!parse_endpoint(r->group, &group) || !parse_endpoint(r->server, &server) ||
        !IN_MULTICAST(ntohl(group.sin_addr.s_addr))) {
        log_error("unusable subscription reply");
        return false;
    }
    if (server.sin_addr.s_addr == htonl(INADDR_ANY))
        server.sin_addr = d->ds.peer.addr;
    if (!find_interface(d, r, server.sin_addr))
        return false;
    cfg.interface = tp_ipv4(d->iface, 0);
    cfg.group = tp_ipv4(group.sin_addr, ntohs(group.sin_port));
    cfg.server = tp_ipv4(server.sin_addr, ntohs(server.sin_port));
    struct tp_error err;
    cfg.has_key = keys_get(d->rcv->key_file, cfg.key);
    d->fmtp = fmtp_client_open(&cfg, &err);
    if (!d->fmtp) {
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
    char addr[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &r->addr, addr, sizeof addr);
    char feed[FEEDTYPE_TEXT_MAX];
    log_note("Subscription reply from %s: mcastGroup={feed=%s, mcastGrp=%s, fmtpSrvr=%s}, "
             "ifaceCidrAddr=%s/%u",
             d->rcv->host, feedtype_format(r->feed, feed, sizeof feed), r->group, r->server, addr,
             r->prefix_len);
    downstream_feeding(&d->ds);
    d->counts.sessions++;
    d->backlog = BACKLOG_NOT_YET;
    d->has_first = d->told_forged = false;
    progress_start(&d->progress);
    d->has_after = d->session.has_last;
    d->after = d->session.last;
    d->last_request_ns = now_ns();
    if (!start_fmtp(d, r)) {
        downstream_fails(&d->ds, false); /* NIC1 may not be up yet */
        return;
    }
    down7_request_all_missed(d);
}

/* Returns whether the server has no LDM7, or none for us. */
static bool is_hopeless(uint32_t status)
{
    return status != LDM7_TIMEDOUT && status != LDM7_MCAST && status != LDM7_INTR &&
           status != LDM7_SHUTDOWN;
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct down7 *d = ctx;

    if (d->ds.state == DS_FEEDING)
        return xin_done(body) && down7_backlog_fence(d, m);
    if (d->ds.state != DS_ASKING || m->xid != d->ds.xid)
        return false;
    if (downstream_refused(&d->ds, m)) {
        subscription_fails(d, true);
        return true;
    }
    struct ldm7_reply r;
    xin_subscription_reply(body, &r);
    if (!xin_done(body))
        return false;
    if (r.status != LDM7_OK) {
        log_error("%s refused the subscription to %s: %s", d->rcv->host, d->feed,
                  ldm7_strstatus(r.status));
        subscription_fails(d, is_hopeless(r.status));
        return true;
    }
    run(d, &r);
    return true;
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct down7 *d = ctx;

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
    case LDM7_NO_SUCH_PRODUCT: return down7_no_such_product(d, args);
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

    peer_watch(&d->ds.peer, d->ds.opt->conf->set.dead_s);
    downstream_asked(&d->ds,
                     peer_call(&d->ds.peer, LDM_VERS7, LDM7_SUBSCRIBE, put_subscription, d->rcv));
}

static void save(struct down7 *d, uint64_t now)
{
    struct pq_signature last;

    if (d->backlog == BACKLOG_DONE && progress_last(&d->progress, &last))
        session_set_last(&d->session, &last);
    d->saved_ns = now;
    if (d->session.dirty && d->path[0] != '\0' && session_save(&d->session, d->path) < 0)
        log_warn("cannot write %s: errno %d", d->path, errno);
}

static void ended_session(void *ctx)
{
    struct down7 *d = ctx;

    log_stats(d);
    loop_del(&d->ds.loop, &d->fmtp_src);
    if (d->fmtp) {
        counters_add_client(&d->before, d->fmtp);
        fmtp_client_close(d->fmtp);
    }
    d->fmtp = NULL;
    down7_drop_flights(d);
    rpc_stream_end(&d->ds.peer.in); /* note a truncated product as missed before saving */
    save(d, now_ns());
    if (!d->receiving && (++d->failures >= FAILURES_MAX || d->hopeless))
        d->want_fallback = d->ds.opt->conf->set.fallback;
    d->backlog = BACKLOG_NOT_YET;
    d->receiving = d->hopeless = false;
}

static uint64_t tend(void *ctx, uint64_t now)
{
    struct down7 *d = ctx;
    uint64_t fmtp_by = d->ds.since_ns + FMTP_S * NS_PER_S;

    uint64_t up_to;
    bool asked = (d->nflights || d->reservation) && pq_room_asked(d->ds.queue, &up_to);
    if (asked)
        down7_let_go(d, up_to);
    if (down7_product_must_go(d, asked, now))
        downstream_fails(&d->ds, false);
    if (!d->receiving && now >= fmtp_by) {
        log_warn("no FMTP connection over %s within %d s", d->feed, FMTP_S);
        downstream_fails(&d->ds, false);
        return now;
    }
    if (now >= d->last_request_ns + TEST_S * NS_PER_S) {
        peer_call(&d->ds.peer, LDM_VERS7, LDM7_TEST_CONNECTION, NULL, NULL);
        d->last_request_ns = now;
    }
    if (d->session.dirty && now >= d->saved_ns + SAVE_S * NS_PER_S)
        save(d, now);
    uint64_t test = d->last_request_ns + TEST_S * NS_PER_S;
    uint64_t save_at = d->saved_ns + SAVE_S * NS_PER_S;
    if (!d->receiving && fmtp_by < test)
        test = fmtp_by;
    if ((d->nflights || d->reservation) && now + LOOK_NS < test)
        test = now + LOOK_NS;
    if (d->page && counters_deadline(&d->pace) < test)
        test = counters_deadline(&d->pace);
    return d->session.dirty && save_at < test ? save_at : test;
}

static void close_mine(void *ctx)
{
    struct down7 *d = ctx;

    pq_close(d->ds.queue);
    loop_close(&d->ds.loop);
}

static void after_turn(void *ctx)
{
    struct down7 *d = ctx;

    show_counters(d);
    if (d->ds.loop.got_chld) {
        d->ds.loop.got_chld = false;
        fallback_reap(&d->fallback);
    }
    /* Between two connections the new process has nothing to close. */
    if (d->want_fallback && d->ds.state == DS_IDLE)
        fallback_start(&d->fallback, d->ds.queue, d->session.has_last ? &d->session.last : NULL,
                       close_mine, d);
    if (!d->ds.loop.got_usr1)
        return;
    d->ds.loop.got_usr1 = false;
    log_stats(d);
}

int down7_run(const struct options *opt, const struct conf_receive *rcv, struct stats_page *page,
              struct qlog *qlog)
{
    static const struct downstream_role role = {.prog = "down7",
                                                .reply_s = SUBSCRIBE_S,
                                                .ask = ask,
                                                .tend = tend,
                                                .ended = ended_session,
                                                .sink = {.call = on_call,
                                                         .reply = on_reply,
                                                         .product_begin = down7_product_begin,
                                                         .product_end = down7_product_end,
                                                         .product_abort = down7_product_abort}};
    static struct down7 d;

    d = (struct down7){.rcv = rcv, .fmtp_src = {.fd = -1}, .page = page, .qlog = qlog};
    if (downstream_open(&d.ds, opt, &role, &d, rcv->host, rcv->port) < 0) {
        stats_close(page);
        qlog_close(qlog);
        return 1;
    }
    feedtype_format(rcv->feed, d.feed, sizeof d.feed);
    if (!session_path(d.path, sizeof d.path, opt->queue, rcv->host, rcv->port, d.feed))
        d.path[0] = '\0';
    else
        session_load(&d.session, d.path);
    char addr[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &rcv->iface, addr, sizeof addr);
    log_note("Downstream LDM7 starting up: remoteLDM7=%s:%u, feed=%s, fmtpIface=%s, "
             "vcEndPoint={switch=%s, port=%s, vlanId=%u}, pq=\"%s\"",
             rcv->host, rcv->port, d.feed, addr, rcv->switch_id, rcv->port_id, rcv->vlan,
             opt->queue);
    d.saved_ns = now_ns();
    d.ds.retry.denied_s = opt->conf->set.retry_s;
    fallback_init(&d.fallback, opt, rcv);
    downstream_run(&d.ds, after_turn);
    fallback_stop(&d.fallback, &(struct pq_signature){{0}});
    if (d.vlan_if[0] != '\0')
        vlan_destroy(opt->conf->set.vlanutil, d.vlan_if);
    progress_free(&d.progress);
    session_free(&d.session);
    downstream_close(&d.ds);
    stats_close(page);
    qlog_close(qlog);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * LDM7 upstream: subscription, backstop and backlog of one subscriber (LDM-6.13.17 up7.c). mldm
 * multicasts the products themselves.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/feedtype.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "common/product_line.h"
#include "pim.h"
#include "upstream.h"

#define MLDM_ANSWER_S 30 /* in addition to the time that mldm may wait for the path service */
#define CLIENT_SILENT_S 60

static void put_reply(struct xout *x, const void *arg)
{
    xout_subscription_reply(x, arg);
}

static bool refuse(struct upstream *u, uint32_t xid, enum ldm7_status status)
{
    struct ldm7_reply r = {.status = status};

    log_peer_note(u->peer.host, "%s: subscription refused: %s", u->peer.host,
                  ldm7_strstatus(status));
    peer_reply(&u->peer, xid, put_reply, &r);
    u->closing = true;
    u->replied = true;
    return true;
}

/* Returns the FMTP sender's address for the subscriber: as configured, or where it reached this
 * server. */
static struct in_addr server_address(const struct upstream *u)
{
    struct sockaddr_in here = {0};
    socklen_t n = sizeof here;

    if (u->entry->fmtp_addr.s_addr == htonl(INADDR_ANY) &&
        getsockname(u->peer.fd, (struct sockaddr *)&here, &n) == 0)
        return here.sin_addr;
    return u->entry->fmtp_addr;
}

static void accept_subscriber(struct upstream *u, const struct mldm_answer *a)
{
    struct ldm7_reply r = {
        .status = LDM7_OK, .feed = u->entry->feed, .addr = a->addr, .prefix_len = a->prefix_len};
    struct in_addr server = server_address(u);
    char addr[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &u->entry->group.sin_addr, addr, sizeof addr);
    snprintf(r.group, sizeof r.group, "%s:%u", addr, ntohs(u->entry->group.sin_port));
    inet_ntop(AF_INET, &server, addr, sizeof addr);
    snprintf(r.server, sizeof r.server, "%s:%u", addr, a->tcp_port);
    peer_reply(&u->peer, u->subscribe_xid, put_reply, &r);
    u->replied = true;
    inet_ntop(AF_INET, &r.addr, addr, sizeof addr);
    log_peer_served(u->peer.host,
                    "%s subscribed to %s: mcastGrp=%s, fmtpSrvr=%s, ifaceCidrAddr=%s/%u",
                    u->peer.host, u->feed_name, r.group, r.server, addr, r.prefix_len);
}

/* mldm answered or has ended; in the latter case the subscriber must subscribe again. */
static void on_channel(void *ctx, uint32_t events)
{
    struct upstream *u = ctx;
    struct mldm_answer a;
    ssize_t n = recv(u->channel_src.fd, &a, sizeof a, MSG_DONTWAIT);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == (ssize_t)sizeof a && !u->replied) {
        if (a.status == LDM7_OK)
            accept_subscriber(u, &a);
        else
            refuse(u, u->subscribe_xid, a.status);
        return;
    }
    log_peer_warn(u->peer.host, "multicast sender of %s ended", u->feed_name);
    if (u->replied)
        u->finished = true;
    else
        refuse(u, u->subscribe_xid, LDM7_MCAST);
    loop_events(&u->loop, &u->channel_src, 0);
}

/* Returns the MULTICAST entry whose whole feed was requested and is allowed. */
static const struct conf_multicast *find_entry(const struct conf *c, uint32_t feed)
{
    const struct conf_multicast *found = NULL;

    for (size_t i = 0; i < c->nmulticasts; i++) {
        const struct conf_multicast *m = &c->multicasts[i];

        if (m->feed == feed)
            return m;
        if (!found && m->feed != 0 && (m->feed & ~feed) == 0)
            found = m;
    }
    return found;
}

/* "dummy" (LDM-6.13.17) or nothing: the subscriber is on the path without its own VLAN. */
static bool has_endpoint(const struct ldm7_subscription *s)
{
    return s->switch_id[0] != '\0' && strcmp(s->switch_id, "dummy") != 0 && s->port_id[0] != '\0' &&
           strcmp(s->port_id, "dummy") != 0;
}

static uint64_t answer_by_ns(const struct upstream *u)
{
    const struct conf_settings *set = &u->env->opt->conf->set;
    uint64_t path_s = set->path_service[0] != '\0' ? set->path_timeout_s : 0;

    return u->subscribed_ns + (MLDM_ANSWER_S + path_s) * NS_PER_S;
}

/* Fills in what the path service must know about the subscriber. Returns false if there is no such
 * endpoint. */
static bool find_leaf(const struct upstream *u, const struct ldm7_subscription *s,
                      struct mldm_request *req)
{
    if (!has_endpoint(s) || !conf_has_path(u->env->opt->conf, u->entry))
        return true;
    const char *why;
    req->wants_leaf = path_endpoint_set(&req->leaf, s->switch_id, s->port_id, s->vlan, &why);
    if (!req->wants_leaf)
        log_peer_warn(u->peer.host, "%s: endpoint %s/%s vlan %u: %s", u->peer.host, s->switch_id,
                      s->port_id, s->vlan, why);
    return req->wants_leaf;
}

bool up7_subscribe(struct upstream *u, const struct rpc_msg *m, struct xin *args)
{
    const struct conf *c = u->env->opt->conf;
    struct mldm_request req = {.subscriber = u->peer.addr};

    struct ldm7_subscription s;
    xin_subscription(args, &s);
    if (!xin_done(args)) {
        peer_reply_error(&u->peer, m->xid, RPC_GARBAGE_ARGS);
        u->closing = true;
        return true;
    }
    log_set_prog("up7");
    feedtype_format(s.feed, u->feed_name, sizeof u->feed_name);
    log_peer_note(u->peer.host,
                  "Incoming subscription request from %s for feed %s, endpoint %s/%s vlan %u",
                  u->peer.host, u->feed_name, s.switch_id, s.port_id, s.vlan);
    uint32_t allowed = upstream_allowed(u, s.feed);
    if (allowed == 0)
        return refuse(u, m->xid, LDM7_UNAUTH);
    u->entry = find_entry(c, allowed);
    if (!u->entry)
        return refuse(u, m->xid, LDM7_NOENT);
    feedtype_format(u->entry->feed, u->feed_name, sizeof u->feed_name);
    if (!find_leaf(u, &s, &req))
        return refuse(u, m->xid, LDM7_INVAL);
    if (!upstream_open_queue(u))
        return refuse(u, m->xid, LDM7_PQ);
    req.wants_address = has_endpoint(&s) && u->entry->subnet_len > 0 && u->entry->subnet_len < 32;
    snprintf(req.endpoint, sizeof req.endpoint, "%s %s %s %u", u->peer.host, s.switch_id, s.port_id,
             s.vlan);
    int fd = mldm_subscribe(u->env->mldm_fds[u->entry - c->multicasts], &req);
    if (fd < 0 || loop_add(&u->loop, &u->channel_src, fd, EPOLLIN, on_channel, u) < 0) {
        log_error("cannot reach the multicast sender of %s: %s", u->feed_name, strerror(errno));
        if (fd >= 0)
            close(fd);
        return refuse(u, m->xid, LDM7_SYSTEM);
    }
    peer_watch(&u->peer, c->set.dead_s);
    u->role = UP_LDM7;
    u->subscribe_xid = m->xid;
    u->subscribed_ns = u->loop.now_ns;
    u->at_end = true;
    return true;
}

static bool request_product(struct upstream *u, struct xin *args)
{
    uint32_t index = xin_u32(args);

    if (!xin_done(args) || u->pending_count == UP7_PENDING)
        return false;
    u->pending[(u->pending_head + u->pending_count++) % UP7_PENDING] = index;
    return true;
}

static bool request_backlog(struct upstream *u, struct xin *args)
{
    struct ldm7_backlog b;
    xin_backlog(args, &b);
    if (!xin_done(args))
        return false;
    if (u->backlog_active) {
        log_peer_warn(u->peer.host, "%s: second backlog request ignored", u->peer.host);
        return true;
    }
    u->backlog = b;
    u->backlog_active = true;
    u->backlog_by_time = true;
    u->cursor = 0;
    u->backlog_end = pq_last_seq(u->queue);
    struct pq_view v;
    if (b.after_is_set && pq_find(u->queue, &b.after, &v) == PQ_OK) {
        u->cursor = v.seq;
        u->backlog_by_time = false;
        pq_release(u->queue, &v);
    }
    if (pq_find(u->queue, &b.before, &v) == PQ_OK) {
        u->backlog_end = v.seq - 1;
        pq_release(u->queue, &v);
    }
    return true;
}

/* Answers NULLPROC when everything requested before has been sent. */
static bool fence(struct upstream *u, uint32_t xid)
{
    if (u->fenced)
        return false;
    if (!u->backlog_active) {
        peer_reply(&u->peer, xid, NULL, NULL);
        return true;
    }
    u->fenced = true;
    u->fence_xid = xid;
    return true;
}

bool up7_call(struct upstream *u, const struct rpc_msg *m, struct xin *args)
{
    struct ldm7_reply already = {.status = LDM7_EXISTS};

    if (m->proc == LDM7_SUBSCRIBE) {
        peer_reply(&u->peer, m->xid, put_reply, &already);
        return true;
    }
    if (!u->replied)
        return false;
    switch (m->proc) {
    case LDM7_REQUEST_PRODUCT: return request_product(u, args);
    case LDM7_REQUEST_BACKLOG: return request_backlog(u, args);
    case LDM7_TEST_CONNECTION: return true;
    case LDM7_NULL: return fence(u, m->xid);
    default: return false;
    }
}

static void put_u32(struct xout *x, const void *arg)
{
    xout_u32(x, *(const uint32_t *)arg);
}

static struct pim *get_pim(struct upstream *u)
{
    char path[4096];

    if (!u->pim && pim_path(path, sizeof path, u->env->opt->queue, u->feed_name))
        u->pim = pim_open(path, false, 0, NULL);
    return u->pim;
}

static void answer_request(struct upstream *u, uint32_t index)
{
    struct pq_signature sig;
    struct pq_view v;
    if (!get_pim(u) || !pim_get(u->pim, index, &sig) || pq_find(u->queue, &sig, &v) != PQ_OK) {
        log_peer_warn(u->peer.host, "%s: no such product: index=%u", u->peer.host, index);
        peer_call(&u->peer, LDM_VERS7, LDM7_NO_SUCH_PRODUCT, put_u32, &index);
        return;
    }
    char line[PRODUCT_LINE_MAX];
    log_info("Missed product sent: index=%u, info=\"%s\"", index,
             product_line_format(&v.info, line, sizeof line));
    peer_send_product(&u->peer, LDM_VERS7, LDM7_DELIVER_MISSED, true, index, u->queue, &v);
}

static bool backlog_wants(const struct upstream *u, const struct pq_info *info)
{
    if ((info->feedtype & u->entry->feed) == 0 ||
        !conf_allows_product(u->env->opt->conf, info, u->names, u->nnames))
        return false;
    return !u->backlog_by_time || (int64_t)info->creation.tv_sec >=
                                      (int64_t)time(NULL) - (int64_t)u->backlog.time_offset_s;
}

static void pump_backlog(struct upstream *u)
{
    char line[PRODUCT_LINE_MAX];

    struct pq_view v;
    for (int i = 0; i < PUMP_STEPS && u->backlog_active && peer_has_room(&u->peer); i++) {
        if (u->cursor >= u->backlog_end || pq_next(u->queue, u->cursor, &v) != PQ_OK) {
            u->backlog_active = false;
            break;
        }
        u->cursor = v.seq;
        if (v.seq > u->backlog_end || !backlog_wants(u, &v.info)) {
            pq_release(u->queue, &v);
            continue;
        }
        log_info("Backlog product sent: %s", product_line_format(&v.info, line, sizeof line));
        peer_send_product(&u->peer, LDM_VERS7, LDM7_DELIVER_BACKLOG, false, 0, u->queue, &v);
    }
}

bool up7_pump(struct upstream *u, uint64_t now)
{
    if (!u->replied) {
        if (now >= answer_by_ns(u))
            refuse(u, u->subscribe_xid, LDM7_TIMEDOUT);
        return false;
    }
    while (u->pending_count > 0 && peer_has_room(&u->peer)) {
        answer_request(u, u->pending[u->pending_head]);
        u->pending_head = (u->pending_head + 1) % UP7_PENDING;
        u->pending_count--;
    }
    pump_backlog(u);
    if (u->fenced && !u->backlog_active) {
        u->fenced = false;
        peer_reply(&u->peer, u->fence_xid, NULL, NULL);
    }
    if (!peer_has_output(&u->peer) && now >= u->peer.last_in_ns + CLIENT_SILENT_S * NS_PER_S &&
        now >= u->peer.last_out_ns + CLIENT_SILENT_S * NS_PER_S)
        peer_call(&u->peer, LDM_VERS7, LDM7_TEST_CONNECTION, NULL, NULL);
    return u->pending_count > 0 || u->backlog_active;
}

uint64_t up7_deadline(const struct upstream *u)
{
    uint64_t in = u->peer.last_in_ns, out = u->peer.last_out_ns;

    if (!u->replied)
        return answer_by_ns(u);
    if (peer_has_output(&u->peer))
        return LOOP_FOREVER; /* the socket reports when it accepts more */
    return (in > out ? in : out) + CLIENT_SILENT_S * NS_PER_S;
}

bool up7_may_read(const struct upstream *u)
{
    return UP7_PENDING - u->pending_count >= UP7_READ_CHUNK_REQUESTS;
}

void up7_end(struct upstream *u)
{
    int fd = u->channel_src.fd;

    loop_del(&u->loop, &u->channel_src);
    if (fd >= 0)
        close(fd);
    pim_close(u->pim);
}

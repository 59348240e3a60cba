/* SPDX-License-Identifier: Apache-2.0
 *
 * Multicast LDM sender of one MULTICAST entry: queue -> FMTP (LDM-6.13.17 mldm_sender).
 *
 * A product gets a product index when it is offered to FMTP, which happens only while there is at
 * least one receiver. Earlier products reach a new subscriber as backlog, by signature.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "common/product_line.h"
#include "counters.h"
#include "fmtp.h"
#include "fmtp_events.h"
#include "keys.h"
#include "pim.h"
#include "process.h"
#include "qlog.h"
#include "subscribers.h"

#define PUMP_STEPS 256
#define TELL_AHEAD_S 60

/* A product that FMTP is sending. */
struct flight {
    TAILQ_ENTRY(flight) link;
    uint32_t index;
    struct pq_view view;
    uint8_t info[XDR_INFO_MAX];
};

struct mldm {
    const struct options *opt;
    const struct conf_multicast *entry;
    struct loop loop;
    struct loop_source queue_src, fmtp_src;
    struct pq *queue;
    struct pim *pim;
    struct fmtp_server *fmtp;
    struct subscribers *subscribers;
    TAILQ_HEAD(, flight) flights; /* in the queue's order */
    uint64_t cursor;
    uint32_t next_index;
    bool at_end;
    uint64_t told_ahead, tell_ahead_ns;
    struct stats_page *page; /* NULL: none */
    struct qlog *qlog;       /* NULL: none */
    struct counters_pace pace;
    struct mldm_counters counts;
    char feed[FEEDTYPE_TEXT_MAX];
};

static const uint8_t zeroes[4];

static bool authorize(void *ctx, const struct sockaddr *from)
{
    struct mldm *m = ctx;

    return m->subscribers &&
           subscribers_authorize(m->subscribers, ((const struct sockaddr_in *)from)->sin_addr);
}

static struct fmtp_grant grant(void *ctx, const struct sockaddr *host)
{
    const struct mldm *m = ctx;

    return subscribers_grant(m->subscribers, ((const struct sockaddr_in *)host)->sin_addr);
}

static const char *host_of(const struct sockaddr *peer, char text[INET_ADDRSTRLEN])
{
    return inet_ntop(AF_INET, &((const struct sockaddr_in *)peer)->sin_addr, text, INET_ADDRSTRLEN);
}

static void notice(void *ctx, const struct sockaddr *peer, enum fmtp_notice what)
{
    char text[INET_ADDRSTRLEN];

    (void)ctx;
    host_of(peer, text);
    /* One line of the source for each kind that has its own limit. */
    switch (what) {
    case FMTP_NOTICE_ORDINARY:
        log_peer_note(text, "Receiver %s %s", text, fmtp_notice_text(what));
        break;
    case FMTP_NOTICE_ALONE:
    case FMTP_NOTICE_TOGETHER:
        log_peer_warn(text, "Receiver %s %s", text, fmtp_notice_text(what));
        break;
    case FMTP_NOTICE_BAD:
    case FMTP_NOTICE_EXCESS:
        log_peer_warn(text, "Receiver %s %s", text, fmtp_notice_text(what));
        break;
    default: log_peer_warn(text, "Connection of %s %s", text, fmtp_notice_text(what));
    }
}

/* ------------------------------------------------------------------ products */

static void multicasted(void *ctx, uint32_t index, void *cookie)
{
    const struct mldm *m = ctx;
    const struct flight *f = cookie;

    qlog_event(m->qlog, FMTP_EVENT_SENT, "\"index\":%u", index);
    char line[PRODUCT_LINE_MAX];
    if (log_enabled(LOG_LVL_INFO))
        log_info("Multicasted: prodIndex=%u, prodInfo=\"%s\"", index,
                 product_line_format(&f->view.info, line, sizeof line));
}

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct mldm *m = ctx;
    struct flight *f = cookie;

    const char *reason = why == FMTP_RELEASE_ALL_DONE  ? "all-done"
                         : why == FMTP_RELEASE_FAILED  ? "failed"
                         : why == FMTP_RELEASE_TIMEOUT ? "timeout"
                                                       : "closed";
    log_info("Released: prodIndex=%u, why=%s", index, reason);
    qlog_event(m->qlog, FMTP_EVENT_RELEASED, "\"index\":%u,\"why\":\"%s\"", index, reason);
    pq_release(m->queue, &f->view);
    TAILQ_REMOVE(&m->flights, f, link);
    free(f);
}

/* A process waits for room in the queue: disconnects receivers that hold back one of the oldest
 * products. */
static void let_go(struct mldm *m)
{
    uint64_t up_to;
    const struct flight *newest = NULL, *f;

    if (!pq_room_asked(m->queue, &up_to))
        return;
    TAILQ_FOREACH (f, &m->flights, link)
        if (f->view.seq <= up_to)
            newest = f;
    if (newest)
        fmtp_server_let_go(m->fmtp, newest->index);
}

static void receivers_changed(void *ctx, const struct sockaddr *peer, int change, size_t count)
{
    const struct mldm *m = ctx;
    char text[INET_ADDRSTRLEN];
    host_of(peer, text);
    qlog_event(m->qlog, change > 0 ? FMTP_EVENT_JOINED : FMTP_EVENT_LEFT,
               "\"host\":\"%s\",\"receivers\":%zu", text, count);
    log_peer_served(text, "Receiver %s %s, receivers=%zu", text,
                    change > 0 ? "connected" : "disconnected", count);
}

static void requested(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks,
                      bool multicast)
{
    const struct mldm *m = ctx;
    char text[INET_ADDRSTRLEN];

    qlog_event(m->qlog, FMTP_EVENT_REQUESTED,
               "\"index\":%u,\"blocks\":%u,\"by\":\"%s\",\"host\":\"%s\"", index, blocks,
               multicast ? "multicast" : "tcp", host_of(peer, text));
}

static void repaired(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks)
{
    const struct mldm *m = ctx;
    char text[INET_ADDRSTRLEN];

    qlog_event(m->qlog, FMTP_EVENT_REPAIRED, "\"index\":%u,\"blocks\":%u,\"by\":\"%s\"%s%s%s",
               index, blocks, peer ? "tcp" : "multicast", peer ? ",\"host\":\"" : "",
               peer ? host_of(peer, text) : "", peer ? "\"" : "");
}

static void queue_full(void *ctx, const struct sockaddr *peer, uint32_t index)
{
    const struct mldm *m = ctx;
    char text[INET_ADDRSTRLEN];

    qlog_event(m->qlog, FMTP_EVENT_FULL, "\"index\":%u,\"host\":\"%s\"", index,
               host_of(peer, text));
}

static void expired(void *ctx, uint32_t index)
{
    const struct mldm *m = ctx;

    qlog_event(m->qlog, FMTP_EVENT_EXPIRED, "\"index\":%u,\"timer\":\"tau_snd\"", index);
}

static void laggard(void *ctx, const struct sockaddr *peer, const struct fmtp_held *held)
{
    (void)ctx;
    char text[INET_ADDRSTRLEN];
    host_of(peer, text);
    log_peer_warn(
        text,
        "Receiver %s holds back too much and is disconnected: products=%zu, bytes=%" PRIu64 ", "
        "seconds=%" PRIu64 "; it may subscribe again",
        text, held->products, held->bytes, (uint64_t)(held->behind_ns / NS_PER_S));
}

/* Reports requests about products that were not sent yet. */
static void tell_ahead(struct mldm *m)
{
    struct fmtp_server_stats s;

    fmtp_server_get_stats(m->fmtp, &s);
    if (s.ahead == m->told_ahead || m->loop.now_ns < m->tell_ahead_ns)
        return;
    log_warn("%" PRIu64
             " requests about products of %s that were not sent yet: forged datagrams reach a "
             "receiver, or it is hostile",
             s.ahead - m->told_ahead, m->feed);
    m->told_ahead = s.ahead;
    m->tell_ahead_ns = m->loop.now_ns + TELL_AHEAD_S * NS_PER_S;
}

/* A subscription of this address ended, so its connection ends too, whatever its state. */
static void left(void *ctx, struct in_addr addr, size_t others)
{
    struct mldm *m = ctx;
    struct sockaddr_storage host = tp_ipv4(addr, 0);

    fmtp_server_disconnect(m->fmtp, &host, others);
}

static void offer(struct mldm *m, const struct pq_view *v)
{
    struct flight *f = xcalloc(1, sizeof *f);
    size_t pad = xdr_pad(v->info.size);
    struct pq_view copy = *v;
    uint32_t index = m->next_index;

    f->view = copy;
    f->index = index;
    TAILQ_INSERT_TAIL(&m->flights, f, link);
    struct xout x;
    xout_init(&x, f->info, sizeof f->info);
    xout_info(&x, &v->info);
    struct iovec parts[3];
    parts[0] = (struct iovec){f->info, x.len};
    parts[1] = (struct iovec){(void *)(uintptr_t)v->data, v->info.size};
    parts[2] = (struct iovec){(void *)(uintptr_t)zeroes, pad};
    /* The map gets the index before the network does, so a crash cannot cause its reuse. */
    if (pim_put(m->pim, index, &copy.info.signature) < 0)
        log_error("cannot record product index %u: errno %d", index, errno);
    struct tp_error err;
    uint32_t offered;
    if (x.overflow || fmtp_server_offer(m->fmtp, parts, pad > 0 ? 3 : 2, copy.info.signature.bytes,
                                        sizeof copy.info.signature.bytes, f, &offered, &err) < 0) {
        pim_take_back(m->pim, index);
        log_error("cannot multicast \"%s\" of %u bytes: %s", copy.info.ident, copy.info.size,
                  x.overflow ? "product information too long" : err.text);
        pq_release(m->queue, &copy);
        TAILQ_REMOVE(&m->flights, f, link);
        free(f);
        return;
    }
    m->next_index++;
    char name[QLOG_TEXT];
    if (m->qlog)
        qlog_event(m->qlog, FMTP_EVENT_STARTED, "\"index\":%u,\"bytes\":%u,\"name\":%s", index,
                   copy.info.size, qlog_text(name, copy.info.ident));
    m->counts.offered_products++;
    m->counts.offered_bytes += copy.info.size;
    m->counts.last_product_timestamp_seconds = counters_timestamp();
    if (offered != index) /* cannot happen: both count from the same first index */
        log_error("product index %u is recorded as %u", offered, index);
}

/* Returns true if there may be more to do at once. */
static bool pump(struct mldm *m)
{
    struct pq_view v;

    for (int i = 0; i < PUMP_STEPS && !m->at_end; i++) {
        bool listeners = fmtp_server_receivers(m->fmtp) > 0;

        if (listeners && !fmtp_server_ready(m->fmtp))
            return false;
        enum pq_status st = pq_next(m->queue, m->cursor, &v);
        if (st == PQ_END) {
            m->at_end = true;
            return false;
        }
        if (st != PQ_OK) {
            log_error("product queue: %s", pq_strerror(st));
            m->loop.stop = true;
            return false;
        }
        m->cursor = v.seq;
        if (listeners && (v.info.feedtype & m->entry->feed) != 0)
            offer(m, &v);
        else
            pq_release(m->queue, &v);
    }
    return !m->at_end;
}

/* ------------------------------------------------------------------ process */

static void on_queue(void *ctx, uint32_t events)
{
    struct mldm *m = ctx;

    (void)events;
    pq_notify_clear(m->queue);
    m->at_end = false;
    let_go(m);
}

static void on_fmtp(void *ctx, uint32_t events)
{
    struct mldm *m = ctx;

    (void)events;
    struct tp_error err;
    if (fmtp_server_service(m->fmtp, &err) < 0) {
        log_error("FMTP sender: %s", err.text);
        m->loop.stop = true;
    }
    tell_ahead(m);
}

/* Returns when to call this again: what a receiver holds back grows older. */
static uint64_t show_counters(struct mldm *m, uint64_t now)
{
    if (!m->page)
        return LOOP_FOREVER;
    if (counters_due(&m->pace, now)) {
        m->counts.queued_products = pq_last_seq(m->queue) - m->cursor;
        counters_put_mldm(m->page, &m->counts, m->fmtp);
    }
    uint64_t due = counters_deadline(&m->pace);
    return due == LOOP_FOREVER && !TAILQ_EMPTY(&m->flights) ? now + NS_PER_S : due;
}

static void log_stats(const struct mldm *m)
{
    struct fmtp_server_stats s;

    fmtp_server_get_stats(m->fmtp, &s);
    log_note("FMTP sender: products=%" PRIu64 " datagrams=%" PRIu64 " datagram_bytes=%" PRIu64
             " blocks=%" PRIu64 " "
             "retx_requests=%" PRIu64 " retx_blocks=%" PRIu64 " retx_bytes=%" PRIu64
             " rejects=%" PRIu64 " timeouts=%" PRIu64 " "
             "bad_messages=%" PRIu64 " laggards=%" PRIu64 " refused=%" PRIu64 " displaced=%" PRIu64
             " excess=%" PRIu64 " alone=%zu "
             "ahead=%" PRIu64 " strangers=%" PRIu64,
             s.products, s.datagrams, s.datagram_bytes, s.blocks, s.retx_requests, s.retx_blocks,
             s.retx_bytes, s.rejects, s.timeouts, s.bad_messages, s.laggards, s.refused,
             s.displaced, s.excess, s.alone, s.ahead, s.strangers);
}

static bool start_fmtp(struct mldm *m, uint32_t first_index)
{
    const struct conf_settings *set = &m->opt->conf->set;
    struct pq_stats queue;
    pq_get_stats(m->queue, &queue);
    double bytes = (double)queue.data_bytes;
    struct fmtp_server_config cfg = {
        .layout = (enum fmtp_layout)set->fmtp_layout,
        .address = tp_ipv4(m->entry->fmtp_addr, m->entry->fmtp_port),
        .group = tp_ipv4(m->entry->group.sin_addr, ntohs(m->entry->group.sin_port)),
        .ttl = set->ttl,
        .mac_level = set->mac_level,
        .unicast_repair = set->repair == CONF_REPAIR_UNICAST,
        .no_parity = set->repair == CONF_REPAIR_BLOCKS,
        .pdu_bytes = (unsigned)set->pdu_bytes,
        .sndbuf_bytes = set->b_snd_bytes,
        .congestion_control = set->congestion_control,
        .first_index = first_index,
        .f_snd = set->f_snd,
        .timer_from_bop = set->timer_from_bop,
        .timer_by_handover = set->timer_by_handover,
        .handover_ns = (uint64_t)(set->handover_us * 1e3 + 0.5),
        .blocking = set->blocking,
        .r_mc_bps = m->entry->r_mc_bps,
        .r_uc_bps = set->r_uc_bps,
        .dead_ns = set->dead_s * NS_PER_S,
        .held = {.products = set->held_products,
                 .bytes = (uint64_t)(set->held_share * bytes),
                 .behind_ns = set->held_s * NS_PER_S,
                 .total_bytes =
                     set->held_share > 0 ? (uint64_t)((1 + set->held_share) / 2 * bytes) : 0},
        .ctx = m,
        .laggard = laggard,
        .authorize = authorize,
        .grant = grant,
        .notice = notice,
        .multicasted = multicasted,
        .released = released,
        .receivers_changed = receivers_changed,
        .requested = m->qlog ? requested : NULL,
        .repaired = m->qlog ? repaired : NULL,
        .queue_full = m->qlog ? queue_full : NULL,
        .expired = m->qlog ? expired : NULL,
    };

    struct tp_error err;
    cfg.has_key = keys_get(m->entry->key_file, cfg.key);
    m->fmtp = fmtp_server_open(&cfg, &err);
    if (!m->fmtp) {
        log_error("cannot start the FMTP sender of %s: %s", m->feed, err.text);
        return false;
    }
    struct fmtp_server_stats stats;
    fmtp_server_get_stats(m->fmtp, &stats);
    if (stats.sndbuf_granted_bytes < set->b_snd_bytes)
        log_warn("UDP send buffer: %zu of %" PRIu64 " bytes granted", stats.sndbuf_granted_bytes,
                 set->b_snd_bytes);
    return true;
}

static bool start(struct mldm *m, int control_fd)
{
    enum pq_status st = pq_open(m->opt->queue, false, &m->queue);
    bool fresh = false;

    if (st != PQ_OK) {
        m->queue = NULL;
        log_error("cannot open product queue %s: %s", m->opt->queue, pq_strerror(st));
        return false;
    }
    struct pq_stats stats;
    pq_get_stats(m->queue, &stats);
    m->cursor = pq_last_seq(m->queue);
    feedtype_format(m->entry->feed, m->feed, sizeof m->feed);
    char path[4096];
    if (pim_path(path, sizeof path, m->opt->queue, m->feed))
        m->pim = pim_open(path, true, stats.slots, &fresh);
    if (!m->pim) {
        log_error("cannot open the product-index map %s: errno %d", path, errno);
        return false;
    }
    m->next_index = pim_next_index(m->pim);
    if (!start_fmtp(m, m->next_index))
        return false;
    m->subscribers =
        subscribers_open(&m->loop, m->opt, m->entry, fmtp_server_tcp_port(m->fmtp), control_fd);
    if (!m->subscribers)
        return false;
    subscribers_on_leave(m->subscribers, left, m);
    char addr[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &m->entry->fmtp_addr, addr, sizeof addr);
    log_note("Starting up: feed=%s, fmtpSrvr=%s:%u, ttl=%u, fmtpSubnetLen=%u, firstIndex=%u%s, "
             "pq=\"%s\"",
             m->feed, addr, fmtp_server_tcp_port(m->fmtp), m->opt->conf->set.ttl,
             m->entry->subnet_len, m->next_index, fresh ? " (new map)" : "", m->opt->queue);
    return true;
}

int mldm_run(const struct options *opt, const struct conf_multicast *entry, int control_fd,
             struct stats_page *page, struct qlog *qlog)
{
    struct mldm m = {.opt = opt, .entry = entry, .page = page, .qlog = qlog};
    int rc = 1;

    log_set_prog("mldm");
    TAILQ_INIT(&m.flights);
    if (loop_open(&m.loop) < 0) {
        stats_close(page);
        qlog_close(qlog);
        return 1;
    }
    if (start(&m, control_fd) &&
        loop_add(&m.loop, &m.queue_src, pq_notify_fd(m.queue), EPOLLIN, on_queue, &m) == 0 &&
        loop_add(&m.loop, &m.fmtp_src, fmtp_server_fd(m.fmtp), EPOLLIN, on_fmtp, &m) == 0) {
        while (!m.loop.stop) {
            bool more = pump(&m);
            uint64_t due = subscribers_tend(m.subscribers, m.loop.now_ns);
            uint64_t show = show_counters(&m, m.loop.now_ns);

            loop_once(&m.loop, more ? 0 : show < due ? show : due);
            if (m.loop.got_usr1) {
                m.loop.got_usr1 = false;
                log_stats(&m);
            }
        }
        rc = 0;
    } else {
        subscribers_refuse_waiting(control_fd);
    }
    if (m.fmtp) {
        log_stats(&m);
        fmtp_server_close(m.fmtp);
    }
    if (m.subscribers)
        subscribers_close(m.subscribers);
    pim_close(m.pim);
    if (m.queue)
        pq_close(m.queue);
    loop_close(&m.loop);
    stats_close(page);
    qlog_close(qlog);
    return rc;
}

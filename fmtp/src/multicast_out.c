/* SPDX-License-Identifier: Apache-2.0 */
#include "multicast_out.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define SECOND_NS UINT64_C(1000000000)
#define PACE_BURST_NS UINT64_C(1000000)    /* datagrams of 1 ms may go out together */
#define PACE_CATCH_UP_NS UINT64_C(5000000) /* lateness that is made up for */
#define GSO_BURST_NS                                                                           \
    UINT64_C(100000)               /* a GSO run takes this long at the multicast rate at most: \
                                      below 240 Mbit/s every datagram goes by itself */
#define HELD_NS UINT64_C(20000000) /* held back in this time: the pace is made use of */
enum {
    BATCH_UNGROUPED = 32, /* datagrams per call without GSO */
    MAX_MESSAGES = 64,    /* per call */
    GSO_SEGMENTS = 64,    /* UDP_MAX_SEGMENTS of older kernels */
    GSO_BYTES = 65000,
    CANONICAL_PDU = 1460,
    SMALLEST_PDU = 256
};

static int settle_pdu(struct fmtp_multicast_out *o, const struct fmtp_server_config *cfg,
                      unsigned mtu, struct fmtp_error *err)
{
    unsigned most = mtu - o->overhead, pdu = cfg->pdu_bytes;
    char text[FMTP_ADDRESS_TEXT];

    if (mtu < SMALLEST_PDU + o->overhead)
        return fmtp_fail(err, "the path to group %s has an MTU of %u bytes; needed are %u",
                         fmtp_address_text((const struct sockaddr *)&cfg->group, text), mtu,
                         SMALLEST_PDU + o->overhead);
    if (!pdu)
        pdu = most < CANONICAL_PDU ? most : CANONICAL_PDU;
    if (pdu < SMALLEST_PDU || pdu > FMTP_HEADER_LEN + FMTP_MAX_BLOCK)
        return fmtp_fail(err, "PDU of %u bytes; valid are %d to %u", pdu, SMALLEST_PDU,
                         FMTP_HEADER_LEN + FMTP_MAX_BLOCK);
    if (pdu > most)
        return fmtp_fail(err, "PDU of %u bytes; the path to group %s takes %u (MTU %u)", pdu,
                         fmtp_address_text((const struct sockaddr *)&cfg->group, text), most, mtu);
    o->pdu_bytes = pdu;
    return 0;
}

/* How many datagrams may go as one message. */
static unsigned gso_limit(const struct fmtp_multicast_out *o, const struct fmtp_server_config *cfg)
{
    uint64_t rate = cfg->pace_bps ? cfg->pace_bps : cfg->r_mc_bps, n = GSO_SEGMENTS;

    if (cfg->no_gso)
        return 1;
    if (n > GSO_BYTES / o->pdu_bytes)
        n = GSO_BYTES / o->pdu_bytes;
    if (rate && n > rate / 8 * GSO_BURST_NS / SECOND_NS / (o->pdu_bytes + o->overhead))
        n = rate / 8 * GSO_BURST_NS / SECOND_NS / (o->pdu_bytes + o->overhead);
    return n < 1 ? 1 : (unsigned)n;
}

enum fmtp_mac_kind fmtp_multicast_out_kind(const struct fmtp_server_config *cfg)
{
    static const enum fmtp_mac_kind kinds[] = {FMTP_MAC_NONE, FMTP_MAC_HMAC, FMTP_MAC_ED25519,
                                               FMTP_MAC_GMAC};

    return cfg->layout == FMTP_LAYOUT_2017 ? FMTP_MAC_NONE : kinds[cfg->mac_level];
}

int fmtp_multicast_out_set_kind(struct fmtp_multicast_out *o, enum fmtp_mac_kind kind)
{
    struct fmtp_mac *mac = fmtp_mac_new_signer_of(kind);

    if (!mac)
        return -1;
    fmtp_mac_free(o->mac);
    o->mac = mac;
    return 0;
}

int fmtp_multicast_out_open(struct fmtp_multicast_out *o, const struct fmtp_server_config *cfg,
                            struct fmtp_error *err)
{
    unsigned mtu = 0;

    o->overhead = fmtp_udp_overhead(cfg->group.ss_family);
    o->pace_bps = cfg->pace_bps;
    o->adapts = cfg->adaptive_pace;
    fmtp_rate_control_init(&o->adapt);
    if (o->adapts)
        o->pace_bps = o->adapt.rate_bps;
    o->mac = fmtp_mac_new_signer_of(fmtp_multicast_out_kind(cfg));
    if (!o->mac)
        return fmtp_fail(err, "cannot make a key for MAC level %u", cfg->mac_level);
    o->fd = fmtp_open_multicast_out(&cfg->address, &cfg->group, cfg->ttl, &mtu, err);
    if (o->fd < 0 || settle_pdu(o, cfg, mtu, err) < 0)
        return -1;
    o->sndbuf_granted = fmtp_set_sndbuf(o->fd, cfg->sndbuf_bytes);
    o->gso_max = gso_limit(o, cfg);
    return 0;
}

void fmtp_multicast_out_close(struct fmtp_multicast_out *o)
{
    fmtp_close_fd(&o->fd);
    fmtp_mac_free(o->mac);
    o->mac = NULL;
}

static uint64_t pace_cost_ns(const struct fmtp_multicast_out *o, size_t len)
{
    return o->pace_bps ? (len + o->overhead) * 8 * SECOND_NS / o->pace_bps : 0;
}

/* How many of the first n datagrams the pace lets go now. */
static unsigned paced(const struct fmtp_multicast_out *o, unsigned n, uint64_t now_ns)
{
    uint64_t at = o->pace_next_ns;
    size_t mac_len = fmtp_mac_len(o->mac);
    unsigned i = 0;

    if (!o->pace_bps)
        return n;
    for (; i < n && at <= now_ns + (i ? PACE_BURST_NS : 0); i++)
        at += pace_cost_ns(o, o->batch[i].len + mac_len);
    return i;
}

/* No more is asked of the core than may go now: what is planned early comes before the repairs that
 * are asked for in the meantime. */
static unsigned most(const struct fmtp_multicast_out *o, uint64_t now_ns)
{
    uint64_t n = o->gso_max > 1 ? FMTP_OUT_BATCH - FMTP_OUT_BATCH % o->gso_max : BATCH_UNGROUPED;

    if (o->pace_bps &&
        (now_ns + PACE_BURST_NS - o->pace_next_ns) / pace_cost_ns(o, o->pdu_bytes) < n)
        n = 1 + (now_ns + PACE_BURST_NS - o->pace_next_ns) / pace_cost_ns(o, o->pdu_bytes);
    return (unsigned)n;
}

struct messages {
    struct mmsghdr msgs[MAX_MESSAGES];
    unsigned datagrams[MAX_MESSAGES];
    struct {
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(uint16_t))];
    } control[MAX_MESSAGES];
    unsigned count;
};

/* Parts of datagram i, MAC included; returns how many. */
static size_t append(struct fmtp_multicast_out *o, unsigned i, struct iovec *parts)
{
    const struct fmtp_datagram *d = &o->batch[i];
    size_t n = (size_t)d->niov;

    memcpy(parts, d->iov, n * sizeof *parts);
    if (!fmtp_mac_len(o->mac))
        return n;
    /* One that could not be signed goes with zeroes: receivers drop it and ask again. */
    if (fmtp_mac_sign(o->mac, parts, (int)n, o->macs[i]) < 0)
        memset(o->macs[i], 0, sizeof o->macs[i]);
    parts[n] = (struct iovec){o->macs[i], fmtp_mac_len(o->mac)};
    return n + 1;
}

static void segment(struct messages *m, unsigned k, size_t size)
{
    struct msghdr *h = &m->msgs[k].msg_hdr;
    uint16_t bytes = (uint16_t)size;

    h->msg_control = m->control[k].room;
    h->msg_controllen = sizeof m->control[k].room;
    struct cmsghdr *c = CMSG_FIRSTHDR(h);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof bytes);
    memcpy(CMSG_DATA(c), &bytes, sizeof bytes);
}

/* Packs the first n datagrams into messages: a run is of equal lengths, but for a shorter last. */
static void pack(struct fmtp_multicast_out *o, unsigned n, struct messages *m)
{
    size_t mac_len = fmtp_mac_len(o->mac), nparts = 0;

    m->count = 0;
    for (unsigned i = 0; i < n && m->count < MAX_MESSAGES;) {
        unsigned k = m->count, begin = i;
        size_t size = o->batch[i].len, bytes = 0, first = nparts;
        bool last = false;
        while (i < n && !last && i - begin < o->gso_max &&
               (i == begin || bytes + o->batch[i].len + mac_len <= GSO_BYTES) &&
               o->batch[i].len <= size) {
            nparts += append(o, i, o->parts + nparts);
            bytes += o->batch[i].len + mac_len;
            last = o->batch[i].len < size;
            i++;
        }
        m->msgs[k] = (struct mmsghdr){
            .msg_hdr = {.msg_iov = o->parts + first, .msg_iovlen = nparts - first}};
        m->datagrams[k] = i - begin;
        if (i - begin > 1)
            segment(m, k, size + mac_len);
        m->count++;
    }
}

/* The system took nothing of the first message. Returns how many datagrams are lost with it. */
static unsigned refused(struct fmtp_multicast_out *o, const struct messages *m, int error,
                        uint64_t now_ns)
{
    if (error == EAGAIN) {
        o->full = true;
    } else if (error == ENOBUFS || error == ENOMEM) {
        o->retry_ns = now_ns + SECOND_NS / 1000;
    } else if (m->datagrams[0] > 1 &&
               (error == EINVAL || error == EIO || error == ENOPROTOOPT || error == EOPNOTSUPP)) {
        o->gso_max = 1; /* this kernel or device does not segment */
    } else if (error != EINTR) {
        /* Interface down, no route, refused by a filter, over the MTU: lost like any other. */
        o->send_errors += m->datagrams[0];
        if (error == EMSGSIZE)
            o->too_long += m->datagrams[0];
        return m->datagrams[0];
    }
    return 0;
}

unsigned fmtp_multicast_out_send(struct fmtp_multicast_out *o, struct fmtp_sender *core,
                                 size_t peers, uint64_t now_ns)
{
    unsigned gone = 0;
    size_t mac_len = fmtp_mac_len(o->mac);

    if (o->full || now_ns < o->retry_ns)
        return 0;
    if (o->adapts && fmtp_rate_control_due(&o->adapt, now_ns)) {
        fmtp_rate_control_look(&o->adapt, o->datagrams,
                               fmtp_sender_asked(core) / (peers ? peers : 1),
                               now_ns - o->held_ns < HELD_NS, now_ns);
        o->pace_bps = o->adapt.rate_bps;
    }
    if (o->pace_next_ns + PACE_CATCH_UP_NS < now_ns)
        o->pace_next_ns = now_ns - PACE_CATCH_UP_NS;
    if (o->pace_bps && o->pace_next_ns > now_ns) {
        o->held_ns = now_ns;
        return 0;
    }
    unsigned n = paced(o, fmtp_sender_fill(core, o->batch, most(o, now_ns), now_ns), now_ns);
    struct messages m;
    pack(o, n, &m);
    if (!m.count)
        return 0;
    int sent = sendmmsg(o->fd, m.msgs, m.count, MSG_DONTWAIT);
    if (sent < 0) {
        gone = refused(o, &m, errno, now_ns);
    } else {
        o->messages += (unsigned)sent;
        for (int i = 0; i < sent; i++)
            gone += m.datagrams[i];
    }
    for (unsigned i = 0; i < gone; i++)
        o->pace_next_ns += pace_cost_ns(o, o->batch[i].len + mac_len);
    o->datagrams += gone;
    if (gone)
        fmtp_sender_sent(core, gone, now_ns);
    return gone;
}

void fmtp_multicast_out_begin(struct fmtp_multicast_out *o, uint64_t now_ns)
{
    if (o->pace_next_ns < now_ns)
        o->pace_next_ns = now_ns;
}

uint64_t fmtp_multicast_out_waits_until(const struct fmtp_multicast_out *o, uint64_t now_ns)
{
    uint64_t until = o->retry_ns > now_ns ? o->retry_ns : 0;

    if (!o->full && o->pace_bps && o->pace_next_ns > now_ns && o->pace_next_ns > until)
        until = o->pace_next_ns;
    return o->full ? 0 : until;
}

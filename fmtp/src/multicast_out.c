/* SPDX-License-Identifier: Apache-2.0 */
#include "multicast_out.h"

#include <string.h>

#include "loop/loop.h"
#include "net/sockets.h"

#define HELD_NS \
    UINT64_C(20000000) /* if it held back datagrams within this time, the pace is in use */
#define FULL_NS \
    UINT64_C(100000000) /* if a receiver's buffer was full within this time, the rate stays */
enum { CANONICAL_PDU = 1460, SMALLEST_PDU = 256 };

static int settle_pdu(struct fmtp_multicast_out *o, const struct fmtp_server_config *cfg,
                      unsigned mtu, struct tp_error *err)
{
    unsigned most = mtu - o->io.pace.overhead, pdu = cfg->pdu_bytes;
    char text[TP_ADDRESS_TEXT];

    if (mtu < SMALLEST_PDU + o->io.pace.overhead)
        return tp_fail(err, "the path to group %s has an MTU of %u bytes; needed are %u",
                       tp_address_text((const struct sockaddr *)&cfg->group, text), mtu,
                       SMALLEST_PDU + o->io.pace.overhead);
    if (!pdu)
        pdu = most < CANONICAL_PDU ? most : CANONICAL_PDU;
    if (pdu < SMALLEST_PDU || pdu > FMTP_HEADER_LEN + FMTP_MAX_BLOCK)
        return tp_fail(err, "PDU of %u bytes; valid: %d to %u", pdu, SMALLEST_PDU,
                       FMTP_HEADER_LEN + FMTP_MAX_BLOCK);
    if (pdu > most)
        return tp_fail(err, "PDU of %u bytes; the path to group %s takes %u (MTU %u)", pdu,
                       tp_address_text((const struct sockaddr *)&cfg->group, text), most, mtu);
    o->pdu_bytes = pdu;
    return 0;
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
                            struct tp_error *err)
{
    unsigned mtu = 0;

    o->io.pace.overhead = tp_udp_overhead(cfg->group.ss_family);
    o->io.pace.rate_bps = cfg->pace_bps;
    o->adapts = cfg->adaptive_pace;
    o->measures = cfg->timer_by_handover;
    fmtp_rate_control_init(&o->adapt);
    if (o->adapts)
        o->io.pace.rate_bps = o->adapt.rate_bps;
    o->mac = fmtp_mac_new_signer_of(fmtp_multicast_out_kind(cfg));
    if (!o->mac)
        return tp_fail(err, "cannot make a key for MAC level %u", cfg->mac_level);
    o->io.fd = tp_open_multicast_out(&cfg->address, &cfg->group, cfg->ttl, &mtu, err);
    if (o->io.fd < 0 || settle_pdu(o, cfg, mtu, err) < 0)
        return -1;
    o->sndbuf_granted = tp_set_sndbuf(o->io.fd, cfg->sndbuf_bytes);
    o->io.gso_max = cfg->no_gso ? 1
                                : tp_gso_limit(cfg->pace_bps ? cfg->pace_bps : cfg->r_mc_bps,
                                               o->pdu_bytes, o->io.pace.overhead);
    return 0;
}

void fmtp_multicast_out_close(struct fmtp_multicast_out *o)
{
    tp_close_fd(&o->io.fd);
    fmtp_mac_free(o->mac);
    o->mac = NULL;
}

static size_t len_of(void *ctx, unsigned i)
{
    const struct fmtp_multicast_out *o = ctx;

    return o->batch[i].len + fmtp_mac_len(o->mac);
}

/* Fills in the parts of datagram i, including its MAC; returns how many. */
static size_t parts_of(void *ctx, unsigned i, struct iovec *parts)
{
    struct fmtp_multicast_out *o = ctx;
    const struct fmtp_datagram *d = &o->batch[i];
    size_t n = (size_t)d->niov;

    memcpy(parts, d->iov, n * sizeof *parts);
    if (!fmtp_mac_len(o->mac))
        return n;
    /* One that could not be signed carries zeroes: receivers drop it and request it again. */
    if (fmtp_mac_sign(o->mac, parts, (int)n, o->macs[i]) < 0)
        memset(o->macs[i], 0, sizeof o->macs[i]);
    parts[n] = (struct iovec){o->macs[i], fmtp_mac_len(o->mac)};
    return n + 1;
}

static void adapt(struct fmtp_multicast_out *o, struct fmtp_sender *core, size_t peers,
                  uint64_t now_ns)
{
    if (!o->adapts || !fmtp_rate_control_due(&o->adapt, now_ns))
        return;
    struct fmtp_rate_seen seen = {.sent = o->io.datagrams,
                                  .asked = fmtp_sender_asked(core) / (peers ? peers : 1),
                                  .held = now_ns - o->held_ns < HELD_NS,
                                  .full = o->full_ns && now_ns - o->full_ns < FULL_NS};
    seen.reports = fmtp_sender_progress(core, &seen.blocks, &seen.read);
    fmtp_rate_control_look(&o->adapt, &seen, now_ns);
    o->io.pace.rate_bps = o->adapt.rate_bps;
}

unsigned fmtp_multicast_out_send(struct fmtp_multicast_out *o, struct fmtp_sender *core,
                                 size_t peers, uint64_t now_ns)
{
    if (o->io.full || now_ns < o->io.retry_ns)
        return 0;
    adapt(o, core, peers, now_ns);
    o->full_until_ns = o->adapts ? fmtp_sender_held_until(core, o->io.pace.rate_bps, now_ns) : 0;
    if (o->full_until_ns) {
        o->full_ns = now_ns;
        return 0;
    }
    if (!tp_batch_out_ready(&o->io, now_ns)) {
        o->held_ns = now_ns;
        return 0;
    }
    /* Take no more from the core than may be sent now: what is planned early precedes the repairs
     * that are requested in the meantime. */
    if (o->measures)
        now_ns = tp_now_ns();
    unsigned most = tp_batch_out_most(&o->io, o->pdu_bytes, FMTP_OUT_BATCH, now_ns);
    const struct tp_datagrams batch = {.ctx = o,
                                       .count = fmtp_sender_fill(core, o->batch, most, now_ns),
                                       .len = len_of,
                                       .parts = parts_of};
    unsigned gone = tp_batch_out_send(&o->io, &batch, o->parts, now_ns);
    if (gone)
        fmtp_sender_sent(core, gone, o->measures ? tp_now_ns() : now_ns);
    return gone;
}

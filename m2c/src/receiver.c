/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "fcast.h"
#include "m2c_receiver.h"

struct m2c_receiver {
    struct m2c_receiver_config cfg;
    struct fcast_receiver *files;
    struct m2c_wave wave;
    struct m2c_cc *cc;  /* NULL until a packet says how many channels there are */
    uint64_t joined_ns; /* when it joined the base channel */
    bool has_told;      /* it has reported that join to the caller */
    struct m2c_receiver_stats stats;
};

struct m2c_receiver *m2c_receiver_new(const struct m2c_receiver_config *cfg,
                                      struct fcast_receiver *files, uint64_t now_ns)
{
    struct m2c_wave_config probe = cfg->wave;
    struct m2c_wave wave;

    probe.layers = probe.layers ? probe.layers : 1;
    if (cfg->wave.is_static != (cfg->kind == M2C_CC_STATIC) || m2c_wave_init(&wave, &probe) < 0) {
        errno = EINVAL;
        return NULL;
    }
    struct m2c_receiver *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct m2c_receiver){.cfg = *cfg, .files = files, .joined_ns = now_ns};
    return r;
}

void m2c_receiver_free(struct m2c_receiver *r)
{
    if (!r)
        return;
    m2c_cc_free(r->cc);
    free(r);
}

/* The base channel's number is T, so the wave has T - Q layers. */
static bool begin(struct m2c_receiver *r, unsigned base)
{
    struct m2c_wave_config wave = r->cfg.wave;
    struct m2c_wave probe;

    wave.layers = 1;
    if (m2c_wave_init(&probe, &wave) < 0 || base <= probe.quiescent)
        return false;
    wave.layers = base - probe.quiescent;
    if ((r->cfg.wave.layers && r->cfg.wave.layers != wave.layers) ||
        m2c_wave_init(&r->wave, &wave) < 0)
        return false;
    const struct m2c_cc_config cfg = {
        .kind = r->cfg.kind, .wave = r->wave, .most_packets_per_s = r->cfg.most_packets_per_s};
    r->cc = m2c_cc_new(&cfg, r->joined_ns);
    struct m2c_change base_join;
    return r->cc && m2c_cc_change(r->cc, &base_join); /* the caller already knows of this join */
}

void m2c_receiver_datagram(struct m2c_receiver *r, uint64_t source, const uint8_t *bytes,
                           size_t len, uint64_t now_ns)
{
    uint32_t word;

    if (!fcast_receiver_datagram(r->files, source, bytes, len, now_ns) ||
        !fcast_datagram_cci(bytes, len, &word))
        return;
    const struct m2c_cci cci = m2c_cci_get(word);
    r->stats.datagrams++;
    r->stats.bytes += len;
    if ((!r->cc && !begin(r, cci.channel)) || cci.channel > r->wave.channels) {
        r->stats.strange++;
        return;
    }
    m2c_cc_packet(r->cc, cci, now_ns);
}

void m2c_receiver_time(struct m2c_receiver *r, uint64_t now_ns)
{
    if (r->cc)
        m2c_cc_time(r->cc, now_ns);
}

uint64_t m2c_receiver_deadline(const struct m2c_receiver *r)
{
    return r->cc ? m2c_cc_deadline(r->cc) : UINT64_MAX;
}

bool m2c_receiver_change(struct m2c_receiver *r, struct m2c_group_change *out)
{
    struct m2c_change c;

    if (!r->has_told) {
        r->has_told = true;
        *out = (struct m2c_group_change){true, 0};
        return true;
    }
    if (!r->cc || !m2c_cc_change(r->cc, &c))
        return false;
    *out = (struct m2c_group_change){c.joins, c.channel == r->wave.channels ? 0 : 1 + c.channel};
    return true;
}

enum m2c_cc_end m2c_receiver_ended(const struct m2c_receiver *r)
{
    return r->cc ? m2c_cc_ended(r->cc) : M2C_CC_GOES_ON;
}

const struct m2c_wave *m2c_receiver_wave(const struct m2c_receiver *r)
{
    return r->cc ? &r->wave : NULL;
}

void m2c_receiver_get_stats(const struct m2c_receiver *r, struct m2c_receiver_stats *out)
{
    *out = r->stats;
    if (r->cc)
        m2c_cc_get_stats(r->cc, &out->cc);
}

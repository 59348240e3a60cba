/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kinds of congestion control share: losses by sequence numbers, time slots, epochs, joins
 * and leaves (RFC 3738, 3.2.3).
 */
#include "congestion.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cc_impl.h"

enum { REORDER = 2 /* packets after a hole during which it may still be filled */ };

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(fmin(seconds, 1e9) * 1e9);
}

struct m2c_cci m2c_cci_get(uint32_t word)
{
    return (struct m2c_cci){word >> 24, word >> 16 & 0xff, word & 0xffff};
}

uint32_t m2c_cci_put(struct m2c_cci c)
{
    return (uint32_t)c.ctsi << 24 | (uint32_t)c.channel << 16 | c.psn;
}

struct m2c_cc *m2c_cc_new(const struct m2c_cc_config *cfg, uint64_t now_ns)
{
    static const struct m2c_policy *const policies[] = {
        [M2C_CC_WEBRC] = &m2c_policy_webrc,
        [M2C_CC_M2C] = &m2c_policy_m2c,
        [M2C_CC_STATIC] = &m2c_policy_static,
    };

    if (cfg->wave.cfg.is_static != (cfg->kind == M2C_CC_STATIC) || !cfg->wave.channels) {
        errno = EINVAL;
        return NULL;
    }
    struct m2c_cc *cc = calloc(1, sizeof *cc);
    if (!cc)
        return NULL;
    cc->cfg = *cfg;
    cc->policy = policies[cfg->kind];
    cc->wanted[cfg->wave.channels] = true;
    cc->joined_ns = now_ns;
    return cc;
}

void m2c_cc_free(struct m2c_cc *cc)
{
    free(cc);
}

double m2c_cc_tau(const struct m2c_cc *cc, uint64_t now_ns)
{
    return fmin(1, (double)(now_ns - cc->slot_ns) / 1e9 / cc->cfg.wave.cfg.slot_s);
}

double m2c_cc_most(const struct m2c_cc *cc)
{
    const double sent = m2c_wave_cumulative(&cc->cfg.wave, cc->cfg.wave.cfg.layers, 0);

    return cc->cfg.most_packets_per_s > 0 ? fmin(cc->cfg.most_packets_per_s, sent) : sent;
}

double m2c_cc_growth(const struct m2c_wave *w, unsigned layers)
{
    return m2c_wave_cumulative(w, layers + 1, 0) / m2c_wave_cumulative(w, layers, 0);
}

bool m2c_cc_waits_longer(struct m2c_cc *cc, double waited_s, double rate)
{
    const double p = cc->cfg.wave.cfg.factor, before_s = cc->waited_before_s;

    cc->waited_before_s = waited_s;
    return before_s > 0 && waited_s - before_s > (pow(p, cc->layers + 1) - 1) / (p * log(p)) / rate;
}

/* ------------------------------------------------------------------ loss */

/* Counts the channel's missing packets as lost. */
static void settle_loss(struct m2c_cc *cc, struct m2c_track *t, uint64_t now_ns)
{
    const uint32_t lost = t->missing;

    if (!lost)
        return;
    t->missing = 0;
    cc->epoch_lost += lost;
    cc->stats.lost += lost;
    cc->policy->packets(cc, lost);
    if (now_ns < cc->loss_ns)
        return;
    cc->loss_ns = now_ns + ns_of(cc->rtt.average_s);
    cc->stats.loss_events++;
    cc->policy->loss_event(cc, now_ns);
}

static void follow(struct m2c_cc *cc, unsigned channel, uint32_t psn, uint64_t now_ns)
{
    const uint32_t count = m2c_wave_psn_count(&cc->cfg.wave, channel);
    struct m2c_track *t = &cc->tracks[channel];
    const uint32_t ahead = (psn + count - t->next) % count;

    if (t->is_heard && ahead >= count / 2) { /* an old packet */
        cc->stats.reordered++;
        t->missing -= t->missing > 0;
        return;
    }
    if (t->is_heard && ahead) {
        t->missing += ahead;
        t->since_hole = 0;
    } else if (t->missing && ++t->since_hole >= REORDER) {
        settle_loss(cc, t, now_ns);
    }
    t->is_heard = true;
    t->next = (psn + 1) % count;
}

/* ------------------------------------------------------------------ layers */

static void leave(struct m2c_cc *cc, unsigned channel)
{
    cc->wanted[channel] = false;
    cc->layers--;
    cc->stats.leaves++;
    if (cc->is_joining && channel == cc->joined_channel)
        cc->is_joining = false;
}

static unsigned channel_of(const struct m2c_cc *cc, unsigned layer)
{
    return m2c_wave_channel(&cc->cfg.wave, layer, cc->ctsi);
}

static void join(struct m2c_cc *cc, uint64_t now_ns)
{
    const unsigned channel = channel_of(cc, ++cc->layers);

    cc->wanted[channel] = true;
    cc->tracks[channel] = (struct m2c_track){0};
    cc->is_joining = true;
    cc->joined_channel = channel;
    cc->joined_ns = now_ns;
    cc->stats.joins++;
    cc->policy->layers(cc, cc->layers - 1);
}

void m2c_cc_leave_top(struct m2c_cc *cc)
{
    const unsigned before = cc->layers;

    leave(cc, channel_of(cc, before));
    cc->policy->layers(cc, before);
}

/* The wave of the slot's lowest layer is over, so its last sequence number is known. */
static void end_slot(struct m2c_cc *cc, uint64_t now_ns)
{
    const bool is_left = !cc->cfg.wave.cfg.is_static && cc->layers > 0;

    if (is_left) {
        const unsigned channel = channel_of(cc, 1);
        struct m2c_track *t = &cc->tracks[channel];
        const uint32_t rest = (M2C_WAVE_PSN_COUNT - t->next) % M2C_WAVE_PSN_COUNT;
        if (t->is_heard && rest < M2C_WAVE_PSN_COUNT / 2)
            t->missing += rest;
        settle_loss(cc, t, now_ns);
        leave(cc, channel);
    }
    cc->ctsi = (cc->ctsi + 1) % cc->cfg.wave.slots;
    cc->slot_ns = now_ns;
    cc->stats.slots++;
    cc->policy->slot(cc, is_left);
}

/* Ignores a packet that was overtaken by one of a later slot. */
static void take_slot(struct m2c_cc *cc, unsigned ctsi, uint64_t now_ns)
{
    const struct m2c_wave *w = &cc->cfg.wave;
    const unsigned ahead = (ctsi + w->slots - cc->ctsi) % w->slots;
    const unsigned most = w->cfg.is_static ? w->slots / 2 : w->slots - (w->quiescent + 1) / 2;

    for (unsigned i = 0; ahead <= most && i < ahead; i++)
        end_slot(cc, now_ns);
}

/* ------------------------------------------------------------------ packets */

static void begin(struct m2c_cc *cc, struct m2c_cci cci, uint64_t now_ns)
{
    const struct m2c_wave *w = &cc->cfg.wave;
    const double sent = w->cfg.is_static ? 0 : cci.psn % w->base_per_slot;
    /* Each packet of the base channel lowers its rate by log(1/P)/TSD. */
    const double left = 1 + sent * log(w->cfg.factor) / w->cfg.slot_s / w->cfg.base_packets_per_s;
    const double tau = fmin(1, log(fmax(left, w->cfg.factor)) / log(w->cfg.factor));

    cc->has_begun = true;
    cc->ctsi = cci.ctsi;
    cc->epoch_ns = now_ns;
    const uint64_t passed_ns = ns_of(tau * w->cfg.slot_s);
    cc->slot_ns = now_ns > passed_ns ? now_ns - passed_ns : 0;
    m2c_rtt_first(&cc->rtt, fmax((double)(now_ns - cc->joined_ns) / 1e9, 1e-6));
    cc->policy->begin(cc, tau);
}

static void take_first(struct m2c_cc *cc, uint64_t now_ns)
{
    const double waited_s = (double)(now_ns - cc->joined_ns) / 1e9;

    cc->is_joining = false;
    cc->first_ns = now_ns;
    m2c_rtt_wave(&cc->rtt, &cc->cfg.wave, waited_s, cc->layers);
    cc->policy->first(cc, waited_s);
}

void m2c_cc_packet(struct m2c_cc *cc, struct m2c_cci cci, uint64_t now_ns)
{
    const struct m2c_wave *w = &cc->cfg.wave;

    if (cci.channel > w->channels || cci.ctsi >= w->slots ||
        cci.psn >= m2c_wave_psn_count(w, cci.channel) || cc->end != M2C_CC_GOES_ON)
        return;
    if (!cc->has_begun) {
        if (cci.channel != w->channels)
            return;
        begin(cc, cci, now_ns);
    }
    cc->heard_ns = now_ns;
    take_slot(cc, cci.ctsi, now_ns);
    if (!cc->wanted[cci.channel]) {
        cc->stats.late++;
        return;
    }
    cc->epoch_received++;
    cc->stats.received++;
    cc->policy->packets(cc, 1);
    if (cc->is_joining && cci.channel == cc->joined_channel)
        take_first(cc, now_ns);
    follow(cc, cci.channel, cci.psn, now_ns);
}

/* ------------------------------------------------------------------ time */

static uint64_t join_ends_ns(const struct m2c_cc *cc)
{
    return cc->joined_ns + ns_of(cc->policy->patience_s(cc));
}

static uint64_t silence_ns(const struct m2c_cc *cc)
{
    return cc->heard_ns + ns_of(fmax(10, cc->cfg.wave.cfg.slot_s));
}

static uint64_t stuck_ns(const struct m2c_cc *cc)
{
    return cc->slot_ns + ns_of(fmax(20, 2 * cc->cfg.wave.cfg.slot_s));
}

static uint64_t epoch_ends_ns(const struct m2c_cc *cc)
{
    const double since = ((double)cc->epoch_ns - (double)cc->slot_ns) / 1e9;
    const double epochs = floor(since / M2C_WEBRC_EPOCH_S + 0.5) + 1;

    return cc->policy->is_aligned ? cc->slot_ns + ns_of(fmax(0, epochs) * M2C_WEBRC_EPOCH_S)
                                  : cc->epoch_ns + ns_of(M2C_WEBRC_EPOCH_S);
}

static void end_epoch(struct m2c_cc *cc, uint64_t now_ns)
{
    for (unsigned i = 0; i <= cc->cfg.wave.channels; i++)
        if (cc->wanted[i])
            settle_loss(cc, &cc->tracks[i], now_ns);
    cc->policy->epoch(cc, (double)(now_ns - cc->epoch_ns) / 1e9, now_ns);
    const bool late = cc->policy->catches_up && cc->policy->catches_up(cc, now_ns);
    if (!cc->is_joining && cc->layers < cc->cfg.wave.cfg.layers &&
        (late || (now_ns >= cc->loss_ns && cc->policy->may_join(cc, now_ns))))
        join(cc, now_ns);
    cc->epoch_ns = now_ns;
    cc->epoch_received = cc->epoch_lost = 0;
}

static void end_session(struct m2c_cc *cc, enum m2c_cc_end why)
{
    cc->end = why;
    for (unsigned i = 0; i <= cc->cfg.wave.channels; i++)
        cc->wanted[i] = false;
    cc->layers = 0;
    cc->is_joining = false;
}

void m2c_cc_time(struct m2c_cc *cc, uint64_t now_ns)
{
    if (!cc->has_begun || cc->end != M2C_CC_GOES_ON)
        return;
    if (now_ns >= silence_ns(cc) || now_ns >= stuck_ns(cc)) {
        end_session(cc, now_ns >= silence_ns(cc) ? M2C_CC_SILENT : M2C_CC_STUCK);
        return;
    }
    if (cc->is_joining && now_ns >= join_ends_ns(cc)) {
        cc->stats.join_timeouts++;
        m2c_cc_leave_top(cc);
    }
    if (now_ns >= epoch_ends_ns(cc))
        end_epoch(cc, now_ns);
}

uint64_t m2c_cc_deadline(const struct m2c_cc *cc)
{
    if (!cc->has_begun || cc->end != M2C_CC_GOES_ON)
        return UINT64_MAX;
    const uint64_t epoch = epoch_ends_ns(cc);
    const uint64_t silence = silence_ns(cc), stuck = stuck_ns(cc);
    uint64_t first = epoch < silence ? epoch : silence;
    first = stuck < first ? stuck : first;
    return cc->is_joining && join_ends_ns(cc) < first ? join_ends_ns(cc) : first;
}

bool m2c_cc_change(struct m2c_cc *cc, struct m2c_change *out)
{
    for (int joins = 0; joins < 2; joins++) /* leaves first */
        for (unsigned i = 0; i <= cc->cfg.wave.channels; i++)
            if (cc->wanted[i] != cc->told[i] && cc->wanted[i] == joins) {
                cc->told[i] = cc->wanted[i];
                *out = (struct m2c_change){joins, i};
                return true;
            }
    return false;
}

enum m2c_cc_end m2c_cc_ended(const struct m2c_cc *cc)
{
    return cc->end;
}

void m2c_cc_get_stats(const struct m2c_cc *cc, struct m2c_cc_stats *out)
{
    *out = cc->stats;
    out->layers = cc->layers;
    out->rtt_s = cc->rtt.average_s;
    if (cc->has_begun)
        cc->policy->stats(cc, out);
}

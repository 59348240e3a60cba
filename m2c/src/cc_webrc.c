/* SPDX-License-Identifier: Apache-2.0
 *
 * WEBRC's decisions (RFC 3738, 3.2.2.5 to 3.2.3.7). Comments name what the RFC leaves open.
 */
#include <math.h>

#include "cc_impl.h"

static double at_least(const struct m2c_cc *cc, double rate)
{
    const double growth = 1 / cc->cfg.wave.cfg.factor;
    const double least = cc->cfg.wave.cfg.base_packets_per_s * (1 + growth + growth * growth);

    return fmax(least, rate); /* SSMINR */
}

static bool is_starting(const struct m2c_cc *cc)
{
    return isinf(cc->webrc.ssr);
}

/* Sets LOSSP and its filters so that REQN equals this rate. */
static void reset_loss(struct m2c_cc *cc, double rate)
{
    cc->webrc.lossp = m2c_tcp_loss(cc->rtt.average_s, rate);
    m2c_loss_reset(&cc->webrc.loss, &cc->cfg.wave, cc->webrc.lossp);
}

/* Ends start-up (RFC 3738, 3.2.2.6). */
static void end_start(struct m2c_cc *cc, double rate)
{
    cc->webrc.ssr = at_least(cc, rate);
    reset_loss(cc, cc->webrc.trr);
}

static void begin(struct m2c_cc *cc, double tau)
{
    const double rate = m2c_wave_rate(&cc->cfg.wave, 0, tau);

    cc->webrc = (struct m2c_webrc){.trr = rate, .arr = rate, .ssr = INFINITY, .lossp = 1};
    m2c_loss_reset(&cc->webrc.loss, &cc->cfg.wave, 1);
}

static void packets(struct m2c_cc *cc, uint32_t count)
{
    while (count--)
        m2c_loss_packet(&cc->webrc.loss);
}

static void loss_event(struct m2c_cc *cc, uint64_t now_ns)
{
    const double rate = cc->cfg.wave.cfg.factor * cc->webrc.trr;

    (void)now_ns;
    if (is_starting(cc)) {
        end_start(cc, rate);
        return;
    }
    m2c_loss_event(&cc->webrc.loss);
    cc->webrc.ssr = at_least(cc, rate);
}

static void slot(struct m2c_cc *cc, bool is_left)
{
    const struct m2c_wave_config *c = &cc->cfg.wave.cfg;

    cc->webrc.arr += (1 - c->factor) * c->base_packets_per_s;
    if (is_left)
        cc->webrc.arr = fmax(0, cc->webrc.arr - c->base_packets_per_s);
}

static void first(struct m2c_cc *cc, double waited_s)
{
    const bool is_longer = m2c_cc_waits_longer(cc, waited_s, cc->webrc.arr);

    if (is_starting(cc) && is_longer)
        end_start(cc, cc->cfg.wave.cfg.factor * cc->webrc.trr);
}

static void epoch(struct m2c_cc *cc, double elapsed_s, uint64_t now_ns)
{
    struct m2c_webrc *r = &cc->webrc;
    const struct m2c_wave *w = &cc->cfg.wave;
    const double p = w->cfg.factor, el = M2C_WEBRC_EPOCH_S, tsd = w->cfg.slot_s;
    const double beta = is_starting(cc) ? (1 - pow(p, 0.25)) / 2 : 1 - pow(p / (1 + p), el / tsd);
    const double zeta = is_starting(cc) ? sqrt(p) / (1 + sqrt(p)) : 2 * el / (4 + tsd);
    const double irr = (double)(cc->epoch_received + cc->epoch_lost) / elapsed_s;

    (void)now_ns;
    r->rr = (double)cc->epoch_received / elapsed_s;
    r->rr_max = fmax(r->rr_max, r->rr);
    r->trr = (1 - zeta) * r->trr + zeta * r->rr;
    r->arr = fmin(pow(p, el / tsd) * (1 - beta) * r->arr + beta * irr,
                  m2c_wave_cumulative(w, cc->layers, 0));
    r->lossp = m2c_loss_epoch(&r->loss);
    if (is_starting(cc) && m2c_cc_growth(w, cc->layers) * r->arr > m2c_cc_most(cc))
        end_start(cc, r->trr);
}

/* Returns whether TRR is so far below ARR that the last join brought less than it should. */
static bool is_below(const struct m2c_cc *cc)
{
    const double p = cc->cfg.wave.cfg.factor, el = M2C_WEBRC_EPOCH_S;
    const double zeta = sqrt(p) / (1 + sqrt(p)), rise = pow(p, -el / cc->cfg.wave.cfg.slot_s);
    const double g = m2c_cc_growth(&cc->cfg.wave, cc->layers - 1);
    const double c = zeta + (1 - zeta) * rise * (zeta + (1 - zeta) * sqrt(p) * rise) / g;

    return cc->webrc.trr < c * cc->webrc.arr - 2 / el;
}

/* During start-up: returns whether the last join's effect is known and sufficient. */
static bool start_may_join(struct m2c_cc *cc)
{
    if (!cc->layers)
        return true;
    if (cc->epoch_ns < cc->first_ns) /* no full epoch since the last join's first packet */
        return false;
    if (!is_below(cc))
        return true;
    end_start(cc, cc->webrc.trr);
    return false;
}

static bool may_join(struct m2c_cc *cc, uint64_t now_ns)
{
    struct m2c_webrc *r = &cc->webrc;
    const double p = cc->cfg.wave.cfg.factor;
    const double next = r->arr * m2c_cc_growth(&cc->cfg.wave, cc->layers);

    (void)now_ns;
    if (is_starting(cc) && !start_may_join(cc))
        return false;
    const double reqn = m2c_tcp_rate(cc->rtt.average_s, r->lossp);
    r->trate = fmin(is_starting(cc) ? 4 * r->trr : fmax(r->ssr, reqn), m2c_cc_most(cc));
    if (r->trate < next)
        return false;
    if (!is_starting(cc) && r->rr > fmax(r->rr_max - 2 / M2C_WEBRC_EPOCH_S, p * r->rr_max)) {
        reset_loss(cc, next);
        return false;
    }
    return true;
}

static double patience_s(const struct m2c_cc *cc)
{
    const struct m2c_rtt *r = &cc->rtt;

    return fmax(2 * r->square_s2 / r->average_s, 10 * r->average_s);
}

static void layers(struct m2c_cc *cc, unsigned before)
{
    const struct m2c_wave *w = &cc->cfg.wave;

    cc->webrc.arr *= m2c_wave_cumulative(w, cc->layers, 0) / m2c_wave_cumulative(w, before, 0);
    if (cc->layers > before)
        cc->webrc.rr_max = 0;
}

static void stats(const struct m2c_cc *cc, struct m2c_cc_stats *out)
{
    out->is_slow_start = is_starting(cc);
    out->target_per_s = cc->webrc.trate;
    out->received_per_s = cc->webrc.trr;
    out->loss_probability = cc->webrc.lossp;
}

const struct m2c_policy m2c_policy_webrc = {.begin = begin,
                                            .packets = packets,
                                            .loss_event = loss_event,
                                            .slot = slot,
                                            .first = first,
                                            .epoch = epoch,
                                            .may_join = may_join,
                                            .patience_s = patience_s,
                                            .layers = layers,
                                            .stats = stats,
                                            .is_aligned = false};

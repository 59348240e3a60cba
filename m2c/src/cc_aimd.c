/* SPDX-License-Identifier: Apache-2.0
 *
 * A fair rate by additive increase, multiplicative decrease and slow start, which the joined rate
 * follows: `m2c` waits for the wave to fall, `static` leaves its top layer. M2C10 says no more than
 * that, so we chose the constants.
 */
#include <math.h>

#include "cc_impl.h"

/* AIMD with a small decrease (M2C10 cites it), because the joined rate cannot halve soon. This
 * increase gives TCP's mean rate at the same losses: 3 (1 - d) / (1 + d). */
static const double DECREASE = 0.875, INCREASE = 0.2;
static const double RTT_KEPT = 0.75; /* weight of the earlier samples when one is added */
static const double RTT_LEAST_S = 0.005;
static const double RECEIVED_WEIGHT = 0.5; /* weight of an epoch in the average */
static const double DEAF_S = 1; /* static: time for a leave to take effect before another */
/* Share of an epoch's packets that is lost when another receiver behind the same line joins a
 * layer: far more than a session loses by competing with TCP. */
static const double OVERLOAD = 0.1;
enum { OVERLOAD_PACKETS = 4 };
static const double OWN_S = 3; /* a join up to this long ago may have caused the losses */
enum { QUIET_SLOTS = 2 /* slots without loss after which slow start begins again */ };

static double joined_rate(const struct m2c_cc *cc, unsigned layers, uint64_t now_ns)
{
    return m2c_wave_cumulative(&cc->cfg.wave, layers, m2c_cc_tau(cc, now_ns));
}

/* The rate needed to join a layer, and thus to measure the round trip again. */
static double least(const struct m2c_cc *cc)
{
    return m2c_wave_cumulative(&cc->cfg.wave, 2, 0);
}

static void begin(struct m2c_cc *cc, double tau)
{
    const double rate = m2c_wave_rate(&cc->cfg.wave, 0, tau);

    cc->aimd = (struct m2c_aimd){.fair = rate, .received = rate, .is_slow_start = true};
}

static void packets(struct m2c_cc *cc, uint32_t count)
{
    (void)cc;
    (void)count;
}

static void decrease(struct m2c_cc *cc)
{
    struct m2c_aimd *a = &cc->aimd;

    a->fair = fmax(a->fair * DECREASE, least(cc));
    a->is_slow_start = false;
}

/* While the receiver waits for the wave to fall to the fair rate, further losses say nothing
 * new. */
static void loss_event(struct m2c_cc *cc, uint64_t now_ns)
{
    if (cc->aimd.is_slow_start || joined_rate(cc, cc->layers, now_ns) <= cc->aimd.fair)
        decrease(cc);
}

static void static_loss_event(struct m2c_cc *cc, uint64_t now_ns)
{
    if (now_ns < cc->aimd.deaf_ns)
        return;
    decrease(cc);
    if (!cc->layers)
        return;
    m2c_cc_leave_top(cc);
    cc->aimd.deaf_ns = now_ns + (uint64_t)(DEAF_S * 1e9);
}

static void slot(struct m2c_cc *cc, bool is_left)
{
    (void)cc;
    (void)is_left;
}

/* Ends slow start when the line's queue fills. Further layers would overflow it until the wave has
 * fallen. Without this, two sessions of 4 MB lose 19 % instead of 15 %. */
static void notice_queue(struct m2c_cc *cc, double waited_s)
{
    struct m2c_aimd *a = &cc->aimd;
    const double rate = joined_rate(cc, cc->layers, cc->first_ns);

    if (m2c_cc_waits_longer(cc, waited_s, rate) && a->is_slow_start) {
        a->is_slow_start = false;
        a->fair = fmin(a->fair, rate);
    }
}

/* Estimates the round trip from joins. The wait for a channel's first packet varies with the
 * interval of its packets, so each sample is weighted by the inverse square of that interval. RFC
 * 3738's average would retain the base channel's wait of a second for minutes. */
static void first(struct m2c_cc *cc, double waited_s)
{
    struct m2c_aimd *a = &cc->aimd;
    const double interval_s = 2 * m2c_wave_idle_s(&cc->cfg.wave, cc->layers);
    const double weight = 1 / (interval_s * interval_s);

    a->rtt_weight = RTT_KEPT * a->rtt_weight + weight;
    a->rtt_sum_s = RTT_KEPT * a->rtt_sum_s + weight * (waited_s - interval_s / 2);
    cc->rtt.average_s = fmax(a->rtt_sum_s / a->rtt_weight, RTT_LEAST_S);
    notice_queue(cc, waited_s);
}

static double patience_s(const struct m2c_cc *cc)
{
    return fmax(10 * cc->rtt.average_s, 8 * m2c_wave_idle_s(&cc->cfg.wave, cc->layers));
}

static void epoch(struct m2c_cc *cc, double elapsed_s, uint64_t now_ns)
{
    struct m2c_aimd *a = &cc->aimd;
    const double rtt_s = cc->rtt.average_s;
    const double rate = (double)cc->epoch_received / elapsed_s;
    const double quiet_ns = QUIET_SLOTS * cc->cfg.wave.cfg.slot_s * 1e9;

    a->received += RECEIVED_WEIGHT * (rate - a->received);
    a->is_slow_start |=
        cc->loss_ns && (double)(now_ns - cc->loss_ns) > quiet_ns && now_ns > cc->loss_ns;
    if (a->is_slow_start)
        a->fair = fmin(a->fair * pow(2, elapsed_s / fmax(rtt_s, M2C_WEBRC_EPOCH_S)),
                       fmax(a->fair, 4 * a->received));
    else
        a->fair += INCREASE * elapsed_s / (rtt_s * rtt_s);
    a->fair = fmin(a->fair, fmin(2 * joined_rate(cc, cc->layers, now_ns), m2c_cc_most(cc)));
    a->fair = fmax(a->fair, least(cc));
}

static bool may_join(struct m2c_cc *cc, uint64_t now_ns)
{
    return joined_rate(cc, cc->layers + 1, now_ns) <= cc->aimd.fair;
}

/* When a receiver with more layers overloads a shared line, a receiver one layer below it loses as
 * many packets until the wave has fallen, but gets less. The missing layer crosses the line anyway,
 * so joining it does no harm; allowed once per overload. Without this, five receivers take 1.16
 * times as long as one (48 MB, 4 Mbit/s). */
static bool catches_up(struct m2c_cc *cc, uint64_t now_ns)
{
    struct m2c_aimd *a = &cc->aimd;
    const double lost = (double)cc->epoch_lost, all = lost + (double)cc->epoch_received;

    if (cc->epoch_lost && !a->is_losing)
        a->may_catch_up = now_ns - cc->joined_ns >= (uint64_t)(OWN_S * 1e9);
    a->is_losing = cc->epoch_lost > 0;
    if (!a->may_catch_up || cc->epoch_lost < OVERLOAD_PACKETS || lost < OVERLOAD * all)
        return false;
    a->may_catch_up = false;
    return true;
}

/* Returns false until the effect of the last join is known. */
static bool static_may_join(struct m2c_cc *cc, uint64_t now_ns)
{
    return now_ns >= cc->aimd.deaf_ns && (!cc->layers || cc->epoch_ns >= cc->first_ns) &&
           may_join(cc, now_ns);
}

static void layers(struct m2c_cc *cc, unsigned before)
{
    (void)cc;
    (void)before;
}

static void stats(const struct m2c_cc *cc, struct m2c_cc_stats *out)
{
    out->is_slow_start = cc->aimd.is_slow_start;
    out->target_per_s = cc->aimd.fair;
    out->received_per_s = cc->aimd.received;
}

const struct m2c_policy m2c_policy_m2c = {.begin = begin,
                                          .packets = packets,
                                          .loss_event = loss_event,
                                          .slot = slot,
                                          .first = first,
                                          .epoch = epoch,
                                          .may_join = may_join,
                                          .catches_up = catches_up,
                                          .patience_s = patience_s,
                                          .layers = layers,
                                          .stats = stats,
                                          .is_aligned = true};
const struct m2c_policy m2c_policy_static = {.begin = begin,
                                             .packets = packets,
                                             .loss_event = static_loss_event,
                                             .slot = slot,
                                             .first = first,
                                             .epoch = epoch,
                                             .may_join = static_may_join,
                                             .patience_s = patience_s,
                                             .layers = layers,
                                             .stats = stats,
                                             .is_aligned = true};

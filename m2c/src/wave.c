/* SPDX-License-Identifier: Apache-2.0 */
#include "wave.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

enum { STATIC_SLOTS = 256 };

static double or_default(double value, double otherwise)
{
    return value == 0 ? otherwise : value;
}

/* NaN is invalid. */
static bool is_within(double value, double least, double most)
{
    return value >= least && value <= most;
}

static struct m2c_wave_config with_defaults(const struct m2c_wave_config *cfg)
{
    return (struct m2c_wave_config){
        .base_packets_per_s = or_default(cfg->base_packets_per_s, 1),
        .slot_s = or_default(cfg->slot_s, 10),
        .quiescence_s = or_default(cfg->quiescence_s, 300),
        .factor = or_default(cfg->factor, M2C_WAVE_FACTOR),
        .layers = cfg->layers,
        .is_static = cfg->is_static,
    };
}

static double remaining(const struct m2c_wave *w, unsigned layer, double tau);

int m2c_wave_init(struct m2c_wave *w, const struct m2c_wave_config *cfg)
{
    const struct m2c_wave_config c = with_defaults(cfg);
    struct m2c_wave probe = {.cfg = c};
    bool fits =
        is_within(c.base_packets_per_s, 1e-3, 1e6) && is_within(c.slot_s, 1e-3, 1e4) &&
        is_within(c.quiescence_s, 1e-3, 1e6) && is_within(c.factor, 0.1, 0.99) && c.layers >= 1 &&
        c.layers <= M2C_LAYERS_MAX &&
        (c.is_static || ceil(c.quiescence_s / c.slot_s) + c.layers <= M2C_WAVE_CHANNELS_MAX);

    fits = fits && remaining(&probe, c.layers, 0) < UINT32_MAX &&
           m2c_wave_packets(&probe, 0, 0, 1) < M2C_WAVE_PSN_COUNT - 1;
    if (!fits) {
        errno = EINVAL;
        return -1;
    }
    w->cfg = c;
    w->quiescent = c.is_static ? 0 : (unsigned)ceil(c.quiescence_s / c.slot_s);
    w->channels = c.layers + w->quiescent;
    w->slots = c.is_static ? STATIC_SLOTS : w->channels;
    w->base_per_slot = (unsigned)ceil(m2c_wave_packets(w, 0, 0, 1));
    return 0;
}

unsigned m2c_wave_layers_for(const struct m2c_wave_config *cfg, double packets_per_s)
{
    struct m2c_wave w = {.cfg = with_defaults(cfg)};
    unsigned layers = 1;

    while (layers <= M2C_LAYERS_MAX && m2c_wave_cumulative(&w, layers, 0) < packets_per_s)
        layers++;
    return layers;
}

static uint64_t slot_length_ns(const struct m2c_wave *w)
{
    return (uint64_t)llround(w->cfg.slot_s * 1e9);
}

uint64_t m2c_wave_slot(const struct m2c_wave *w, uint64_t now_ns, double *tau)
{
    const uint64_t length_ns = slot_length_ns(w);

    if (tau)
        *tau = (double)(now_ns % length_ns) / (double)length_ns;
    return now_ns / length_ns;
}

uint64_t m2c_wave_slot_ns(const struct m2c_wave *w, uint64_t slot)
{
    return slot * slot_length_ns(w);
}

unsigned m2c_wave_ctsi(const struct m2c_wave *w, uint64_t slot)
{
    return (unsigned)(slot % w->slots);
}

/* The tau on which the rates depend. */
static double falls(const struct m2c_wave *w, double tau)
{
    return w->cfg.is_static ? 0 : tau;
}

double m2c_wave_rate(const struct m2c_wave *w, unsigned layer, double tau)
{
    return w->cfg.base_packets_per_s * pow(w->cfg.factor, falls(w, tau) - (double)layer);
}

double m2c_wave_cumulative(const struct m2c_wave *w, unsigned layer, double tau)
{
    const double growth = 1 / w->cfg.factor;

    return w->cfg.base_packets_per_s * pow(w->cfg.factor, falls(w, tau)) *
           (pow(growth, layer + 1) - 1) / (growth - 1);
}

double m2c_wave_packets(const struct m2c_wave *w, unsigned layer, double from, double to)
{
    if (w->cfg.is_static)
        return m2c_wave_rate(w, layer, 0) * w->cfg.slot_s * (to - from);
    return (m2c_wave_rate(w, layer, to) - m2c_wave_rate(w, layer, from)) * w->cfg.slot_s /
           log(w->cfg.factor);
}

/* Returns how many packets the layer's channel sends before it rests; for the base channel, how
 * many are left in this slot. */
static double remaining(const struct m2c_wave *w, unsigned layer, double tau)
{
    const double c = w->cfg.base_packets_per_s * w->cfg.slot_s / -log(w->cfg.factor);

    if (!layer) /* L is an integer, so it slightly exceeds the integral of the rate */
        return w->base_per_slot * (pow(w->cfg.factor, tau) - w->cfg.factor) / (1 - w->cfg.factor);
    return c * (pow(w->cfg.factor, tau - (double)layer) - 1);
}

/* Returns the tau at which this many packets remain. */
static double tau_of_remaining(const struct m2c_wave *w, unsigned layer, double packets)
{
    const double c = w->cfg.base_packets_per_s * w->cfg.slot_s / -log(w->cfg.factor);

    if (!layer)
        return log(packets / w->base_per_slot * (1 - w->cfg.factor) + w->cfg.factor) /
               log(w->cfg.factor);
    return log(packets / c + 1) / log(w->cfg.factor) + (double)layer;
}

/* Packets of a static layer per slot. */
static double per_slot(const struct m2c_wave *w, unsigned layer)
{
    return ceil(m2c_wave_packets(w, layer, 0, 1));
}

/* Returns how many packets are sent after tau. The k-th from the end is sent when k + 1/2
 * remain. */
static uint32_t packets_after(const struct m2c_wave *w, unsigned layer, double tau)
{
    if (w->cfg.is_static)
        return (uint32_t)ceil(fmax(0, per_slot(w, layer) * (1 - tau) - 0.5));
    if (tau >= 1) /* one layer ends where the next begins: use the same number */
        return layer > 1 ? packets_after(w, layer - 1, 0) : 0;
    return (uint32_t)ceil(fmax(0, remaining(w, layer, tau) - 0.5));
}

uint32_t m2c_wave_count(const struct m2c_wave *w, unsigned layer, double from, double to)
{
    return packets_after(w, layer, from) - packets_after(w, layer, to);
}

double m2c_wave_packet_tau(const struct m2c_wave *w, unsigned layer, uint32_t i)
{
    const double left = (double)packets_after(w, layer, 0) - i - 0.5;

    if (w->cfg.is_static)
        return 1 - left / per_slot(w, layer);
    return fmin(fmax(0, tau_of_remaining(w, layer, left)), nextafter(1, 0));
}

uint32_t m2c_wave_psn(const struct m2c_wave *w, unsigned layer, uint64_t slot, uint32_t i)
{
    if (w->cfg.is_static)
        return (uint32_t)((slot * (uint64_t)per_slot(w, layer) + i) % M2C_WAVE_PSN_COUNT);
    if (!layer) {
        const uint64_t slots = M2C_WAVE_PSN_COUNT / w->base_per_slot;
        return (uint32_t)(slot % slots) * w->base_per_slot + i;
    }
    return (i - packets_after(w, layer, 0)) % M2C_WAVE_PSN_COUNT;
}

uint32_t m2c_wave_psn_count(const struct m2c_wave *w, unsigned channel)
{
    const uint32_t rest = M2C_WAVE_PSN_COUNT % w->base_per_slot;

    return M2C_WAVE_PSN_COUNT - (channel == w->channels && !w->cfg.is_static ? rest : 0);
}

unsigned m2c_wave_channel(const struct m2c_wave *w, unsigned layer, uint64_t slot)
{
    if (w->cfg.is_static)
        return layer ? layer - 1 : w->channels;
    /* The wave of channel i ends with slot i, so layer 1 is the channel with this slot's number. */
    return layer ? (unsigned)((slot + layer - 1) % w->channels) : w->channels;
}

int m2c_wave_layer(const struct m2c_wave *w, unsigned channel, uint64_t slot)
{
    if (channel == w->channels)
        return 0;
    if (channel > w->channels)
        return -1;
    if (w->cfg.is_static)
        return (int)channel + 1;
    const unsigned ahead = (channel + w->channels - m2c_wave_ctsi(w, slot)) % w->channels;
    return ahead < w->cfg.layers ? (int)ahead + 1 : -1;
}

double m2c_wave_join_tau(const struct m2c_wave *w, unsigned layer, double packets_per_s)
{
    const double most = m2c_wave_cumulative(w, layer, 0);
    const double tau = log(packets_per_s / most) / log(w->cfg.factor);

    return is_within(tau, 0, 1) ? tau : -1;
}

uint64_t m2c_wave_leave_ns(const struct m2c_wave *w, unsigned layer, uint64_t slot)
{
    return layer && !w->cfg.is_static ? m2c_wave_slot_ns(w, slot + layer) : UINT64_MAX;
}

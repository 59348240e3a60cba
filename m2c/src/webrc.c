/* SPDX-License-Identifier: Apache-2.0 */
#include "webrc.h"

#include <math.h>

static const double NU = 0.3, DELTA = 0.3, ALPHA = 0.25; /* as RFC 3738 recommends */

void m2c_loss_reset(struct m2c_loss *l, const struct m2c_wave *w, double probability)
{
    *l = (struct m2c_loss){.z = 1 / probability, .g = NU * M2C_WEBRC_EPOCH_S / w->cfg.slot_s};
}

void m2c_loss_packet(struct m2c_loss *l)
{
    l->w++;
}

void m2c_loss_event(struct m2c_loss *l)
{
    l->x += l->w;
    l->w = 0;
    l->y++;
}

/* Returns z after `events` more events, preceded by `packets` packets in total. */
static double filtered(double z, double packets, double events)
{
    return z * pow(1 - DELTA, events) + packets / (events + 1) * (1 - pow(1 - DELTA, events + 1));
}

double m2c_loss_epoch(struct m2c_loss *l)
{
    const double g = l->g;

    /* The packets count as for G Y + 1 whole events. */
    l->z = filtered(l->z, g * l->x, g * l->y);
    l->x *= 1 - g;
    l->y *= 1 - g;
    const double z1 = filtered(l->z, l->x, l->y);
    const double z2 = l->z * pow(1 - DELTA, l->y + 1) +
                      (l->x + l->w + 1) / (l->y + 2) * (1 - pow(1 - DELTA, l->y + 2));
    return 1 / fmax(1, fmax(z1, z2));
}

void m2c_rtt_first(struct m2c_rtt *r, double waited_s)
{
    *r = (struct m2c_rtt){.average_s = waited_s, .square_s2 = waited_s * waited_s};
}

double m2c_wave_idle_s(const struct m2c_wave *w, unsigned layers)
{
    const double p = w->cfg.factor;

    return -log(p) / 2 / (1 - p) / w->cfg.base_packets_per_s * pow(p, layers);
}

void m2c_rtt_wave(struct m2c_rtt *r, const struct m2c_wave *w, double waited_s, unsigned layers)
{
    const double p = w->cfg.factor;
    const double rtt_s = waited_s - m2c_wave_idle_s(w, layers);
    /* The RFC sets no upper bound, but with a weight above 1 it would not be an average. */
    const double omega = fmin(1, ALPHA * r->average_s * r->average_s / r->square_s2);
    const double rho = omega / (1 - pow(1 - omega, ++r->count + 1));

    r->square_s2 = (1 - rho) * r->square_s2 + rho * rtt_s * rtt_s;
    r->average_s = fmax(p * r->average_s, (1 - rho) * r->average_s + rho * rtt_s);
}

double m2c_tcp_rate(double rtt_s, double loss)
{
    return 1 / (rtt_s * sqrt(loss) * (0.816 + 7.35 * loss * (1 + 32 * loss * loss)));
}

double m2c_tcp_loss(double rtt_s, double packets_per_s)
{
    double low = -40, high = 0; /* bounds of the logarithm; the rate falls as the loss rises */

    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        *(m2c_tcp_rate(rtt_s, exp(middle)) > packets_per_s ? &low : &high) = middle;
    }
    return exp(high);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <errno.h>
#include <math.h>

static int plan(struct m2c_feed *f, struct m2c_plan *out, uint64_t buffer)
{
    /* Plan as much as the layers can send: for files, the ideal length of a buffer. */
    return m2c_plan_init(out, &f->wave, buffer * f->buffer_ns, (buffer + 1) * f->buffer_ns,
                         UINT32_MAX);
}

/* Finds the layer's next packet, in this slot or a later one. */
static void settle(struct m2c_feed *f, unsigned layer)
{
    struct m2c_feed_layer *l = &f->layers[layer];
    const struct m2c_wave *w = &f->wave;

    while (l->i >= l->count) {
        l->slot++;
        l->i = 0;
        l->count = m2c_wave_count(w, layer, 0, 1);
    }
    const uint64_t start = m2c_wave_slot_ns(w, l->slot);
    const double length = (double)(m2c_wave_slot_ns(w, l->slot + 1) - start);
    l->at_ns = start + (uint64_t)(m2c_wave_packet_tau(w, layer, l->i) * length);
}

/* Finds the layer's first packet in the first buffer. */
static void start(struct m2c_feed *f, unsigned layer)
{
    const struct m2c_plan *p = &f->plans[0];

    f->layers[layer] = (struct m2c_feed_layer){
        .slot = p->first_slot,
        .i = m2c_plan_tile(p, 0, layer)->skipped,
        .count = m2c_wave_count(&f->wave, layer, 0, 1),
    };
    settle(f, layer);
}

int m2c_feed_init(struct m2c_feed *f, const struct m2c_wave *w, uint32_t blocks, uint64_t start_ns)
{
    const double slowest = m2c_wave_rate(w, 0, 1);

    *f = (struct m2c_feed){.wave = *w, .buffer_ns = (uint64_t)llround(1e9 / slowest)};
    f->buffer = start_ns / f->buffer_ns + 1;
    const double most = ceil(m2c_wave_cumulative(w, w->cfg.layers, 0) / slowest) + w->cfg.layers;
    const uint32_t levels = most < blocks ? (uint32_t)most : blocks;
    if (m2c_schedule_init(&f->schedule, blocks, levels) < 0)
        return -1;
    if (plan(f, &f->plans[0], f->buffer) < 0 || plan(f, &f->plans[1], f->buffer + 1) < 0) {
        const int error = errno;
        m2c_feed_free(f);
        errno = error;
        return -1;
    }
    for (unsigned i = 0; i <= w->cfg.layers; i++)
        start(f, i);
    return 0;
}

void m2c_feed_free(struct m2c_feed *f)
{
    m2c_plan_free(&f->plans[0]);
    m2c_plan_free(&f->plans[1]);
    m2c_schedule_free(&f->schedule);
}

/* Returns the PDU of the layer's next packet, or M2C_NO_PDU if it belongs to another buffer. */
static uint32_t pdu_in(const struct m2c_feed *f, const struct m2c_plan *p, unsigned layer)
{
    const struct m2c_feed_layer *l = &f->layers[layer];

    if (l->slot < p->first_slot || l->slot >= p->first_slot + p->intervals)
        return M2C_NO_PDU;
    const uint32_t interval = (uint32_t)(l->slot - p->first_slot);
    const struct m2c_tile *t = m2c_plan_tile(p, interval, layer);
    return l->i >= t->skipped && l->i < t->skipped + t->packets
               ? m2c_plan_pdu(p, interval, layer, l->i - t->skipped)
               : M2C_NO_PDU;
}

static bool advance(struct m2c_feed *f)
{
    struct m2c_plan later;

    if (plan(f, &later, f->buffer + 2) < 0)
        return false;
    m2c_plan_free(&f->plans[0]);
    f->plans[0] = f->plans[1];
    f->plans[1] = later;
    f->buffer++;
    return true;
}

bool m2c_feed_next(struct m2c_feed *f, struct m2c_due *out)
{
    unsigned layer = 0;
    uint32_t pdu = M2C_NO_PDU;
    int which = 0;

    for (unsigned i = 1; i <= f->wave.cfg.layers; i++)
        if (f->layers[i].at_ns < f->layers[layer].at_ns)
            layer = i;
    /* If a packet falls exactly on the boundary of two buffers, the tiles decide which one gets it,
     * so one layer can reach the next buffer slightly before another. */
    while (pdu == M2C_NO_PDU) {
        for (which = 0; which < 2 && pdu == M2C_NO_PDU; which++)
            pdu = pdu_in(f, &f->plans[which], layer);
        if (pdu == M2C_NO_PDU && !advance(f))
            return false;
    }
    struct m2c_feed_layer *l = &f->layers[layer];
    *out = (struct m2c_due){
        .at_ns = l->at_ns,
        .layer = layer,
        .cci = {m2c_wave_ctsi(&f->wave, l->slot), m2c_wave_channel(&f->wave, layer, l->slot),
                m2c_wave_psn(&f->wave, layer, l->slot, l->i)},
        .block = m2c_schedule_block(&f->schedule, f->buffer + (uint64_t)which - 1,
                                    pdu % f->schedule.levels),
    };
    l->i++;
    settle(f, layer);
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sequencer.h"

#include <errno.h>
#include <stdlib.h>

/* Lowest rate first. Among equal rates the latest first: a late joiner hears the later ones. */
static int by_importance(const void *a, const void *b)
{
    const struct m2c_tile *x = *(struct m2c_tile *const *)a, *y = *(struct m2c_tile *const *)b;

    if (x->least_rate != y->least_rate)
        return x->least_rate < y->least_rate ? -1 : 1;
    if (x->interval != y->interval)
        return x->interval > y->interval ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

static double tau_of(const struct m2c_wave *w, uint64_t slot, uint64_t now_ns)
{
    const double start = (double)m2c_wave_slot_ns(w, slot);

    return ((double)now_ns - start) / ((double)m2c_wave_slot_ns(w, slot + 1) - start);
}

static void cut_tiles(struct m2c_plan *p, const struct m2c_wave *w)
{
    for (uint32_t i = 0; i < p->intervals; i++) {
        const uint64_t slot = p->first_slot + i;
        const double from = i ? 0 : tau_of(w, slot, p->start_ns);
        const double to = i + 1 < p->intervals ? 1 : tau_of(w, slot, p->end_ns);
        for (uint32_t layer = 0; layer < p->layers; layer++) {
            struct m2c_tile *t = &p->tiles[i * p->layers + layer];
            *t = (struct m2c_tile){
                .interval = i,
                .layer = layer,
                .least_rate = m2c_wave_cumulative(w, layer, to),
                .packets = m2c_wave_count(w, layer, from, to),
                .skipped = m2c_wave_count(w, layer, 0, from),
            };
            p->packets += t->packets;
        }
    }
}

int m2c_plan_init(struct m2c_plan *p, const struct m2c_wave *w, uint64_t start_ns, uint64_t end_ns,
                  uint32_t pdus)
{
    const uint64_t first = m2c_wave_slot(w, start_ns, NULL);

    if (end_ns <= start_ns || !pdus ||
        m2c_wave_slot(w, end_ns - 1, NULL) - first >= M2C_PLAN_INTERVALS_MAX) {
        errno = EINVAL;
        return -1;
    }
    *p = (struct m2c_plan){
        .start_ns = start_ns,
        .end_ns = end_ns,
        .first_slot = first,
        .intervals = (uint32_t)(m2c_wave_slot(w, end_ns - 1, NULL) - first) + 1,
        .layers = w->cfg.layers + 1,
        .pdus = pdus,
    };
    const size_t count = (size_t)p->intervals * p->layers;
    struct m2c_tile **order = reallocarray(NULL, count, sizeof(struct m2c_tile *));
    p->tiles = reallocarray(NULL, count, sizeof *p->tiles);
    if (!order || !p->tiles) {
        free(order);
        m2c_plan_free(p);
        errno = ENOMEM;
        return -1;
    }
    cut_tiles(p, w);
    for (size_t i = 0; i < count; i++)
        order[i] = &p->tiles[i];
    qsort(order, count, sizeof(struct m2c_tile *), by_importance);
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t left = pdus - next;
        order[i]->pdu = next;
        order[i]->pdus = order[i]->packets < left ? order[i]->packets : left;
        next += order[i]->pdus;
    }
    free(order);
    return 0;
}

void m2c_plan_free(struct m2c_plan *p)
{
    free(p->tiles);
    *p = (struct m2c_plan){0};
}

const struct m2c_tile *m2c_plan_tile(const struct m2c_plan *p, uint32_t interval, uint32_t layer)
{
    return &p->tiles[(size_t)interval * p->layers + layer];
}

uint32_t m2c_plan_pdu(const struct m2c_plan *p, uint32_t interval, uint32_t layer, uint32_t i)
{
    const struct m2c_tile *t = m2c_plan_tile(p, interval, layer);
    const uint32_t from_end = t->packets - 1 - i;

    /* The rate falls within the tile and a late joiner hears its end, so the most important PDUs
     * come last. */
    return from_end < t->pdus ? t->pdu + from_end : M2C_NO_PDU;
}

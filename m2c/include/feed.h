/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sender's layers carry, packet by packet in order of time: combines wave, scheduler and
 * sequencer. A buffer lasts as long as the base channel at its slowest takes for one packet (M2C10,
 * 5.1). Each of its PDUs is a block of the ring. Pure.
 */
#ifndef M2C_FEED_H
#define M2C_FEED_H

#include "congestion.h"
#include "schedule.h"
#include "sequencer.h"

struct m2c_due {
    uint64_t at_ns;
    unsigned layer;
    struct m2c_cci cci;
    uint32_t block; /* block of the ring */
};

struct m2c_feed {
    struct m2c_wave wave;
    struct m2c_schedule schedule;
    struct m2c_plan plans[2]; /* plans of this buffer and the next */
    uint64_t buffer, buffer_ns;
    struct m2c_feed_layer {
        uint64_t slot, at_ns;
        uint32_t i, count; /* next packet; packets of the layer in this slot */
    } layers[M2C_LAYERS_MAX + 1];
};

/* Starts a ring of `blocks` with the first buffer after start_ns. Copies the wave. Returns 0, or -1
 * with errno: EINVAL, ENOMEM. */
int m2c_feed_init(struct m2c_feed *f, const struct m2c_wave *w, uint32_t blocks, uint64_t start_ns);
void m2c_feed_free(struct m2c_feed *f);
/* Returns the next packet. false: out of memory; try again. */
bool m2c_feed_next(struct m2c_feed *f, struct m2c_due *out);

#endif

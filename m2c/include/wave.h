/* SPDX-License-Identifier: Apache-2.0
 *
 * A wave of channels whose rates fall (RFC 3738, 3.1): in each time slot one channel becomes
 * quiescent and one starts at the top. A receiver that does nothing slows down, and it leaves only
 * quiescent channels. Pure: it takes the time and returns rates and channels.
 *
 * Layer 0 is the base channel, which never rests. Layer l of 1 to `layers` is the active channel
 * with the l-th lowest rate.
 *
 * Static layers are for comparison: each has its own channel, at the rate that the wave's layer has
 * when a slot starts, and none ever rests.
 */
#ifndef M2C_WAVE_H
#define M2C_WAVE_H

#include <stdbool.h>
#include <stdint.h>

#define M2C_WAVE_FACTOR 0.75 /* P: the ratio of a rate to its value one slot earlier */
enum {
    M2C_WAVE_CHANNELS_MAX = 255 /* T of the short header */,
    M2C_WAVE_PSN_COUNT = 65536, /* sequence numbers of the short header */
    M2C_LAYERS_MAX = 64
};

struct m2c_wave_config {
    double base_packets_per_s; /* BCR: rate of the base channel at a slot's start; 0: 1 */
    double slot_s;             /* TSD; 0: 10 */
    double quiescence_s;       /* QD: longest time that a leave may take; 0: 300 */
    double factor;             /* P, in (0, 1); 0: M2C_WAVE_FACTOR */
    unsigned layers;           /* N: simultaneously active channels above the base */
    bool is_static;            /* rates do not fall */
};

struct m2c_wave {
    struct m2c_wave_config cfg; /* with the defaults filled in */
    unsigned quiescent;         /* Q: slots for which a channel rests; static: 0 */
    /* T: number of channels without the base, and the base's number; static: N. */
    unsigned channels;
    unsigned base_per_slot; /* L: packets of the base channel per slot */
    unsigned slots;         /* slots before CTSI starts over: T; static: 256 */
};

/* Returns 0, or -1 with errno EINVAL for an impossible wave: no layer, more than M2C_LAYERS_MAX, a
 * factor, rate or time out of range, more channels than the header can number, or 2^32 packets in a
 * wave. */
int m2c_wave_init(struct m2c_wave *w, const struct m2c_wave_config *cfg);

/* Returns the smallest N with which all layers together reach packets_per_s at a slot's start, or
 * M2C_LAYERS_MAX + 1 if none does. */
unsigned m2c_wave_layers_for(const struct m2c_wave_config *cfg, double packets_per_s);

/* Returns the number of the slot, from 0; tau receives the position in it, in [0, 1). */
uint64_t m2c_wave_slot(const struct m2c_wave *w, uint64_t now_ns, double *tau);
/* Returns when the slot starts. */
uint64_t m2c_wave_slot_ns(const struct m2c_wave *w, uint64_t slot);
/* Returns the slot's number in the header: CTSI. */
unsigned m2c_wave_ctsi(const struct m2c_wave *w, uint64_t slot);

/* Returns the packets/s of a layer at tau in [0, 1]. */
double m2c_wave_rate(const struct m2c_wave *w, unsigned layer, double tau);
/* Returns the total of layers 0 to `layer`. */
double m2c_wave_cumulative(const struct m2c_wave *w, unsigned layer, double tau);
/* Returns the packets of a layer between tau `from` and `to` of one slot, not rounded. */
double m2c_wave_packets(const struct m2c_wave *w, unsigned layer, double from, double to);

/* Returns the number of whole packets in that range: each packet has its own moment. */
uint32_t m2c_wave_count(const struct m2c_wave *w, unsigned layer, double from, double to);
/* Returns when the layer sends its i-th packet (from 0) of a slot: tau in [0, 1). */
double m2c_wave_packet_tau(const struct m2c_wave *w, unsigned layer, uint32_t i);
/* Returns its sequence number (PSN, short format, modulo 2^16). A wave's last packet has the
 * highest; the base channel's first packet of a slot has a multiple of L. */
uint32_t m2c_wave_psn(const struct m2c_wave *w, unsigned layer, uint64_t slot, uint32_t i);

/* Returns the channel (CN) that is this layer in the slot; T for layer 0. */
unsigned m2c_wave_channel(const struct m2c_wave *w, unsigned layer, uint64_t slot);
/* Returns the channel's layer in the slot, or -1 if it is quiescent. */
int m2c_wave_layer(const struct m2c_wave *w, unsigned channel, uint64_t slot);

/* Returns when a receiver of the layers 0 to layer - 1 must join `layer` to receive `packets_per_s`
 * at that moment: tau in [0, 1], or -1 if the slot has no such moment. */
double m2c_wave_join_tau(const struct m2c_wave *w, unsigned layer, double packets_per_s);
/* Returns how many sequence numbers the channel has. */
uint32_t m2c_wave_psn_count(const struct m2c_wave *w, unsigned channel);
/* Returns when the channel that is `layer` in the slot becomes quiescent and must be left, in ns;
 * UINT64_MAX (never) for the base channel and static channels. */
uint64_t m2c_wave_leave_ns(const struct m2c_wave *w, unsigned layer, uint64_t slot);

#endif

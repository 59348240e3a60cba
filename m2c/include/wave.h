/* SPDX-License-Identifier: Apache-2.0
 *
 * A wave of channels whose rates fall (RFC 3738, 3.1): in each time slot one channel becomes
 * quiescent and one starts at the top. A receiver that does nothing slows down, and leaves only
 * quiescent channels. Pure: time goes in, rates and channels come out.
 *
 * Layer 0 is the base channel, which never rests. Layer l of 1 to `layers` is the active channel
 * with the l-th lowest rate.
 *
 * Static layers are for comparison: each has its own channel, at the rate that the wave's
 * layer has when a slot starts, and none ever rests.
 */
#ifndef M2C_WAVE_H
#define M2C_WAVE_H

#include <stdbool.h>
#include <stdint.h>

#define M2C_WAVE_FACTOR 0.75 /* P: a rate after one slot, as a share of the rate before */
enum {
    M2C_WAVE_CHANNELS_MAX = 255 /* T of the short header */,
    M2C_WAVE_PSN_COUNT = 65536, /* its sequence numbers */
    M2C_LAYERS_MAX = 64
};

struct m2c_wave_config {
    double base_packets_per_s; /* BCR: of the base channel at a slot's start; 0: 1 */
    double slot_s;             /* TSD; 0: 10 */
    double quiescence_s;       /* QD: what a leave may take at most; 0: 300 */
    double factor;             /* P, of (0, 1); 0: M2C_WAVE_FACTOR */
    unsigned layers;           /* N: channels above the base that are active at a time */
    bool is_static;            /* rates do not fall */
};

struct m2c_wave {
    struct m2c_wave_config cfg; /* with the defaults filled in */
    unsigned quiescent;         /* Q: slots in which a channel rests; static: 0 */
    unsigned channels;          /* T: without the base channel, whose number is T; static: N */
    unsigned base_per_slot;     /* L: packets of the base channel in a slot */
    unsigned slots;             /* of a cycle, before CTSI starts over: T; static: 256 */
};

/* 0, or -1 with errno EINVAL for an impossible wave: no layer, more than M2C_LAYERS_MAX, a
 * factor, rate or time out of range, more channels than the header can number, 2^32 packets in a
 * wave. */
int m2c_wave_init(struct m2c_wave *w, const struct m2c_wave_config *cfg);

/* The least N with which all layers reach so many packets/s at a slot's start, or
 * M2C_LAYERS_MAX + 1 if none does. */
unsigned m2c_wave_layers_for(const struct m2c_wave_config *cfg, double packets_per_s);

/* The number of the slot, from 0, and the time in it: tau of [0, 1). */
uint64_t m2c_wave_slot(const struct m2c_wave *w, uint64_t now_ns, double *tau);
/* When the slot starts. */
uint64_t m2c_wave_slot_ns(const struct m2c_wave *w, uint64_t slot);
/* The slot's number in the header: CTSI. */
unsigned m2c_wave_ctsi(const struct m2c_wave *w, uint64_t slot);

/* Packets/s of a layer at tau of [0, 1]. */
double m2c_wave_rate(const struct m2c_wave *w, unsigned layer, double tau);
/* For the layers 0 to `layer` together. */
double m2c_wave_cumulative(const struct m2c_wave *w, unsigned layer, double tau);
/* Packets of a layer from tau `from` to `to` of one slot: not a whole number. */
double m2c_wave_packets(const struct m2c_wave *w, unsigned layer, double from, double to);

/* The same in whole packets: each has its own moment. */
uint32_t m2c_wave_count(const struct m2c_wave *w, unsigned layer, double from, double to);
/* When the i-th packet (from 0) of the layer in a slot goes: tau of [0, 1). */
double m2c_wave_packet_tau(const struct m2c_wave *w, unsigned layer, uint32_t i);
/* Its sequence number (PSN, short format, modulo 2^16). A wave's last packet has the highest. The
 * base channel's first packet of a slot has a multiple of L. */
uint32_t m2c_wave_psn(const struct m2c_wave *w, unsigned layer, uint64_t slot, uint32_t i);

/* The channel (CN) that is this layer in the slot; T for layer 0. */
unsigned m2c_wave_channel(const struct m2c_wave *w, unsigned layer, uint64_t slot);
/* The channel's layer in the slot, or -1: it is quiescent. */
int m2c_wave_layer(const struct m2c_wave *w, unsigned channel, uint64_t slot);

/* When a receiver of the layers 0 to layer - 1 must join `layer` to get `packets_per_s` at that
 * moment: tau of [0, 1], or -1 if the slot has no such moment. */
double m2c_wave_join_tau(const struct m2c_wave *w, unsigned layer, double packets_per_s);
/* How many sequence numbers the channel has. */
uint32_t m2c_wave_psn_count(const struct m2c_wave *w, unsigned channel);
/* When the channel that is `layer` in the slot becomes quiescent and must be left, in ns;
 * UINT64_MAX: the base channel and static ones, never. */
uint64_t m2c_wave_leave_ns(const struct m2c_wave *w, unsigned layer, uint64_t slot);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequencer: decides which part of a buffer each layer sends, and when. The first part is the
 * most important, so the layers that even the slowest receivers hear carry it: a receiver with N %
 * of the rate gets about the first N % of the buffer. The sequencer ignores the buffer's content.
 * Pure.
 *
 * Slot boundaries divide the buffer's time into intervals. A tile is what one layer sends in one
 * interval.
 */
#ifndef M2C_SEQUENCER_H
#define M2C_SEQUENCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wave.h"

/* ------------------------------------------------------------------ sending side */

struct m2c_tile {
    uint32_t interval, layer;
    /* Packets/s a receiver needs to hear all of it: its layers' total rate at its end. */
    double least_rate;
    uint32_t packets; /* packets that the layer sends in the interval */
    uint32_t skipped; /* packets that the layer sends in the same slot before the interval */
    uint32_t pdu;     /* first PDU of this tile */
    uint32_t pdus;    /* PDUs of this tile; fewer than packets if the buffer is short */
};

struct m2c_plan {
    uint64_t start_ns, end_ns;
    uint64_t first_slot;
    uint32_t intervals, layers; /* layers: including the base */
    uint32_t packets;           /* of all tiles */
    uint32_t pdus;              /* of the buffer */
    struct m2c_tile *tiles;     /* ordered by interval, then by layer */
};

#define M2C_NO_PDU UINT32_MAX
enum { M2C_PLAN_INTERVALS_MAX = 1024 };

/* Plans a buffer of `pdus`. Leaves out the last PDUs if the layers cannot send all in [start_ns,
 * end_ns). Returns 0, or -1 with errno: EINVAL (no time, no PDUs, or too many slots), ENOMEM. */
int m2c_plan_init(struct m2c_plan *p, const struct m2c_wave *w, uint64_t start_ns, uint64_t end_ns,
                  uint32_t pdus);
void m2c_plan_free(struct m2c_plan *p);
const struct m2c_tile *m2c_plan_tile(const struct m2c_plan *p, uint32_t interval, uint32_t layer);
/* Returns the PDU of the layer's i-th packet of the interval, or M2C_NO_PDU if none is left. */
uint32_t m2c_plan_pdu(const struct m2c_plan *p, uint32_t interval, uint32_t layer, uint32_t i);

/* ------------------------------------------------------------------ on the wire */

/* The buffer's number and the offset of the data in it, big endian. */
struct m2c_seq_header {
    uint32_t buffer, offset;
};
enum { M2C_SEQ_HEADER_BYTES = 8 };

void m2c_seq_put(uint8_t out[M2C_SEQ_HEADER_BYTES], struct m2c_seq_header h);
/* Returns false if the bytes are too short. */
bool m2c_seq_get(const uint8_t *bytes, size_t len, struct m2c_seq_header *out);

/* ------------------------------------------------------------------ receiving side */

/* A range of the buffer: [from, to). */
struct m2c_part {
    uint32_t from, to;
};

enum m2c_seq_verdict { M2C_SEQ_TAKEN, M2C_SEQ_DUPLICATE, M2C_SEQ_STALE, M2C_SEQ_REFUSED };

/* Collects one buffer until a packet of a later one arrives. Its memory is fixed at creation. */
struct m2c_intake {
    uint8_t *bytes;
    uint32_t bytes_max;
    struct m2c_part *parts; /* ordered and disjoint */
    uint32_t part_count, parts_max;
    uint32_t buffer;
    bool has_buffer;
    uint64_t taken, duplicate, stale, refused; /* packets */
};

/* Returns 0, or -1 with errno: EINVAL, ENOMEM. */
int m2c_intake_init(struct m2c_intake *in, uint32_t bytes_max, uint32_t parts_max);
void m2c_intake_free(struct m2c_intake *in);
/* Takes a packet's header and data. Stale: of an earlier buffer. Refused: out of bounds, or
 * empty. */
enum m2c_seq_verdict m2c_intake_packet(struct m2c_intake *in, struct m2c_seq_header h,
                                       const uint8_t *data, size_t len);
/* Returns whether this packet would end the current buffer; if so, read the buffer first. */
bool m2c_intake_ends(const struct m2c_intake *in, struct m2c_seq_header h);
/* Returns how many bytes have arrived from the buffer's start without a gap. */
uint32_t m2c_intake_contiguous(const struct m2c_intake *in);

#endif

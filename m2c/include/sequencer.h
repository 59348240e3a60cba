/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequencer: decides which part of a buffer each layer sends, and when. The first part is the
 * most important, so it goes where even the slowest receivers hear it: a receiver with N % of the
 * rate gets about the first N % of the buffer. The meaning of the buffer does not matter. Pure.
 *
 * The borders of slots cut the buffer's time into intervals. A tile is what one layer sends in one
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
    double least_rate; /* packets/s that hear all of it: of its layers together, at its end */
    uint32_t packets;  /* that the layer sends in the interval */
    uint32_t skipped;  /* of these, in the interval's slot before the interval */
    uint32_t pdu;      /* first of this tile */
    uint32_t pdus;     /* of this tile; less than packets if the buffer is short */
};

struct m2c_plan {
    uint64_t start_ns, end_ns;
    uint64_t first_slot;
    uint32_t intervals, layers; /* layers: with the base */
    uint32_t packets;           /* of all tiles */
    uint32_t pdus;              /* of the buffer */
    struct m2c_tile *tiles;     /* by interval, then by layer */
};

#define M2C_NO_PDU UINT32_MAX
enum { M2C_PLAN_INTERVALS_MAX = 1024 };

/* Plans a buffer of `pdus`. Leaves out the last that the layers cannot send in [start_ns, end_ns).
 * 0, or -1 with errno: EINVAL (no time, no PDUs, or too many slots),
 * ENOMEM. */
int m2c_plan_init(struct m2c_plan *p, const struct m2c_wave *w, uint64_t start_ns, uint64_t end_ns,
                  uint32_t pdus);
void m2c_plan_free(struct m2c_plan *p);
const struct m2c_tile *m2c_plan_tile(const struct m2c_plan *p, uint32_t interval, uint32_t layer);
/* The PDU of the layer's i-th packet of the interval, or M2C_NO_PDU: none is left. */
uint32_t m2c_plan_pdu(const struct m2c_plan *p, uint32_t interval, uint32_t layer, uint32_t i);

/* ------------------------------------------------------------------ on the wire */

/* Which buffer, and from which of its bytes on: big endian. */
struct m2c_seq_header {
    uint32_t buffer, offset;
};
enum { M2C_SEQ_HEADER_BYTES = 8 };

void m2c_seq_put(uint8_t out[M2C_SEQ_HEADER_BYTES], struct m2c_seq_header h);
/* False: too short. */
bool m2c_seq_get(const uint8_t *bytes, size_t len, struct m2c_seq_header *out);

/* ------------------------------------------------------------------ receiving side */

/* A part of the buffer: [from, to). */
struct m2c_part {
    uint32_t from, to;
};

enum m2c_seq_verdict { M2C_SEQ_TAKEN, M2C_SEQ_DUPLICATE, M2C_SEQ_STALE, M2C_SEQ_REFUSED };

/* Keeps one buffer until a packet of a later one comes. Its memory is fixed at creation. */
struct m2c_intake {
    uint8_t *bytes;
    uint32_t bytes_max;
    struct m2c_part *parts; /* in order, apart from each other */
    uint32_t part_count, parts_max;
    uint32_t buffer;
    bool has_buffer;
    uint64_t taken, duplicate, stale, refused; /* packets */
};

/* 0, or -1 with errno: EINVAL, ENOMEM. */
int m2c_intake_init(struct m2c_intake *in, uint32_t bytes_max, uint32_t parts_max);
void m2c_intake_free(struct m2c_intake *in);
/* A packet's header and data. Stale: of an earlier buffer. Refused: beyond the bounds, or empty. */
enum m2c_seq_verdict m2c_intake_packet(struct m2c_intake *in, struct m2c_seq_header h,
                                       const uint8_t *data, size_t len);
/* True if this packet would end the current buffer. Read that first. */
bool m2c_intake_ends(const struct m2c_intake *in, struct m2c_seq_header h);
/* Bytes from the buffer's start without a gap. */
uint32_t m2c_intake_contiguous(const struct m2c_intake *in);

#endif

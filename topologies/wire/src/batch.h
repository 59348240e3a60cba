/* SPDX-License-Identifier: Apache-2.0
 *
 * What one end of a cut link writes for the other shortly before each boundary between windows: the
 * frames sent since it last wrote, each with its link and send time. Each direction has a file of
 * SLOTS batches; batch N is in slot N % SLOTS of it. Host byte order. No I/O here.
 */
#ifndef WIRE_BATCH_H
#define WIRE_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BATCH_SLOTS = 2, BATCH_BYTES = 16 << 20, BATCH_FRAME_BYTES = 65535 };

struct batch_head {
    uint64_t number;  /* number of the boundary: its time divided by the length of a window */
    uint32_t n_bytes; /* of the records that follow */
    uint32_t is_last; /* this end is closing: no more batches will follow */
};

struct batch_record {
    uint64_t number; /* number of the batch: reveals remains of an older one */
    int64_t sent_ns;
    uint32_t n_bytes; /* of the frame that follows, padded to 8 */
    uint32_t link;
};

/* Begins a batch of BATCH_BYTES at `bytes`, 8-aligned, with the head first. */
void batch_begin(uint8_t *bytes, uint64_t number);
/* Reserves the space for a frame of `n_bytes` sent on `link` at `sent_ns`, which the caller fills;
 * NULL: full. */
uint8_t *batch_add(uint8_t *bytes, uint32_t link, int64_t sent_ns, size_t n_bytes);
void batch_close(uint8_t *bytes);
size_t batch_size(const uint8_t *bytes);

struct batch_frame {
    const uint8_t *bytes;
    size_t n_bytes;
    int64_t sent_ns;
    uint32_t link;
};

/* Returns whether `bytes`, of which `n_bytes` have been read, hold a whole batch with this
 * number. */
bool batch_is(const uint8_t *bytes, size_t n_bytes, uint64_t number);
/* Returns the frame at `*offset` (0: the first) and advances `*offset`; false: no more frames. */
bool batch_next(const uint8_t *bytes, size_t *offset, struct batch_frame *frame);

#endif

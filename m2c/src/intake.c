/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sequencer.h"

static void put_u32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

void m2c_seq_put(uint8_t out[M2C_SEQ_HEADER_BYTES], struct m2c_seq_header h)
{
    put_u32(out, h.buffer);
    put_u32(out + 4, h.offset);
}

bool m2c_seq_get(const uint8_t *bytes, size_t len, struct m2c_seq_header *out)
{
    if (len < M2C_SEQ_HEADER_BYTES)
        return false;
    *out = (struct m2c_seq_header){get_u32(bytes), get_u32(bytes + 4)};
    return true;
}

int m2c_intake_init(struct m2c_intake *in, uint32_t bytes_max, uint32_t parts_max)
{
    if (!bytes_max || !parts_max) {
        errno = EINVAL;
        return -1;
    }
    *in = (struct m2c_intake){.bytes_max = bytes_max, .parts_max = parts_max};
    in->bytes = malloc(bytes_max);
    in->parts = reallocarray(NULL, parts_max, sizeof *in->parts);
    if (!in->bytes || !in->parts) {
        m2c_intake_free(in);
        errno = ENOMEM;
        return -1;
    }
    return 0;
}

void m2c_intake_free(struct m2c_intake *in)
{
    free(in->bytes);
    free(in->parts);
    *in = (struct m2c_intake){0};
}

/* Serial number arithmetic: a is later if it is within half the circle after b. */
static bool is_later(uint32_t a, uint32_t b)
{
    return a != b && a - b < UINT32_C(1) << 31;
}

bool m2c_intake_ends(const struct m2c_intake *in, struct m2c_seq_header h)
{
    return in->has_buffer && is_later(h.buffer, in->buffer);
}

/* Adds [from, to) and merges it with adjacent parts. Returns false if there is no room for another
 * part. */
static bool add_part(struct m2c_intake *in, uint32_t from, uint32_t to)
{
    uint32_t first = 0, end;

    while (first < in->part_count && in->parts[first].to < from)
        first++;
    for (end = first; end < in->part_count && in->parts[end].from <= to; end++) {
        from = in->parts[end].from < from ? in->parts[end].from : from;
        to = in->parts[end].to > to ? in->parts[end].to : to;
    }
    if (end == first && in->part_count == in->parts_max)
        return false;
    memmove(&in->parts[first + 1], &in->parts[end], (in->part_count - end) * sizeof *in->parts);
    in->parts[first] = (struct m2c_part){from, to};
    in->part_count = in->part_count + 1 - (end - first);
    return true;
}

static bool has(const struct m2c_intake *in, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < in->part_count && in->parts[i].from <= from; i++)
        if (in->parts[i].to >= to)
            return true;
    return false;
}

enum m2c_seq_verdict m2c_intake_packet(struct m2c_intake *in, struct m2c_seq_header h,
                                       const uint8_t *data, size_t len)
{
    if (!len || h.offset >= in->bytes_max || len > in->bytes_max - h.offset) {
        in->refused++;
        return M2C_SEQ_REFUSED;
    }
    if (in->has_buffer && h.buffer != in->buffer && !is_later(h.buffer, in->buffer)) {
        in->stale++;
        return M2C_SEQ_STALE;
    }
    if (!in->has_buffer || h.buffer != in->buffer) {
        in->buffer = h.buffer;
        in->has_buffer = true;
        in->part_count = 0;
    }
    const uint32_t to = h.offset + (uint32_t)len;
    if (has(in, h.offset, to)) {
        in->duplicate++;
        return M2C_SEQ_DUPLICATE;
    }
    if (!add_part(in, h.offset, to)) {
        in->refused++;
        return M2C_SEQ_REFUSED;
    }
    memcpy(in->bytes + h.offset, data, len);
    in->taken++;
    return M2C_SEQ_TAKEN;
}

uint32_t m2c_intake_contiguous(const struct m2c_intake *in)
{
    return in->part_count && !in->parts[0].from ? in->parts[0].to : 0;
}

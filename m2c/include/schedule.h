/* SPDX-License-Identifier: Apache-2.0
 *
 * The application scheduler: chooses the block of the ring that each level of a buffer carries, so
 * that every buffer brings new blocks. It places levels as far apart on the ring as possible: a
 * receiver of twice as many levels gets all blocks in half as many buffers, whichever comes first.
 */
#ifndef M2C_SCHEDULE_H
#define M2C_SCHEDULE_H

#include <stdint.h>

struct m2c_schedule {
    uint32_t blocks; /* B */
    uint32_t levels; /* N */
    uint32_t *shift; /* per level: offset in blocks from the first level */
};

/* Returns 0, or -1 with errno: EINVAL unless 1 <= levels <= blocks; ENOMEM. */
int m2c_schedule_init(struct m2c_schedule *s, uint32_t blocks, uint32_t levels);
void m2c_schedule_free(struct m2c_schedule *s);
/* Returns the block that a level (from 0) of a buffer carries. */
uint32_t m2c_schedule_block(const struct m2c_schedule *s, uint64_t buffer, uint32_t level);

#endif

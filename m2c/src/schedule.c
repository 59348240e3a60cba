/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

struct gap {
    uint32_t start, length;
};

/* Returns whether a is taken before b. Of two equal gaps, the lower one comes first. */
static bool before(struct gap a, struct gap b)
{
    return a.length != b.length ? a.length > b.length : a.start < b.start;
}

static void sink(struct gap *heap, uint32_t count, uint32_t i)
{
    const struct gap gap = heap[i];

    for (uint32_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && before(heap[child + 1], heap[child]))
            child++;
        if (!before(heap[child], gap))
            break;
        heap[i] = heap[child];
    }
    heap[i] = gap;
}

static void rise(struct gap *heap, uint32_t i)
{
    const struct gap gap = heap[i];

    for (; i && before(gap, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = gap;
}

int m2c_schedule_init(struct m2c_schedule *s, uint32_t blocks, uint32_t levels)
{
    if (!levels || levels > blocks) {
        errno = EINVAL;
        return -1;
    }
    struct gap *heap = reallocarray(NULL, levels, sizeof *heap);
    uint32_t *shift = reallocarray(NULL, levels, sizeof *shift);
    if (!heap || !shift) {
        free(heap);
        free(shift);
        errno = ENOMEM;
        return -1;
    }
    heap[0] = (struct gap){0, blocks};
    shift[0] = 0;
    for (uint32_t n = 1; n < levels; n++) {
        const uint32_t half = heap[0].length / 2;
        shift[n] = heap[0].start + half;
        heap[n] = (struct gap){shift[n], heap[0].length - half};
        heap[0].length = half;
        sink(heap, n, 0);
        rise(heap, n);
    }
    free(heap);
    *s = (struct m2c_schedule){blocks, levels, shift};
    return 0;
}

void m2c_schedule_free(struct m2c_schedule *s)
{
    free(s->shift);
    *s = (struct m2c_schedule){0};
}

uint32_t m2c_schedule_block(const struct m2c_schedule *s, uint64_t buffer, uint32_t level)
{
    return (uint32_t)((buffer % s->blocks + s->shift[level]) % s->blocks);
}

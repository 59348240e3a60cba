/* SPDX-License-Identifier: Apache-2.0 */
#include "reorder.h"

#include <stdlib.h>
#include <string.h>

int fmtp_reorder_init(struct fmtp_reorder *s, size_t capacity, size_t block_bytes)
{
    *s = (struct fmtp_reorder){.block_bytes = block_bytes};
    if (!capacity)
        return 0;
    s->ring = calloc(capacity, sizeof *s->ring);
    if (!s->ring)
        return -1;
    s->capacity = capacity;
    return 0;
}

void fmtp_reorder_free(struct fmtp_reorder *s)
{
    free(s->memory);
    free(s->ring);
    *s = (struct fmtp_reorder){0};
}

bool fmtp_reorder_put(struct fmtp_reorder *s, const struct fmtp_header *h, const uint8_t *payload,
                      bool *forgot)
{
    *forgot = false;
    if (!s->capacity || h->payloadlen > s->block_bytes)
        return false;
    if (!s->memory && !(s->memory = malloc(s->capacity * s->block_bytes)))
        return false;
    struct fmtp_reordered *slot = &s->ring[s->next];
    slot->payload = s->memory + s->next * s->block_bytes;
    s->next = (s->next + 1) % s->capacity;
    *forgot = slot->used;
    s->count += !slot->used;
    slot->used = true;
    slot->h = *h;
    memcpy(slot->payload, payload, h->payloadlen);
    return true;
}

const struct fmtp_reordered *fmtp_reorder_take(struct fmtp_reorder *s, uint32_t index,
                                               size_t *cursor)
{
    while (s->count && *cursor < s->capacity) {
        struct fmtp_reordered *slot = &s->ring[(s->next + (*cursor)++) % s->capacity];
        if (slot->used && slot->h.index == index) {
            slot->used = false;
            s->count--;
            return slot;
        }
    }
    return NULL;
}

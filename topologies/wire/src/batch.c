/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include <string.h>

enum { ALIGN = 8 };

static size_t padded(size_t n_bytes)
{
    return (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct batch_head head_of(const uint8_t *bytes)
{
    struct batch_head head;
    memcpy(&head, bytes, sizeof head);
    return head;
}

void batch_begin(uint8_t *bytes, uint64_t number)
{
    const struct batch_head head = {.number = number};
    memcpy(bytes, &head, sizeof head);
}

uint8_t *batch_add(uint8_t *bytes, uint32_t link, int64_t sent_ns, size_t n_bytes)
{
    struct batch_head head = head_of(bytes);
    const struct batch_record record = {
        .number = head.number, .sent_ns = sent_ns, .n_bytes = (uint32_t)n_bytes, .link = link};
    const size_t at = sizeof head + head.n_bytes;
    const size_t need = sizeof record + padded(n_bytes);
    if (n_bytes > BATCH_FRAME_BYTES || at + need > BATCH_BYTES)
        return NULL;
    memcpy(bytes + at, &record, sizeof record);
    memset(bytes + at + sizeof record + n_bytes, 0, padded(n_bytes) - n_bytes);
    head.n_bytes += (uint32_t)need;
    memcpy(bytes, &head, sizeof head);
    return bytes + at + sizeof record;
}

void batch_close(uint8_t *bytes)
{
    struct batch_head head = head_of(bytes);
    head.is_last = 1;
    memcpy(bytes, &head, sizeof head);
}

size_t batch_size(const uint8_t *bytes)
{
    return sizeof(struct batch_head) + head_of(bytes).n_bytes;
}

bool batch_next(const uint8_t *bytes, size_t *offset, struct batch_frame *frame)
{
    const size_t end = batch_size(bytes);
    const size_t at = *offset == 0 ? sizeof(struct batch_head) : *offset;
    struct batch_record record;
    if (at == end)
        return false;
    memcpy(&record, bytes + at, sizeof record);
    *frame = (struct batch_frame){.bytes = bytes + at + sizeof record,
                                  .n_bytes = record.n_bytes,
                                  .sent_ns = record.sent_ns,
                                  .link = record.link};
    *offset = at + sizeof record + padded(record.n_bytes);
    return true;
}

bool batch_is(const uint8_t *bytes, size_t n_bytes, uint64_t number)
{
    if (n_bytes < sizeof(struct batch_head))
        return false;
    const struct batch_head head = head_of(bytes);
    const size_t end = sizeof head + head.n_bytes;
    if (head.number != number || end > n_bytes || end > BATCH_BYTES)
        return false;
    size_t at = sizeof head;
    while (at < end) {
        struct batch_record record;
        if (end - at < sizeof record)
            return false;
        memcpy(&record, bytes + at, sizeof record);
        if (record.number != number || record.n_bytes > BATCH_FRAME_BYTES ||
            end - at - sizeof record < padded(record.n_bytes))
            return false;
        at += sizeof record + padded(record.n_bytes);
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "outbox.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 };

void fmtp_outbox_init(struct fmtp_outbox *o, size_t limit)
{
    *o = (struct fmtp_outbox){.limit = limit};
}

void fmtp_outbox_free(struct fmtp_outbox *o)
{
    free(o->bytes);
    fmtp_outbox_init(o, o->limit);
}

void fmtp_outbox_clear(struct fmtp_outbox *o)
{
    o->at = o->len = 0;
}

static int grow(struct fmtp_outbox *o, size_t need)
{
    size_t capacity = o->capacity ? o->capacity : FIRST_CAPACITY;

    while (capacity < need)
        capacity *= 2;
    uint8_t *bytes = realloc(o->bytes, capacity);
    if (!bytes)
        return -1;
    o->bytes = bytes;
    o->capacity = capacity;
    return 0;
}

int fmtp_outbox_put(struct fmtp_outbox *o, const void *head, size_t head_len, const void *body,
                    size_t body_len)
{
    size_t add = head_len + body_len;

    if (!add)
        return 0;
    if (o->len + add > o->limit)
        return -1;
    /* Move bytes only if at least as many have been sent: each moves once on average. */
    if (o->at + o->len + add > o->capacity && o->at >= o->len) {
        if (o->len)
            memmove(o->bytes, o->bytes + o->at, o->len);
        o->at = 0;
    }
    if (o->at + o->len + add > o->capacity && grow(o, o->at + o->len + add) < 0)
        return -1;
    memcpy(o->bytes + o->at + o->len, head, head_len);
    if (body_len)
        memcpy(o->bytes + o->at + o->len + head_len, body, body_len);
    o->len += add;
    return 0;
}

void fmtp_outbox_sent(struct fmtp_outbox *o, size_t bytes)
{
    o->at += bytes;
    o->len -= bytes;
    if (!o->len)
        o->at = 0;
}

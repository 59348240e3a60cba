/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the record and message parser as the server and as the client use it. First byte: bit 0 =
 * client (products accepted), bits 1-2 = size of the pieces in which the rest is fed.
 */
#include <stdlib.h>

#include "feed.h"
#include "fuzz.h"
#include "ldmd/ldmrpc.h"
#include "ldmd/match.h"

struct sink {
    uint8_t *region;
    size_t size;
    bool open;
};

static void require(bool ok)
{
    if (!ok)
        abort();
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *x)
{
    (void)ctx;
    struct ldm_class c;
    struct ldm7_subscription s;
    struct ldm7_backlog b;
    struct pq_info info;
    char text[256];
    switch (m->proc) {
    case LDM6_FEEDME:
        xin_class(x, &c);
        class_format(&c, text, sizeof text);
        break;
    case LDM7_SUBSCRIBE: xin_subscription(x, &s); break;
    case LDM7_REQUEST_BACKLOG: xin_backlog(x, &b); break;
    case LDM6_HIYA:
    case LDM6_NOTIFYME: xin_class(x, &c); break;
    case LDM6_NOTIFICATION: xin_info(x, &info); break;
    case LDM6_COMINGSOON:
        xin_info(x, &info);
        xin_u32(x);
        break;
    default: xin_u32(x);
    }
    return true;
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *x)
{
    (void)ctx;
    struct ldm7_reply r;
    struct ldm6_reply r6;
    if (m->xid & 1)
        xin_subscription_reply(x, &r);
    else
        xin_ldm6_reply(x, m->xid & 2, &r6);
    return true;
}

static bool begin(struct sink *s, uint32_t size, uint8_t **region)
{
    require(!s->open);
    s->open = true;
    s->size = size;
    s->region = size <= 1u << 20 ? malloc(size + 1u) : NULL;
    *region = s->region;
    return true;
}

static bool on_begin(void *ctx, const struct rpc_msg *m, uint32_t index, const struct pq_info *info,
                     uint8_t **region)
{
    (void)m;
    (void)index;
    return begin(ctx, info->size, region);
}

static bool on_block(void *ctx, const struct ldm_block *b, uint8_t **region)
{
    return begin(ctx, b->size, region);
}

static bool on_end(void *ctx)
{
    struct sink *s = ctx;
    volatile uint8_t sum = 0;

    require(s->open);
    for (size_t i = 0; s->region && i < s->size; i++)
        sum = (uint8_t)(sum + s->region[i]);
    (void)sum;
    free(s->region);
    *s = (struct sink){0};
    return true;
}

static void on_abort(void *ctx)
{
    struct sink *s = ctx;

    free(s->region);
    *s = (struct sink){0};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 7, 1000, SIZE_MAX};
    struct sink s = {0};
    struct rpc_sink client = {&s, on_call, on_reply, on_begin, on_end, on_abort, on_block};
    struct rpc_sink server = {&s, on_call, on_reply, NULL, NULL, NULL, NULL};
    static struct rpc_stream stream;

    if (size == 0)
        return 0;
    size_t piece = pieces[data[0] >> 1 & 3];
    rpc_stream_init(&stream, data[0] & 1 ? &client : &server);
    if (feed(&stream, data + 1, size - 1, piece, data[0] & 8) < 0)
        require(stream.error);
    rpc_stream_end(&stream);
    require(!s.open);
    return 0;
}

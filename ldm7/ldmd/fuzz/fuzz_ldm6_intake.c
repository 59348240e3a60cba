/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes what a peer sends to a downstream, or after HIYA: the RPC stream, vetting, and products in
 * a real queue. First byte: bits 0-1 = size of the pieces in which the rest is fed, bit 2 = data
 * directly into their place where that is offered.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "feed.h"
#include "fuzz.h"
#include "ldmd/intake.h"

static struct intake in;
static struct pq *queue;

static void require(bool ok)
{
    if (!ok)
        abort();
}

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *x)
{
    (void)ctx;
    if (m->proc != LDM6_COMINGSOON)
        return true;
    struct pq_info info;
    xin_info(x, &info);
    xin_u32(x);
    if (!xin_done(x))
        return false;
    intake_coming(&in, &info);
    return true;
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *x)
{
    (void)ctx;
    (void)m;
    (void)x;
    return false;
}

static bool on_begin(void *ctx, const struct rpc_msg *m, uint32_t index, const struct pq_info *info,
                     uint8_t **region)
{
    (void)ctx;
    (void)index;
    if (m->vers != LDM_VERS6)
        return false;
    intake_begin(&in, info, region);
    return true;
}

static bool on_block(void *ctx, const struct ldm_block *b, uint8_t **region)
{
    (void)ctx;
    return intake_block(&in, b, region);
}

static bool on_end(void *ctx)
{
    (void)ctx;
    intake_end(&in);
    return true;
}

static void on_abort(void *ctx)
{
    (void)ctx;
    intake_abort(&in);
}

static void open_once(void)
{
    char path[] = "/tmp/fuzz-ldm6-XXXXXX";
    struct ldm_class c = {.to = LDM_TIME_END, .n = 1, .specs = {{0xffffffff, "^[^x]"}}};
    int fd = mkstemp(path);

    require(fd >= 0 && pq_create(path, 20000, 5, true) == PQ_OK &&
            pq_open(path, true, &queue) == PQ_OK);
    close(fd);
    unlink(path);
    log_set_level(LOG_LVL_ERROR);
    in = (struct intake){.queue = queue, .from = "fuzz.example.org", .max_latency_s = 1e9};
    char why[128];
    require(intake_class(&in, &c, why, sizeof why) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 7, 1000, SIZE_MAX};
    struct rpc_sink sink = {NULL, on_call, on_reply, on_begin, on_end, on_abort, on_block};
    static struct rpc_stream stream;

    if (!queue)
        open_once();
    if (size == 0)
        return 0;
    size_t piece = pieces[data[0] & 3];
    rpc_stream_init(&stream, &sink);
    feed(&stream, data + 1, size - 1, piece, data[0] & 4);
    rpc_stream_end(&stream);
    intake_abort(&in);
    require(pq_check(queue) == PQ_OK);
    struct pq_stats st;
    pq_get_stats(queue, &st);
    require(st.reserved_slots == 0); /* Whatever arrived, nothing stays reserved. */
    return 0;
}

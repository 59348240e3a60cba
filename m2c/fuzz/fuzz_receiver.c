/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver of untrusted datagrams. The input is one byte that selects the congestion control,
 * followed by datagrams, each with two bytes of length and one of time. The channels joined stay
 * within the session's groups, and for each group joins and leaves alternate. */
#include <stdlib.h>
#include <string.h>

#include "fcast.h"
#include "fuzz.h"
#include "m2c_receiver.h"

enum { BYTES = 1 << 14 };
#define TICK_NS UINT64_C(20000000)

static uint8_t data[BYTES], repair[BYTES];

static int get(void *ctx, uint64_t at, void *bytes, size_t len)
{
    if (at > BYTES || len > BYTES - at)
        return -1;
    memcpy(bytes, (const uint8_t *)ctx + at, len);
    return 0;
}

static int put(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    if (at > BYTES || len > BYTES - at)
        return -1;
    memcpy((uint8_t *)ctx + at, bytes, len);
    return 0;
}

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    (void)source, (void)tsi, (void)toi;
    if (fti->length > BYTES)
        abort();
    *out = (struct fcast_place){.ctx = ctx, .data = {data, get, put}, .repair = {repair, get, put}};
    return FCAST_WANT;
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    (void)ctx, (void)toi, (void)place, (void)meta, (void)at, (void)bytes;
    return FCAST_STORED;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    (void)ctx, (void)toi, (void)place, (void)keep;
}

static void obey(struct m2c_receiver *r, bool *joined)
{
    struct m2c_group_change c;

    while (m2c_receiver_change(r, &c)) {
        if (c.group > M2C_WAVE_CHANNELS_MAX || joined[c.group] == c.joins)
            abort();
        joined[c.group] = c.joins;
    }
}

static void check(const struct m2c_receiver *r, const bool *joined)
{
    const struct m2c_wave *w = m2c_receiver_wave(r);
    unsigned count = 0;

    for (unsigned i = 0; i <= M2C_WAVE_CHANNELS_MAX; i++)
        count += joined[i];
    if (count > (w ? w->cfg.layers + 1 : 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static const struct fcast_receiver_config files_cfg = {.max_objects = 1,
                                                           .max_object_bytes = BYTES,
                                                           .max_bytes = BYTES,
                                                           .max_block_bytes = 1 << 16,
                                                           .begin = begin,
                                                           .done = done,
                                                           .drop = drop};
    const enum m2c_cc_kind kind = count ? (enum m2c_cc_kind)(bytes[0] % 3) : M2C_CC_M2C;
    const struct m2c_receiver_config cfg = {.kind = kind,
                                            .wave = {.is_static = kind == M2C_CC_STATIC}};
    struct fcast_receiver *files = fcast_receiver_new(&files_cfg);
    struct m2c_receiver *r = files ? m2c_receiver_new(&cfg, files, TICK_NS) : NULL;
    bool joined[M2C_WAVE_CHANNELS_MAX + 1] = {false};
    uint64_t now_ns = TICK_NS;

    if (!r)
        abort();
    obey(r, joined);
    for (size_t at = 1; at + 3 <= count;) {
        size_t len = (size_t)bytes[at] << 8 | bytes[at + 1];
        now_ns += bytes[at + 2] * TICK_NS;
        at += 3;
        if (len > count - at)
            len = count - at;
        while (m2c_receiver_deadline(r) <= now_ns)
            m2c_receiver_time(r, m2c_receiver_deadline(r));
        m2c_receiver_datagram(r, 1, bytes + at, len, now_ns);
        obey(r, joined);
        check(r, joined);
        at += len;
    }
    m2c_receiver_free(r);
    fcast_receiver_free(files);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver of untrusted datagrams: the input is one byte that selects the protocol, followed by
 * datagrams, each with two bytes of length. Nothing is written outside an object's place, and no
 * more is promised than the bounds allow. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fcast.h"
#include "fuzz.h"

enum { OBJECTS = 4, BYTES = 1 << 16 };

struct place {
    uint64_t bytes;
    uint8_t *data, repair[BYTES];
};

static int get(const uint8_t *from, uint64_t room, uint64_t at, void *bytes, size_t len)
{
    if (at > room || len > room - at) {
        errno = EINVAL;
        return -1;
    }
    memcpy(bytes, from + at, len);
    return 0;
}

static int read_data(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct place *p = ctx;

    if (at + len > p->bytes)
        abort();
    return get(p->data, p->bytes, at, bytes, len);
}

static int write_data(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    if (at + len > p->bytes)
        abort();
    memcpy(p->data + at, bytes, len);
    return 0;
}

static int read_repair(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct place *p = ctx;

    return get(p->repair, sizeof p->repair, at, bytes, len);
}

static int write_repair(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct place *p = ctx;

    if (at + len > sizeof p->repair)
        return -1;
    memcpy(p->repair + at, bytes, len);
    return 0;
}

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    unsigned *count = ctx;
    struct place *p = calloc(1, sizeof *p);

    (void)source;
    (void)tsi;
    (void)toi;
    /* An empty file is complete at once, even when the other files occupy all places. */
    if (fti->length > BYTES || ++*count > OBJECTS + !fti->length)
        abort();
    p->bytes = fti->length;
    p->data = calloc(1, fti->length + 1);
    *out = (struct fcast_place){
        .ctx = p, .data = {p, read_data, write_data}, .repair = {p, read_repair, write_repair}};
    return FCAST_WANT;
}

static void drop(void *ctx, uint64_t toi, void *place, bool keep)
{
    unsigned *count = ctx;
    struct place *p = place;

    (void)toi;
    (void)keep;
    --*count;
    free(p->data);
    free(p);
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    const struct place *p = place;

    if (at + bytes > p->bytes || strlen(meta->location) >= sizeof meta->location)
        abort();
    drop(ctx, toi, place, false);
    return (enum fcast_done)(toi % 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    unsigned objects = 0;
    const struct fcast_receiver_config cfg = {
        .protocol = count ? (enum fcast_protocol)(bytes[0] % 4 % 3) : FCAST_PROTOCOL_FCAST,
        .max_objects = OBJECTS,
        .max_object_bytes = BYTES,
        .max_bytes = OBJECTS * BYTES,
        .max_block_bytes = 1 << 18,
        .ctx = &objects,
        .begin = begin,
        .done = done,
        .drop = drop};
    struct fcast_receiver *r = fcast_receiver_new(&cfg);

    for (size_t at = 1; at + 2 <= count;) {
        size_t len = (size_t)bytes[at] << 8 | bytes[at + 1];
        at += 2;
        if (len > count - at)
            len = count - at;
        fcast_receiver_datagram(r, 1, bytes + at, len, at);
        at += len;
    }
    fcast_receiver_free(r);
    if (objects)
        abort();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the receiver knows about the carousel: descriptors, and the objects that it already has.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "receiver_impl.h"

enum { DONE_MAX = 1 << 20 };

static size_t place_of(const struct fcast_receiver *r, uint64_t toi)
{
    size_t low = 0, high = r->done_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->done[middle] < toi)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool fcast_is_done(const struct fcast_receiver *r, uint64_t toi)
{
    size_t at = place_of(r, toi);

    return at < r->done_count && r->done[at] == toi;
}

bool fcast_set_done(struct fcast_receiver *r, uint64_t toi)
{
    if (r->done_count == r->done_room) {
        size_t room = r->done_room ? 2 * r->done_room : 64;
        uint64_t *more = room > DONE_MAX ? NULL : reallocarray(r->done, room, sizeof *more);
        if (!more)
            return false;
        r->done = more;
        r->done_room = room;
    }
    size_t at = place_of(r, toi);
    memmove(r->done + at + 1, r->done + at, (r->done_count - at) * sizeof *r->done);
    r->done[at] = toi;
    r->done_count++;
    return true;
}

void fcast_forget_session(struct fcast_receiver *r)
{
    r->done_count = 0;
    free(r->cid);
    r->cid = NULL;
    fcast_fdt_free(&r->fdt);
    r->fdt = (struct fcast_fdt){0};
    r->has_fdt = false;
}

const struct fcast_fdt_file *fcast_fdt_file_of(const struct fcast_receiver *r, uint64_t toi)
{
    for (unsigned i = 0; i < r->fdt.count; i++)
        if (r->fdt.files[i].toi == toi)
            return &r->fdt.files[i];
    return NULL;
}

bool fcast_is_named(const struct fcast_receiver *r, uint64_t toi)
{
    if (r->cfg.protocol == FCAST_PROTOCOL_FLUTE)
        return fcast_fdt_file_of(r, toi) != NULL;
    return r->cid && fcast_cid_has(r->cid, toi);
}

static void name_objects(struct fcast_receiver *r)
{
    for (struct fcast_object *o = r->objects; o; o = o->next)
        o->is_named = fcast_is_named(r, o->toi);
}

/* ------------------------------------------------------------------ places in memory */

/* Bounds the repair symbols of a coded FDT: decoding begins before many more than the source
 * symbols have arrived. */
enum { REPAIR_TIMES = 2, REPAIR_MORE = 1 << 16 };

struct memory {
    uint64_t len, repair_len;
    uint8_t *repair; /* grows as it is written */
    uint8_t bytes[];
};

static int memory_read(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct memory *m = ctx;

    if (at > m->len || len > m->len - at) {
        errno = EINVAL;
        return -1;
    }
    memcpy(bytes, m->bytes + at, len);
    return 0;
}

static int memory_write(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct memory *m = ctx;

    if (at > m->len || len > m->len - at) {
        errno = EINVAL;
        return -1;
    }
    memcpy(m->bytes + at, bytes, len);
    return 0;
}

static int repair_read(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct memory *m = ctx;

    if (at > m->repair_len || len > m->repair_len - at) {
        errno = EINVAL;
        return -1;
    }
    memcpy(bytes, m->repair + at, len);
    return 0;
}

static int repair_write(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct memory *m = ctx;
    uint64_t most = REPAIR_TIMES * m->len + REPAIR_MORE;

    if (at > most || len > most - at) {
        errno = ENOSPC;
        return -1;
    }
    if (at + len > m->repair_len) {
        uint8_t *more = realloc(m->repair, at + len);
        if (!more)
            return -1;
        m->repair = more;
        m->repair_len = at + len;
    }
    memcpy(m->repair + at, bytes, len);
    return 0;
}

bool fcast_memory_place(uint64_t length, struct fcast_place *out)
{
    struct memory *m = calloc(1, sizeof *m + length);

    if (!m)
        return false;
    m->len = length;
    *out = (struct fcast_place){
        .ctx = m, .data = {m, memory_read, memory_write}, .repair = {m, repair_read, repair_write}};
    return true;
}

void fcast_memory_place_free(struct fcast_place *place)
{
    struct memory *m = place->ctx;

    if (m)
        free(m->repair);
    free(m);
}

/* ------------------------------------------------------------------ descriptors */

void fcast_take_cid(struct fcast_receiver *r, const struct fcast_meta *meta, const uint8_t *bytes,
                    size_t len)
{
    if (r->cid && meta->cid_id < r->cid_id)
        return; /* an older one */
    struct fcast_cid *cid = malloc(sizeof *cid);
    if (!cid)
        return;
    if (!fcast_cid_get(bytes, len, cid)) {
        r->stats.malformed++;
        free(cid);
        return;
    }
    free(r->cid);
    r->cid = cid;
    r->cid_id = meta->cid_id;
    r->cid_complete = meta->cid_complete;
    name_objects(r);
}

void fcast_take_fdt(struct fcast_receiver *r, const uint8_t *bytes, size_t len)
{
    struct fcast_fdt fdt;
    char why[128];

    if (fcast_fdt_get(bytes, len, &fdt, why)) {
        r->stats.malformed++;
        return;
    }
    fcast_fdt_free(&r->fdt);
    r->fdt = fdt;
    r->has_fdt = true;
    r->fdt_instance = r->fdt_coming;
    name_objects(r);
}

static bool has_all_of_fdt(const struct fcast_receiver *r)
{
    for (unsigned i = 0; i < r->fdt.count; i++)
        if (!fcast_is_done(r, r->fdt.files[i].toi))
            return false;
    return r->has_fdt && r->fdt.complete;
}

bool fcast_receiver_has_all(const struct fcast_receiver *r)
{
    uint64_t named = 0;

    if (r->cfg.protocol == FCAST_PROTOCOL_FLUTE)
        return has_all_of_fdt(r);
    if (r->cfg.protocol == FCAST_PROTOCOL_SEED)
        return r->done_count > 0;
    if (!r->cid || !r->cid_complete)
        return false;
    for (unsigned i = 0; i < r->cid->count; i++) {
        const struct fcast_range *range = &r->cid->ranges[i];
        if (range->last - range->first >= r->done_count)
            return false;
        for (uint64_t toi = range->first;; toi++) {
            if (!fcast_is_done(r, toi))
                return false;
            named++;
            if (toi == range->last)
                break;
        }
    }
    return named > 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects being received. Their number and bytes are bounded, whatever an attacker sends.
 * Complete ones go to the caller.
 */
#include <stdlib.h>

#include "receiver_impl.h"
#include "seed.h"

enum {
    DESCRIPTOR_MAX = 64 << 10, /* objects up to this size are first received in memory */
};
#define MEMORY_MAX (UINT64_C(256) << 20)    /* tables of all objects */
#define OWN_MEMORY_MAX (UINT64_C(16) << 20) /* a descriptor */

/* Removes the object from the list and frees what the receiver owns. */
static void forget(struct fcast_receiver *r, struct fcast_object *o)
{
    struct fcast_object **link = &r->objects;

    while (*link != o)
        link = &(*link)->next;
    *link = o->next;
    r->count--;
    r->own_count -= o->is_own;
    r->bytes -= o->reception.fti.length;
    r->memory -= o->memory;
    r->stats.decoded += o->reception.decoded;
    r->stats.store_errors += o->reception.store_errors;
    fcast_reception_free(&o->reception);
    free(o);
}

void fcast_drop_object(struct fcast_receiver *r, struct fcast_object *o, bool keep)
{
    if (o->is_own)
        fcast_memory_place_free(&o->reception.place);
    else
        r->cfg.drop(r->cfg.ctx, o->toi, o->reception.place.ctx, keep);
    forget(r, o);
}

/* Returns whether this is FLUTE's object 0, or small enough to be a descriptor: these are received
 * in memory. */
static bool is_own(const struct fcast_receiver *r, uint64_t toi, const struct fcast_fti *fti)
{
    if (r->cfg.protocol == FCAST_PROTOCOL_FLUTE)
        return toi == 0;
    return r->cfg.protocol == FCAST_PROTOCOL_FCAST && fti->fec == FCAST_NO_CODE &&
           fti->length <= DESCRIPTOR_MAX;
}

/* Returns whether it would fit if the receiver had nothing else. */
static bool is_within_bounds(const struct fcast_receiver *r, const struct fcast_fti *fti, bool own,
                             uint64_t memory)
{
    uint64_t most = own ? FCAST_FDT_BYTES_MAX : r->cfg.max_object_bytes;

    return memory && memory <= (own ? OWN_MEMORY_MAX : MEMORY_MAX) && fti->length <= most &&
           (own || fti->length <= r->cfg.max_bytes) &&
           fcast_reception_block_bytes(fti) <= r->cfg.max_block_bytes;
}

/* Returns the object heard from longest ago among those that the descriptor does not name; NULL:
 * none. */
static struct fcast_object *victim(const struct fcast_receiver *r, bool own)
{
    struct fcast_object *oldest = NULL;

    for (struct fcast_object *o = r->objects; o; o = o->next)
        if (o->is_own == own && !o->is_named && (!oldest || o->heard_ns < oldest->heard_ns))
            oldest = o;
    return oldest;
}

/* Objects that the descriptor names are never evicted: in a carousel of more than max_objects they
 * would evict each other forever, and an attacker's objects would evict all. If bytes run short,
 * other objects are evicted only for named objects, or for any if the protocol has no descriptor
 * (1999). Descriptors have their own bound, so that objects cannot keep them out. */
static bool make_room(struct fcast_receiver *r, uint64_t toi, const struct fcast_fti *fti, bool own,
                      uint64_t memory)
{
    const bool has_no_names = r->cfg.protocol == FCAST_PROTOCOL_SEED;

    for (;;) {
        bool is_full = (own ? r->own_count : r->count - r->own_count) >= r->cfg.max_objects;
        bool fits =
            own || (r->memory + memory <= MEMORY_MAX && r->bytes + fti->length <= r->cfg.max_bytes);
        if (!is_full && fits)
            return true;
        bool may_push = is_full || has_no_names || fcast_is_named(r, toi);
        struct fcast_object *o = may_push ? victim(r, own) : NULL;
        if (!o)
            return false;
        r->stats.evicted++;
        fcast_drop_object(r, o, false);
    }
}

/* Asks the caller for a place. Returns false if it refused the object or already has it. */
static bool ask(struct fcast_receiver *r, uint64_t toi, const struct fcast_fti *fti,
                struct fcast_place *place)
{
    enum fcast_begin answer = r->cfg.begin(r->cfg.ctx, r->source, r->tsi, toi, fti, place);

    if (answer == FCAST_HAVE)
        fcast_set_done(r, toi);
    r->stats.refused += answer == FCAST_REFUSE;
    r->stats.objects_started += answer == FCAST_WANT;
    return answer == FCAST_WANT;
}

struct fcast_object *fcast_begin_object(struct fcast_receiver *r, uint64_t toi,
                                        const struct fcast_fti *fti, uint64_t now_ns)
{
    bool own = is_own(r, toi, fti);
    uint64_t memory = fcast_reception_bytes(fti) + (own ? fti->length : 0);

    if (!fti->length || !is_within_bounds(r, fti, own, fcast_reception_bytes(fti) ? memory : 0) ||
        !make_room(r, toi, fti, own, memory)) {
        r->stats.refused++;
        return NULL;
    }
    struct fcast_object *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    struct fcast_place place = {0};
    bool good = own ? fcast_memory_place(fti->length, &place) : ask(r, toi, fti, &place);
    if (!good) {
        free(o);
        return NULL;
    }
    *o = (struct fcast_object){.toi = toi,
                               .is_own = own,
                               .is_named = fcast_is_named(r, toi),
                               .memory = memory,
                               .heard_ns = now_ns};
    o->next = r->objects;
    r->objects = o;
    r->count++;
    r->own_count += own;
    r->bytes += fti->length;
    r->memory += memory;
    if (fcast_reception_init(&o->reception, fti, r->cfg.rs_kind, &place, &r->stats.restored) < 0) {
        o->reception = (struct fcast_reception){.fti = *fti, .place = place};
        fcast_drop_object(r, o, true);
        return NULL;
    }
    return o;
}

/* Moves the data of a small object, which was received in memory, to a place of the caller. */
static bool hand_over(struct fcast_receiver *r, struct fcast_object *o)
{
    struct fcast_place place = {0}, *own = &o->reception.place;
    const struct fcast_fti *fti = &o->reception.fti;
    uint8_t bytes[DESCRIPTOR_MAX];

    if (fti->length > r->cfg.max_object_bytes) {
        r->stats.refused++;
        return false;
    }
    if (!ask(r, o->toi, fti, &place))
        return false;
    bool good = own->data.read(own->data.ctx, 0, bytes, fti->length) == 0 &&
                place.data.write(place.data.ctx, 0, bytes, fti->length) == 0;
    if (!good) {
        r->stats.store_errors++;
        r->cfg.drop(r->cfg.ctx, o->toi, place.ctx, false);
        return false;
    }
    fcast_memory_place_free(own);
    *own = place;
    o->is_own = false;
    r->own_count--;
    return true;
}

/* Counts the caller's answer to a complete object. */
static void count_done(struct fcast_receiver *r, uint64_t toi, enum fcast_done result)
{
    r->stats.objects_done += result == FCAST_STORED;
    r->stats.objects_wrong += result == FCAST_WRONG;
    r->stats.objects_unstored += result == FCAST_UNSTORED;
    if (result != FCAST_WRONG)
        fcast_set_done(r, toi);
}

/* Passes the object with its data at [at, end) to the caller. */
static void deliver(struct fcast_receiver *r, struct fcast_object *o, const struct fcast_meta *meta,
                    uint64_t at, uint64_t end)
{
    uint64_t toi = o->toi;

    if (o->is_own && !hand_over(r, o)) {
        fcast_drop_object(r, o, false);
        return;
    }
    void *place = o->reception.place.ctx;
    count_done(r, toi, r->cfg.done(r->cfg.ctx, toi, place, meta, at, end - at));
    forget(r, o);
}

/* A compound object is complete: its header says what it is. */
static void finish_fcast(struct fcast_receiver *r, struct fcast_object *o)
{
    const struct fcast_store *data = &o->reception.place.data;
    const uint64_t length = o->reception.fti.length;
    uint8_t fixed[FCAST_OBJECT_FIXED], *bytes = NULL;
    struct fcast_object_header h = {0};

    size_t len = length >= sizeof fixed && data->read(data->ctx, 0, fixed, sizeof fixed) == 0
                     ? fcast_object_header_len(fixed, length)
                     : 0;
    if (len && o->is_own)
        len = (size_t)length; /* also the body of a descriptor */
    bytes = len ? malloc(len) : NULL;
    bool good = bytes && data->read(data->ctx, 0, bytes, len) == 0 &&
                !fcast_object_header_get(bytes, len, length, &h);
    if (!good || (h.is_cid && !o->is_own)) {
        r->stats.objects_wrong++;
        fcast_drop_object(r, o, false);
    } else if (h.is_cid) {
        fcast_take_cid(r, &h.meta, bytes + h.len, len - h.len);
        fcast_set_done(r, o->toi);
        fcast_drop_object(r, o, false);
    } else {
        deliver(r, o, &h.meta, h.len, length);
    }
    free(bytes);
}

static void finish_flute(struct fcast_receiver *r, struct fcast_object *o)
{
    const struct fcast_store *data = &o->reception.place.data;
    const size_t length = (size_t)o->reception.fti.length;

    if (o->toi == 0) {
        uint8_t *bytes = malloc(length);
        if (bytes && data->read(data->ctx, 0, bytes, length) == 0)
            fcast_take_fdt(r, bytes, length);
        free(bytes);
        fcast_drop_object(r, o, false);
        return;
    }
    const struct fcast_fdt_file *file = fcast_fdt_file_of(r, o->toi);
    if (file)
        deliver(r, o, &file->meta, 0, length);
}

/* A file of 1999 is complete: its trailer says what it is. */
static void finish_seed(struct fcast_receiver *r, struct fcast_object *o)
{
    const struct fcast_store *data = &o->reception.place.data;
    const uint64_t length = o->reception.fti.length;
    size_t len = length < FCAST_SEED_TRAILER_MAX ? (size_t)length : FCAST_SEED_TRAILER_MAX;
    uint8_t *bytes = malloc(len);
    struct fcast_meta meta;
    size_t trailer;

    if (bytes && data->read(data->ctx, length - len, bytes, len) == 0 &&
        !fcast_seed_trailer_get(bytes, len, length, &meta, &trailer)) {
        deliver(r, o, &meta, 0, length - trailer);
    } else {
        r->stats.objects_wrong++;
        fcast_drop_object(r, o, false);
    }
    free(bytes);
}

void fcast_finish_object(struct fcast_receiver *r, struct fcast_object *o)
{
    if (!fcast_reception_is_complete(&o->reception))
        return;
    if (o->reception.place.settle && o->reception.place.settle(o->reception.place.ctx) < 0) {
        r->stats.store_errors++;
        fcast_drop_object(r, o, true);
        return;
    }
    switch (r->cfg.protocol) {
    case FCAST_PROTOCOL_FCAST: finish_fcast(r, o); break;
    case FCAST_PROTOCOL_FLUTE: finish_flute(r, o); break;
    case FCAST_PROTOCOL_SEED: finish_seed(r, o); break;
    }
}

void fcast_look_at_fdt(struct fcast_receiver *r)
{
    for (struct fcast_object *o = r->objects, *next; o; o = next) {
        next = o->next;
        if (o->toi)
            fcast_finish_object(r, o);
    }
    for (unsigned i = 0; i < r->fdt.count; i++) {
        const struct fcast_fdt_file *f = &r->fdt.files[i];
        const struct fcast_fti none = {.symbol_bytes = 1, .block_max = 1};
        struct fcast_place place = {0};
        if (!f->has_transfer_length || f->transfer_length || fcast_is_done(r, f->toi) ||
            !ask(r, f->toi, &none, &place))
            continue;
        count_done(r, f->toi, r->cfg.done(r->cfg.ctx, f->toi, place.ctx, &f->meta, 0, 0));
    }
}

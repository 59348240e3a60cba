/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver: passes each datagram of one session to its object. Datagrams of others only change
 * counters, and bounds limit what an attacker can make it store.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "receiver_impl.h"
#include "seed.h"

enum {
    CONFLICTS_MAX = 64, /* in a row; then it abandons the first OTI */
    OBJECTS = 64,
};
#define GIB (UINT64_C(1) << 30)
#define SILENCE_NS UINT64_C(10000000000)

static void set_default(uint64_t *value, uint64_t otherwise)
{
    if (!*value)
        *value = otherwise;
}

struct fcast_receiver *fcast_receiver_new(const struct fcast_receiver_config *cfg)
{
    struct fcast_receiver *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->cfg = *cfg;
    if (!r->cfg.max_objects)
        r->cfg.max_objects = OBJECTS;
    set_default(&r->cfg.max_object_bytes, 64 * GIB);
    set_default(&r->cfg.max_bytes, 128 * GIB);
    set_default(&r->cfg.max_block_bytes, GIB / 16);
    set_default(&r->cfg.silence_ns, SILENCE_NS);
    if (cfg->key && !(r->auth = fcast_auth_new(cfg->key, cfg->key_len))) {
        free(r);
        errno = ENOMEM;
        return NULL;
    }
    r->cfg.key = NULL;
    return r;
}

void fcast_receiver_free(struct fcast_receiver *r)
{
    if (!r)
        return;
    while (r->objects)
        fcast_drop_object(r, r->objects, true);
    fcast_fdt_free(&r->fdt);
    fcast_auth_free(r->auth);
    free(r->cid);
    free(r->done);
    free(r);
}

/* Returns whether the datagram belongs to the session: the configured one, else the first one
 * heard. */
static bool is_of_session(struct fcast_receiver *r, uint64_t source, uint64_t tsi, uint64_t now_ns)
{
    if (r->cfg.has_tsi && tsi != r->cfg.tsi)
        return false;
    /* Fcast of 1999 sends one file after another, each as its own session that has no end. */
    bool may_move =
        r->cfg.protocol == FCAST_PROTOCOL_SEED || r->cfg.follows || !r->stats.objects_done;
    bool is_over =
        r->is_closed ? r->cfg.follows : may_move && now_ns > r->heard_ns + r->cfg.silence_ns;
    if (!r->has_session || (is_over && (source != r->source || tsi != r->tsi))) {
        while (r->objects)
            fcast_drop_object(r, r->objects, true);
        fcast_forget_session(r);
        r->has_session = true;
        r->is_closed = r->has_psn = r->has_payload = false;
        r->source = source;
        r->tsi = tsi;
        r->heard_ns = now_ns;
    }
    return source == r->source && tsi == r->tsi;
}

/* Counts losses by the low 16 bits of the CCI, which increase by one per datagram. */
static void count_psn(struct fcast_receiver *r, uint16_t psn)
{
    uint16_t ahead = (uint16_t)(psn - r->psn);

    if (r->has_psn && ahead >= 0x8000) {
        r->stats.out_of_order++;
        r->stats.lost -= r->stats.lost > 0;
        return;
    }
    r->stats.lost += r->has_psn ? ahead : 0;
    r->has_psn = true;
    r->psn = (uint16_t)(psn + 1);
}

/* Gets the object's OTI from the packet or from FLUTE's FDT. */
static bool get_fti(const struct fcast_receiver *r, const struct lct_header *h,
                    struct fcast_fti *out)
{
    size_t len;
    const uint8_t *content = lct_extension(h, LCT_EXT_FTI, &len);

    if (content)
        return fcast_fti_get(h->codepoint, content, len, out);
    const struct fcast_fdt_file *file = fcast_fdt_file_of(r, h->toi);
    if (!file || !file->has_fti)
        return false;
    *out = file->fti;
    return true;
}

static bool is_same_fti(const struct fcast_fti *a, const struct fcast_fti *b)
{
    return a->fec == b->fec && a->length == b->length && a->symbol_bytes == b->symbol_bytes &&
           a->block_max == b->block_max && a->n_max == b->n_max && a->n1 == b->n1 &&
           a->seed == b->seed && a->is_padded == b->is_padded;
}

/* Returns the object of a packet that carries its OTI (or does not: NULL); NULL if there is none or
 * they disagree. */
static struct fcast_object *object_of(struct fcast_receiver *r, uint64_t toi,
                                      const struct fcast_fti *fti, uint64_t now_ns)
{
    struct fcast_object *o = r->objects;

    while (o && o->toi != toi)
        o = o->next;
    if (!o && !fti) {
        r->stats.stray++;
        return NULL;
    }
    if (!o)
        return fcast_begin_object(r, toi, fti, now_ns);
    if (fti && !is_same_fti(fti, &o->reception.fti)) {
        r->stats.conflicting++;
        if (++o->conflicts < CONFLICTS_MAX)
            return NULL;
        fcast_drop_object(r, o, false);
        return fcast_begin_object(r, toi, fti, now_ns);
    }
    return o;
}

static void take_symbol(struct fcast_receiver *r, struct fcast_object *o, struct fcast_symbol s,
                        const uint8_t *symbol, size_t size, uint64_t now_ns)
{
    const struct fcast_fti *fti = &o->reception.fti;
    /* Other programs send the object's last symbol without padding. */
    uint8_t whole[UINT16_MAX];

    o->conflicts = 0;
    if (size < fti->symbol_bytes) {
        memcpy(whole, symbol, size);
        memset(whole + size, 0, fti->symbol_bytes - size);
        symbol = whole;
    }
    o->heard_ns = now_ns;
    enum fcast_taken taken = size > fti->symbol_bytes || !size
                                 ? FCAST_BAD_SYMBOL
                                 : fcast_reception_take(&o->reception, s, symbol);
    r->stats.redundant += taken == FCAST_REDUNDANT;
    r->stats.malformed += taken == FCAST_BAD_SYMBOL;
    r->stats.useful += taken == FCAST_TAKEN;
    bool is_fdt = r->cfg.protocol == FCAST_PROTOCOL_FLUTE && o->toi == 0;
    fcast_finish_object(r, o);
    if (is_fdt && r->has_fdt)
        fcast_look_at_fdt(r);
}

/* FLUTE: returns whether this is an instance of the FDT that is not complete yet. */
static bool is_new_fdt(struct fcast_receiver *r, const struct lct_header *h)
{
    size_t len;
    unsigned version;
    uint32_t instance;
    const uint8_t *content = lct_extension(h, LCT_EXT_FDT, &len);

    if (!content || !fcast_ext_fdt_get(content, len, &version, &instance))
        return false;
    if (r->has_fdt && instance == r->fdt_instance)
        return false;
    for (struct fcast_object *o = r->objects; o && instance != r->fdt_coming; o = o->next)
        if (o->toi == 0) {
            fcast_drop_object(r, o, false); /* parts of another instance */
            break;
        }
    r->fdt_coming = instance;
    return true;
}

/* Processes a datagram of the session with a payload ID followed by a symbol. */
static void take_payload(struct fcast_receiver *r, const struct lct_header *h, const uint8_t *bytes,
                         size_t len, uint64_t now_ns)
{
    struct fcast_fti fti;
    bool has_fti = get_fti(r, h, &fti);
    struct fcast_object *o = object_of(r, h->toi, has_fti ? &fti : NULL, now_ns);

    if (!o)
        return;
    if (o->reception.fti.fec != h->codepoint) {
        r->stats.conflicting++;
        return;
    }
    take_symbol(r, o, fcast_payload_id_get(h->codepoint, bytes), bytes + FCAST_PAYLOAD_ID,
                len - FCAST_PAYLOAD_ID, now_ns);
}

/* Processes a datagram of 1999. */
static bool take_seed(struct fcast_receiver *r, uint64_t source, const uint8_t *bytes, size_t len,
                      uint64_t now_ns)
{
    struct fcast_seed_header h;
    const uint8_t *block;
    size_t block_bytes;
    struct fcast_fti fti;

    if (!fcast_seed_get(bytes, len, &h, &block, &block_bytes) ||
        !fcast_seed_fti(&h, block_bytes, &fti)) {
        r->stats.malformed++;
        return false;
    }
    if (!is_of_session(r, source, r->cfg.has_tsi ? h.file_id : 0, now_ns)) {
        r->stats.stray++;
        return false;
    }
    r->stats.received++;
    r->heard_ns = now_ns;
    count_psn(r, (uint16_t)h.sequence);
    if (fcast_is_done(r, h.file_id)) {
        r->stats.redundant++;
        return true;
    }
    struct fcast_object *o = object_of(r, h.file_id, &fti, now_ns);
    if (o)
        take_symbol(r, o, (struct fcast_symbol){h.group, h.index}, block, block_bytes, now_ns);
    return true;
}

/* Returns whether it has a valid MAC and was sent recently; always true without a key. */
static bool is_authentic(struct fcast_receiver *r, const uint8_t *bytes, size_t len,
                         const struct lct_header *h)
{
    int64_t age_s = 0;

    if (!r->auth)
        return true;
    bool good = fcast_auth_verify(r->auth, bytes, len, h);
    bool is_fresh = !r->cfg.max_age_s || (good && fcast_time_age(h, r->ntp_s, &age_s) &&
                                          llabs(age_s) <= r->cfg.max_age_s);
    r->stats.forged += !good;
    if (good && !is_fresh) {
        r->stats.stale++;
        r->stats.stale_s = age_s;
    }
    return good && is_fresh;
}

void fcast_receiver_set_time(struct fcast_receiver *r, uint32_t ntp_s)
{
    r->ntp_s = ntp_s;
}

bool fcast_datagram_cci(const uint8_t *bytes, size_t len, uint32_t *cci)
{
    struct lct_header h;

    if (lct_get(bytes, len, &h) != LCT_OK)
        return false;
    *cci = h.cci;
    return true;
}

bool fcast_receiver_datagram(struct fcast_receiver *r, uint64_t source, const uint8_t *bytes,
                             size_t len, uint64_t now_ns)
{
    struct lct_header h;

    if (r->cfg.protocol == FCAST_PROTOCOL_SEED)
        return take_seed(r, source, bytes, len, now_ns);
    if (lct_get(bytes, len, &h) != LCT_OK) {
        r->stats.malformed++;
        return false;
    }
    if (!is_authentic(r, bytes, len, &h))
        return false;
    if (!is_of_session(r, source, h.tsi, now_ns)) {
        r->stats.stray++;
        return false;
    }
    r->stats.received++;
    r->heard_ns = now_ns;
    count_psn(r, (uint16_t)h.cci);
    r->has_payload |= len - h.len > FCAST_PAYLOAD_ID;
    if (h.close_session && r->has_payload) {
        r->is_closed = true;
        for (struct fcast_object *o = r->objects, *next; o; o = next) {
            next = o->next;
            fcast_reception_try(&o->reception);
            fcast_finish_object(r, o);
        }
    }
    if (len - h.len <= FCAST_PAYLOAD_ID)
        return true;
    bool is_fdt = r->cfg.protocol == FCAST_PROTOCOL_FLUTE && h.toi == 0;
    if (is_fdt ? !is_new_fdt(r, &h) : fcast_is_done(r, h.toi)) {
        r->stats.redundant++;
        return true;
    }
    take_payload(r, &h, bytes + h.len, len - h.len, now_ns);
    return true;
}

uint64_t fcast_receiver_heard_ns(const struct fcast_receiver *r)
{
    return r->heard_ns;
}

bool fcast_receiver_is_closed(const struct fcast_receiver *r)
{
    return r->is_closed;
}

void fcast_receiver_get_stats(const struct fcast_receiver *r, struct fcast_receiver_stats *out)
{
    *out = r->stats;
    for (const struct fcast_object *o = r->objects; o; o = o->next) {
        out->decoded += o->reception.decoded;
        out->store_errors += o->reception.store_errors;
    }
}

void fcast_receiver_progress(const struct fcast_receiver *r, uint64_t *have, uint64_t *need)
{
    *have = *need = 0;
    for (const struct fcast_object *o = r->objects; o; o = o->next) {
        const struct fcast_partition *p = &o->reception.partition;
        for (uint32_t i = 0; i < p->blocks; i++) {
            uint32_t k = fcast_block_k(p, i), got = o->reception.blocks[i].received;
            *have += got < k ? got : k;
            *need += k;
        }
    }
}

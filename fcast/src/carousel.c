/* SPDX-License-Identifier: Apache-2.0
 *
 * The carousel: for each index, one symbol of each block of each object; then over again.
 * Descriptors (CID or FDT) come first in each cycle and at intervals within it.
 */
#include <string.h>

#include "bytes.h"
#include "lct.h"
#include "seed.h"
#include "sender_impl.h"

enum {
    READ_ERRORS_MAX = 1000, /* in a row */
};

/* Reads from the object: its header from memory, then the data, then the trailer. */
static int read_object(void *ctx, uint64_t at, void *bytes, size_t len)
{
    const struct object *o = ctx;
    const uint64_t end = o->header_len + o->bytes;
    uint8_t *out = bytes;

    if (o->trailer_len && at + len > end) {
        uint64_t from = at > end ? at : end;
        memcpy(out + (from - at), o->trailer + (from - end), (size_t)(at + len - from));
        len = (size_t)(from - at);
    }

    if (at < o->header_len) {
        size_t n = o->header_len - (size_t)at < len ? o->header_len - (size_t)at : len;
        memcpy(out, o->header + at, n);
        at += n;
        out += n;
        len -= n;
    }
    return len ? o->source.read(o->source.ctx, at - o->header_len, out, len) : 0;
}

/* Writes the header of a datagram and returns its length; *mac points to the MAC's field, or is
 * NULL. */
static size_t put_header(struct fcast_sender *s, const struct object *o, bool is_last, uint8_t *out,
                         uint8_t **mac)
{
    const struct lct_header h = {.cci = s->has_cci ? s->cci : (uint16_t)s->sequence++,
                                 .tsi = s->cfg.tsi,
                                 .toi = o ? o->toi : 0,
                                 .codepoint = o ? o->fti.fec : 0,
                                 .close_session = is_last};
    size_t len = lct_put(out, &h);

    *mac = NULL;
    if (s->auth) {
        const uint8_t zeroes[FCAST_AUTH_CONTENT] = {0};
        uint8_t when[FCAST_TIME_CONTENT];
        fcast_time_put(when, s->ntp_s);
        len = lct_add(out, len, LCT_EXT_TIME, when, sizeof when);
        *mac = out + len + 4;
        len = lct_add(out, len, LCT_EXT_AUTH, zeroes, sizeof zeroes);
    }
    if (!o)
        return len;
    if (o->is_control && s->cfg.protocol == FCAST_PROTOCOL_FLUTE) {
        uint8_t fdt[3];
        fcast_ext_fdt_put(fdt, 0);
        len = lct_add(out, len, LCT_EXT_FDT, fdt, sizeof fdt);
    }
    uint8_t fti[FCAST_FTI_MAX];
    size_t n = fcast_fti_put(fti, &o->fti);
    return lct_add(out, len, LCT_EXT_FTI, fti, n);
}

/* Writes the header of 1999 and returns its length. */
static size_t put_seed(struct fcast_sender *s, const struct object *o, struct fcast_symbol symbol,
                       uint8_t *out)
{
    const struct fcast_seed_header h = {.sequence = s->sequence++,
                                        .file_id = (uint32_t)o->toi,
                                        .file_bytes = (uint32_t)o->fti.length,
                                        .group = symbol.block,
                                        .index = (uint8_t)symbol.id,
                                        .k = (uint8_t)o->fti.block_max};

    return fcast_seed_put(out, &h);
}

/* Reads a source symbol; the object's last one is padded with zeroes. */
static int get_source(const struct fcast_sender *s, const struct object *o, struct group *g,
                      uint32_t id, uint8_t *out)
{
    const size_t size = o->fti.symbol_bytes;

    if (!g->ahead)
        return fcast_read_symbol(read_object, (void *)o, &o->fti, g->first + id, out);
    if (id < g->ahead_first || id >= g->ahead_first + g->ahead_count) {
        const uint32_t left = g->k - id, count = left < s->ahead_most ? left : s->ahead_most;
        const uint64_t at = (g->first + id) * size;
        const uint64_t bytes = at < o->fti.length ? o->fti.length - at : 0;
        const size_t len = bytes < count * size ? (size_t)bytes : count * size;
        g->ahead_count = 0;
        if (len && read_object((void *)o, at, g->ahead, len) < 0)
            return -1;
        memset(g->ahead + len, 0, count * size - len);
        g->ahead_first = id;
        g->ahead_count = count;
    }
    memcpy(out, g->ahead + (id - g->ahead_first) * size, size);
    return 0;
}

/* Writes a datagram with that symbol of a group or, with NULL, of the descriptor. Returns 0 if the
 * symbol could not be read. */
static size_t put_symbol(struct fcast_sender *s, const struct object *o, struct group *g,
                         struct fcast_symbol symbol, uint8_t *out)
{
    uint8_t *mac = NULL;
    size_t len, size = o->fti.symbol_bytes;

    if (s->cfg.protocol == FCAST_PROTOCOL_SEED) {
        len = put_seed(s, o, symbol, out);
    } else {
        len = put_header(s, o, false, out, &mac);
        fcast_payload_id_put(o->fti.fec, symbol, out + len);
        len += FCAST_PAYLOAD_ID;
    }
    int failed;
    if (!g)
        failed = fcast_read_symbol(read_object, (void *)o, &o->fti,
                                   fcast_block_first(&o->partition, symbol.block) + symbol.id,
                                   out + len);
    else if (symbol.id < g->k)
        failed = get_source(s, o, g, symbol.id, out + len);
    else
        failed = s->cfg.repair.read(
            s->cfg.repair.ctx, g->repair_at + (uint64_t)(symbol.id - g->k) * size, out + len, size);
    len += size;
    if (failed < 0 || (mac && !fcast_auth_sign(s->auth, out, len, mac))) {
        s->stats.errors++;
        return 0;
    }
    s->stats.sent++;
    return len;
}

static size_t next_control(struct fcast_sender *s, uint8_t *out)
{
    const struct fcast_partition *p = &s->control.partition;
    uint64_t number = s->control_symbol++;
    uint32_t block = 0;

    while (block + 1 < p->blocks && fcast_block_first(p, block + 1) <= number)
        block++;
    const struct fcast_symbol symbol = {block, (uint32_t)(number - fcast_block_first(p, block))};
    if (s->control_symbol >= p->symbols) {
        s->control_symbol = 0;
        s->since_control = 0;
        s->control_gap = (uint32_t)fcast_jitter(s->control_mean, &s->control_random);
    }
    s->stats.control++;
    return put_symbol(s, &s->control, NULL, symbol, out);
}

/* Returns the next group that has a symbol of this index; NULL: all cycles are done. */
static struct group *next_group(struct fcast_sender *s)
{
    for (;;) {
        while (s->at < s->group_count) {
            struct group *g = &s->groups[s->order[s->at++]];
            if (s->index < g->n)
                return g;
        }
        s->at = 0;
        if (++s->index >= s->index_end) {
            s->index = 0;
            s->stats.rounds++;
            s->since_control = s->control_gap;
            if (s->cfg.cycles && s->stats.rounds >= s->cfg.cycles)
                return NULL;
            if (!s->group_count)
                return NULL;
        }
        fcast_order_round(s->cfg.order, s->group_count, &s->random, s->order);
    }
}

/* Computes the repair symbols when the first is due: a receiver with all source symbols needs none,
 * and the first cycle begins at once. */
static bool encode_group(struct fcast_sender *s, struct group *g)
{
    struct object *o = &s->objects[g->object];

    if (!g->is_encoded)
        g->is_encoded = fcast_encode_block(&o->fti, s->cfg.rs_kind, g->block, read_object, o,
                                           &s->cfg.repair, g->repair_at) == 0;
    s->stats.errors += !g->is_encoded;
    return g->is_encoded;
}

size_t fcast_sender_next(struct fcast_sender *s, uint8_t *out)
{
    const uint64_t errors_max = s->stats.errors + READ_ERRORS_MAX;
    size_t len = 0;

    while (!len && !s->is_done) {
        if (s->stats.errors >= errors_max)
            break; /* the files are gone */
        if (s->since_control >= s->control_gap && s->control.header) {
            len = next_control(s, out);
            continue;
        }
        struct group *g = next_group(s);
        if (!g) {
            s->is_done = true;
            break;
        }
        const struct object *o = &s->objects[g->object];
        uint32_t id = fcast_symbol_id(s->cfg.fec, g->k, g->n, s->index);
        bool is_source = id < g->k;
        if (!is_source && !encode_group(s, g))
            break;
        s->since_control++;
        len = put_symbol(s, o, g, (struct fcast_symbol){g->block, id}, out);
        s->stats.source += is_source;
        s->stats.repair += !is_source;
    }
    return len;
}

uint64_t fcast_sender_symbols(const struct fcast_sender *s)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < s->group_count; i++)
        sum += s->groups[i].n;
    return sum;
}

size_t fcast_sender_pick(struct fcast_sender *s, uint64_t number, uint8_t *out)
{
    const struct object *o = &s->objects[0];
    const struct fcast_symbol symbol = fcast_object_symbol(&o->fti, &o->partition, number);
    struct group *g = &s->groups[symbol.block];
    const bool is_source = symbol.id < g->k;

    if (!is_source && !encode_group(s, g))
        return 0;
    s->stats.source += is_source;
    s->stats.repair += !is_source;
    return put_symbol(s, o, g, symbol, out);
}

void fcast_sender_set_cci(struct fcast_sender *s, uint32_t cci)
{
    s->has_cci = true;
    s->cci = cci;
}

void fcast_sender_set_time(struct fcast_sender *s, uint32_t ntp_s)
{
    s->ntp_s = ntp_s;
}

size_t fcast_sender_close(struct fcast_sender *s, uint8_t *out)
{
    uint8_t *mac;

    if (s->cfg.protocol == FCAST_PROTOCOL_SEED)
        return 0;
    size_t len = put_header(s, NULL, true, out, &mac);

    if (mac && !fcast_auth_sign(s->auth, out, len, mac))
        return 0;
    s->stats.sent++;
    return len;
}

void fcast_sender_get_stats(const struct fcast_sender *s, struct fcast_sender_stats *out)
{
    *out = s->stats;
    out->index = s->index;
}

uint64_t fcast_sender_repair_bytes(const struct fcast_sender *s)
{
    return s->repair_end;
}

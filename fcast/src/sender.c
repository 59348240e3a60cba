/* SPDX-License-Identifier: Apache-2.0
 *
 * A sender's objects, their codes and blocks, and the descriptor (CID or FDT) of all. carousel.c
 * sends them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fec/rs.h"
#include "seed.h"
#include "sender_impl.h"

enum {
    OBJECTS_MAX = 65000,
    /* Least mean number of datagrams between descriptors, per datagram of a descriptor. */
    CONTROL_LEAST = 16,
    CONTROL_MOST = 512,
    /* Descriptors per pass over the files' source symbols, within these bounds. */
    CONTROLS_A_FILE = 4,
    RS_K = 200,
    SEED_K = 32,
    N1_TRIANGLE = 3,
    N1_STAIRCASE = 5,
    CONTROL_ROOM = 1 << 20,
    AHEAD = 16,            /* source symbols of a block that are read at once, */
    AHEAD_BYTES = 4 << 20, /* as far as those of all blocks fit in this many bytes */
};

struct fcast_sender *fcast_sender_new(const struct fcast_sender_config *cfg)
{
    const struct fcast_fti probe = {.fec = cfg->fec};
    bool knows = probe.fec == FCAST_NO_CODE || probe.fec == FCAST_RS ||
                 probe.fec == FCAST_STAIRCASE || probe.fec == FCAST_TRIANGLE;

    bool is_seed = cfg->protocol == FCAST_PROTOCOL_SEED;

    if (is_seed && (cfg->fec != FCAST_RS || cfg->k > FCAST_SEED_K_MAX || cfg->key))
        knows = false;
    if (!knows || cfg->tsi > UINT16_MAX || cfg->symbol_bytes < 16 || cfg->overhead < 0 ||
        cfg->overhead > 7) {
        errno = EINVAL;
        return NULL;
    }
    struct fcast_sender *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->random = cfg->random;
    s->control_random = ~cfg->random;
    if (!s->cfg.k)
        s->cfg.k = is_seed ? SEED_K : cfg->fec == FCAST_RS ? RS_K : FCAST_LDPC_K;
    if (cfg->key && !(s->auth = fcast_auth_new(cfg->key, cfg->key_len))) {
        free(s);
        return NULL;
    }
    s->cfg.key = NULL;
    return s;
}

void fcast_sender_free(struct fcast_sender *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        free(s->objects[i].header);
        free(s->objects[i].trailer);
    }
    free(s->control.header);
    free(s->objects);
    free(s->groups);
    free(s->ahead);
    free(s->order);
    fcast_auth_free(s->auth);
    free(s);
}

/* Chooses the code of an object of that length. Returns false if there is none. */
static bool settle_fti(const struct fcast_sender *s, uint64_t length, bool is_control,
                       struct fcast_fti *out)
{
    uint64_t symbols = (length + s->cfg.symbol_bytes - 1) / s->cfg.symbol_bytes;
    uint32_t k = symbols && symbols < s->cfg.k ? (uint32_t)symbols : s->cfg.k;

    *out = (struct fcast_fti){.fec = s->cfg.fec,
                              .length = length,
                              .symbol_bytes = s->cfg.symbol_bytes,
                              .block_max = k,
                              .n_max = (uint32_t)(k * (1 + s->cfg.overhead))};
    bool is_ldpc = out->fec == FCAST_TRIANGLE || out->fec == FCAST_STAIRCASE;
    out->n1 = s->cfg.n1 ? s->cfg.n1 : out->fec == FCAST_TRIANGLE ? N1_TRIANGLE : N1_STAIRCASE;
    out->seed = 1;
    /* Too few symbols for the code: all of them are repeated instead. */
    bool is_tiny = is_ldpc && (k < 2 || out->n_max - k < out->n1);
    if (is_control || is_tiny || out->fec == FCAST_NO_CODE ||
        (out->fec == FCAST_RS && s->cfg.overhead == 0)) {
        out->fec = FCAST_NO_CODE;
        out->block_max = k < UINT16_MAX ? k : UINT16_MAX;
        out->n_max = 0;
        out->n1 = 0;
        out->seed = 0;
    } else if (out->fec == FCAST_RS) {
        out->n1 = 0;
        out->seed = 0;
        out->n_max = out->n_max > k ? out->n_max : k + 1;
        if (out->n_max > RS_N_MAX && k < RS_N_MAX)
            out->n_max = RS_N_MAX; /* the code's maximum */
    }
    return fcast_fti_is_good(out);
}

/* Chooses the code of 1999, with groups of one size. Returns false if the file is too large. */
static bool settle_seed(const struct fcast_sender *s, uint64_t length, struct fcast_fti *out)
{
    uint64_t symbols = (length + s->cfg.symbol_bytes - 1) / s->cfg.symbol_bytes;
    uint32_t k = fcast_choose_k(symbols, s->cfg.k, NULL, NULL);
    uint32_t n = (uint32_t)(k * (1 + s->cfg.overhead));

    *out = (struct fcast_fti){.fec = FCAST_RS,
                              .length = length,
                              .symbol_bytes = s->cfg.symbol_bytes,
                              .block_max = k,
                              .n_max = n <= k         ? k + 1
                                       : n > RS_N_MAX ? RS_N_MAX
                                                      : n,
                              .is_padded = true};
    return length <= UINT32_MAX && fcast_fti_is_good(out);
}

static int grow(struct fcast_sender *s)
{
    if (s->count < s->room)
        return 0;
    uint32_t room = s->room ? 2 * s->room : 16;
    struct object *more = reallocarray(s->objects, room, sizeof *more);
    if (!more)
        return -1;
    s->objects = more;
    s->room = room;
    return 0;
}

/* Prepares the object's metadata: FCAST's header or the trailer of 1999; nothing with FLUTE. */
static int put_metadata(const struct fcast_sender *s, struct object *o)
{
    bool is_seed = s->cfg.protocol == FCAST_PROTOCOL_SEED;
    uint8_t bytes[8192];

    if (s->cfg.protocol == FCAST_PROTOCOL_FLUTE)
        return 0;
    size_t len = is_seed ? fcast_seed_trailer_put(bytes, sizeof bytes, &o->meta)
                         : fcast_object_header_put(bytes, sizeof bytes, &o->meta, o->bytes == 0);
    uint8_t *copy = malloc(len);
    if (!copy)
        return -1;
    memcpy(copy, bytes, len);
    if (is_seed) {
        o->trailer = copy;
        o->trailer_len = len;
    } else {
        o->header = copy;
        o->header_len = len;
    }
    return 0;
}

int fcast_sender_add(struct fcast_sender *s, const struct fcast_meta *meta, uint64_t bytes,
                     const struct fcast_store *source, uint64_t *toi)
{
    bool is_seed = s->cfg.protocol == FCAST_PROTOCOL_SEED;
    struct object o = {.toi = is_seed ? s->cfg.tsi : s->count + 1u,
                       .meta = *meta,
                       .source = *source,
                       .bytes = bytes};

    if (s->is_committed || s->count == (is_seed ? 1u : OBJECTS_MAX)) {
        errno = ENOSPC;
        return -1;
    }
    /* Content-Length is the length before encoding, which only the caller knows. */
    if (!o.meta.encoding[0] || !o.meta.has_length)
        o.meta.length = bytes;
    o.meta.has_length = true;
    if (grow(s) < 0 || put_metadata(s, &o) < 0)
        return -1;
    o.repair_at = s->repair_end;
    uint64_t length = bytes + o.header_len + o.trailer_len;
    bool good = is_seed ? settle_seed(s, length, &o.fti) : settle_fti(s, length, false, &o.fti);
    if (!good)
        errno = EFBIG;
    if (good && o.fti.n1)
        good = (o.fti.seed = fcast_choose_seed(&o.fti)) != 0;
    if (!good) {
        free(o.header);
        free(o.trailer);
        return -1;
    }
    s->repair_end += fcast_repair_bytes(&o.fti);
    o.partition = fcast_partition_of(&o.fti);
    s->group_count += o.partition.blocks;
    *toi = o.toi;
    s->objects[s->count++] = o;
    return 0;
}

/* ------------------------------------------------------------------ descriptors */

static size_t put_cid(const struct fcast_sender *s, uint8_t *out, size_t room)
{
    struct fcast_meta meta = {.is_cid = true, .cid_complete = true};
    struct fcast_cid *list = calloc(1, sizeof *list);
    uint8_t body[4096];

    if (!list)
        return 0;
    for (uint32_t i = 0; i < s->count; i++)
        fcast_cid_add(list, s->objects[i].toi);
    size_t len = fcast_cid_put(body, sizeof body, list);
    free(list);
    meta.has_length = true;
    meta.length = len;
    size_t head = fcast_object_header_put(out, room, &meta, len == 0);
    memcpy(out + head, body, len);
    return head + len;
}

static size_t put_fdt(const struct fcast_sender *s, uint8_t *out, size_t room)
{
    struct fcast_fdt fdt = {.expires = s->cfg.expires, .complete = true, .count = s->count};
    fdt.files = calloc(s->count + 1u, sizeof *fdt.files);
    if (!fdt.files)
        return 0;
    for (uint32_t i = 0; i < s->count; i++)
        fdt.files[i] = (struct fcast_fdt_file){.toi = s->objects[i].toi,
                                               .has_transfer_length = true,
                                               .transfer_length = s->objects[i].fti.length,
                                               .has_fti = true,
                                               .fti = s->objects[i].fti,
                                               .meta = s->objects[i].meta};
    size_t len = fcast_fdt_put((char *)out, room, &fdt);
    fcast_fdt_free(&fdt);
    return len;
}

static int make_control(struct fcast_sender *s)
{
    struct object *c = &s->control;
    bool is_flute = s->cfg.protocol == FCAST_PROTOCOL_FLUTE;

    c->is_control = true;
    c->toi = is_flute ? 0 : s->count + 1u;
    c->header = malloc(CONTROL_ROOM);
    if (!c->header)
        return -1;
    c->header_len =
        is_flute ? put_fdt(s, c->header, CONTROL_ROOM) : put_cid(s, c->header, CONTROL_ROOM);
    if (!c->header_len || !settle_fti(s, c->header_len, true, &c->fti)) {
        errno = ENOSPC;
        return -1;
    }
    c->partition = fcast_partition_of(&c->fti);
    return 0;
}

/* Sets how often the descriptor is sent: often enough for a small file, which waits for a lost
 * descriptor, and at most one in sixteen datagrams. The gaps vary, so that periodic loss does not
 * hit it every time. */
static void settle_control(struct fcast_sender *s)
{
    const uint64_t least = CONTROL_LEAST * s->control.partition.symbols;
    uint64_t symbols = 0, mean;

    for (uint32_t i = 0; i < s->count; i++)
        symbols += s->objects[i].partition.symbols;
    mean = symbols / CONTROLS_A_FILE;
    mean = mean < CONTROL_MOST ? mean : CONTROL_MOST;
    s->control_mean = mean > least ? mean : least;
    s->control_gap = (uint32_t)fcast_jitter(s->control_mean, &s->control_random);
    s->since_control = s->control_gap; /* the first one comes at once */
}

/* Makes room to read several source symbols of each group at once, since the groups are apart in
 * the file. Without memory, symbols are read one by one. */
static void read_ahead(struct fcast_sender *s)
{
    const size_t size = s->cfg.symbol_bytes;
    const size_t most = s->group_count ? AHEAD_BYTES / size / s->group_count : 0;

    s->ahead_most = most < AHEAD ? (uint32_t)most : AHEAD;
    s->ahead = s->ahead_most > 1 ? malloc((size_t)s->group_count * s->ahead_most * size) : NULL;
    for (uint32_t i = 0; s->ahead && i < s->group_count; i++)
        s->groups[i].ahead = s->ahead + (size_t)i * s->ahead_most * size;
}

int fcast_sender_commit(struct fcast_sender *s)
{
    uint32_t g = 0;

    s->groups = calloc(s->group_count + 1u, sizeof *s->groups);
    s->order = calloc(s->group_count + 1u, sizeof *s->order);
    bool has_control = s->cfg.protocol != FCAST_PROTOCOL_SEED;
    if (!s->groups || !s->order || (has_control && make_control(s) < 0))
        return -1;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct object *o = &s->objects[i];
        uint64_t repair_at = o->repair_at;
        for (uint32_t b = 0; b < o->partition.blocks; b++, g++) {
            uint32_t k = fcast_block_k(&o->partition, b), n = fcast_block_n(&o->fti, k);
            s->groups[g] = (struct group){.object = i,
                                          .block = b,
                                          .k = k,
                                          .n = n,
                                          .first = fcast_block_first(&o->partition, b),
                                          .repair_at = repair_at};
            repair_at += (uint64_t)(n - k) * o->fti.symbol_bytes;
            if (n > s->index_end)
                s->index_end = n;
        }
    }
    read_ahead(s);
    s->is_committed = true;
    settle_control(s);
    fcast_order_round(s->cfg.order, s->group_count, &s->random, s->order);
    return 0;
}

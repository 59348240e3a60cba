/* SPDX-License-Identifier: Apache-2.0
 *
 * The carousel: for each index, one symbol of each block of each object; then again from the
 * first. Descriptors (CID or FDT) go first in each cycle and now and then between.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "bytes.h"
#include "encode.h"
#include "fcast.h"
#include "fec/rs.h"
#include "lct.h"
#include "seed.h"

enum {
    OBJECTS_MAX = 65000,
    CONTROL_LEAST = 16, /* mean of the datagrams between descriptors, for each of theirs */
    CONTROL_MOST = 512,
    CONTROLS_A_FILE = 4, /* in the time of the files' source symbols, within these bounds */
    RS_K = 200,
    SEED_K = 32,
    LDPC_K = 10000,
    N1_TRIANGLE = 3,
    N1_STAIRCASE = 5,
    CONTROL_ROOM = 1 << 20,
    READ_ERRORS_MAX = 1000, /* in a row */
    AHEAD = 16,             /* source symbols of a block that are read at once, */
    AHEAD_BYTES = 4 << 20,  /* of all blocks no more than this */
};

struct object {
    uint64_t toi;
    struct fcast_fti fti;
    struct fcast_partition partition;
    struct fcast_meta meta;
    struct fcast_store source;
    uint64_t bytes;
    uint8_t *header; /* of FCAST: the object begins with it */
    size_t header_len;
    uint8_t *trailer; /* of 1999: it ends with it */
    size_t trailer_len;
    uint64_t repair_at; /* in the repair store */
    bool is_control;
};

struct group { /* a block of an object */
    uint32_t object, block, k, n;
    uint64_t first, repair_at; /* its first source symbol; where its repair symbols begin */
    bool is_encoded;
    uint8_t *ahead; /* the source symbols that come next; NULL: each is read by itself */
    uint32_t ahead_first, ahead_count;
};

struct fcast_sender {
    struct fcast_sender_config cfg;
    struct fcast_auth *auth;
    struct object *objects;
    uint32_t count, room;
    struct group *groups;
    uint32_t group_count, *order, at; /* order[at]: the next of this index */
    uint32_t index, index_end;        /* of this cycle; the largest n */
    uint8_t *ahead;                   /* of all groups */
    uint32_t ahead_most;
    uint64_t repair_end, random;
    struct object control;                               /* the descriptor */
    uint32_t control_symbol, since_control, control_gap; /* datagrams; the gap changes each time */
    uint64_t control_mean, control_random;
    bool is_committed, is_done;
    uint32_t sequence, cci, ntp_s;
    bool has_cci; /* instead of the sequence */
    struct fcast_sender_stats stats;
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
        s->cfg.k = is_seed ? SEED_K : cfg->fec == FCAST_RS ? RS_K : LDPC_K;
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

/* Reads the object: its header from memory, then the data, then the trailer. */
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

/* The code of an object of that length. false: it cannot be. */
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
    out->n1 = out->fec == FCAST_TRIANGLE ? N1_TRIANGLE : N1_STAIRCASE;
    out->seed = 1;
    /* Too few symbols for the code: all of them are sent again and again. */
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
            out->n_max = RS_N_MAX; /* the code has no more */
    }
    return fcast_fti_is_good(out);
}

/* The code of 1999: groups of one size. false: the file is too large. */
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

/* The metadata in the object: FCAST's header or the trailer of 1999; nothing with FLUTE. */
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
    /* Content-Length is that before the encoding, which the caller knows. */
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

/* How often the descriptor comes: as often as a small file needs it, which waits for a lost one,
 * and so that it takes a sixteenth of the datagrams at most. Periodic loss must not meet it again
 * and again, so no two gaps are the same. */
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
    s->since_control = s->control_gap; /* the first comes first */
}

/* Room to read some of each group's source symbols at once: each group's next symbol is elsewhere
 * in the file. Without memory they are read one by one. */
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

/* ------------------------------------------------------------------ datagrams */

/* The header of a datagram; the MAC's place is *mac, or NULL. Returns its length. */
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

/* The header of 1999. Returns its length. */
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

/* A source symbol, the object's last with zeroes behind it. */
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

/* A datagram with that symbol, of a group or (NULL) of the descriptor. 0: it could not be read. */
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

/* The next group that has a symbol of this index; NULL: the cycles are over. */
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

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The symbol of a group that an index sends. Source symbols come first, in order. The repair
 * symbols of LDPC are spread: those of neighbouring rows know of few of the lost source symbols. */
static uint32_t id_of(const struct fcast_sender *s, const struct group *g, uint32_t index)
{
    uint32_t repair = g->n - g->k, step = (uint32_t)(repair * 0.6180339887);

    if (index < g->k || s->cfg.fec == FCAST_RS)
        return index;
    while (step > 1 && common_divisor(step, repair) != 1)
        step--;
    step += step == 0;
    return g->k + (uint32_t)((uint64_t)(index - g->k) * step % repair);
}

/* Computes the repair symbols when the first is due: who receives all source symbols needs none,
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
        uint32_t id = id_of(s, g, s->index);
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
    const uint32_t least = s->groups[s->group_count - 1].n; /* the last blocks are the small ones */
    const uint64_t even = (uint64_t)s->group_count * least;
    const uint32_t turn = number < even ? s->group_count : s->objects[0].partition.large_blocks;
    const uint64_t at = number < even ? number : number - even;
    const uint32_t index = (uint32_t)(at / turn) + (number < even ? 0 : least);
    struct group *g = &s->groups[at % turn];
    const uint32_t id = id_of(s, g, index);
    const bool is_source = id < g->k;

    if (!is_source && !encode_group(s, g))
        return 0;
    s->stats.source += is_source;
    s->stats.repair += !is_source;
    return put_symbol(s, &s->objects[g->object], g, (struct fcast_symbol){g->block, id}, out);
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

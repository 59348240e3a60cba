/* SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"

#include <stdlib.h>
#include <string.h>

int fmtp_symbols_init(struct fmtp_symbols *s, size_t block_bytes, size_t limit_bytes)
{
    *s = (struct fmtp_symbols){.block_bytes = block_bytes,
                               .limit = limit_bytes / (sizeof(struct fmtp_symbol) + block_bytes),
                               .pad = malloc(2 * block_bytes)};
    return s->pad ? 0 : -1;
}

void fmtp_symbols_free(struct fmtp_symbols *s)
{
    free(s->pad);
    *s = (struct fmtp_symbols){0};
}

struct fmtp_groups *fmtp_groups_new(uint32_t nblocks, unsigned fec_k)
{
    uint32_t count = fmtp_fec_groups(nblocks, fec_k);
    struct fmtp_groups *gs = calloc(1, sizeof *gs + count * sizeof(struct fmtp_group));

    if (!gs)
        return NULL;
    gs->nblocks = nblocks;
    gs->count = count;
    gs->fec_k = fec_k;
    TAILQ_INIT(&gs->waiting);
    for (uint32_t g = 0; g < count; g++)
        gs->group[g].missing = (uint8_t)fmtp_fec_group(nblocks, fec_k, g).count;
    gs->at_blocks = fmtp_fec_group(nblocks, fec_k, 0);
    return gs;
}

static void free_parity(struct fmtp_group *group, struct fmtp_symbols *s)
{
    struct fmtp_symbol *symbol;

    while ((symbol = group->parity)) {
        group->parity = symbol->next;
        free(symbol);
    }
    s->count -= group->held;
    group->held = 0;
}

void fmtp_groups_free(struct fmtp_groups *gs, struct fmtp_symbols *s)
{
    if (!gs)
        return;
    for (uint32_t g = 0; g < gs->count; g++)
        free_parity(&gs->group[g], s);
    free(gs);
}

struct fmtp_fec_group fmtp_groups_blocks(struct fmtp_groups *gs, uint32_t g)
{
    if (g != gs->at) {
        gs->at = g;
        gs->at_blocks = fmtp_fec_group(gs->nblocks, gs->fec_k, g);
    }
    return gs->at_blocks;
}

uint32_t fmtp_groups_of(struct fmtp_groups *gs, uint32_t block)
{
    if (block - gs->at_blocks.first < gs->at_blocks.count)
        return gs->at;
    return fmtp_fec_group_of(gs->nblocks, gs->fec_k, block);
}

static void complete(struct fmtp_groups *gs, struct fmtp_symbols *s, struct fmtp_group *group)
{
    free_parity(group, s);
    if (group->state == FMTP_GROUP_WAITING)
        TAILQ_REMOVE(&gs->waiting, group, link);
    group->state = FMTP_GROUP_OPEN;
}

void fmtp_groups_received(struct fmtp_groups *gs, struct fmtp_symbols *s, uint32_t g)
{
    struct fmtp_group *group = &gs->group[g];

    if (--group->missing == 0)
        complete(gs, s, group);
}

enum fmtp_keep fmtp_groups_keep(struct fmtp_groups *gs, struct fmtp_symbols *s, uint32_t g,
                                uint8_t number, const uint8_t *bytes)
{
    struct fmtp_group *group = &gs->group[g];
    struct fmtp_symbol *symbol;

    for (symbol = group->parity; symbol; symbol = symbol->next)
        if (symbol->number == number)
            return FMTP_KEEP_HAD;
    if (s->count >= s->limit || !(symbol = malloc(sizeof *symbol + s->block_bytes)))
        return FMTP_KEEP_NO_ROOM;
    symbol->number = number;
    memcpy(symbol->bytes, bytes, s->block_bytes);
    symbol->next = group->parity;
    group->parity = symbol;
    group->held++;
    s->count++;
    return FMTP_KEEP_NEW;
}

/* The blocks of a group as the decoder takes them. */
struct decoding {
    unsigned m; /* missing */
    const uint8_t *blocks[FMTP_FEC_MAX_K], *parity[FMTP_FEC_MAX_K];
    uint8_t *out[FMTP_FEC_MAX_K], missing[FMTP_FEC_MAX_K], numbers[FMTP_FEC_MAX_K];
};

static size_t len_of(const struct fmtp_symbols *s, const struct fmtp_target *to, uint32_t block)
{
    return fmtp_block_len(to->size_bytes, (uint32_t)(block * s->block_bytes),
                          (uint32_t)s->block_bytes);
}

/* Lays out the group's blocks. Missing ones go to `aside`, one after another, or without it to
 * their places; a short last block goes through the pad. */
static void lay_out(const struct fmtp_group *group, struct fmtp_fec_group at,
                    struct fmtp_symbols *s, const struct fmtp_target *to, uint8_t *aside,
                    struct decoding *d)
{
    const struct fmtp_symbol *symbol = group->parity;

    d->m = 0;
    for (unsigned i = 0; i < at.count; i++) {
        uint32_t block = at.first + i;
        uint8_t *place = to->product + (size_t)block * s->block_bytes;
        size_t len = len_of(s, to, block);
        bool is_short = len < s->block_bytes;
        d->blocks[i] = place;
        if (!fmtp_have(to->received, block)) {
            d->missing[d->m] = (uint8_t)i;
            d->numbers[d->m] = symbol->number;
            d->parity[d->m] = symbol->bytes;
            d->out[d->m] = aside      ? aside + d->m * s->block_bytes
                           : is_short ? s->pad + s->block_bytes
                                      : place;
            d->m++;
            symbol = symbol->next;
        } else if (is_short) {
            memcpy(s->pad, place, len);
            memset(s->pad + len, 0, s->block_bytes - len);
            d->blocks[i] = s->pad;
        }
    }
}

/* Stores what was decoded outside its place. */
static bool store(const struct fmtp_symbols *s, const struct fmtp_target *to, uint32_t block,
                  const uint8_t *bytes)
{
    uint32_t at = (uint32_t)(block * s->block_bytes);

    if (to->put)
        return to->put(to->ctx, at, bytes, len_of(s, to, block));
    if (bytes != to->product + at)
        memcpy(to->product + at, bytes, len_of(s, to, block));
    return true;
}

unsigned fmtp_groups_decode(struct fmtp_groups *gs, struct fmtp_symbols *s, uint32_t g,
                            const struct fmtp_target *to)
{
    struct fmtp_group *group = &gs->group[g];
    struct fmtp_fec_group at = fmtp_groups_blocks(gs, g);
    uint8_t *aside = to->put ? malloc(group->missing * s->block_bytes) : NULL;
    bool ok = !to->put || aside;

    struct decoding d;
    if (ok) {
        lay_out(group, at, s, to, aside, &d);
        ok = fmtp_fec_decode(at.count, s->block_bytes, d.blocks, d.m, d.missing, d.numbers,
                             d.parity, d.out) == 0;
    }
    for (unsigned i = 0; ok && i < d.m; i++)
        ok = store(s, to, at.first + d.missing[i], d.out[i]);
    free(aside);
    if (!ok)
        return 0;
    for (unsigned i = 0; i < d.m; i++)
        fmtp_mark(to->received, at.first + d.missing[i]);
    group->missing = 0;
    complete(gs, s, group);
    return d.m;
}

void fmtp_groups_bitmap(struct fmtp_groups *gs, uint32_t g, const uint64_t *received,
                        uint8_t bitmap[32])
{
    struct fmtp_fec_group at = fmtp_groups_blocks(gs, g);

    memset(bitmap, 0, 32);
    for (unsigned i = 0; i < at.count; i++)
        if (!fmtp_have(received, at.first + i))
            bitmap[i / 8] |= (uint8_t)(1u << (i % 8));
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the missing source symbols of a block.
 */
#include <stdlib.h>
#include <string.h>

#include "fec/rs.h"
#include "ldpc_kind.h"
#include "reception_impl.h"

/* The block in memory: what has arrived, and room for what is missing. */
struct work {
    uint32_t k, n;
    uint8_t *bytes, **symbols; /* NULL: a repair symbol that has not arrived */
};

static void work_free(struct work *w)
{
    free(w->bytes);
    free(w->symbols);
}

static int read_source(struct fcast_reception *r, uint32_t block, struct work *w)
{
    const struct fcast_store *data = &r->place.data;
    uint64_t first = fcast_block_first(&r->partition, block);

    for (uint32_t i = 0; i < w->k; i++) {
        if (!fcast_reception_has(r, (struct fcast_symbol){block, i}))
            continue;
        size_t len = fcast_source_len(r, first + i);
        memset(w->symbols[i] + len, 0, r->fti.symbol_bytes - len);
        if (len && data->read(data->ctx, (first + i) * r->fti.symbol_bytes, w->symbols[i], len) < 0)
            return -1;
    }
    return 0;
}

/* Reads the block's symbols. Returns false if out of memory or a store failed. */
static bool load(struct fcast_reception *r, uint32_t block, struct work *w)
{
    const struct fcast_block_state *b = &r->blocks[block];
    const struct fcast_store *repair = &r->place.repair;
    size_t size = r->fti.symbol_bytes;
    uint8_t *at;

    w->bytes = at = malloc((w->k + (size_t)(b->received - b->source)) * size);
    w->symbols = calloc(w->n, sizeof *w->symbols);
    if (!w->bytes || !w->symbols)
        return false;
    for (uint32_t i = 0; i < w->k; i++, at += size)
        w->symbols[i] = at;
    for (uint32_t slot = b->repair; slot; slot = r->slots[slot - 1].before, at += size) {
        w->symbols[r->slots[slot - 1].id] = at;
        if (repair->read(repair->ctx, (uint64_t)(slot - 1) * size, at, size) < 0)
            return false;
    }
    return read_source(r, block, w) == 0;
}

static bool save(struct fcast_reception *r, uint32_t block, const struct work *w)
{
    const struct fcast_store *data = &r->place.data;
    uint64_t first = fcast_block_first(&r->partition, block);

    for (uint32_t i = 0; i < w->k; i++) {
        size_t len = fcast_source_len(r, first + i);
        if (len && !fcast_reception_has(r, (struct fcast_symbol){block, i}) &&
            data->write(data->ctx, (first + i) * r->fti.symbol_bytes, w->symbols[i], len) < 0)
            return false;
    }
    return true;
}

static bool decode_rs(struct fcast_reception *r, uint32_t block, struct work *w)
{
    unsigned ids[RS_N_MAX], count = 0;
    const uint8_t *in[RS_N_MAX];

    if (!load(r, block, w))
        return false;
    for (unsigned i = 0; i < w->n && count < w->k; i++)
        if (fcast_reception_has(r, (struct fcast_symbol){block, i})) {
            ids[count] = i;
            in[count++] = w->symbols[i];
        }
    /* Making a code inverts a k by k matrix, which takes longer than decoding with it. */
    struct rs_code **code = &r->codes[block >= r->partition.large_blocks];
    if (!*code)
        *code = rs_code_new((enum rs_kind)r->rs_kind, w->k, w->n);
    return *code && rs_decode(*code, r->fti.symbol_bytes, ids, in, w->symbols) == 0;
}

static struct ldpc_matrix *matrix_of(struct fcast_reception *r, uint32_t block, struct work *w)
{
    struct ldpc_matrix **m = &r->matrices[block >= r->partition.large_blocks];

    if (!*m)
        *m = ldpc_matrix_new(fcast_ldpc_kind(&r->fti), w->k, w->n, r->fti.n1, r->fti.seed);
    return *m;
}

static bool decode_ldpc(struct fcast_reception *r, uint32_t block, struct work *w)
{
    const struct ldpc_matrix *m = matrix_of(r, block, w);
    struct ldpc_decoder *d = m ? ldpc_decoder_new(m) : NULL;

    if (!d)
        return false;
    for (uint32_t i = 0; i < w->n; i++)
        if (fcast_reception_has(r, (struct fcast_symbol){block, i}))
            ldpc_decoder_add(d, i);
    bool good = (ldpc_decoder_is_complete(d) || ldpc_decoder_solve(d)) && load(r, block, w) &&
                ldpc_decode(d, r->fti.symbol_bytes, w->symbols) == 0;
    r->work = ldpc_decoder_work(d) + ldpc_edges(m);
    ldpc_decoder_free(d);
    return good;
}

bool fcast_decode_block(struct fcast_reception *r, uint32_t block)
{
    struct work w = {.k = fcast_block_k(&r->partition, block)};
    bool good = false;

    w.n = (uint32_t)fcast_reception_n(&r->fti, w.k);
    if (w.n > w.k)
        good = (r->fti.fec == FCAST_RS ? decode_rs(r, block, &w) : decode_ldpc(r, block, &w)) &&
               save(r, block, &w);
    work_free(&w);
    return good;
}

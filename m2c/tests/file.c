/* SPDX-License-Identifier: Apache-2.0 */
#include "file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "coding.h"
#include "encode.h"
#include "order.h"
#include "reception.h"

static void fail(const char *what)
{
    fprintf(stderr, "simulation: %s\n", what);
    exit(1);
}

static struct fcast_fti code_of(double bytes, unsigned symbol_bytes)
{
    const uint64_t k = (uint64_t)ceil(bytes / symbol_bytes);
    const uint32_t block = k < FCAST_LDPC_K ? (uint32_t)k : FCAST_LDPC_K;
    /* A symbol of one byte: only the structure counts. */
    struct fcast_fti fti = {.fec = FCAST_TRIANGLE,
                            .length = k,
                            .symbol_bytes = 1,
                            .block_max = block,
                            .n_max = (uint32_t)(block * (1 + m2c_overhead((uint64_t)bytes))),
                            .n1 = M2C_N1,
                            .seed = 1};

    fti.seed = fcast_choose_seed(&fti);
    if (!fcast_fti_is_good(&fti))
        fail("impossible code");
    return fti;
}

void file_init(struct file *f, double bytes, unsigned symbol_bytes)
{
    static struct { /* choosing a seed takes longer than a simulation */
        double bytes;
        struct fcast_fti fti;
    } known[8];
    unsigned i = 0;

    while (i < 7 && known[i].bytes > 0 && known[i].bytes != bytes)
        i++;
    if (known[i].bytes != bytes) {
        known[i].fti = code_of(bytes, symbol_bytes);
        known[i].bytes = bytes;
    }
    *f = (struct file){.fti = known[i].fti, .partition = fcast_partition_of(&known[i].fti)};
    for (uint32_t b = 0; b < f->partition.blocks; b++)
        f->symbols += fcast_block_n(&f->fti, fcast_block_k(&f->partition, b));
}

struct fcast_symbol file_symbol(const struct file *f, uint32_t number)
{
    return fcast_object_symbol(&f->fti, &f->partition, number);
}

static int read_nothing(void *ctx, uint64_t at, void *bytes, size_t len)
{
    (void)ctx;
    (void)at;
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)bytes)[i] = 0;
    return 0;
}

static int write_nothing(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    (void)ctx;
    (void)at;
    (void)bytes;
    (void)len;
    return 0;
}

static uint32_t most_symbols(const struct file *f)
{
    return fcast_block_n(&f->fti, fcast_block_k(&f->partition, 0)); /* large ones are first */
}

void got_init(struct got *g, const struct file *f, bool decodes)
{
    const struct fcast_store none = {.read = read_nothing, .write = write_nothing};
    const struct fcast_place place = {.data = none, .repair = none};
    const uint32_t blocks = f->partition.blocks;
    uint64_t restored = 0;

    *g = (struct got){.file = f, .open = blocks};
    if (decodes) {
        g->reception = malloc(sizeof *g->reception);
        if (!g->reception || fcast_reception_init(g->reception, &f->fti, 0, &place, &restored) < 0)
            fail("no memory");
        return;
    }
    g->have = calloc(blocks, most_symbols(f));
    g->counts = calloc(blocks, sizeof *g->counts);
    if (!g->have || !g->counts)
        fail("no memory");
}

void got_free(struct got *g)
{
    if (g->reception)
        fcast_reception_free(g->reception);
    free(g->reception);
    free(g->have);
    free(g->counts);
    *g = (struct got){0};
}

static bool decode_symbol(struct got *g, struct fcast_symbol s)
{
    const uint8_t byte = 0;
    const enum fcast_taken taken = fcast_reception_take(g->reception, s, &byte);

    if (taken != FCAST_TAKEN && taken != FCAST_REDUNDANT)
        fail("no memory, or no such symbol");
    g->useful += taken == FCAST_TAKEN;
    g->redundant += taken == FCAST_REDUNDANT;
    return fcast_reception_is_complete(g->reception);
}

bool got_symbol(struct got *g, struct fcast_symbol s)
{
    if (g->reception)
        return decode_symbol(g, s);
    const uint32_t k = fcast_block_k(&g->file->partition, s.block), needed = k + k / 256;
    uint8_t *have = &g->have[(size_t)s.block * most_symbols(g->file) + s.id];
    const bool is_redundant = *have || g->counts[s.block] == needed;

    *have = 1;
    g->redundant += is_redundant;
    g->useful += !is_redundant;
    if (!is_redundant && ++g->counts[s.block] == needed)
        g->open--;
    return !g->open;
}

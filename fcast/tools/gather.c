/* SPDX-License-Identifier: Apache-2.0 */
#include "gather.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS_MIN = 64, STREAMS_MAX = 1024, SPARE = 8, PAGE = 4096 };

struct run {
    struct gather_file *file; /* NULL: free */
    uint64_t at;
    size_t len;
    struct run *next; /* next in its bucket, or in the free list */
    uint8_t *bytes;
};

struct gather {
    uint32_t count, victim; /* number of runs, a power of 2; the run to evict next */
    size_t run_bytes, memory_bytes;
    struct run *runs, **buckets; /* by file and end */
    struct run *free;            /* most recently freed first: its bytes are in the caches */
    uint8_t *bytes;              /* of all runs; pages that no run has touched take no memory */
};

/* Returns how many runs there are for this many streams; none is shorter than two pages. */
static uint32_t runs_for(size_t memory_bytes, uint32_t streams)
{
    uint32_t count = STREAMS_MIN;

    while (count < STREAMS_MAX && count < streams + SPARE &&
           memory_bytes / ((size_t)2 * count) >= 2 * (size_t)PAGE)
        count *= 2;
    return count;
}

/* Allocates the runs. Returns -1 if out of memory. */
static int make_runs(struct gather *g, uint32_t streams)
{
    uint32_t count = runs_for(g->memory_bytes, streams);

    g->runs = calloc(count, sizeof *g->runs);
    g->buckets = calloc(count, sizeof(struct run *));
    g->run_bytes = g->memory_bytes / count / PAGE * PAGE;
    g->bytes = malloc(count * g->run_bytes);
    if (!g->runs || !g->buckets || !g->bytes)
        return -1;
    g->count = count;
    g->victim = 0;
    g->free = NULL;
    for (uint32_t i = 0; i < count; i++) {
        g->runs[i].bytes = g->bytes + i * g->run_bytes;
        g->runs[i].next = g->free;
        g->free = &g->runs[i];
    }
    return 0;
}

static void free_runs(struct gather *g)
{
    free(g->bytes);
    free(g->runs);
    free(g->buckets);
}

struct gather *gather_new(uint32_t streams, size_t memory_bytes)
{
    struct gather *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    g->memory_bytes = memory_bytes;
    if (make_runs(g, streams) == 0)
        return g;
    gather_free(g);
    return NULL;
}

void gather_free(struct gather *g)
{
    if (!g)
        return;
    free_runs(g);
    free(g);
}

static struct run **bucket_of(struct gather *g, const struct gather_file *f, uint64_t end)
{
    uint64_t hash = ((uint64_t)(uintptr_t)f ^ end) * UINT64_C(0x9e3779b97f4a7c15);

    return &g->buckets[hash >> 32 & (g->count - 1)];
}

static void put_in(struct gather *g, struct run *r)
{
    struct run **b = bucket_of(g, r->file, r->at + r->len);

    r->next = *b;
    *b = r;
}

static void take_out(struct gather *g, const struct run *r)
{
    struct run **b = bucket_of(g, r->file, r->at + r->len);

    while (*b != r)
        b = &(*b)->next;
    *b = r->next;
}

/* Frees the run, which is no longer in any bucket. */
static void release(struct gather *g, struct run *r)
{
    r->file->runs--;
    r->file = NULL;
    r->next = g->free;
    g->free = r;
}

/* Writes the whole run and frees it. */
static int write_out(struct gather *g, struct run *r)
{
    if (r->file->write(r->file->ctx, r->at, r->bytes, r->len) < 0)
        return -1;
    take_out(g, r);
    release(g, r);
    return 0;
}

/* Begins a run at that offset, not in a bucket yet; NULL: the run to be evicted could not be
 * written. */
static struct run *begin(struct gather *g, struct gather_file *f, uint64_t at)
{
    if (!g->free) {
        if (write_out(g, &g->runs[g->victim]) < 0)
            return NULL;
        g->victim = (g->victim + 1) & (g->count - 1);
    }
    struct run *r = g->free;
    g->free = r->next;
    r->file = f;
    r->at = at;
    r->len = 0;
    f->runs++;
    return r;
}

/* Writes the whole pages of a full run, so that the remainder begins on a page boundary. */
static int shorten(struct run *r)
{
    uint64_t end = (r->at + r->len) / PAGE * PAGE;
    size_t len = end > r->at ? (size_t)(end - r->at) : r->len;

    if (r->file->write(r->file->ctx, r->at, r->bytes, len) < 0)
        return -1;
    memmove(r->bytes, r->bytes + len, r->len - len);
    r->at += len;
    r->len -= len;
    return 0;
}

int gather_put(struct gather *g, struct gather_file *f, uint64_t at, const void *bytes, size_t len)
{
    if (len + PAGE > g->run_bytes)
        return f->write(f->ctx, at, bytes, len);
    struct run *r = *bucket_of(g, f, at);
    while (r && (r->file != f || r->at + r->len != at))
        r = r->next;
    if (r)
        take_out(g, r);
    else if (!(r = begin(g, f, at)))
        return -1;
    int result = r->len + len > g->run_bytes ? shorten(r) : 0;
    if (result == 0) {
        memcpy(r->bytes + r->len, bytes, len);
        r->len += len;
    }
    put_in(g, r);
    return result;
}

int gather_flush(struct gather *g, struct gather_file *f)
{
    int result = 0;

    for (uint32_t i = 0; i < g->count && f->runs; i++)
        if (g->runs[i].file == f && write_out(g, &g->runs[i]) < 0)
            result = -1;
    return result;
}

int gather_widen(struct gather *g, uint32_t streams)
{
    struct gather wider = {.memory_bytes = g->memory_bytes};
    int result = 0;

    if (g->count >= runs_for(g->memory_bytes, streams))
        return 0;
    for (uint32_t i = 0; i < g->count; i++)
        if (g->runs[i].file && write_out(g, &g->runs[i]) < 0)
            result = -1;
    if (result == 0)
        result = make_runs(&wider, streams);
    free_runs(result == 0 ? g : &wider);
    if (result == 0)
        *g = wider;
    return result;
}

void gather_drop(struct gather *g, struct gather_file *f)
{
    for (uint32_t i = 0; i < g->count && f->runs; i++)
        if (g->runs[i].file == f) {
            take_out(g, &g->runs[i]);
            release(g, &g->runs[i]);
        }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "ldpc_decoder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "xor.h"

/* Bytes that are summed for all symbols of a block before the next ones: about what a core's cache
 * holds. */
#define CACHE_BYTES (1u << 20)
#define SLICE_MIN 128u

struct ldpc_decoder *ldpc_decoder_new(const struct ldpc_matrix *m)
{
    struct ldpc_decoder *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->matrix = m;
    d->missing = m->k;
    d->state = calloc(m->n, 1);
    d->unknown = reallocarray(NULL, m->rows, sizeof *d->unknown);
    d->last = calloc(m->rows, sizeof *d->last);
    d->steps = reallocarray(NULL, m->rows, sizeof *d->steps);
    if (!d->state || !d->unknown || !d->last || !d->steps) {
        ldpc_decoder_free(d);
        errno = ENOMEM;
        return NULL;
    }
    for (uint32_t row = 0; row < m->rows; row++) {
        d->unknown[row] = (uint32_t)(m->row_start[row + 1] - m->row_start[row]);
        for (size_t i = m->row_start[row]; i < m->row_start[row + 1]; i++)
            d->last[row] ^= m->row_ids[i];
    }
    return d;
}

void ldpc_plan_free(struct ldpc_plan *plan)
{
    free(plan->steps);
    free(plan->inactive);
    free(plan->equations);
    free(plan->sums);
    *plan = (struct ldpc_plan){0};
}

void ldpc_decoder_free(struct ldpc_decoder *d)
{
    if (!d)
        return;
    ldpc_plan_free(&d->plan);
    free(d->state);
    free(d->unknown);
    free(d->last);
    free(d->steps);
    free(d);
}

/* Marks a symbol as known in all its rows; a row left with one unknown symbol gives that one. */
static void take(struct ldpc_decoder *d, uint32_t id)
{
    const struct ldpc_matrix *m = d->matrix;
    if (id < m->k)
        d->missing--;
    for (size_t i = m->id_start[id]; i < m->id_start[id + 1]; i++) {
        uint32_t row = m->id_rows[i];
        d->last[row] ^= id;
        if (--d->unknown[row] != 1 || d->state[d->last[row]] != LDPC_UNKNOWN)
            continue;
        d->state[d->last[row]] = LDPC_FOLLOWS;
        d->steps[d->step_count++] = (struct ldpc_step){d->last[row], row};
    }
}

enum ldpc_arrival ldpc_decoder_add(struct ldpc_decoder *d, uint32_t id)
{
    if (id >= d->matrix->n)
        return LDPC_NO_SYMBOL;
    if (d->is_solved || d->missing == 0 || d->state[id] != LDPC_UNKNOWN)
        return LDPC_USELESS;
    d->state[id] = LDPC_ARRIVED;
    d->received++;
    take(d, id);
    while (d->step_done < d->step_count)
        take(d, d->steps[d->step_done++].id);
    return LDPC_NEW;
}

uint32_t ldpc_decoder_received(const struct ldpc_decoder *d)
{
    return d->received;
}

uint32_t ldpc_decoder_missing(const struct ldpc_decoder *d)
{
    return d->is_solved ? 0 : d->missing;
}

bool ldpc_decoder_is_complete(const struct ldpc_decoder *d)
{
    return d->missing == 0;
}

/* --- bytes
 * ------------------------------------------------------------------------------------- */

/* Sums to compute in order: target t is the sum of sources[first[t]] .. sources[first[t + 1] -
 * 1]. */
struct sums {
    uint8_t **target;
    size_t *first;
    const uint8_t **sources;
    size_t count;
};

static void sums_free(struct sums *sums)
{
    free(sums->target);
    free(sums->first);
    free(sums->sources);
}

static bool sums_room(struct sums *sums, size_t targets, size_t sources)
{
    *sums = (struct sums){.target = reallocarray(NULL, targets + 1, sizeof *sums->target),
                          .first = reallocarray(NULL, targets + 1, sizeof *sums->first),
                          .sources = reallocarray(NULL, sources + 1, sizeof *sums->sources)};
    if (sums->first)
        sums->first[0] = 0;
    return sums->target && sums->first && sums->sources;
}

static void sums_add(struct sums *sums, uint8_t *target, const struct ldpc_matrix *m, uint32_t row,
                     uint32_t but, uint8_t *const symbols[])
{
    size_t at = sums->first[sums->count];
    for (size_t i = m->row_start[row]; i < m->row_start[row + 1]; i++)
        if (m->row_ids[i] != but && symbols[m->row_ids[i]])
            sums->sources[at++] = symbols[m->row_ids[i]];
    sums->target[sums->count++] = target;
    sums->first[sums->count] = at;
}

/* Work slice by slice, so that what was just computed is still in the cache when it is used. */
static void sums_do(const struct sums *sums, size_t size_bytes, uint32_t n)
{
    size_t slice = CACHE_BYTES / n;
    slice = slice < SLICE_MIN ? SLICE_MIN : slice - slice % SLICE_MIN;
    for (size_t at = 0; at < size_bytes; at += slice) {
        size_t bytes = size_bytes - at < slice ? size_bytes - at : slice;
        for (size_t i = 0; i < sums->count; i++)
            fec_xor(sums->target[i], sums->sources + sums->first[i],
                    sums->first[i + 1] - sums->first[i], at, bytes);
    }
}

int ldpc_encode(const struct ldpc_matrix *m, size_t size_bytes, const uint8_t *const source[],
                uint8_t *const repair[])
{
    uint8_t **symbols = reallocarray(NULL, m->n, sizeof *symbols);
    struct sums sums;
    bool has_room = sums_room(&sums, m->rows, ldpc_edges(m)) && symbols;
    if (has_room) {
        memcpy(symbols, source, m->k * sizeof *symbols);
        memcpy(symbols + m->k, repair, m->rows * sizeof *symbols);
        for (uint32_t row = 0; row < m->rows; row++)
            sums_add(&sums, repair[row], m, row, m->k + row, symbols);
        sums_do(&sums, size_bytes, m->n);
    }
    sums_free(&sums);
    free(symbols);
    return has_room ? 0 : ENOMEM;
}

/* Marks what is needed, from the last step back: if a step's symbol is needed, so are its
 * sources. */
static void mark_needed(const struct ldpc_matrix *m, const struct ldpc_step *steps, size_t count,
                        bool *is_needed)
{
    while (count-- > 0) {
        if (!is_needed[steps[count].id])
            continue;
        uint32_t row = steps[count].row;
        for (size_t i = m->row_start[row]; i < m->row_start[row + 1]; i++)
            is_needed[m->row_ids[i]] = true;
    }
}

/* A decoding in progress. */
struct work {
    const struct ldpc_decoder *d;
    size_t size_bytes;
    uint8_t **symbols; /* n places; NULL where no byte is needed */
    uint8_t **seen;    /* the same, but NULL for inactive symbols, which count as zeros */
    bool *is_needed;   /* n */
    uint8_t *own;      /* missing repair symbols, then the right-hand sides of the dense system */
};

uint64_t ldpc_decoder_bytes(uint32_t k, uint32_t n)
{
    const struct ldpc_decoder *d = NULL;
    const struct work *w = NULL;
    const uint64_t id_bytes =
        sizeof *d->state + sizeof *w->symbols + sizeof *w->seen + sizeof *w->is_needed;
    const uint64_t row_bytes = sizeof *d->unknown + sizeof *d->last + sizeof *d->steps;

    return sizeof *d + n * id_bytes + (n - k) * row_bytes + ldpc_solver_bytes(n, n - k);
}

/* Performs the steps that are needed; sources with a NULL pointer count as zeros. */
static bool do_steps(const struct work *w, const struct ldpc_step *steps, size_t count,
                     uint8_t *const symbols[])
{
    const struct ldpc_matrix *m = w->d->matrix;
    size_t targets = 0, sources = 0;
    for (size_t i = 0; i < count; i++)
        if (w->is_needed[steps[i].id]) {
            targets++;
            sources += m->row_start[steps[i].row + 1] - m->row_start[steps[i].row];
        }
    struct sums sums;
    bool has_room = sums_room(&sums, targets, sources);
    if (has_room) {
        for (size_t i = 0; i < count; i++)
            if (w->is_needed[steps[i].id])
                sums_add(&sums, w->symbols[steps[i].id], m, steps[i].row, steps[i].id, symbols);
        sums_do(&sums, w->size_bytes, m->n);
    }
    sums_free(&sums);
    return has_room;
}

/* Computes each equation's right-hand side: its sum with the inactive symbols taken as zeros. */
static bool right_sides(const struct work *w, uint8_t *right)
{
    const struct ldpc_plan *plan = &w->d->plan;
    const struct ldpc_matrix *m = w->d->matrix;
    size_t sources = 0;
    for (uint32_t i = 0; i < plan->inactive_count; i++)
        sources += m->row_start[plan->equations[i] + 1] - m->row_start[plan->equations[i]];
    struct sums sums;
    bool has_room = sums_room(&sums, plan->inactive_count, sources);
    if (has_room) {
        for (uint32_t i = 0; i < plan->inactive_count; i++)
            sums_add(&sums, right + i * w->size_bytes, m, plan->equations[i], m->n, w->seen);
        sums_do(&sums, w->size_bytes, m->n);
    }
    sums_free(&sums);
    return has_room;
}

/* Computes each inactive symbol as a sum of right-hand sides. */
static bool inactive_symbols(const struct work *w, const uint8_t *right)
{
    const struct ldpc_plan *plan = &w->d->plan;
    size_t count = plan->inactive_count, most = 0;
    for (size_t i = 0; i < count * plan->words; i++)
        most += (size_t)__builtin_popcountll(plan->sums[i]);
    struct sums sums;
    bool has_room = sums_room(&sums, count, most);
    for (size_t i = 0; has_room && i < count; i++) {
        size_t at = sums.first[i];
        for (size_t e = 0; e < count; e++)
            if (plan->sums[i * plan->words + e / 64] >> e % 64 & 1)
                sums.sources[at++] = right + e * w->size_bytes;
        sums.target[sums.count++] = w->symbols[plan->inactive[i]];
        sums.first[sums.count] = at;
    }
    if (has_room && count)
        sums_do(&sums, w->size_bytes, 2 * plan->inactive_count);
    sums_free(&sums);
    return has_room;
}

static bool run(const struct work *w, uint8_t *right)
{
    const struct ldpc_decoder *d = w->d;
    const struct ldpc_plan *plan = &d->plan;
    if (!do_steps(w, d->steps, d->step_count, w->symbols))
        return false;
    if (!d->is_solved || plan->inactive_count == 0)
        return do_steps(w, plan->steps, plan->step_count, w->symbols);
    return do_steps(w, plan->steps, plan->step_count, w->seen) && right_sides(w, right) &&
           inactive_symbols(w, right) && do_steps(w, plan->steps, plan->step_count, w->symbols);
}

static void mark_all_needed(const struct ldpc_decoder *d, bool *is_needed)
{
    const struct ldpc_matrix *m = d->matrix;
    for (uint32_t id = 0; id < m->k; id++)
        is_needed[id] = true;
    for (uint32_t i = 0; i < d->plan.inactive_count; i++)
        for (size_t j = m->row_start[d->plan.equations[i]];
             j < m->row_start[d->plan.equations[i] + 1]; j++)
            is_needed[m->row_ids[j]] = true;
    mark_needed(m, d->plan.steps, d->plan.step_count, is_needed);
    mark_needed(m, d->steps, d->step_count, is_needed);
}

/* Assign places, from `own` on, to repair symbols that are needed and did not arrive (NULL: only
 * count them). */
static size_t place_repair(struct work *w, uint8_t *own)
{
    const struct ldpc_matrix *m = w->d->matrix;
    size_t count = 0;
    for (uint32_t id = m->k; id < m->n; id++)
        if (w->d->state[id] != LDPC_ARRIVED && w->is_needed[id]) {
            if (own)
                w->symbols[id] = own + count * w->size_bytes;
            count++;
        }
    return count;
}

int ldpc_decode(struct ldpc_decoder *d, size_t size_bytes, uint8_t *const symbols[])
{
    const struct ldpc_matrix *m = d->matrix;
    if (!d->is_solved && d->missing)
        return EAGAIN;
    struct work w = {.d = d,
                     .size_bytes = size_bytes,
                     .symbols = reallocarray(NULL, m->n, sizeof *w.symbols),
                     .seen = reallocarray(NULL, m->n, sizeof *w.seen),
                     .is_needed = calloc(m->n, sizeof *w.is_needed)};
    bool is_done = w.symbols && w.seen && w.is_needed;
    if (is_done) {
        memcpy(w.symbols, symbols, m->n * sizeof *w.symbols);
        mark_all_needed(d, w.is_needed);
        size_t repair = place_repair(&w, NULL);
        w.own = reallocarray(NULL, repair + d->plan.inactive_count + 1, size_bytes);
        is_done = w.own != NULL;
        if (is_done) {
            place_repair(&w, w.own);
            memcpy(w.seen, w.symbols, m->n * sizeof *w.seen);
            for (uint32_t i = 0; i < d->plan.inactive_count; i++)
                w.seen[d->plan.inactive[i]] = NULL;
            is_done = run(&w, w.own + repair * size_bytes);
        }
    }
    free(w.symbols);
    free(w.seen);
    free(w.is_needed);
    free(w.own);
    return is_done ? 0 : ENOMEM;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Maximum likelihood by inactivation: continue like iteration, and when no row has a single unknown
 * symbol, assume one known ("inactive"). What remains is a small dense system of the inactive
 * symbols, whose equations are the unused rows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ldpc_decoder.h"

#define NO_ID UINT32_MAX

/* Bounds of one solve, which takes up to a second: k, n and N1 may be those of an attacker. */
#define WORK_MAX UINT64_C(100000000)
#define INACTIVE_MAX 4096u
#define WORDS_MAX ((size_t)8 << 20) /* of all sets: 64 MiB */

enum {
    BATCH_MAX = 64,
    BATCH_PART = 16 /* of the ids that are inactive, so many more at once: then looks are few */
};

struct solver {
    const struct ldpc_matrix *m;
    uint8_t *state;   /* n, a copy */
    uint32_t *active; /* per row: how many ids are neither known nor inactive */
    uint32_t *last;   /* their XOR */
    bool *is_used;    /* rows that gave a symbol */
    uint32_t *ready;  /* rows with one active id; a stack */
    size_t ready_count;
    uint32_t *parent; /* n: components of ids that are joined by rows with two active ids */
    uint32_t *size;   /* n */
    uint32_t *number; /* n: index of an inactive id */
    struct ldpc_plan plan;
    uint64_t *bits;    /* sets of inactive ids, one per step, in order */
    uint32_t *step_of; /* n: the step that gives an id */
    uint32_t unknown;  /* ids that are still active */
    uint64_t work;     /* ids and rows that were looked at */
};

static void solver_free(struct solver *s)
{
    ldpc_plan_free(&s->plan);
    free(s->state);
    free(s->active);
    free(s->last);
    free(s->is_used);
    free(s->ready);
    free(s->parent);
    free(s->size);
    free(s->number);
    free(s->bits);
    free(s->step_of);
}

uint64_t ldpc_solver_bytes(uint32_t n, uint32_t rows)
{
    const struct solver *s = NULL;
    const uint64_t id_bytes = sizeof *s->state + sizeof *s->parent + sizeof *s->size +
                              sizeof *s->number + sizeof *s->step_of;
    const uint64_t row_bytes = sizeof *s->active + sizeof *s->last + sizeof *s->is_used +
                               sizeof *s->ready + sizeof *s->plan.steps + sizeof *s->plan.inactive;

    return sizeof *s + n * id_bytes + rows * row_bytes;
}

static bool solver_room(struct solver *s, const struct ldpc_decoder *d)
{
    const struct ldpc_matrix *m = d->matrix;
    *s = (struct solver){.m = m,
                         .state = malloc(m->n),
                         .active = reallocarray(NULL, m->rows, sizeof *s->active),
                         .last = reallocarray(NULL, m->rows, sizeof *s->last),
                         .is_used = calloc(m->rows, sizeof *s->is_used),
                         .ready = reallocarray(NULL, m->rows, sizeof *s->ready),
                         .parent = reallocarray(NULL, m->n, sizeof *s->parent),
                         .size = reallocarray(NULL, m->n, sizeof *s->size),
                         .number = reallocarray(NULL, m->n, sizeof *s->number),
                         .step_of = reallocarray(NULL, m->n, sizeof *s->step_of)};
    s->plan.steps = reallocarray(NULL, m->rows, sizeof *s->plan.steps);
    s->plan.inactive = reallocarray(NULL, m->rows, sizeof *s->plan.inactive);
    if (!s->state || !s->active || !s->last || !s->is_used || !s->ready || !s->parent || !s->size ||
        !s->number || !s->step_of || !s->plan.steps || !s->plan.inactive)
        return false;
    memcpy(s->state, d->state, m->n);
    memcpy(s->active, d->unknown, m->rows * sizeof *s->active);
    memcpy(s->last, d->last, m->rows * sizeof *s->last);
    for (uint32_t i = 0; i < m->n; i++)
        s->unknown += s->state[i] == LDPC_UNKNOWN;
    return true;
}

/* Records that an id is no longer active. */
static void settle(struct solver *s, uint32_t id, enum ldpc_state state)
{
    const struct ldpc_matrix *m = s->m;
    s->state[id] = (uint8_t)state;
    s->unknown--;
    for (size_t i = m->id_start[id]; i < m->id_start[id + 1]; i++) {
        uint32_t row = m->id_rows[i];
        s->last[row] ^= id;
        if (--s->active[row] == 1 && !s->is_used[row])
            s->ready[s->ready_count++] = row;
    }
}

static void use_ready(struct solver *s)
{
    while (s->ready_count) {
        uint32_t row = s->ready[--s->ready_count];
        if (s->active[row] != 1 || s->is_used[row])
            continue;
        uint32_t id = s->last[row];
        s->is_used[row] = true;
        s->step_of[id] = (uint32_t)s->plan.step_count;
        s->plan.steps[s->plan.step_count++] = (struct ldpc_step){id, row};
        settle(s, id, LDPC_FOLLOWS);
    }
}

static uint32_t root_of(uint32_t *parent, uint32_t id)
{
    while (parent[id] != id) {
        parent[id] = parent[parent[id]];
        id = parent[id];
    }
    return id;
}

/* The first active id of a row. */
static uint32_t first_active(const struct solver *s, uint32_t row)
{
    for (size_t i = s->m->row_start[row]; i < s->m->row_start[row + 1]; i++)
        if (s->state[s->m->row_ids[i]] == LDPC_UNKNOWN)
            return s->m->row_ids[i];
    return NO_ID;
}

/* Joins the ids of rows with two active ids. Returns the size of the largest component; 0: there is
 * no such row, and `*fewest` is the row with the fewest active ids (NO_ID: none). */
static uint32_t join_components(struct solver *s, uint32_t *fewest)
{
    uint32_t largest = 0;

    *fewest = NO_ID;
    for (uint32_t id = 0; id < s->m->n; id++) {
        s->parent[id] = id;
        s->size[id] = 1;
    }
    for (uint32_t row = 0; row < s->m->rows; row++) {
        if (s->is_used[row] || s->active[row] < 2)
            continue;
        if (*fewest == NO_ID || s->active[row] < s->active[*fewest])
            *fewest = row;
        if (s->active[row] != 2)
            continue;
        uint32_t a = first_active(s, row);
        uint32_t b = root_of(s->parent, s->last[row] ^ a);
        a = root_of(s->parent, a);
        if (a != b) {
            s->parent[b] = a;
            s->size[a] += s->size[b];
        }
        largest = s->size[a] > largest ? s->size[a] : largest;
    }
    return largest;
}

/* Chooses up to `room` ids to assume known, and returns how many. An id gives all the others of its
 * component, so take one from each of the large ones. Without components, take an id of the row
 * with the fewest active ids. */
static uint32_t choose(struct solver *s, uint32_t room, uint32_t *ids)
{
    uint32_t fewest, count = 0, largest = join_components(s, &fewest);

    if (!largest && fewest == NO_ID)
        return 0;
    if (!largest) {
        ids[0] = first_active(s, fewest);
        return 1;
    }
    for (uint32_t id = 0; id < s->m->n && count < room; id++)
        if (s->parent[id] == id && s->size[id] > 1 && s->size[id] >= largest - largest / 4)
            ids[count++] = id;
    return count;
}

/* Inactivate until a step gives every id or it is inactive. False: some id is in no unused row, or
 * (errno E2BIG) it would take too long. */
static bool inactivate(struct solver *s)
{
    uint32_t ids[BATCH_MAX];

    for (uint32_t row = 0; row < s->m->rows; row++)
        if (s->active[row] == 1)
            s->ready[s->ready_count++] = row;
    use_ready(s);
    while (s->unknown) {
        uint32_t room = 1 + s->plan.inactive_count / BATCH_PART;
        s->work += s->m->n + s->m->rows;
        if (s->work > WORK_MAX || s->plan.inactive_count > INACTIVE_MAX) {
            errno = E2BIG;
            return false;
        }
        uint32_t count = choose(s, room < BATCH_MAX ? room : BATCH_MAX, ids);
        if (!count)
            return false;
        for (uint32_t i = 0; i < count; i++) {
            if (s->state[ids[i]] != LDPC_UNKNOWN)
                continue;
            s->number[ids[i]] = s->plan.inactive_count;
            s->plan.inactive[s->plan.inactive_count++] = ids[i];
            settle(s, ids[i], LDPC_INACTIVE);
            use_ready(s);
        }
    }
    return true;
}

static void flip(uint64_t *bits, uint32_t i)
{
    bits[i / 64] ^= (uint64_t)1 << i % 64;
}

static bool is_set(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static void add_bits(uint64_t *to, const uint64_t *from, size_t words)
{
    for (size_t i = 0; i < words; i++)
        to[i] ^= from[i];
}

/* Finds the inactive ids that a row's sum depends on, except `but`. */
static void depends(const struct solver *s, uint32_t row, uint32_t but, uint64_t *bits)
{
    for (size_t i = s->m->row_start[row]; i < s->m->row_start[row + 1]; i++) {
        uint32_t id = s->m->row_ids[i];
        if (id == but)
            continue;
        if (s->state[id] == LDPC_INACTIVE)
            flip(bits, s->number[id]);
        else if (s->step_of[id] != NO_ID)
            add_bits(bits, s->bits + (size_t)s->step_of[id] * s->plan.words, s->plan.words);
    }
}

/* Rows of the dense system: which unknowns (first `words`), and the sum of which equations. */
struct pivots {
    uint64_t *row; /* inactive_count rows of 2 * words; row i has its pivot at unknown i */
    bool *has;
    uint32_t count;
};

/* Reduce an equation by the pivots; keep it if anything remains. */
static void take_equation(struct solver *s, struct pivots *pivots, uint64_t *equation, uint32_t row)
{
    size_t width = 2 * s->plan.words;
    for (uint32_t i = 0; i < s->plan.inactive_count; i++) {
        if (!is_set(equation, i))
            continue;
        if (pivots->has[i]) {
            add_bits(equation, pivots->row + i * width, width);
            continue;
        }
        s->plan.equations[pivots->count] = row;
        flip(equation + s->plan.words, pivots->count++);
        memcpy(pivots->row + i * width, equation, width * sizeof *equation);
        pivots->has[i] = true;
        return;
    }
}

/* Isolate each unknown: from the last one back, eliminate the later unknowns. */
static void reduce(struct solver *s, struct pivots *pivots)
{
    size_t width = 2 * s->plan.words;
    for (uint32_t i = s->plan.inactive_count; i-- > 0;)
        for (uint32_t j = i + 1; j < s->plan.inactive_count; j++)
            if (is_set(pivots->row + i * width, j))
                add_bits(pivots->row + i * width, pivots->row + j * width, width);
}

/* Solves the dense system. Returns false if there are fewer independent equations than unknowns, or
 * no memory, or (errno E2BIG) that would take too much. */
static bool solve_dense(struct solver *s)
{
    struct ldpc_plan *plan = &s->plan;
    uint32_t count = plan->inactive_count;
    plan->words = (count + 63) / 64;
    size_t width = 2 * plan->words;
    if (plan->step_count * plan->words > WORDS_MAX) {
        errno = E2BIG;
        return false;
    }
    s->work += (uint64_t)count * count * width;
    s->bits = calloc(plan->step_count * plan->words + 1, sizeof *s->bits);
    plan->equations = reallocarray(NULL, count + 1u, sizeof *plan->equations);
    plan->sums = calloc(count * plan->words + 1, sizeof *plan->sums);
    struct pivots pivots = {.row = calloc(count * width + 1, sizeof *pivots.row),
                            .has = calloc(count + 1u, sizeof *pivots.has)};
    uint64_t *equation = calloc(width + 1, sizeof *equation);
    bool has_room =
        s->bits && plan->equations && plan->sums && pivots.row && pivots.has && equation;
    if (!has_room)
        errno = ENOMEM;
    for (size_t i = 0; has_room && i < plan->step_count; i++)
        depends(s, plan->steps[i].row, plan->steps[i].id, s->bits + i * plan->words);
    for (uint32_t row = 0; has_room && row < s->m->rows && pivots.count < count; row++) {
        if (s->is_used[row])
            continue;
        memset(equation, 0, width * sizeof *equation);
        depends(s, row, NO_ID, equation);
        take_equation(s, &pivots, equation, row);
    }
    bool is_solved = has_room && pivots.count == count;
    if (is_solved) {
        reduce(s, &pivots);
        for (uint32_t i = 0; i < count; i++)
            memcpy(plan->sums + i * plan->words, pivots.row + i * width + plan->words,
                   plan->words * sizeof *plan->sums);
    }
    free(equation);
    free(pivots.row);
    free(pivots.has);
    return is_solved;
}

uint64_t ldpc_decoder_work(const struct ldpc_decoder *d)
{
    return d->work;
}

bool ldpc_decoder_solve(struct ldpc_decoder *d)
{
    errno = 0;
    if (d->is_solved || d->missing == 0)
        return true;
    /* With fewer than k symbols there are fewer equations than unknowns. */
    if (d->received < d->matrix->k)
        return false;
    struct solver s;
    bool is_solved = solver_room(&s, d);
    if (!is_solved) {
        errno = ENOMEM;
    } else {
        memset(s.step_of, 0xff, d->matrix->n * sizeof *s.step_of);
        is_solved = inactivate(&s) && solve_dense(&s);
    }
    if (is_solved) {
        d->plan = s.plan;
        s.plan = (struct ldpc_plan){0};
        d->is_solved = true;
    }
    int error = errno;
    d->work = s.work;
    solver_free(&s);
    errno = error;
    return is_solved;
}

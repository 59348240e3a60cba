/* SPDX-License-Identifier: Apache-2.0 */
#include "ldpc_matrix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

uint32_t ldpc_random(uint32_t *state, uint32_t limit)
{
    *state = (uint32_t)((uint64_t)*state * 16807 % 0x7fffffff);
    return (uint32_t)((double)limit * *state / 0x7fffffff);
}

/* Edges in the order in which they are created. */
struct edges {
    uint32_t *row, *id;
    size_t count, room;
};

static bool add(struct edges *edges, uint32_t row, uint32_t id)
{
    if (edges->count == edges->room) {
        size_t room = edges->room ? 2 * edges->room : 1024;
        uint32_t *rows = reallocarray(edges->row, room, sizeof *rows);
        if (!rows)
            return false;
        edges->row = rows;
        uint32_t *ids = reallocarray(edges->id, room, sizeof *ids);
        if (!ids)
            return false;
        edges->id = ids;
        edges->room = room;
    }
    edges->row[edges->count] = row;
    edges->id[edges->count++] = id;
    return true;
}

/* State for building the left side. */
struct left {
    uint32_t *slots;             /* u of RFC 5170 5.3: each row about n1 * k / (n - k) times */
    uint32_t of_id[LDPC_N1_MAX]; /* rows of the current id */
    unsigned count;
};

static bool has(const struct left *left, uint32_t row)
{
    for (unsigned i = 0; i < left->count; i++)
        if (left->of_id[i] == row)
            return true;
    return false;
}

/* Chooses the row of an id's next edge: from the slots while one is usable, otherwise any row. */
static uint32_t next_row(struct left *left, uint32_t slots, uint32_t *used, uint32_t rows,
                         uint32_t *state)
{
    uint32_t i = *used;
    while (i < slots && has(left, left->slots[i]))
        i++;
    if (i < slots) {
        do
            i = *used + ldpc_random(state, slots - *used);
        while (has(left, left->slots[i]));
        uint32_t row = left->slots[i];
        left->slots[i] = left->slots[(*used)++];
        return row;
    }
    uint32_t row;
    do
        row = ldpc_random(state, rows);
    while (has(left, row));
    return row;
}

/* Ensures that each row has at least two source symbols. */
static bool fill_rows(struct ldpc_matrix *m, struct edges *edges)
{
    uint32_t *degree = calloc(m->rows, sizeof *degree);
    uint32_t *only = calloc(m->rows, sizeof *only);
    bool is_made = degree && only;
    for (size_t i = 0; is_made && i < edges->count; i++) {
        degree[edges->row[i]]++;
        only[edges->row[i]] = edges->id[i];
    }
    for (uint32_t row = 0; is_made && row < m->rows; row++) {
        if (degree[row] == 0) {
            only[row] = ldpc_random(&m->state, m->k);
            is_made = add(edges, row, only[row]);
            degree[row]++;
        }
        if (is_made && degree[row] == 1) {
            uint32_t id;
            do
                id = ldpc_random(&m->state, m->k);
            while (id == only[row]);
            is_made = add(edges, row, id);
        }
    }
    free(degree);
    free(only);
    return is_made;
}

static bool make_left(struct ldpc_matrix *m, unsigned n1, struct edges *edges)
{
    struct left left = {0};
    uint32_t slots = n1 * m->k, used = 0;
    left.slots = reallocarray(NULL, slots, sizeof *left.slots);
    if (!left.slots)
        return false;
    for (uint32_t i = 0; i < slots; i++)
        left.slots[i] = i % m->rows;
    bool is_made = true;
    for (uint32_t id = 0; is_made && id < m->k; id++) {
        left.count = 0;
        while (is_made && left.count < n1) {
            uint32_t row = next_row(&left, slots, &used, m->rows, &m->state);
            left.of_id[left.count++] = row;
            is_made = add(edges, row, id);
        }
    }
    free(left.slots);
    return is_made && fill_rows(m, edges);
}

static bool make_right(struct ldpc_matrix *m, enum ldpc_kind kind, struct edges *edges)
{
    bool is_made = add(edges, 0, m->k);
    for (uint32_t row = 1; is_made && row < m->rows; row++) {
        is_made = add(edges, row, m->k + row) && add(edges, row, m->k + row - 1);
        if (kind == LDPC_STAIRCASE)
            continue;
        uint32_t at = row - 1;
        for (uint32_t i = 0; is_made && i < at; i++) {
            at = ldpc_random(&m->state, at);
            is_made = add(edges, row, m->k + at);
        }
    }
    return is_made;
}

/* Group values by their keys (counting sort): start receives `keys` + 1 offsets. Edges of a key
 * keep their order. */
static void group(const uint32_t *key, const uint32_t *value, size_t count, uint32_t keys,
                  size_t *start, uint32_t *out)
{
    for (size_t i = 0; i < count; i++)
        start[key[i] + 1]++;
    for (uint32_t i = 0; i < keys; i++)
        start[i + 1] += start[i];
    for (size_t i = 0; i < count; i++)
        out[start[key[i]]++] = value[i];
    memmove(start + 1, start, keys * sizeof *start);
    start[0] = 0;
}

static bool index_edges(struct ldpc_matrix *m, const struct edges *edges)
{
    size_t count = edges->count;
    m->row_start = calloc((size_t)m->rows + 1, sizeof *m->row_start);
    m->id_start = calloc((size_t)m->n + 1, sizeof *m->id_start);
    m->row_ids = reallocarray(NULL, count, sizeof *m->row_ids);
    m->id_rows = reallocarray(NULL, count, sizeof *m->id_rows);
    uint32_t *rows = reallocarray(NULL, count, sizeof *rows);
    uint32_t *ids = reallocarray(NULL, count, sizeof *ids);
    bool is_made = m->row_start && m->id_start && m->row_ids && m->id_rows && rows && ids;
    if (is_made) {
        /* Sort by id, then by row: each row's ids ascend. Sort by row, then by id: each id's rows
         * ascend. */
        group(edges->id, edges->row, count, m->n, m->id_start, rows);
        for (uint32_t id = 0; id < m->n; id++)
            for (size_t i = m->id_start[id]; i < m->id_start[id + 1]; i++)
                ids[i] = id;
        group(rows, ids, count, m->rows, m->row_start, m->row_ids);
        memset(m->id_start, 0, ((size_t)m->n + 1) * sizeof *m->id_start);
        for (uint32_t row = 0; row < m->rows; row++)
            for (size_t i = m->row_start[row]; i < m->row_start[row + 1]; i++)
                rows[i] = row;
        group(m->row_ids, rows, count, m->n, m->id_start, m->id_rows);
    }
    free(rows);
    free(ids);
    return is_made;
}

struct ldpc_matrix *ldpc_matrix_new(enum ldpc_kind kind, uint32_t k, uint32_t n, unsigned n1,
                                    uint32_t seed)
{
    if (k < 2 || n <= k || n > LDPC_N_MAX || n1 < LDPC_N1_MIN || n1 > LDPC_N1_MAX || n - k < n1 ||
        seed == 0 || seed > LDPC_SEED_MAX) {
        errno = EINVAL;
        return NULL;
    }
    struct ldpc_matrix *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    *m = (struct ldpc_matrix){.k = k, .n = n, .rows = n - k, .state = seed, .seed = seed};
    struct edges edges = {0};
    bool is_made =
        make_left(m, n1, &edges) && make_right(m, kind, &edges) && index_edges(m, &edges);
    free(edges.row);
    free(edges.id);
    if (!is_made) {
        ldpc_matrix_free(m);
        errno = ENOMEM;
        return NULL;
    }
    return m;
}

uint64_t ldpc_matrix_bytes(enum ldpc_kind kind, uint32_t k, uint32_t n, unsigned n1)
{
    enum { FILLED = 2, STAIRCASE = 2 }; /* of each row: see fill_rows() and make_right() */
    const struct ldpc_matrix *m = NULL;
    const uint64_t rows = n - k;
    uint64_t in_row = FILLED + STAIRCASE;

    if (kind == LDPC_TRIANGLE) /* about 0.9 ln(row) entries more: fewer than its binary digits */
        for (uint64_t left = rows; left; left /= 2)
            in_row++;
    const uint64_t edges = (uint64_t)n1 * k + in_row * rows;

    return sizeof *m + edges * (sizeof *m->row_ids + sizeof *m->id_rows) +
           (rows + 1) * sizeof *m->row_start + ((uint64_t)n + 1) * sizeof *m->id_start;
}

void ldpc_matrix_free(struct ldpc_matrix *matrix)
{
    if (!matrix)
        return;
    free(matrix->row_start);
    free(matrix->row_ids);
    free(matrix->id_start);
    free(matrix->id_rows);
    free(matrix);
}

uint32_t ldpc_k(const struct ldpc_matrix *matrix)
{
    return matrix->k;
}

uint32_t ldpc_n(const struct ldpc_matrix *matrix)
{
    return matrix->n;
}

size_t ldpc_edges(const struct ldpc_matrix *matrix)
{
    return matrix->row_start[matrix->rows];
}

uint32_t ldpc_prng_state(const struct ldpc_matrix *matrix)
{
    return matrix->state;
}

const uint32_t *ldpc_row(const struct ldpc_matrix *matrix, uint32_t row, size_t *count)
{
    *count = matrix->row_start[row + 1] - matrix->row_start[row];
    return matrix->row_ids + matrix->row_start[row];
}

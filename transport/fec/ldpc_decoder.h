/* SPDX-License-Identifier: Apache-2.0 */
/* What a decoder knows. Private to transport/fec.
 *
 * Iteration keeps two numbers for each row: how many of its symbols are unknown, and the sum (XOR)
 * of their ids. When one symbol is unknown, the sum is its id, and the row gives that symbol. The
 * bytes are summed later, in the same order. */
#ifndef TRANSPORT_FEC_LDPC_DECODER_H
#define TRANSPORT_FEC_LDPC_DECODER_H

#include "ldpc_matrix.h"

enum ldpc_state {
    LDPC_UNKNOWN,
    LDPC_ARRIVED,
    /* A row gives it: by iteration, or by elimination with the inactive symbols as known. */
    LDPC_FOLLOWS,
    LDPC_INACTIVE, /* elimination assumed it known; the dense system gives it */
};

/* `id` is the sum of the other symbols of `row`, all of which are known earlier. */
struct ldpc_step {
    uint32_t id, row;
};

/* The result of elimination (ldpc_solve.c). */
struct ldpc_plan {
    struct ldpc_step *steps; /* after those of iteration */
    size_t step_count;
    uint32_t *inactive; /* ids: the unknowns of the dense system */
    uint32_t inactive_count;
    uint32_t *equations; /* rows: independent, as many as unknowns */
    uint64_t *sums;      /* inactive_count bit sets: unknown i is the sum of these equations */
    size_t words;        /* of each bit set */
};

struct ldpc_decoder {
    const struct ldpc_matrix *matrix;
    uint8_t *state;          /* n of enum ldpc_state */
    uint32_t *unknown;       /* per row: how many ids are unknown */
    uint32_t *last;          /* per row: the XOR of those ids */
    struct ldpc_step *steps; /* of iteration, in their order */
    size_t step_count, step_done;
    uint32_t received,
        missing; /* missing: source symbols that neither arrived nor follow from a step */
    bool is_solved;
    uint64_t work;         /* of the last elimination */
    struct ldpc_plan plan; /* valid if is_solved */
};

void ldpc_plan_free(struct ldpc_plan *plan);
/* Returns the memory of a solve, but for the dense system. */
uint64_t ldpc_solver_bytes(uint32_t n, uint32_t rows);

#endif

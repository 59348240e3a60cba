/* SPDX-License-Identifier: Apache-2.0 */
/* What a decoder knows. Inside this wing only.
 *
 * Iteration keeps two numbers for each row: how many of its symbols are unknown, and the sum (XOR)
 * of their ids, which is the id of the last one. A row with one unknown symbol gives that symbol.
 * The bytes are added up later, in the same order. */
#ifndef TRANSPORT_FEC_LDPC_DECODER_H
#define TRANSPORT_FEC_LDPC_DECODER_H

#include "ldpc_matrix.h"

enum ldpc_state {
    LDPC_UNKNOWN,
    LDPC_ARRIVED,
    LDPC_FOLLOWS,  /* a row gives it: iteration, or elimination with the inactive ones as known */
    LDPC_INACTIVE, /* elimination took it as known; the dense system gives it */
};

/* `id` is the sum of the other symbols of `row`, all of which come earlier. */
struct ldpc_step {
    uint32_t id, row;
};

/* What elimination found (ldpc_solve.c). */
struct ldpc_plan {
    struct ldpc_step *steps; /* after those of iteration */
    size_t step_count;
    uint32_t *inactive; /* ids; the dense system's unknowns */
    uint32_t inactive_count;
    uint32_t *equations; /* rows; as many as unknowns, independent */
    uint64_t *sums;      /* inactive_count bit sets: unknown i is the sum of these equations */
    size_t words;        /* of each bit set */
};

struct ldpc_decoder {
    const struct ldpc_matrix *matrix;
    uint8_t *state;          /* n of enum ldpc_state */
    uint32_t *unknown;       /* of each row: how many ids */
    uint32_t *last;          /* of each row: their XOR */
    struct ldpc_step *steps; /* of iteration, in their order */
    size_t step_count, step_done;
    uint32_t received, missing; /* missing: source symbols neither here nor given by a step */
    bool is_solved;
    struct ldpc_plan plan; /* if is_solved */
};

void ldpc_plan_free(struct ldpc_plan *plan);

#endif

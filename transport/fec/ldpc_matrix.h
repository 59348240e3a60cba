/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix by rows and by columns. Private to transport/fec. */
#ifndef TRANSPORT_FEC_LDPC_MATRIX_H
#define TRANSPORT_FEC_LDPC_MATRIX_H

#include "ldpc.h"

struct ldpc_matrix {
    uint32_t k, n, rows; /* rows = n - k */
    uint32_t state;      /* of the generator after the matrix was made */
    uint32_t seed;
    size_t *row_start; /* rows + 1 offsets into row_ids */
    uint32_t *row_ids; /* ids of each row, ascending */
    size_t *id_start;  /* n + 1 offsets into id_rows */
    uint32_t *id_rows; /* rows of each id, ascending */
};

/* The generator of Park and Miller (RFC 5170 5.7): advances *state and returns it scaled to 0 ..
 * limit - 1. */
uint32_t ldpc_random(uint32_t *state, uint32_t limit);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How far an LDM7 session is complete. Products are settled (in the queue, or known never to
 * arrive) in any order. A later session must begin after the newest product before which nothing is
 * open; otherwise what was open when this session was cut off would be lost.
 */
#ifndef LDMD_PROGRESS_H
#define LDMD_PROGRESS_H

#include "queue/pq.h"

#define PROGRESS_MAX 65536u /* product indices between the oldest open one and the newest */

struct progress_cell {
    bool settled, has_sig;
    struct pq_signature sig;
};

struct progress {
    struct progress_cell *cells; /* ring, index modulo cap */
    uint32_t cap, first,
        count; /* first: the oldest open index; count: how many are known from there on */
    bool started, passed; /* passed: indices before first were settled */
    bool has_last;
    struct pq_signature last; /* of the newest one before first */
    uint64_t given_up;        /* open ones dropped because of PROGRESS_MAX */
};

/* Begins a new session. */
void progress_start(struct progress *p);
/* There is such a product; all between it and the known ones are also awaited. */
void progress_known(struct progress *p, uint32_t index);
/* Nothing needs to wait for it any longer. sig: NULL if it never arrived. */
void progress_settled(struct progress *p, uint32_t index, const struct pq_signature *sig);
/* Returns false if nothing is complete yet. */
bool progress_last(const struct progress *p, struct pq_signature *out);
/* Frees the cells. */
void progress_free(struct progress *p);

#endif

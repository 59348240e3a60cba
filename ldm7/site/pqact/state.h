/* SPDX-License-Identifier: Apache-2.0
 *
 * Which product was processed last, kept in a file so that a new process continues after it. The
 * file is rewritten in place after each product, one small write: after a kill -9 at most one
 * product is processed twice.
 */
#ifndef PQACT_STATE_H
#define PQACT_STATE_H

#include <stdbool.h>

#include "queue/pq.h"

struct state {
    int fd;
};

/* Reads and opens the file; *known: there was a product in it. -1 and a reason: it cannot be made,
 * or has another content. */
int state_open(struct state *s, const char *path, struct pq_signature *last, bool *known, char *err,
               size_t err_bytes);
/* false with errno. */
bool state_put(struct state *s, const struct pq_info *info);
/* Closes the file. */
void state_close(struct state *s);

#endif

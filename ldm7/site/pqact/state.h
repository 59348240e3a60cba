/* SPDX-License-Identifier: Apache-2.0
 *
 * The last processed product, kept in a file so that a new process continues after it. The file is
 * rewritten in place after each product by one small write: after a kill -9 at most one product is
 * processed twice.
 */
#ifndef PQACT_STATE_H
#define PQACT_STATE_H

#include <stdbool.h>

#include "queue/pq.h"

struct state {
    int fd;
};

/* Reads and opens the file; *known: it names a product. Returns -1 and a reason if it cannot be
 * created, or has other content. */
int state_open(struct state *s, const char *path, struct pq_signature *last, bool *known, char *err,
               size_t err_bytes);
/* Returns false with errno on failure. */
bool state_put(struct state *s, const struct pq_info *info);
/* Closes the file. */
void state_close(struct state *s);

#endif

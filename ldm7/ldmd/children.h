/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes under the top ldmd: one per connection, REQUEST, RECEIVE, MULTICAST and EXEC entry.
 * Entries' processes that end are started again (after 1, 2, 4 ... 60 s), EXEC's are not. Every
 * child gets SIGTERM from the kernel when the top process dies, however it dies.
 */
#ifndef LDMD_CHILDREN_H
#define LDMD_CHILDREN_H

#include "process.h"

struct children;

/* listen_fd: closed in children. NULL with errno. */
struct children *children_new(const struct options *opt, int listen_fd, unsigned max_clients,
                              struct loop *loop);
/* Starts one child per entry. */
void children_start(struct children *c, uint64_t now);
/* A child for an accepted connection; closes fd in this process. false: too many, logged. */
bool children_serve(struct children *c, int fd, const char *host);
/* Reaps what ended; starts again what is due. When to call again at the latest. */
uint64_t children_tend(struct children *c, uint64_t now);
/* SIGTERM to all, SIGKILL after 10 s; returns when all are gone. */
void children_end(struct children *c);

#endif

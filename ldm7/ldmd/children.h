/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes under the top ldmd: one per connection, REQUEST, RECEIVE, MULTICAST and EXEC entry.
 * Processes of entries that end are restarted (after 1, 2, 4 ... 60 s), except those of EXEC
 * entries that succeeded. A MULTICAST entry's process (mldm) is started by the first subscription,
 * or at once if it has a path to maintain. The kernel sends every child SIGTERM when the top
 * process dies, however it dies.
 */
#ifndef LDMD_CHILDREN_H
#define LDMD_CHILDREN_H

#include "places.h"
#include "process.h"

struct children;

/* listen_fd: closed in children. Returns NULL with errno on failure. */
struct children *children_new(const struct options *opt, int listen_fd, struct places_limits limits,
                              struct loop *loop);
/* Sets what else a child must do first: close what it does not need. At most CHILDREN_HOOKS_MAX. */
#define CHILDREN_HOOKS_MAX 2
void children_on_fork(struct children *c, void (*in_child)(void *ctx), void *ctx);
/* Starts one child per entry. */
void children_start(struct children *c, uint64_t now);
/* Starts a child for an accepted connection if the limits permit it; closes fd in this process. */
void children_serve(struct children *c, int fd, struct in_addr from);
/* Passes a signal on to each process except those of EXEC entries, which may interpret it
 * differently. */
void children_signal(struct children *c, int sig);
struct children_count {
    unsigned clients, entries;
};
/* Returns how many processes there are. */
struct children_count children_count(const struct children *c);
/* Returns how many processes of entries were killed or exited with a nonzero status. */
uint64_t children_failures(const struct children *c);
/* Returns how many connections the limits refused. */
uint64_t children_refused(const struct children *c);
/* Reaps what has ended and restarts what is due. Returns when to call this again at the latest. */
uint64_t children_tend(struct children *c, uint64_t now);
/* Sends SIGTERM to all, and SIGKILL after 10 s. Returns when all have ended. */
void children_end(struct children *c);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening socket: accepts, lets admission.c wait for what comes first, and hands peers that
 * speak RPC to the children. Without descriptors it pauses instead of spinning. What it turned away
 * is counted and logged at most every 10 s, so that a flood fills no log.
 */
#ifndef LDMD_ACCEPTOR_H
#define LDMD_ACCEPTOR_H

#include "children.h"

struct acceptor;

/* Takes neither listen_fd nor children. NULL: errno. */
struct acceptor *acceptor_open(struct loop *loop, int listen_fd, struct children *children);
/* When to call again at the latest. */
uint64_t acceptor_tend(struct acceptor *a, uint64_t now);
/* Closes what it accepted and has not handed on. a may be NULL. */
void acceptor_close(struct acceptor *a);

#endif

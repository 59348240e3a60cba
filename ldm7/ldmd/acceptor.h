/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening socket: accepts connections, lets admission.c wait for their first bytes, and
 * passes peers that speak RPC to the children. Without descriptors it pauses instead of spinning.
 * It counts what it turned away and logs that at most every 10 s, so that a flood cannot fill the
 * log.
 */
#ifndef LDMD_ACCEPTOR_H
#define LDMD_ACCEPTOR_H

#include "children.h"

struct acceptor;

/* The caller keeps ownership of listen_fd and children. Returns NULL with errno on failure. */
struct acceptor *acceptor_open(struct loop *loop, int listen_fd, struct children *children);
/* Returns when to call this again at the latest. */
uint64_t acceptor_tend(struct acceptor *a, uint64_t now);
/* Closes the connections that it accepted and has not passed on. a may be NULL. */
void acceptor_close(struct acceptor *a);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The listening socket: accepts, lets the greeter wait for what comes first, and hands those who
 * speak RPC to the children. Without descriptors it pauses instead of spinning. What it turned away
 * is counted and logged at most every 10 s, so that a flood fills no log.
 */
#ifndef LDMD_DOOR_H
#define LDMD_DOOR_H

#include "children.h"

struct door;

/* Takes neither listen_fd nor children. NULL: errno. */
struct door *door_open(struct loop *loop, int listen_fd, struct children *children);
/* When to call again at the latest. */
uint64_t door_tend(struct door *d, uint64_t now);
void door_close(struct door *d);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A product that arrives over a connection keeps its room in the queue until it is complete. When a
 * process waits for room, a product that stalls must give up its room: the connection ends, and the
 * next one delivers the product again.
 */
#ifndef LDMD_STALLED_H
#define LDMD_STALLED_H

#include <stdbool.h>
#include <stdint.h>

struct stalled {
    uint64_t began_ns; /* when its room was reserved */
    bool asked;        /* since then a process has been waiting for room */
};

/* Returns whether it must give up its room. It may keep it while data arrive (last_in_ns: when they
 * last did), but at most for some seconds. asked: a process waits for room (pq_room_asked); this
 * holds until the product is complete. */
bool stalled_must_go(struct stalled *s, bool asked, uint64_t last_in_ns, uint64_t now_ns);

#endif

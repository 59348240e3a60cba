/* SPDX-License-Identifier: Apache-2.0
 *
 * A product that arrives over a connection keeps its room in the queue until it is complete. When a
 * process waits for room, one that stalls must give it up: the connection ends, and the next one
 * brings the product again.
 */
#ifndef LDMD_STALLED_H
#define LDMD_STALLED_H

#include <stdbool.h>
#include <stdint.h>

struct stalled {
    uint64_t began_ns; /* when its room was reserved */
    bool asked;        /* a process has been waiting for room since */
};

/* True if it must give up its room. It may keep it while something comes (last_in_ns: when it did),
 * and for some seconds at most. asked: a process waits for room (pq_room_asked); that counts until
 * the product is here. */
bool stalled_must_go(struct stalled *s, bool asked, uint64_t last_in_ns, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepted connections that have not said anything yet. A process is made only for a peer whose
 * first bytes are the header of an RPC call (RFC 5531); they are looked at, not taken. Whatever
 * many peers do, this takes a fixed amount of memory and descriptors: an address, and all of them
 * together, may have so many silent connections; one more ends the oldest of them, so that a peer
 * who speaks at once is heard in any flood.
 */
#ifndef LDMD_GREETER_H
#define LDMD_GREETER_H

#include <netinet/in.h>
#include <stddef.h>

#include "loop.h"

#define GREETER_HEAD_BYTES 44u /* record mark and call header without credentials */
#define GREETER_WAIT_S 10u

struct greeter;

struct greeter_limits {
    unsigned total, per_address;
};
struct greeter_stats {
    uint64_t accepted, plausible, garbage, /* of the latter: wrong header, or closed before it */
        silent,                            /* nothing within GREETER_WAIT_S */
        displaced;                         /* by newer ones */
};

/* Is this the beginning of a call? */
bool greeter_plausible(const uint8_t head[GREETER_HEAD_BYTES]);

/* speaks takes over the (blocking) descriptor. NULL: errno. */
struct greeter *greeter_new(struct loop *loop, struct greeter_limits limits,
                            void (*speaks)(void *ctx, int fd, struct in_addr from), void *ctx);
/* Takes over fd. */
void greeter_take(struct greeter *g, int fd, struct in_addr from, uint64_t now);
/* Ends the oldest: makes room for a descriptor. false: there is none. */
bool greeter_displace(struct greeter *g);
/* Ends those that waited too long. When to call again at the latest. */
uint64_t greeter_tend(struct greeter *g, uint64_t now);
void greeter_get_stats(const struct greeter *g, struct greeter_stats *out);
/* Closes all. loop may be closed already (in a child). */
void greeter_free(struct greeter *g);

#endif

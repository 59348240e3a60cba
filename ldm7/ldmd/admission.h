/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepted connections that have not sent anything yet. A process is started only for a peer whose
 * first bytes are the header of an RPC call (RFC 5531); they are peeked at, not consumed. Whatever
 * many peers do, this takes a fixed amount of memory and descriptors: each address, and all
 * together, may have a limited number of silent connections. One more ends the oldest of them, so
 * that a peer that speaks at once is served even during a flood.
 */
#ifndef LDMD_ADMISSION_H
#define LDMD_ADMISSION_H

#include <netinet/in.h>
#include <stddef.h>

#include "loop.h"

#define ADMISSION_HEAD_BYTES 44u /* record mark and call header without credentials */
#define ADMISSION_WAIT_S 10u

struct admission;

struct admission_limits {
    unsigned total, per_address;
};
struct admission_stats {
    uint64_t accepted, plausible, garbage, /* garbage: wrong header, or closed before it */
        silent,                            /* nothing within ADMISSION_WAIT_S */
        displaced;                         /* by newer ones */
};

/* Returns whether this can be the beginning of a call. */
bool admission_plausible(const uint8_t head[ADMISSION_HEAD_BYTES]);

/* speaks() takes over the (blocking) descriptor. Returns NULL with errno on failure. */
struct admission *admission_new(struct loop *loop, struct admission_limits limits,
                                void (*speaks)(void *ctx, int fd, struct in_addr from), void *ctx);
/* Takes over fd. */
void admission_take(struct admission *a, int fd, struct in_addr from, uint64_t now);
/* Ends the oldest connection to free a descriptor. Returns false if there is none. */
bool admission_displace(struct admission *a);
/* Ends those that waited too long. Returns when to call this again at the latest. */
uint64_t admission_tend(struct admission *a, uint64_t now);
/* Returns counts since the program started. */
void admission_get_stats(const struct admission *a, struct admission_stats *out);
/* Closes all. In a child, loop may already be closed. */
void admission_free(struct admission *a);

#endif

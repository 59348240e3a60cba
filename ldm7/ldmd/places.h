/* SPDX-License-Identifier: Apache-2.0
 *
 * Which connections get a process: places for connections that have spoken, with a share of them
 * for unknown addresses. A known address is named by an ALLOW or ACCEPT entry, or was admitted
 * before. Unknown addresses cannot take the places of known ones. Among themselves each may have a
 * few, and an address with fewer gets the place of one with more that has not been admitted. This
 * module only decides; children.c acts on it.
 */
#ifndef LDMD_PLACES_H
#define LDMD_PLACES_H

#include "visitors.h"

struct places;
struct visitor;

struct places_limits {
    unsigned clients; /* connections served at once */
    unsigned per_address;
    /* From unknown addresses until they are admitted; at most an eighth for each. */
    unsigned unknown;
};

enum places_verdict {
    PLACES_TAKEN,
    PLACES_TOO_MANY, /* the address has all that it may have */
    PLACES_TOO_FAST, /* unknown addresses, or this one, connect too often */
    PLACES_FULL
};

#define PLACES_NONE SIZE_MAX

/* Returns NULL with errno on failure. */
struct places *places_new(const struct places_limits *limits);
/* p may be NULL. */
void places_free(struct places *p);
/* Finds a place for a connection of that address. is_named: entries name it. *leaves: the place of
 * a connection that must end for it, or PLACES_NONE. Records nothing yet. */
enum places_verdict places_take(struct places *p, struct in_addr from, bool is_named,
                                uint64_t now_ns, size_t *place, size_t *leaves);
/* Returns "refused: ...". */
const char *places_strverdict(enum places_verdict v);
/* Gives the place to the connection for which places_take() was called last. */
void places_enter(struct places *p, size_t place, struct in_addr from, uint64_t now_ns);
/* The connection ended. */
void places_leave(struct places *p, size_t place);
/* Returns what its process must know. */
struct visitor places_visitor(const struct places *p, size_t place);
/* Returns how many were refused. */
uint64_t places_refused(const struct places *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets a process: places for connections that have spoken, a share of them for unknown
 * addresses. A known address is named by an ALLOW or ACCEPT entry, or was let in before. Unknown
 * ones cannot take the places of the known; among themselves an address has a few, and one that
 * has fewer gets the place of one that has more and has not been let in. Decisions alone;
 * children.c carries them out.
 */
#ifndef LDMD_PLACES_H
#define LDMD_PLACES_H

#include "visitors.h"

struct places;
struct visitor;

struct places_limits {
    unsigned clients; /* connections served at once */
    unsigned per_address;
    unsigned unknown; /* from unknown addresses, until they are let in; of each an eighth at most */
};

enum places_verdict {
    PLACES_TAKEN,
    PLACES_TOO_MANY, /* the address has all that it may have */
    PLACES_TOO_FAST, /* unknown addresses, or this one, come too often */
    PLACES_FULL
};

#define PLACES_NONE SIZE_MAX

/* NULL: errno. */
struct places *places_new(const struct places_limits *limits);
/* p may be NULL. */
void places_free(struct places *p);
/* A place for a connection of that address. is_named: entries name it. *leaves: the place of one
 * that ends for it, or PLACES_NONE. Nothing is entered yet. */
enum places_verdict places_take(struct places *p, struct in_addr from, bool is_named,
                                uint64_t now_ns, size_t *place, size_t *leaves);
/* "refused: ..." */
const char *places_strverdict(enum places_verdict v);
/* The connection has the place from now on; it is the one that places_take() looked at last. */
void places_enter(struct places *p, size_t place, struct in_addr from, uint64_t now_ns);
/* The connection ended. */
void places_leave(struct places *p, size_t place);
/* What its process is to know. */
struct visitor places_visitor(const struct places *p, size_t place);
/* How many were refused. */
uint64_t places_refused(const struct places *p);

#endif

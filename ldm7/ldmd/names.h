/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of hosts that ask: who has an address writes what its reverse name is, so that name counts
 * only if it has the address in turn.
 */
#ifndef LDMD_NAMES_H
#define LDMD_NAMES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#define NAME_MAX_BYTES 254u /* the end included */
#define NAME_ADDRESSES 64u  /* of a name, the others are not looked at */

/* Where names come from. */
struct names_source {
    /* The reverse name of an address: false if there is none. */
    bool (*name_of)(struct in_addr addr, char *name, size_t name_bytes);
    /* The addresses of a name, `most` of them at most; how many. */
    size_t (*addresses_of)(const char *name, struct in_addr *out, size_t most);
};

/* The system's resolver. A server that does not answer costs a few seconds; only processes that
 * serve a single peer may call it. */
extern const struct names_source names_of_system;

enum names_verdict {
    NAMES_CONFIRMED,
    NAMES_NONE,    /* no reverse name, or nobody answered */
    NAMES_INVALID, /* not a host's name */
    NAMES_FOREIGN  /* does not have the address */
};

/* *name is filled unless there is none; only a confirmed one may be believed. */
enum names_verdict names_look_up(const struct names_source *from, struct in_addr addr, char *name,
                                 size_t name_bytes);

#endif

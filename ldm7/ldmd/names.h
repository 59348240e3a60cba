/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of connecting hosts: the owner of an address can give it any reverse name, so a name counts
 * only if it resolves back to the address.
 */
#ifndef LDMD_NAMES_H
#define LDMD_NAMES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#define NAME_MAX_BYTES 254u /* with its terminator */
#define NAME_ADDRESSES 64u  /* addresses of a name that are considered */

/* The source of names. */
struct names_source {
    /* Returns the reverse name of an address; false if there is none. */
    bool (*name_of)(struct in_addr addr, char *name, size_t name_bytes);
    /* Returns up to `most` addresses of a name, and their number. */
    size_t (*addresses_of)(const char *name, struct in_addr *out, size_t most);
};

/* The system's resolver. A server that does not answer costs a few seconds, so only processes that
 * serve a single peer may call it. */
extern const struct names_source names_of_system;

enum names_verdict {
    NAMES_CONFIRMED,
    NAMES_NONE,    /* no reverse name, or no answer */
    NAMES_INVALID, /* not a host name */
    NAMES_FOREIGN  /* does not resolve to the address */
};

/* Fills in *name unless there is none; only a confirmed one may be trusted. */
enum names_verdict names_look_up(const struct names_source *from, struct in_addr addr, char *name,
                                 size_t name_bytes);

#endif

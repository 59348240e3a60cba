/* SPDX-License-Identifier: Apache-2.0
 *
 * Which connections were admitted, and which addresses were admitted before: a table in memory that
 * the server shares with the processes of its connections. A peer that entries allow by name is
 * known only when its process has looked up that name; then its address is remembered, so that
 * unknown peers cannot take its place next time.
 */
#ifndef LDMD_VISITORS_H
#define LDMD_VISITORS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VISITORS_REMEMBERED 1024u /* addresses */
#define VISITORS_REMEMBER_S 86400u

struct visitors;

/* Makes room for `places` connections, shared with processes forked later. Returns NULL with errno
 * on failure. */
struct visitors *visitors_new(size_t places);
/* v may be NULL. */
void visitors_free(struct visitors *v);

/* The connection in that place begins: it is not admitted yet. */
void visitors_arrive(struct visitors *v, size_t place);
/* Admits the connection. remember: also records its address and the time. */
void visitors_let_in(struct visitors *v, size_t place, bool remember, struct in_addr addr,
                     uint64_t now_s);
/* Returns whether the connection at this place was admitted. */
bool visitors_is_in(const struct visitors *v, size_t place);
/* Returns whether a connection of this address was admitted recently. */
bool visitors_knows(struct visitors *v, struct in_addr addr, uint64_t now_s);

#endif

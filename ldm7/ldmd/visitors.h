/* SPDX-License-Identifier: Apache-2.0
 *
 * Which connections were let in, and which addresses were before: a table in memory that the
 * server shares with the processes of its connections. A peer that entries allow by name is known
 * only when its process has looked up that name; then its address is remembered, so that strangers
 * cannot take its place the next time.
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

/* Room for `places` connections, shared with processes forked later. NULL: errno. */
struct visitors *visitors_new(size_t places);
/* v may be NULL. */
void visitors_free(struct visitors *v);

/* The connection in that place begins: nobody has let it in. */
void visitors_arrive(struct visitors *v, size_t place);
/* Lets the connection in. remember: also notes its address and the time. */
void visitors_let_in(struct visitors *v, size_t place, bool remember, struct in_addr addr,
                     uint64_t now_s);
/* True if the connection at this place was let in. */
bool visitors_is_in(const struct visitors *v, size_t place);
/* True if a connection of this address was let in recently. */
bool visitors_knows(struct visitors *v, struct in_addr addr, uint64_t now_s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of a multipoint VLAN: its publisher's subnet, given out to subscribers one by one
 * (DRFSM21 2.2.2). An endpoint keeps its address while it is subscribed, and gets the same one
 * again unless addresses are short: the search starts at a place that follows from its name alone,
 * so that this mostly holds after a restart too.
 */
#ifndef LDMD_ADDRESSES_H
#define LDMD_ADDRESSES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#define ADDRESSES_REMEMBERED 1024u /* endpoints, those that left included */
#define ADDRESSES_KEY 640u         /* bytes of an endpoint's name, the end included */

struct addresses;

/* server: its own address in the subnet, never given out (nor are network and broadcast address).
 * prefix_len 0 or 32: nothing to give out. NULL: errno. */
struct addresses *addresses_new(struct in_addr server, unsigned prefix_len);
/* How many can be given out at once. */
size_t addresses_count(const struct addresses *a);
/* key: names the endpoint. Twice for the same: the same address, to be given back twice. false: all
 * are in use. */
bool addresses_take(struct addresses *a, const char *key, struct in_addr *out);
/* The address is not in use any more, once for each time it was taken. */
void addresses_give_back(struct addresses *a, struct in_addr addr);
/* a may be NULL. */
void addresses_free(struct addresses *a);

#endif

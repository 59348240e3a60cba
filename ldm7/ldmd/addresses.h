/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of a multipoint VLAN: its publisher's subnet, assigned to subscribers one by one
 * (DRFSM21 2.2.2). An endpoint keeps its address while it is subscribed, and gets the same one
 * again unless addresses are short. The search starts at a place derived from its name alone, so
 * this mostly holds even after a restart.
 */
#ifndef LDMD_ADDRESSES_H
#define LDMD_ADDRESSES_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#define ADDRESSES_REMEMBERED 1024u /* endpoints, including those that have left */
#define ADDRESSES_KEY 640u         /* bytes of an endpoint's name with its terminator */

struct addresses;

/* server: its own address in the subnet, never assigned (nor are the network and broadcast
 * addresses). prefix_len 0 or 32: nothing to assign. Returns NULL with errno on failure. */
struct addresses *addresses_new(struct in_addr server, unsigned prefix_len);
/* Returns how many can be assigned at once. */
size_t addresses_count(const struct addresses *a);
/* Takes an address. key names the endpoint; taking twice for the same key gives the same address,
 * which must be given back twice. Returns false if all are in use. */
bool addresses_take(struct addresses *a, const char *key, struct in_addr *out);
/* Call this once for each time the address was taken. */
void addresses_give_back(struct addresses *a, struct in_addr addr);
/* a may be NULL. */
void addresses_free(struct addresses *a);

#endif

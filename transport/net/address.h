/* SPDX-License-Identifier: Apache-2.0
 *
 * Socket addresses, for IPv4 and IPv6 alike: text, port, kind, interface.
 */
#ifndef TRANSPORT_NET_ADDRESS_H
#define TRANSPORT_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "error.h"

#define TP_ADDRESS_TEXT 80u
/* Returns the IPv4 address with that port (host byte order) as a socket address. */
struct sockaddr_storage tp_ipv4(struct in_addr addr, uint16_t port);
/* Parses "10.0.0.1" or "fe80::1%eth0"; with_port "10.0.0.1:38800" or "[ff3e::1]:38800". Returns -1
 * for anything else. */
int tp_address_parse(const char *text, bool with_port, struct sockaddr_storage *out);
/* Formats the same way into out[TP_ADDRESS_TEXT], with the port if it is not 0. Returns out. */
const char *tp_address_text(const struct sockaddr *address, char *out);
/* Returns the port in host byte order. */
uint16_t tp_address_port(const struct sockaddr_storage *a);
/* Sets the port, given in host byte order. */
void tp_address_set_port(struct sockaddr_storage *a, uint16_t port);
/* Returns the size of the address for bind() and similar calls. */
socklen_t tp_address_len(const struct sockaddr_storage *a);
/* Returns true for 0.0.0.0 and ::. */
bool tp_address_is_any(const struct sockaddr_storage *a);
/* Returns true for 224.0.0.0/4 and ff00::/8. */
bool tp_address_is_multicast(const struct sockaddr_storage *a);
/* Returns whether both are the same host, whatever their ports. */
bool tp_address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* Returns a hash of address and port for tables of peers. */
uint64_t tp_address_number(const struct sockaddr_storage *a);

struct tp_interface {
    unsigned index; /* 0: any, the routing table decides */
    bool loopback;
};

/* Finds the interface that has the address. Returns -1 with *err if there is none. */
int tp_interface_of(const struct sockaddr_storage *a, struct tp_interface *out,
                    struct tp_error *err);

#endif

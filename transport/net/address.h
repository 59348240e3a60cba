/* SPDX-License-Identifier: Apache-2.0
 *
 * Socket addresses, IPv4 and IPv6 alike: text, port, kind, interface.
 */
#ifndef TRANSPORT_NET_ADDRESS_H
#define TRANSPORT_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "error.h"

#define TP_ADDRESS_TEXT 80u
/* The IPv4 address with that port (host byte order) as a socket address. */
struct sockaddr_storage tp_ipv4(struct in_addr addr, uint16_t port);
/* "10.0.0.1", "fe80::1%eth0"; with_port "10.0.0.1:38800", "[ff3e::1]:38800". -1: it is neither. */
int tp_address_parse(const char *text, bool with_port, struct sockaddr_storage *out);
/* The same form to out[TP_ADDRESS_TEXT], the port only if it is not 0; returns out. */
const char *tp_address_text(const struct sockaddr *address, char *out);
/* The port, in host byte order. */
uint16_t tp_address_port(const struct sockaddr_storage *a);
/* Sets the port, in host byte order. */
void tp_address_set_port(struct sockaddr_storage *a, uint16_t port);
/* Bytes of the address for bind() and its like. */
socklen_t tp_address_len(const struct sockaddr_storage *a);
/* True for 0.0.0.0 and ::. */
bool tp_address_is_any(const struct sockaddr_storage *a);
/* True if it is in 224.0.0.0/4 or ff00::/8. */
bool tp_address_is_multicast(const struct sockaddr_storage *a);
/* True if it is the same host, whatever the ports. */
bool tp_address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
/* A number for address and port, for tables of peers. */
uint64_t tp_address_number(const struct sockaddr_storage *a);

struct tp_interface {
    unsigned index; /* 0: any, the routing table decides */
    bool loopback;
};

/* The interface that has the address. -1 with *err. */
int tp_interface_of(const struct sockaddr_storage *a, struct tp_interface *out,
                    struct tp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses for tests over real sockets.
 */
#ifndef ADDRESSES_H
#define ADDRESSES_H

#include <stdint.h>
#include <sys/socket.h>

/* Returns an IPv4 or IPv6 address, given as text, with a port. */
struct sockaddr_storage address(const char *text, uint16_t port);
/* Returns a UDP port that is not in use. */
uint16_t free_port(void);

#endif

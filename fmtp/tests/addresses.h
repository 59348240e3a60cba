/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses for tests over real sockets.
 */
#ifndef ADDRESSES_H
#define ADDRESSES_H

#include <stdint.h>
#include <sys/socket.h>

/* An IPv4 or IPv6 address as text, with a port. */
struct sockaddr_storage address(const char *text, uint16_t port);
/* A UDP port that is not in use. */
uint16_t free_port(void);

#endif

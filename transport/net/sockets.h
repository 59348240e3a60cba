/* SPDX-License-Identifier: Apache-2.0
 *
 * Sockets for transports: UDP for a multicast group, and TCP beside it. All are non-blocking.
 * Unless a comment says otherwise, functions return -1 with *err.
 */
#ifndef TRANSPORT_NET_SOCKETS_H
#define TRANSPORT_NET_SOCKETS_H

#include <stddef.h>

#include "address.h"

/* Opens a UDP socket connected to the group, with the source address and outgoing interface of
 * `from` (its port is not used); its datagrams are never fragmented. *mtu_bytes receives the path's
 * MTU. */
int tp_open_multicast_out(const struct sockaddr_storage *from, const struct sockaddr_storage *group,
                          unsigned ttl, unsigned *mtu_bytes, struct tp_error *err);
/* Opens a UDP socket bound to the group and joined on the interface that has the address `on`;
 * source: NULL for any source. Several sockets of a host can use the same group and port. */
int tp_open_multicast_in(const struct sockaddr_storage *group, const struct sockaddr_storage *on,
                         const struct sockaddr_storage *source, struct tp_error *err);
/* Opens a listening TCP socket. */
int tp_open_listener(const struct sockaddr_storage *at, struct tp_error *err);
/* Opens a TCP socket from this address (its port is not used) and starts to connect. Returns -1
 * with errno on failure. */
int tp_open_connection(const struct sockaddr_storage *from, const struct sockaddr_storage *to,
                       const char *congestion_control, uint64_t dead_ns);
/* Sets the congestion control of a TCP socket; NULL or "" leaves it unchanged. */
int tp_set_congestion_control(int fd, const char *name, struct tp_error *err);
/* Checks whether the system would accept it. */
int tp_try_congestion_control(const char *name, struct tp_error *err);
void tp_close_fd(int *fd); /* leaves -1 in *fd */

/* Calls setsockopt() with an int. Returns 0, or -1 with errno. */
int tp_set_option(int fd, int level, int name, int value);
/* Disables Nagle's delay and bounds the unsent backlog. The connection ends when the other host has
 * acknowledged nothing for dead_ns (0: 60 s), whether there is something to send (TCP_USER_TIMEOUT)
 * or not (keepalive). */
void tp_tune_tcp(int fd, uint64_t dead_ns);
/* Returns the round-trip time of a connected TCP socket; 0 if unknown. */
uint64_t tp_tcp_rtt_ns(int fd);
/* Returns the round-trip time from the kernel's smoothed and smallest samples in us (no sample: 0
 * and UINT32_MAX). A lost SYN or acknowledgement makes a sample as long as the retransmission
 * timer, and requests are too rare to average it out soon. The smoothed time therefore counts only
 * up to what queues can explain. */
static inline uint64_t tp_rtt_ns(uint32_t smoothed_us, uint32_t least_us)
{
    uint64_t most_us = 2 * (uint64_t)least_us + 10000;

    return (!least_us || smoothed_us < most_us ? smoothed_us : most_us) * UINT64_C(1000);
}
/* Returns whether the kernel reports the TCP socket as connected. */
bool tp_tcp_established(int fd);
/* Enlarges the receive buffer as far as the system permits (0: leaves it). Returns the size
 * granted. */
size_t tp_set_rcvbuf(int fd, size_t bytes);
/* Does the same for the send buffer. */
size_t tp_set_sndbuf(int fd, size_t bytes);

/* Returns the bytes of IP and UDP headers of a datagram of this family. */
static inline unsigned tp_udp_overhead(sa_family_t family)
{
    return family == AF_INET6 ? 48 : 28;
}

#endif

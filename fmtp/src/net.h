/* SPDX-License-Identifier: Apache-2.0
 *
 * What the event loops share: addresses, sockets, clocks, the nested epoll. IPv4 and IPv6 alike.
 */
#ifndef FMTP_NET_H
#define FMTP_NET_H

#include <sys/epoll.h>

#include "fmtp.h"

/* Fills err with the formatted text; returns -1. */
int fmtp_fail(struct fmtp_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

uint64_t fmtp_now_ns(void); /* CLOCK_MONOTONIC */

/* --- addresses (address.c); those that other rooms use are in fmtp.h */
/* The port, in host byte order. */
uint16_t fmtp_address_port(const struct sockaddr_storage *a);
/* Sets the port, in host byte order. */
void fmtp_address_set_port(struct sockaddr_storage *a, uint16_t port);
/* Bytes of the address for bind() and its like. */
socklen_t fmtp_address_len(const struct sockaddr_storage *a);
/* Is it 0.0.0.0 or ::? */
bool fmtp_address_is_any(const struct sockaddr_storage *a);
/* Is it in 224.0.0.0/4 or ff00::/8? */
bool fmtp_address_is_multicast(const struct sockaddr_storage *a);
/* Is it the same host, whatever the ports? */
bool fmtp_address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b);

struct fmtp_interface {
    unsigned index; /* 0: any, the routing table decides */
    bool loopback;
};

/* The interface that has the address. */
int fmtp_interface_of(const struct sockaddr_storage *a, struct fmtp_interface *out,
                      struct fmtp_error *err);

/* --- sockets (sockets.c): non-blocking; -1 with *err */
/* UDP socket connected to the group, source address and outgoing interface those of `from` (its
 * port is not used), datagrams never fragmented. *mtu_bytes: the path's. */
int fmtp_open_multicast_out(const struct sockaddr_storage *from,
                            const struct sockaddr_storage *group, unsigned ttl, unsigned *mtu_bytes,
                            struct fmtp_error *err);
/* UDP socket bound to the group and joined on the interface that has the address `on`; source:
 * NULL for any source. Several sockets of one host can have the same group and port. */
int fmtp_open_multicast_in(const struct sockaddr_storage *group, const struct sockaddr_storage *on,
                           const struct sockaddr_storage *source, struct fmtp_error *err);
/* Listening TCP socket. */
int fmtp_open_listener(const struct sockaddr_storage *at, struct fmtp_error *err);
/* TCP socket from this address (its port is not used), the connection under way. -1 with errno. */
int fmtp_open_connection(const struct sockaddr_storage *from, const struct sockaddr_storage *to,
                         const char *congestion_control, uint64_t dead_ns);
/* The congestion control of a TCP socket; NULL or "": as it is. */
int fmtp_set_congestion_control(int fd, const char *name, struct fmtp_error *err);
/* Would the system take it? */
int fmtp_try_congestion_control(const char *name, struct fmtp_error *err);
void fmtp_close_fd(int *fd); /* leaves -1 */

/* setsockopt() with an int: 0, or -1 with errno. */
int fmtp_set_option(int fd, int level, int name, int value);
/* No delay, bounded unsent backlog; the connection ends when the other host has acknowledged
 * nothing for dead_ns (0: 60 s), whether there is something to send (TCP_USER_TIMEOUT) or not
 * (keepalive). */
void fmtp_tune_tcp(int fd, uint64_t dead_ns);
/* Round-trip time of a connected TCP socket, 0 if unknown. */
uint64_t fmtp_tcp_rtt_ns(int fd);
/* The same from the kernel's smoothed and smallest samples in us (no sample: 0 and UINT32_MAX). A
 * lost SYN or acknowledgement makes a sample as long as the retransmission timer, and requests are
 * too few for it to be forgotten soon; so the smoothed time counts as far as queues explain it. */
static inline uint64_t fmtp_rtt_ns(uint32_t smoothed_us, uint32_t least_us)
{
    uint64_t most_us = 2 * (uint64_t)least_us + 10000;

    return (!least_us || smoothed_us < most_us ? smoothed_us : most_us) * UINT64_C(1000);
}
/* Is the TCP socket connected, by the kernel's state? */
bool fmtp_tcp_established(int fd);
/* Enlarges the receive buffer as far as the system lets us (0: leaves it); returns what was
 * granted. */
size_t fmtp_set_rcvbuf(int fd, size_t bytes);
/* The same of the send buffer. */
size_t fmtp_set_sndbuf(int fd, size_t bytes);

/* IP and UDP headers of a datagram of this family. */
static inline unsigned fmtp_udp_overhead(sa_family_t family)
{
    return family == AF_INET6 ? 48 : 28;
}

/* --- event loop */
/* Registers or changes; ptr comes back in epoll_event.data.ptr. */
int fmtp_watch(int epfd, int fd, int op, uint32_t events, void *ptr);
/* Arms the timer descriptor at a CLOCK_MONOTONIC time (FMTP_NEVER disarms). *armed remembers. */
void fmtp_arm(int timer_fd, uint64_t at_ns, uint64_t *armed);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What server.c (life cycle, loop) and connections.c (receivers' TCP connections) share. The cost
 * of a service call depends on what has happened since the last: every list here holds connections
 * that have work.
 */
#ifndef FMTP_SERVER_IMPL_H
#define FMTP_SERVER_IMPL_H

#include <sys/queue.h>

#include "hosts.h"
#include "keyx.h"
#include "loop/loop.h"
#include "loop/timers.h"
#include "multicast_out.h"
#include "net/sockets.h"

struct conn {
    TAILQ_ENTRY(conn) link; /* in handshakes, receivers or dead */
    TAILQ_ENTRY(conn) work; /* in `ready`, if queued */
    int fd;                 /* -1: closed, to be freed at the end of the round */
    int peer;               /* number in the sender core; -1: still in the key exchange */
    bool queued, extended, alone;
    uint64_t acks; /* products that waited for it and that it acknowledged */
    struct sockaddr_storage addr;
    struct fmtp_host *host;
    uint64_t heard_ns;      /* when it last sent something */
    struct fmtp_keyx *keyx; /* from the first byte until its output is sent */
    size_t keyx_sent;
    uint64_t handshake_ends_ns, rtt_read_ns;
    uint32_t events;
};

TAILQ_HEAD(conn_list, conn);

struct fmtp_server {
    struct fmtp_server_config cfg;
    struct fmtp_sender *core;
    struct fmtp_multicast_out out;
    int epfd, listener, timer;
    uint64_t armed;
    uint32_t udp_events;
    uint64_t accept_again_ns;    /* after running out of descriptors; 0: listening */
    struct conn_list handshakes; /* oldest first, so the first one expires first */
    struct conn_list established, dead;
    struct conn_list ready; /* may have something to write */
    struct conn **by_peer;  /* max_receivers places */
    size_t nhandshakes, receivers, extended;
    struct fmtp_hosts hosts;
    uint64_t bad_handshakes, refused, laggards, displaced, strangers;
    uint64_t bound_ns; /* when to look for laggards again */
    struct fmtp_stream_out stream;
};

/* Sets MACs to what the new receiver supports: with FMTP_MAC_AUTO the first receiver decides.
 * Returns false if this one cannot be served. */
bool fmtp_server_suits(struct fmtp_server *s, bool ours);

/* The receivers' connections; conn_* of connections.c. */
void fmtp_conns_init(struct fmtp_server *s);
/* Closes and frees all connections. */
void fmtp_conns_close(struct fmtp_server *s);
/* Accepts waiting connections, a few per call. */
void fmtp_conns_accept(struct fmtp_server *s, uint64_t now_ns);
/* Reads from and writes to the connection, as the epoll events `what` permit. */
void fmtp_conn_events(struct fmtp_server *s, struct conn *c, uint32_t what, uint64_t now_ns);
/* Disconnects receivers that hold back too much. */
void fmtp_conns_bound(struct fmtp_server *s, uint64_t now_ns);
/* Ends what took too long, writes what can be written, frees what is closed. Returns when the next
 * connection may time out. */
uint64_t fmtp_conns_round(struct fmtp_server *s, uint64_t now_ns);

#endif

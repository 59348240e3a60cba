/* SPDX-License-Identifier: Apache-2.0
 *
 * What server.c (life, loop) and connections.c (receivers' TCP connections) share. What a service
 * costs goes by what happened since the last: every list here holds connections that have work.
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
    TAILQ_ENTRY(conn) work; /* in ready, if queued */
    int fd;                 /* -1: closed, to be freed at the end of the round */
    int peer;               /* in the sender core; -1: key exchange under way */
    bool queued, extended, alone;
    uint64_t acks; /* products that waited for it and that it acknowledged */
    struct sockaddr_storage addr;
    struct fmtp_host *host;
    uint64_t heard_ns;      /* when it said something last */
    struct fmtp_keyx *keyx; /* from the first byte until its output has left */
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
    uint64_t accept_again_ns;    /* after a lack of descriptors; 0: listening */
    struct conn_list handshakes; /* oldest first, so the first ends first */
    struct conn_list established, dead;
    struct conn_list ready; /* may have something to write */
    struct conn **by_peer;  /* max_receivers places */
    size_t nhandshakes, receivers, extended;
    struct fmtp_hosts hosts;
    uint64_t bad_handshakes, refused, laggards, displaced, strangers;
    uint64_t bound_ns; /* when a service looks for laggards again */
    struct fmtp_stream_out stream;
};

/* MACs as the new receiver can take them: with FMTP_MAC_AUTO the first one decides. False: this one
 * cannot be served. */
bool fmtp_server_suits(struct fmtp_server *s, bool ours);

/* The receivers' connections; conn_* of connections.c. */
void fmtp_conns_init(struct fmtp_server *s);
/* Closes and frees all connections. */
void fmtp_conns_close(struct fmtp_server *s);
/* Takes connections that wait, some per call. */
void fmtp_conns_accept(struct fmtp_server *s, uint64_t now_ns);
/* Reads from and writes to the connection, as the epoll events `what` allow. */
void fmtp_conn_events(struct fmtp_server *s, struct conn *c, uint32_t what, uint64_t now_ns);
/* Disconnects receivers that hold back too much. */
void fmtp_conns_bound(struct fmtp_server *s, uint64_t now_ns);
/* Ends what took too long, writes what can be written, frees what is closed. Returns when there is
 * something to end next. */
uint64_t fmtp_conns_round(struct fmtp_server *s, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What ldmd's processes share: options, the entry functions of the children, and the private
 * protocol between up7 and mldm.
 */
#ifndef LDMD_PROCESS_H
#define LDMD_PROCESS_H

#include "addresses.h"
#include "conf.h"
#include "loop.h"
#include "pathrest.h"
#include "peer.h"
#include "visitors.h"

struct qlog;       /* qlog.h */
struct stats_page; /* counters.h */

struct options {
    const char *queue; /* path of the product queue */
    struct conf *conf;
    const char *qlog; /* where mldm and down7 write events; NULL: nowhere */
    bool sandbox;     /* confine the processes that talk to peers (confine.h) */
};

/* ------------------------------------------------------------------ server side */

/* What a connection's process knows about its place. */
struct visitor {
    struct visitors *table; /* NULL: not kept */
    size_t place;
    bool known; /* its address was known when it connected */
};

struct upstream_env {
    const struct options *opt;
    const int *mldm_fds;           /* one socket to the mldm of each MULTICAST entry */
    bool (*is_alive)(uint32_t id); /* true for an upstream child (IS_ALIVE) */
    struct feeds *feeds;           /* of all upstream children; NULL: not kept */
    struct visitor visitor;
};
/* Serves one accepted connection until it ends. All entry functions return an exit status. */
int upstream_run(const struct upstream_env *env, int fd);

/* ------------------------------------------------------------------ the others */

/* The multicast sender of a MULTICAST entry; control_fd: the socket used by mldm_subscribe(). page,
 * qlog: for its counters and events, or NULL; it closes them. */
int mldm_run(const struct options *opt, const struct conf_multicast *entry, int control_fd,
             struct stats_page *page, struct qlog *qlog);
/* The LDM6 downstream of a REQUEST entry. */
int down6_run(const struct options *opt, const struct conf_request *req);
/* The LDM7 downstream of a RECEIVE entry. */
int down7_run(const struct options *opt, const struct conf_receive *rcv, struct stats_page *page,
              struct qlog *qlog);

/* What a subscription needs from mldm: that the subscriber may connect, and from which address. */
struct mldm_request {
    struct in_addr subscriber; /* source address of the subscription */
    bool wants_address;        /* an address of the VLAN's subnet instead of its own */
    bool wants_leaf;           /* the path of the entry must reach its endpoint */
    struct path_endpoint leaf;
    char endpoint[ADDRESSES_KEY]; /* keeps the same address if possible */
};
struct mldm_answer {
    uint32_t status; /* enum ldm7_status */
    uint32_t tcp_port;
    struct in_addr addr; /* the subscriber's address on the VLAN */
    uint32_t prefix_len;
};
/* Asks mldm (SEQPACKET socket control_fd of its entry). What it grants lasts as long as the
 * returned channel stays open; a struct mldm_answer can be read from it. Returns -1 with errno. */
int mldm_subscribe(int control_fd, const struct mldm_request *req);
/* mldm's end: returns -1 if no request is waiting (or it is malformed). */
int mldm_accept(int control_fd, struct mldm_request *req);

/* ------------------------------------------------------------------ outgoing connections */

/* Sets a TCP socket's congestion control; sockets that accept() makes from a listening one inherit
 * it. Returns 0, or -1 with the reason and what the kernel has. An empty name keeps the kernel's
 * default. */
int congestion_control_set(int fd, const char *name, char *err, size_t err_bytes);
/* Sets the congestion control that dial() uses from now on; the name must outlive it. */
void dial_congestion_control(const char *name);
/* Starts a non-blocking connect. Returns -1 and a reason on failure. */
int dial(const char *host, uint16_t port, char *err, size_t err_bytes);
/* Call this when the descriptor has become writable: returns 0 or an errno value. */
int dial_result(int fd);

/* When to try again: at once after an established feed dropped (unless it lasted under 5 s), then
 * each second for a minute, then each minute; a denied request waits denied_s (0: a minute). */
struct retry {
    uint64_t window_end_ns, established_ns;
    bool immediate;
    uint64_t denied_s;
};
/* Call this when an attempt begins. */
void retry_start(struct retry *r, uint64_t now);
/* Returns when to try again after a failure; denied: the other end refused. */
uint64_t retry_at(struct retry *r, uint64_t now, bool denied);
/* A connection was useful. */
void retry_established(struct retry *r, uint64_t now);

#endif

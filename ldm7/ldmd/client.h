/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs that call an LDM server share: one connection, and calls that wait for their
 * answer.
 */
#ifndef LDM_CLIENT_H
#define LDM_CLIENT_H

#include "loop.h"
#include "peer.h"

enum client_state {                     /* how far it got */
                    CLIENT_NAMED,       /* the host name has no address */
                    CLIENT_ADDRESSED,   /* no answer to the connection request in time */
                    CLIENT_UNAVAILABLE, /* refused, or unreachable */
                    CLIENT_CONNECTED,   /* but the call failed */
                    CLIENT_RESPONDING
};

struct client {
    struct loop loop;
    struct loop_source src;
    struct peer peer;
    struct rpc_sink sink; /* the user's call(); NULL: incoming calls are refused */
    enum client_state state;
    bool open;     /* the connection is up */
    int fd;        /* while connecting */
    char why[256]; /* why it is not connected (any more) */
    bool waits;    /* for the answer to xid */
    uint32_t xid;
    bool (*take)(struct xin *body, void *arg);
    void *arg;
};

/* Opens the loop (signals end it: loop.stop). Returns -1 after logging the reason. */
int client_init(struct client *c);
/* Disconnects and closes the loop. */
void client_end(struct client *c);
/* sink may be NULL; only its call() is used. On false, c->state and c->why say what went wrong. */
bool client_connect(struct client *c, const char *host, uint16_t port, double timeout_s,
                    const struct rpc_sink *sink);
/* Closes the connection if there is one; keeps c->why. */
void client_disconnect(struct client *c);
/* Writes and reads until something happened or deadline_ns. Returns false if the connection is
 * over. */
bool client_turn(struct client *c, uint64_t deadline_ns);
/* Waits for the answer to the call with this xid; take() gets its body. On false see c->why. */
bool client_answer(struct client *c, uint32_t xid, double timeout_s,
                   bool (*take)(struct xin *body, void *arg), void *arg);
/* Waits until everything queued is written, as long as bytes leave within timeout_s. */
bool client_flush(struct client *c, double timeout_s);
/* Calls NULLPROC and waits for its answer: everything sent before has then been processed. */
bool client_null(struct client *c, double timeout_s);
/* Returns the time that many seconds from now (now_ns() scale). */
uint64_t client_deadline(double seconds);

/* Splits host[:port] in place and returns the port, or default_port. Ends the program if it is
 * invalid. */
uint16_t client_port(char *host, uint16_t default_port);

#endif

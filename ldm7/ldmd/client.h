/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs that call an LDM server share: one connection, calls whose answer is waited
 * for.
 */
#ifndef LDM_CLIENT_H
#define LDM_CLIENT_H

#include "loop.h"
#include "peer.h"

enum client_state {                     /* how far it came */
                    CLIENT_NAMED,       /* the host's name has no address */
                    CLIENT_ADDRESSED,   /* no answer to the connection request in time */
                    CLIENT_UNAVAILABLE, /* refused, or unreachable */
                    CLIENT_CONNECTED,   /* but the call failed */
                    CLIENT_RESPONDING
};

struct client {
    struct loop loop;
    struct loop_source src;
    struct peer peer;
    struct rpc_sink sink; /* of the user: call; NULL: calls are refused */
    enum client_state state;
    bool open;     /* the connection is up */
    int fd;        /* while connecting */
    char why[256]; /* it does not (any more) */
    bool waits;    /* for the answer to xid */
    uint32_t xid;
    bool (*take)(struct xin *body, void *arg);
    void *arg;
};

/* Opens the loop (signals end it: loop.stop). -1: logged. */
int client_init(struct client *c);
/* Disconnects and closes the loop. */
void client_end(struct client *c);
/* sink may be NULL; only its call is used. false: c->state and c->why say what went wrong. */
bool client_connect(struct client *c, const char *host, uint16_t port, double timeout_s,
                    const struct rpc_sink *sink);
/* Closes the connection if there is one; c->why stays. */
void client_disconnect(struct client *c);
/* Writes and reads until something happened or deadline_ns. false: the connection is over. */
bool client_turn(struct client *c, uint64_t deadline_ns);
/* Waits for the answer to the call with this xid; take gets its body. false: c->why. */
bool client_answer(struct client *c, uint32_t xid, double timeout_s,
                   bool (*take)(struct xin *body, void *arg), void *arg);
/* Waits until everything queued is written, as long as bytes leave within timeout_s. */
bool client_flush(struct client *c, double timeout_s);
/* NULLPROC and its answer: all that was sent before has been taken. */
bool client_null(struct client *c, double timeout_s);
/* The time (now_ns() scale) that many seconds from now. */
uint64_t client_deadline(double seconds);

/* host[:port] in place: the port, or default_port. Ends the program if it is invalid. */
uint16_t client_port(char *host, uint16_t default_port);

#endif

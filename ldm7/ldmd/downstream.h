/* SPDX-License-Identifier: Apache-2.0
 *
 * What the LDM6 and LDM7 downstreams share: one connection to an upstream LDM, which is
 * reestablished whenever it ends, the product queue, and the loop around both. States: idle
 * (waiting for the next attempt), connecting, asking (the first call is in flight), feeding.
 */
#ifndef LDMD_DOWNSTREAM_H
#define LDMD_DOWNSTREAM_H

#include "process.h"

enum downstream_state { DS_IDLE, DS_CONNECTING, DS_ASKING, DS_FEEDING };

/* What differs between them. All functions get the ctx of downstream_open(). */
struct downstream_role {
    const char *prog;       /* name of the process */
    unsigned reply_s;       /* how long the answer to the first call may take */
    void (*ask)(void *ctx); /* connected: sends the first call, notes its xid */
    /* Feeding, once per loop: may queue output or end the session. Returns when to be called
     * again. */
    uint64_t (*tend)(void *ctx, uint64_t now);
    void (*ended)(void *ctx); /* the session ends while the connection still exists; may be NULL */
    struct rpc_sink sink;     /* downstream_open() sets its ctx */
};

struct downstream {
    const struct options *opt;
    struct downstream_role role;
    void *ctx;
    const char *host;
    uint16_t port;
    struct loop loop;
    struct loop_source src;
    struct peer peer; /* while asking or feeding */
    struct pq *queue;
    enum downstream_state state;
    bool failed, denied; /* end this session; and wait before the next */
    int fd;              /* while connecting */
    uint32_t xid;        /* of the first call */
    uint64_t since_ns;   /* when the state began */
    uint64_t next_try_ns;
    struct retry retry;
};

/* Opens loop and queue and names the process. Returns -1 after logging the reason. */
int downstream_open(struct downstream *d, const struct options *opt,
                    const struct downstream_role *role, void *ctx, const char *host, uint16_t port);
/* Runs until SIGTERM; then ends the session. step (may be NULL) is called after each turn. */
void downstream_run(struct downstream *d, void (*step)(void *ctx));
/* Closes queue and loop. */
void downstream_close(struct downstream *d);

/* Ends the session as soon as the present event is handled. denied: wait before the next
 * attempt. */
void downstream_fails(struct downstream *d, bool denied);
/* The first call was sent (again): its answer has this xid. */
void downstream_asked(struct downstream *d, uint32_t xid);
/* The upstream accepted the request. */
void downstream_feeding(struct downstream *d);
/* Returns true if the answer is an RPC error: it is logged and the session ends. */
bool downstream_refused(struct downstream *d, const struct rpc_msg *m);

#endif

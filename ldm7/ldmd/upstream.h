/* SPDX-License-Identifier: Apache-2.0
 *
 * The sessions that a server child can become: up6 (FEEDME, NOTIFYME), ingest6 (HIYA) and up7
 * (SUBSCRIBE).
 */
#ifndef LDMD_UPSTREAM_H
#define LDMD_UPSTREAM_H

#include "feeds.h"
#include "intake.h"
#include "process.h"

#define UP7_PENDING 8192u             /* REQUEST_PRODUCT waiting for room on the connection */
#define UP7_READ_CHUNK_REQUESTS 2048u /* more requests than one read can contain */
#define PUMP_STEPS 1024               /* queue positions examined before other work gets a turn */

struct upstream {
    const struct upstream_env *env;
    struct loop loop;
    struct peer peer;
    struct loop_source peer_src, queue_src;
    struct pq *queue;
    const char *names[2]; /* the peer: dotted address, host name if confirmed */
    size_t nnames;
    bool looked_up;
    char host_name[256];
    enum { UP_WAITING, UP_LDM6, UP_HIYA, UP_LDM7 } role;
    bool finished; /* end now */
    bool closing;  /* end when everything is written */
    bool at_end;   /* nothing further in the queue for now */
    uint64_t born_ns;

    /* up6 */
    struct matcher match;
    bool notify, alternate;
    struct {
        bool waits;
        uint32_t xid;
        uint64_t since_ns;
        struct pq_view view;
    } coming;
    uint64_t cursor;   /* also of the up7 backlog */
    uint64_t start_ns; /* when the connection may turn around */
    bool unflushed, null_outstanding;
    uint32_t null_xid;
    uint64_t null_ns;

    /* ingest6 */
    struct intake in;

    /* up7 */
    const struct conf_multicast *entry;
    char feed_name[320];
    uint32_t subscribe_xid;
    uint64_t subscribed_ns;
    struct loop_source channel_src; /* to mldm */
    bool replied;
    struct pim *pim;
    uint32_t pending[UP7_PENDING];
    size_t pending_head, pending_count;
    bool backlog_active;
    bool fenced; /* a NULLPROC call waits for the end of the backlog */
    uint32_t fence_xid;
    struct ldm7_backlog backlog;
    uint64_t backlog_end; /* queue position where it ends at the latest */
    bool backlog_by_time;
};

/* Opens the queue when it is known to be needed. Returns false after logging; the connection then
 * ends. */
bool upstream_open_queue(struct upstream *u);
/* This peer may have, or send, something: its place belongs to it from now on. */
void upstream_let_in(struct upstream *u);
/* Returns the part of want that this peer may have. Looks up the host name only if the address
 * alone does not decide. */
uint32_t upstream_allowed(struct upstream *u, uint32_t want);
/* Returns the peer's host name if it has a confirmed one (names.h), else its address. */
const char *upstream_name(struct upstream *u);

/* *_call return false on a protocol violation. *_pump queue output while there is room and return
 * true if there is more to do at once; *_deadline return when to pump again at the latest. */
bool up6_feedme(struct upstream *u, const struct rpc_msg *m, struct xin *args, bool notify);
/* Handles the answer to our call. Returns false on a violation. */
bool up6_reply(struct upstream *u, const struct rpc_msg *m, struct xin *body);
/* Sends products (or notifications) while there is room. */
bool up6_pump(struct upstream *u, uint64_t now);
/* See above. */
uint64_t up6_deadline(const struct upstream *u);
/* The connection ended. */
void up6_end(struct upstream *u);

/* The products themselves go to u->in. */
bool ingest6_call(struct upstream *u, const struct rpc_msg *m, struct xin *args);
/* COMINGSOON: answers whether the product is wanted. */
bool ingest6_coming(struct upstream *u, const struct rpc_msg *m, struct xin *args);
/* Returns when to give up a silent peer. */
uint64_t ingest6_deadline(const struct upstream *u);
/* The connection ended. */
void ingest6_end(struct upstream *u);

/* SUBSCRIBE: asks mldm for the subscriber's place, and answers. */
bool up7_subscribe(struct upstream *u, const struct rpc_msg *m, struct xin *args);
/* Handles any other call of LDM7. */
bool up7_call(struct upstream *u, const struct rpc_msg *m, struct xin *args);
/* Sends missed and backlog products while there is room. */
bool up7_pump(struct upstream *u, uint64_t now);
/* See above. */
uint64_t up7_deadline(const struct upstream *u);
/* Returns whether there is room for the requests of one more read. */
bool up7_may_read(const struct upstream *u);
/* Call this when the connection has ended; mldm notices by the channel. */
void up7_end(struct upstream *u);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * One TCP connection that speaks LDM RPC in both directions: an rpc_stream for input, a queue of
 * messages for output. Product data are written straight from the product queue's mapping (pinned
 * until written). Never blocks.
 */
#ifndef LDMD_PEER_H
#define LDMD_PEER_H

#include "ldmrpc.h"

/* There is room while less than this waits to be written. */
#define PEER_OUT_BYTES ((size_t)512 * 1024)
#define PEER_OUT_MESSAGES 256u
#define PEER_READ_BYTES (64u * 1024)

struct peer_msg;

struct peer {
    int fd;
    char host[64]; /* dotted address of the other end */
    struct in_addr addr;
    struct rpc_stream in;
    struct peer_msg *first, **last;
    size_t out_messages, out_bytes;
    uint32_t next_xid;
    uint64_t last_in_ns, last_out_ns; /* last time anything was received; written */
    uint64_t bytes_in, bytes_out;
    int reads_per_call; /* reads of at most PEER_READ_BYTES (or product data); default 16 */
};

/* Takes over fd and makes it non-blocking. */
void peer_init(struct peer *p, int fd, const struct rpc_sink *sink, uint64_t now);
/* Closes the descriptor and releases what is queued. */
void peer_close(struct peer *p);
/* A host that vanishes is detected within this many seconds, whether there is anything to send to
 * it or not (otherwise: 60 s after the next message). */
void peer_watch(struct peer *p, uint64_t seconds);

/* Reads a bounded amount. Returns 1 if the other end closed, -1 on error; why then holds the
 * reason. */
int peer_read(struct peer *p, uint64_t now, char *why, size_t why_bytes);
/* Writes as much as the socket accepts. Returns -1 on error. */
int peer_write(struct peer *p, uint64_t now);
/* Returns whether there is something to write. */
bool peer_has_output(const struct peer *p);
/* Returns whether it pins a product of the queue with a position up to this one. */
bool peer_keeps(const struct peer *p, uint64_t up_to);
/* Returns whether another product may be queued (backpressure). */
bool peer_has_room(const struct peer *p);

/* Queues a call without product data; args may be NULL. Returns the call's xid. */
uint32_t peer_call(struct peer *p, uint32_t vers, uint32_t proc,
                   void (*args)(struct xout *x, const void *arg), const void *arg);
/* Queues an accepted reply; body (may be NULL) writes its results. */
void peer_reply(struct peer *p, uint32_t xid, void (*body)(struct xout *x, const void *arg),
                const void *arg);
/* Queues an accepted reply whose result is one number. */
void peer_reply_u32(struct peer *p, uint32_t xid, uint32_t value);
/* Queues a reply with an accept_stat other than success. */
void peer_reply_error(struct peer *p, uint32_t xid, enum rpc_accept stat);
/* Queues a reply that denies the call. */
void peer_deny(struct peer *p, uint32_t xid, enum rpc_auth why);
/* Queues a call that carries a product. Takes over the pin of view (released when written or
 * closed); with q NULL the caller owns the data, which must remain valid until then. If with_index,
 * index precedes the product information. BLKDATA is one block with all data. */
void peer_send_product(struct peer *p, uint32_t vers, uint32_t proc, bool with_index,
                       uint32_t index, struct pq *q, const struct pq_view *view);

#endif

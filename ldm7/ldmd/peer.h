/* SPDX-License-Identifier: Apache-2.0
 *
 * One TCP connection that speaks LDM RPC in both directions: a rpc_stream for what comes in, a
 * queue of messages for what goes out. Product data are written straight from the product queue's
 * mapping (pinned until written). Never blocks.
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
    uint64_t last_in_ns, last_out_ns; /* anything received; anything written */
    uint64_t bytes_in, bytes_out;
    int reads_per_call; /* of at most PEER_READ_BYTES (or product data); default 16 */
};

/* Takes over fd (made non-blocking). */
void peer_init(struct peer *p, int fd, const struct rpc_sink *sink, uint64_t now);
/* Closes the descriptor and releases what is queued. */
void peer_close(struct peer *p);
/* A host that vanishes is noticed within this many seconds, whether there is anything
 * to send to it or not (otherwise: 60 s after the next message). */
void peer_watch(struct peer *p, uint64_t seconds);

/* Reads a bounded amount. 1: closed by the other end, -1: error; then why holds the reason. */
int peer_read(struct peer *p, uint64_t now, char *why, size_t why_bytes);
/* Writes as much as the socket takes. -1: error. */
int peer_write(struct peer *p, uint64_t now);
/* True if there is something to write. */
bool peer_has_output(const struct peer *p);
/* True if it pins a product of the queue with a position up to this one. */
bool peer_keeps(const struct peer *p, uint64_t up_to);
/* True if another product may be queued (backpressure). */
bool peer_has_room(const struct peer *p);

/* Calls without product data; args may be NULL. The call's xid. */
uint32_t peer_call(struct peer *p, uint32_t vers, uint32_t proc,
                   void (*args)(struct xout *x, const void *arg), const void *arg);
/* An accepted reply; body (may be NULL) writes its results. */
void peer_reply(struct peer *p, uint32_t xid, void (*body)(struct xout *x, const void *arg),
                const void *arg);
/* An accepted reply whose result is one number. */
void peer_reply_u32(struct peer *p, uint32_t xid, uint32_t value);
/* A reply with an accept_stat other than success. */
void peer_reply_error(struct peer *p, uint32_t xid, enum rpc_accept stat);
/* A reply that denies the call. */
void peer_deny(struct peer *p, uint32_t xid, enum rpc_auth why);
/* A call that carries a product. Takes over the pin of view (released when written or closed); with
 * q NULL the data are the caller's and stay until then. index is put before the product information
 * if with_index. BLKDATA is one block with all of it. */
void peer_send_product(struct peer *p, uint32_t vers, uint32_t proc, bool with_index,
                       uint32_t index, struct pq *q, const struct pq_view *view);

#endif

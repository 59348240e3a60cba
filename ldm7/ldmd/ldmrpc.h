/* SPDX-License-Identifier: Apache-2.0
 *
 * ONC RPC (RFC 5531) over TCP with record marking, program 300029, and the types of LDM versions 6
 * and 7. Sans-I/O: bytes in, callbacks out. Memory per connection is bounded by RPC_HEAD_MAX; a
 * product's bytes are never collected here but go to the place that product_begin() names.
 */
#ifndef LDMD_LDMRPC_H
#define LDMD_LDMRPC_H

#include <netinet/in.h>

#include "queue/pq.h"
#include "xdr.h"

#define LDM_PROGRAM 300029u
#define LDM_PORT 388
#define LDM_VERS5 5u /* only its null procedure is served */
#define LDM_VERS6 6u
#define LDM_VERS7 7u
#define RPC_HEAD_MAX 16384u /* any message without product data is far smaller */
#define RPC_MAX_FRAGMENT 0x7ffffffcu
#define LDM_MAX_SPECS 32u
#define LDM_PATTERN_MAX 255u
#define LDM_ENDPOINT_MAX 255u
#define LDM_PRIMARY_HEREIS 0xffffffffu

enum ldm6_proc {
    LDM6_NULL = 0,
    LDM6_HEREIS = 1,
    LDM6_FEEDME = 4,
    LDM6_HIYA = 5,
    LDM6_NOTIFICATION = 8,
    LDM6_NOTIFYME = 9,
    LDM6_COMINGSOON = 12,
    LDM6_BLKDATA = 13,
    LDM6_IS_ALIVE = 14
};
enum ldm7_proc {
    LDM7_NULL = 0,
    LDM7_SUBSCRIBE = 1,
    LDM7_REQUEST_PRODUCT = 2,
    LDM7_REQUEST_BACKLOG = 3,
    LDM7_TEST_CONNECTION = 4,
    LDM7_DELIVER_MISSED = 5,
    LDM7_NO_SUCH_PRODUCT = 6,
    LDM7_DELIVER_BACKLOG = 7,
    LDM7_END_BACKLOG = 8
};
enum ldm6_code {
    LDM6_OK = 0,
    LDM6_SHUTTING_DOWN = 1,
    LDM6_BADPATTERN = 2,
    LDM6_DONT_SEND = 3,
    LDM6_RECLASS = 7
};
enum ldm7_status {
    LDM7_OK = 0,
    LDM7_LOGIC,
    LDM7_INTR,
    LDM7_TIMEDOUT,
    LDM7_RPC,
    LDM7_INVAL,
    LDM7_UNAUTH,
    LDM7_IPV6,
    LDM7_REFUSED,
    LDM7_SYSTEM,
    LDM7_MCAST,
    LDM7_SHUTDOWN,
    LDM7_NOENT,
    LDM7_DUP,
    LDM7_EXISTS,
    LDM7_PQ,
    LDM7_NORCVR,
    LDM7_STATUS_COUNT
};
/* Returns the name of an enum ldm7_status; "unknown status" for anything else. */
const char *ldm7_strstatus(uint32_t status);

/* RFC 5531 9: accept_stat */
enum rpc_accept {
    RPC_SUCCESS = 0,
    RPC_PROG_UNAVAIL = 1,
    RPC_PROG_MISMATCH = 2,
    RPC_PROC_UNAVAIL = 3,
    RPC_GARBAGE_ARGS = 4,
    RPC_SYSTEM_ERR = 5
};
enum rpc_auth { RPC_AUTH_TOOWEAK = 5 };

/* ------------------------------------------------------------------ types (LDM-6.15.0,
 * LDM-6.13.17) */

/* The wire's 32 bits of seconds since 1970 are unsigned, so times are correct until February 2106.
 * LDM_TIME_END is the protocol's code for "no end", not a time. */
struct ldm_time {
    uint32_t sec;
    int32_t usec;
};
#define LDM_TIME_ZERO ((struct ldm_time){0, 0})
#define LDM_TIME_END ((struct ldm_time){0x7fffffff, 999999})
/* Returns below 0, 0 or above 0 if a is before, at or after b. */
int ldm_time_cmp(struct ldm_time a, struct ldm_time b);

struct ldm_spec {
    uint32_t feedtype;
    char pattern[LDM_PATTERN_MAX + 1];
};
struct ldm_class {
    struct ldm_time from, to;
    uint32_t n;
    struct ldm_spec specs[LDM_MAX_SPECS];
};
struct ldm7_subscription {
    uint32_t feed;
    char switch_id[LDM_ENDPOINT_MAX + 1], port_id[LDM_ENDPOINT_MAX + 1];
    uint32_t vlan;
};
struct ldm7_reply {
    uint32_t status;
    uint32_t feed;
    char group[64], server[64]; /* "a.b.c.d:port" */
    struct in_addr addr;        /* network order in memory, byte-reversed on the wire */
    uint32_t prefix_len;
};
struct ldm7_backlog {
    struct pq_signature after;
    bool after_is_set;
    struct pq_signature before;
    uint32_t time_offset_s;
};

/* BLKDATA without its data. */
struct ldm_block {
    struct pq_signature signature;
    uint32_t pktnum, size;
};
/* The answer to FEEDME, NOTIFYME or HIYA. */
struct ldm6_reply {
    uint32_t code;        /* OK, DONT_SEND, BADPATTERN, RECLASS ... */
    uint32_t value;       /* OK: id, or max_hereis of HIYA */
    struct ldm_class cls; /* RECLASS: what remains; no specs: denied */
};

/* Reads a prod_class; XIN_BAD if it has too many specs. */
void xin_class(struct xin *x, struct ldm_class *out);
/* Writes a prod_class. */
void xout_class(struct xout *x, const struct ldm_class *c);
/* Reads a prod_info. */
void xin_info(struct xin *x, struct pq_info *out);
/* Writes a prod_info. */
void xout_info(struct xout *x, const struct pq_info *info);
/* Returns the number of bytes that xout_info() writes. */
size_t xdr_info_size(const struct pq_info *info);
#define XDR_INFO_MAX (8u + 16u + 4u + PQ_ORIGIN_MAX + 4u + 4u + 4u + PQ_IDENT_MAX + 1u + 4u)
/* Reads the head of BLKDATA, up to its data. */
void xin_block(struct xin *x, struct ldm_block *out);
/* Writes the head of BLKDATA. */
void xout_block(struct xout *x, const struct ldm_block *b);
/* of_hiya: a RECLASS also carries max_hereis (value). */
void xin_ldm6_reply(struct xin *x, bool of_hiya, struct ldm6_reply *out);
/* Writes what xin_ldm6_reply() reads. */
void xout_ldm6_reply(struct xout *x, bool of_hiya, const struct ldm6_reply *r);
/* Reads the argument of SUBSCRIBE. */
void xin_subscription(struct xin *x, struct ldm7_subscription *out);
/* Writes it. */
void xout_subscription(struct xout *x, const struct ldm7_subscription *s);
/* Reads the answer to SUBSCRIBE; a status other than OK stands alone. */
void xin_subscription_reply(struct xin *x, struct ldm7_reply *out);
/* Writes it. */
void xout_subscription_reply(struct xout *x, const struct ldm7_reply *r);
/* Reads the argument of REQUEST_BACKLOG. */
void xin_backlog(struct xin *x, struct ldm7_backlog *out);
/* Writes it. */
void xout_backlog(struct xout *x, const struct ldm7_backlog *b);

/* ------------------------------------------------------------------ messages */

struct rpc_msg {
    uint32_t xid;
    bool is_reply;
    uint32_t prog, vers, proc; /* call */
    bool denied;               /* reply: MSG_DENIED */
    uint32_t stat;             /* accept_stat, or reject_stat if denied */
    uint32_t low, high;        /* PROG_MISMATCH, RPC_MISMATCH */
    uint32_t auth_stat;        /* AUTH_ERROR */
};
/* Reads a call or reply header. */
void xin_msg(struct xin *x, struct rpc_msg *out);
/* These begin with 4 bytes for the record mark, which rpc_finish() fills in: last fragment of
 * (bytes written here after the mark) + extra. extra: product bytes that follow. */
void rpc_begin_call(struct xout *x, uint32_t xid, uint32_t vers, uint32_t proc);
/* Begins an accepted reply; its results follow if stat is RPC_SUCCESS. */
void rpc_begin_reply(struct xout *x, uint32_t xid, enum rpc_accept stat);
/* Begins a reply that denies the call (AUTH_ERROR); nothing follows. */
void rpc_begin_denied(struct xout *x, uint32_t xid, enum rpc_auth why);
/* Fills in the record mark. */
void rpc_finish(struct xout *x, size_t extra, bool last);

/* ------------------------------------------------------------------ receiving */

/* Callbacks return false to end the connection (protocol violation). */
struct rpc_sink {
    void *ctx;
    /* A complete call without product data; args holds what follows the header. */
    bool (*call)(void *ctx, const struct rpc_msg *m, struct xin *args);
    bool (*reply)(void *ctx, const struct rpc_msg *m, struct xin *body);
    /* HEREIS, DELIVER_MISSED_PRODUCT (index) or DELIVER_BACKLOG_PRODUCT: sets *region to the place
     * for its info->size bytes; NULL: discard them. NULL callback: such calls are a violation. */
    bool (*product_begin)(void *ctx, const struct rpc_msg *m, uint32_t index,
                          const struct pq_info *info, uint8_t **region);
    bool (*product_end)(void *ctx);
    /* The stream ended within what product_begin() or block_begin() accepted. */
    void (*product_abort)(void *ctx);
    /* BLKDATA: like product_begin(), and product_end() ends it. NULL: a violation. */
    bool (*block_begin)(void *ctx, const struct ldm_block *b, uint8_t **region);
};

struct rpc_stream {
    struct rpc_sink sink;
    uint8_t mark[4];
    uint8_t mark_len;
    bool last; /* the current fragment is the record's last */
    bool bulk; /* product data of this record go to region */
    uint32_t frag_left;
    uint32_t data_left;
    uint8_t pad_left;
    uint8_t *region;
    size_t head_len;
    const char *error; /* why rpc_stream_feed() failed */
    uint64_t records;
    uint8_t head[RPC_HEAD_MAX];
};

/* Initializes a stream. sink is copied. */
void rpc_stream_init(struct rpc_stream *s, const struct rpc_sink *sink);
/* Returns 0, or -1: close the connection (s->error says why). Feed nothing after -1. */
int rpc_stream_feed(struct rpc_stream *s, const uint8_t *bytes, size_t n);
/* Returns where the next bytes of the stream may be read to directly (product data), at most *max
 * of them; NULL if they must pass through rpc_stream_feed(). */
uint8_t *rpc_stream_direct(struct rpc_stream *s, size_t *max);
/* n bytes were read there. Returns like rpc_stream_feed(). */
int rpc_stream_direct_done(struct rpc_stream *s, size_t n);
/* The connection is gone; calls product_abort() if a product is incomplete. Idempotent. */
void rpc_stream_end(struct rpc_stream *s);

#endif

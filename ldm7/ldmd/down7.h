/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of an LDM7 downstream: the subscription and its connection (down7.c), products by
 * multicast (down7_multicast.c), products over the control connection (down7_unicast.c).
 */
#ifndef LDMD_DOWN7_H
#define LDMD_DOWN7_H

#include "common/feedtype.h"
#include "counters.h"
#include "downstream.h"
#include "fallback.h"
#include "fmtp.h"
#include "progress.h"
#include "session.h"
#include "stalled.h"

#define DOWN7_BUCKETS 1024u

/* A product that FMTP is receiving into the queue. */
struct flight {
    struct flight *next;
    uint32_t index, size;
    struct pq_signature sig;
    struct pq_reservation *reservation;
    uint8_t *region;
};

/* What arrived while this host did not listen is requested twice: when FMTP is connected, up to the
 * end of the upstream's queue, so that it need not wait for the next product; and when the first
 * product is announced, up to that one, so that there is no gap. A NULLPROC call after each request
 * is answered when everything has been sent. */
enum backlog_state {
    BACKLOG_NOT_YET,
    BACKLOG_TO_END,
    BACKLOG_AT_END,
    BACKLOG_TO_FIRST,
    BACKLOG_DONE
};

struct down7 {
    struct downstream ds;
    const struct conf_receive *rcv;
    struct loop_source fmtp_src;
    struct fmtp_client *fmtp;
    struct flight *flights[DOWN7_BUCKETS];
    unsigned nflights;
    bool receiving;
    bool told_forged;  /* reported in this session that datagrams are being forged */
    bool hopeless;     /* subscribing again soon is pointless */
    unsigned failures; /* consecutive failed subscriptions */
    uint64_t last_request_ns, saved_ns;
    struct session session;
    struct progress progress;
    enum backlog_state backlog;
    uint32_t fence_xid;
    struct pq_signature after, first; /* the backlog lies between them */
    bool has_after, has_first;
    struct fallback fallback;
    bool want_fallback;
    struct in_addr iface; /* FMTP's address here */
    char vlan_if[32];     /* made by vlanutil; else empty */
    char path[4096], feed[FEEDTYPE_TEXT_MAX];
    /* product arriving over the control connection */
    struct pq_info info;
    struct pq_reservation *reservation;
    struct stalled stalled;
    uint8_t *region;
    bool is_backlog, is_wanted;
    uint32_t index;
    struct stats_page *page; /* NULL: none */
    struct qlog *qlog;       /* NULL: none */
    struct counters_pace pace;
    struct down7_counters counts;
    struct client_counters before; /* of FMTP, in earlier sessions */
    enum downstream_state shown;
};

/* Returns whether info->signature is not the MD5 of the data. */
bool down7_md5_differs(const struct pq_info *info, const uint8_t *data);

/* fmtp_client's callbacks (ctx: struct down7). */
void *down7_begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                  struct timespec start);
/* The product is complete: decodes, checks and commits it. */
void down7_ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s);
/* FMTP does not deliver the product: requests it over the control connection. */
void down7_missed(void *ctx, uint32_t index);
/* What arrived under this index was not the publisher's: discards it. */
void down7_withdrawn(void *ctx, uint32_t index);
/* Write events only. */
void down7_lost(void *ctx, uint32_t index, uint32_t first, uint32_t blocks);
void down7_requested(void *ctx, uint32_t index, uint32_t blocks, bool multicast);
void down7_expired(void *ctx, uint32_t index, bool patience);
void down7_queue_full(void *ctx, uint32_t index);
/* A process waits for room in the queue, up to that position: drops the largest product being
 * received, or then all. They are requested over the control connection. */
void down7_let_go(struct down7 *d, uint64_t up_to);
/* Gives up what is being received. */
void down7_drop_flights(struct down7 *d);

/* Records a product as missed and requests it. */
void down7_request_missed(struct down7 *d, uint32_t index);
/* Requests everything that was missed in earlier sessions. */
void down7_request_all_missed(struct down7 *d);
/* FMTP is connected; or the first product is announced (only the first call counts). */
void down7_backlog_begin(struct down7 *d);
/* The first product arrived by multicast: requests everything before it. */
void down7_backlog_first(struct down7 *d, const struct pq_signature *sig);
/* Handles the answer to the call after a backlog request. Returns false if it is not that
 * answer. */
bool down7_backlog_fence(struct down7 *d, const struct rpc_msg *m);
/* NO_SUCH_PRODUCT: the publisher does not have it. Returns false if malformed. */
bool down7_no_such_product(struct down7 *d, struct xin *args);
/* rpc_sink's callbacks. */
bool down7_product_begin(void *ctx, const struct rpc_msg *m, uint32_t index,
                         const struct pq_info *info, uint8_t **region);
/* The product is complete. Returns false to end the connection. */
bool down7_product_end(void *ctx);
/* Returns whether it stalls while a process waits for room. Then the connection must end. */
bool down7_product_must_go(struct down7 *d, bool asked, uint64_t now);
/* The remaining bytes will not arrive. */
void down7_product_abort(void *ctx);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the receiving state machine share:
 *   receiver.c         life cycle, datagrams, places, time
 *   receiver_index.c   order of products: which are lost, begin, end, sessions
 *   receiver_trust.c   what of that to believe: what the stream confirms, forged datagrams
 *   receiver_ask.c     requests for blocks: what has passed, rounds, patience
 *   receiver_stream.c  messages from the sender's stream
 */
#ifndef FMTP_RECEIVER_CORE_H
#define FMTP_RECEIVER_CORE_H

#include <sys/queue.h>

#include "groups.h"
#include "loop/timers.h"
#include "outbox.h"
#include "receiver.h"
#include "reorder.h"

enum {
    /* Above this, no more blocks are requested until some output is sent. */
    FMTP_RX_SOFT_BYTES = 65536
};

/* A BOP. */
struct announced {
    struct timespec start;
    uint64_t at_ns; /* when it arrived */
    uint32_t size_bytes;
    uint16_t meta_len;
    uint8_t meta[];
};

/* The end of time: no interval from an earlier time reaches TP_NEVER. */
#define FMTP_RX_TIME_MAX (UINT64_MAX / 2)

struct product {
    struct tp_timer timer;      /* first: timers are cast back to their product */
    struct product *chain;      /* hash */
    TAILQ_ENTRY(product) link;  /* in r->asking, if asking */
    TAILQ_ENTRY(product) doubt; /* in r->doubts, if doubtful */
    uint32_t index, size, nblocks, nleft, retx_blocks;
    uint32_t first_time;       /* blocks that arrived by MEM_DATA */
    uint32_t expected;         /* blocks below it have passed; also known before the BOP */
    uint32_t next;             /* the block after the latest MEM_DATA */
    uint32_t reported;         /* block up to which PROGRESS was sent */
    uint32_t ask_from, ask_to; /* what must still be checked: FEC groups, else blocks */
    bool active;               /* BOP is known; otherwise it is being requested */
    bool eop, eop_asked, asking;
    bool has_early;   /* the reorder buffer has datagrams of it */
    bool heard;       /* a datagram or the stream named it; otherwise it was only skipped */
    bool skipped;     /* requested because a datagram skipped it, */
    bool doubtful;    /* and nothing confirms that the product exists */
    bool confirmed;   /* by RETX_BOP: it began as the sender says */
    bool disputed;    /* its BOP was requested because datagrams contradict one another */
    bool asked_heard; /* its BOP was requested since it was heard */
    uint64_t digest;  /* of the content of its BOP */
    struct announced *announced; /* BOP of a product that has not begun */
    uint64_t tau_ns;             /* tau_rcv(n): when the multicast should be over; or TP_NEVER */
    uint64_t heard_ns;           /* when the latest MEM_DATA arrived */
    uint64_t due_ns;             /* no waiting group is due earlier */
    uint8_t *data;
    struct timespec start;
    uint64_t *received;         /* bitmap */
    struct fmtp_groups *groups; /* NULL: repaired by RETX_REQ alone */
};

struct fmtp_receiver {
    struct fmtp_receiver_config cfg;
    struct fmtp_session session;
    uint32_t block; /* session.block_bytes */
    uint64_t now_ns;
    size_t buffer;          /* bytes */
    uint32_t report_blocks; /* between reports of progress; 0: none */
    bool joined;
    uint32_t latest; /* newest index seen */
    uint32_t first;  /* the first index that concerns us */
    uint32_t base;   /* every index up to this one without an entry is done, */
    uint64_t *done;  /* after it, those in this ring of done_bits */
    uint32_t done_bits;
    uint32_t reached; /* if has_reached, the stream confirms this index */
    bool has_reached;
    bool has_hole, claimed, has_ended; /* has_ended: a product of this session has ended */
    /* Indices from hole to hole_to may have no entry and not be done: the sender had not reached
     * them. */
    uint32_t hole, hole_to;
    uint32_t claim;              /* a distant index about which the stream was asked */
    uint32_t stray, stray_count; /* a run of datagrams that agree on a distant index */
    TAILQ_HEAD(, product) doubts;
    size_t ndoubtful;
    /* Missing blocks of products that began unconfirmed by the stream. */
    uint64_t unconfirmed_blocks;
    uint32_t skipped_from, skipped_to; /* indices of the latest jump: missed, not acknowledged */
    struct product **hash;
    size_t hash_mask, count;
    struct tp_timers timers;
    TAILQ_HEAD(, product) asking;
    struct fmtp_outbox out;
    bool stuck, finished; /* finished: the sender said that it was done */
    struct fmtp_symbols symbols;
    struct fmtp_reorder reorder;
    /* patience with repairs */
    uint64_t rtt_ns;
    uint64_t answer_ns,
        answer_var_ns;            /* from REPAIR_REQ to the first repair; 0: not measured yet */
    uint64_t repair_ns;           /* when the latest repair arrived */
    uint32_t order, repair_order; /* of the latest request; of the latest answered one */
    /* stream */
    uint8_t head[FMTP_HEADER_LEN];
    size_t head_len;
    struct fmtp_header msg; /* being read while payload_left */
    size_t payload_left;
    uint8_t *body; /* a payload in pieces: block_bytes */
    struct fmtp_client_stats stats;
};

/* Sets the time to now_ns; ignores a step back. */
static inline void fmtp_rx_tick(struct fmtp_receiver *r, uint64_t now_ns)
{
    if (now_ns > r->now_ns)
        r->now_ns = now_ns < FMTP_RX_TIME_MAX ? now_ns : FMTP_RX_TIME_MAX;
}

/* ---- receiver.c */
/* Queues a message that has only a header for the sender. */
void fmtp_rx_emit(struct fmtp_receiver *r, uint16_t flags, uint32_t index, uint32_t seqnum,
                  uint16_t wanted);
/* Queues a message with a body of h->payloadlen bytes. */
void fmtp_rx_emit_body(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body);
/* Sets the product's timer to the earlier of tau_ns and due_ns. */
void fmtp_rx_arm(struct fmtp_receiver *r, struct product *p);
/* Returns whether (seqnum, len) is a block of the active product; if not, counts it as bad. */
bool fmtp_rx_is_block(struct fmtp_receiver *r, const struct product *p,
                      const struct fmtp_header *h);
/* A block that was missing is in its place. Does not count it. */
/* Stores bytes of a product from `at` on. Returns false if the application cannot. */
bool fmtp_rx_put(struct fmtp_receiver *r, struct product *p, uint32_t at, const uint8_t *bytes,
                 size_t len);
void fmtp_rx_received(struct fmtp_receiver *r, struct product *p, uint32_t block);
/* Processes the reorder buffer's datagrams of a product that just became active. Returns false if
 * that completed it. */
bool fmtp_rx_replay(struct fmtp_receiver *r, struct product *p);

/* ---- receiver_index.c */
enum fmtp_rx_seen { FMTP_RX_NEW, FMTP_RX_OLD, FMTP_RX_REFUSED };

/* Returns the entry of that index, or NULL. */
struct product *fmtp_rx_lookup(const struct fmtp_receiver *r, uint32_t index);
/* A message names this product: requests what that shows to be lost before it. NEW: the caller must
 * make its entry. confirmed: the stream said so; otherwise REFUSED if the index is too distant to
 * be believed. */
enum fmtp_rx_seen fmtp_rx_see(struct fmtp_receiver *r, uint32_t index, bool confirmed);
/* Calls fmtp_rx_see() and returns the entry of a product whose BOP is known or being requested.
 * NULL: done, refused or no room. */
struct product *fmtp_rx_see_data(struct fmtp_receiver *r, uint32_t index, bool confirmed);
/* Makes an entry and requests its BOP. NULL: no room; the product is missed. */
struct product *fmtp_rx_ask_bop(struct fmtp_receiver *r, uint32_t index);
/* Removes the entry and frees it. This does not mark the index as done. */
void fmtp_rx_drop(struct fmtp_receiver *r, struct product *p);
/* Begins a product whose BOP was only announced, if it may begin. */
void fmtp_rx_begin_announced(struct fmtp_receiver *r, struct product *p);
/* Processes a BOP that arrived by multicast or on the stream. */
void fmtp_rx_bop(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body);
/* Processes an EOP. */
void fmtp_rx_eop(struct fmtp_receiver *r, const struct fmtp_header *h);
/* Reports the product as missed and removes its entry. */
void fmtp_rx_give_up(struct fmtp_receiver *r, struct product *p);
/* Returns true if it was complete: it is then acknowledged, and p is gone. */
bool fmtp_rx_finish(struct fmtp_receiver *r, struct product *p);
/* Misses everything incomplete, in order of index. */
void fmtp_rx_miss_all(struct fmtp_receiver *r);
/* Continues the same session on another connection. */
void fmtp_rx_resume(struct fmtp_receiver *r, uint32_t next_index);
/* Counts and reports the index as missed. */
void fmtp_rx_miss(struct fmtp_receiver *r, uint32_t index);

/* ---- receiver_trust.c */
#define FMTP_RX_JUMP 64u /* indices that datagrams may skip before the stream has confirmed */

/* Returns whether a is newer than b, modulo 2^32. */
static inline bool fmtp_rx_newer(uint32_t a, uint32_t b)
{
    return a - b - 1 < UINT32_MAX / 2;
}

/* Discards all knowledge: the next index is the first. */
void fmtp_rx_trust_anew(struct fmtp_receiver *r, uint32_t first);
/* Returns whether the index is done: ended, missed, not wanted, or before the first. */
bool fmtp_rx_is_done(const struct fmtp_receiver *r, uint32_t index);
void fmtp_rx_set_done(struct fmtp_receiver *r, uint32_t index);
/* Sets the newest index seen. */
void fmtp_rx_set_latest(struct fmtp_receiver *r, uint32_t index);
/* The stream says that the sender has reached the index. */
void fmtp_rx_reach(struct fmtp_receiver *r, uint32_t index);
/* Returns whether to act on a datagram that jumps by this many. */
bool fmtp_rx_is_believable(const struct fmtp_receiver *r, uint32_t ahead);
/* A datagram names an index too far away: asks the stream, or waits until a run of datagrams
 * agrees. */
void fmtp_rx_claim(struct fmtp_receiver *r, uint32_t index);
/* Returns whether it is far from all that is known and nothing confirms that: either may be
 * forged. */
bool fmtp_rx_is_elsewhere(const struct fmtp_receiver *r, uint32_t index);
/* Returns whether it precedes the first by more than reordering explains, and nothing confirms the
 * first. */
bool fmtp_rx_is_earlier(const struct fmtp_receiver *r, uint32_t index);
/* The stream answers about the index; returns true if that was the claim. */
bool fmtp_rx_end_claim(struct fmtp_receiver *r, uint32_t index);
/* All that is known was forged: makes this the first product. */
void fmtp_rx_rebase(struct fmtp_receiver *r, uint32_t index);
/* The entry was only skipped by a datagram. */
void fmtp_rx_doubt(struct fmtp_receiver *r, struct product *p);
/* Removes it from the list of doubts. */
void fmtp_rx_undoubt(struct fmtp_receiver *r, struct product *p);
/* A message names the product. */
void fmtp_rx_hear(struct fmtp_receiver *r, struct product *p);
/* Marks that part of the range from `from` to `to` may be a hole. */
void fmtp_rx_leave_open(struct fmtp_receiver *r, uint32_t from, uint32_t to);
/* Requests the holes before this index. */
void fmtp_rx_ask_holes(struct fmtp_receiver *r, uint32_t before);
/* The sender no longer has the product (RETX_REJ), or it is an original and has not reached it. */
void fmtp_rx_rejected(struct fmtp_receiver *r, uint32_t index);
/* Processes NOT_YET. */
void fmtp_rx_not_yet(struct fmtp_receiver *r, const struct fmtp_header *h);
/* What arrived of the product was forged: the application discards it, its entry is removed, the
 * index is open again. */
void fmtp_rx_withdraw(struct fmtp_receiver *r, struct product *p);
/* Withdraws everything at or after this index: on a new connection it cannot be the sender's. */
void fmtp_rx_withdraw_from(struct fmtp_receiver *r, uint32_t next_index);
/* Asks the stream how the product begins. */
void fmtp_rx_dispute(struct fmtp_receiver *r, struct product *p);
/* The sender confirms how the product begins. */
void fmtp_rx_confirm(struct fmtp_receiver *r, struct product *p);

/* ---- receiver_ask.c */
/* Blocks below `to` should have arrived by now: requests the missing ones. */
void fmtp_rx_passed(struct fmtp_receiver *r, struct product *p, uint32_t to);
/* FEC groups below `to` should have arrived. */
void fmtp_rx_groups_passed(struct fmtp_receiver *r, struct product *p, uint32_t to);
/* The multicast of the product is over, as far as we know. */
void fmtp_rx_ask_all(struct fmtp_receiver *r, struct product *p);
/* tau_rcv has expired. */
void fmtp_rx_tau(struct fmtp_receiver *r, struct product *p);
/* Continues with requests where the backlog of messages stopped them. */
void fmtp_rx_ask_on(struct fmtp_receiver *r);
/* Requests everything again that has passed. */
void fmtp_rx_ask_again(struct fmtp_receiver *r, struct product *p);
/* Sets the product's due_ns to the earliest of its waiting groups. */
void fmtp_rx_overdue(struct fmtp_receiver *r, struct product *p);
/* The sender reminds us of the product: nothing of it is in flight. Ends the patience with groups
 * that were requested longer than a round trip ago. */
void fmtp_rx_nudged(struct fmtp_receiver *r, struct product *p);
/* Something arrived that was sent to repair the group. */
void fmtp_rx_answered(struct fmtp_receiver *r, struct product *p, uint32_t g);
/* Call this when the group has more blocks or symbols: decodes if possible. */
void fmtp_rx_decode(struct fmtp_receiver *r, struct product *p, uint32_t g);
/* A parity symbol of the product arrived: keeps it, or uses it to decode blocks. */
void fmtp_rx_parity(struct fmtp_receiver *r, struct product *p, const struct fmtp_header *h,
                    const uint8_t *symbol);

/* ---- receiver_stream.c: fmtp_receiver_stream() */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the receiving state machine share:
 *   receiver.c         life, datagrams, places, time
 *   receiver_index.c   order of products: which are lost, begin, end, sessions
 *   receiver_trust.c   which of that is believed: what the stream confirms, forged datagrams
 *   receiver_ask.c     requests for blocks: what passed, rounds, patience
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
    FMTP_RX_SOFT_BYTES = 65536 /* above it no more blocks are asked for until some left */
};

/* A BOP. */
struct announced {
    struct timespec start;
    uint64_t at_ns; /* when it came */
    uint32_t size_bytes;
    uint16_t meta_len;
    uint8_t meta[];
};

/* The end of time: no interval reaches from before it to TP_NEVER. */
#define FMTP_RX_TIME_MAX (UINT64_MAX / 2)

struct product {
    struct tp_timer timer;      /* first: timers are cast back to their product */
    struct product *chain;      /* hash */
    TAILQ_ENTRY(product) link;  /* in r->asking, if asking */
    TAILQ_ENTRY(product) doubt; /* in r->doubts, if doubtful */
    uint32_t index, size, nblocks, nleft, retx_blocks;
    uint32_t first_time;       /* blocks that came by MEM_DATA */
    uint32_t expected;         /* blocks below it passed; known before the BOP as well */
    uint32_t next;             /* the block after the latest MEM_DATA */
    uint32_t ask_from, ask_to; /* what is still to be looked at: FEC groups, else blocks */
    bool active;               /* BOP is known; else it is being asked for */
    bool eop, eop_asked, asking;
    bool has_early;   /* something of it is in the reorder buffer */
    bool heard;       /* a datagram or the stream named it; else it was only skipped */
    bool skipped;     /* asked for because a datagram skipped it, */
    bool doubtful;    /* and nothing confirms that the product exists */
    bool confirmed;   /* by RETX_BOP: it began as the sender says */
    bool disputed;    /* its BOP was asked for because datagrams contradict one another */
    bool asked_heard; /* its BOP was asked for since it was heard */
    uint64_t digest;  /* of what its BOP said */
    struct announced *announced; /* BOP of a product that has not begun */
    uint64_t tau_ns;             /* tau_rcv(n): the multicast is over by then; or TP_NEVER */
    uint64_t heard_ns;           /* when the latest MEM_DATA came */
    uint64_t due_ns;             /* no waiting group is due before */
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
    bool joined;
    uint32_t latest; /* newest index seen */
    uint32_t first;  /* the first index that is ours */
    uint32_t base;   /* up to it every index without entry is done, */
    uint64_t *done;  /* after it those in this ring of done_bits */
    uint32_t done_bits;
    uint32_t reached; /* the stream confirms this index, if has_reached */
    bool has_reached;
    bool has_hole, claimed, has_ended; /* has_ended: a product of this session has */
    uint32_t hole, hole_to;            /* indices from hole to hole_to may have no entry and not be
                                          done: the sender had not reached them */
    uint32_t claim;                    /* a far index, the stream was asked about it */
    uint32_t stray, stray_count;       /* a run of datagrams that agree on a far index */
    TAILQ_HEAD(, product) doubts;
    size_t ndoubtful;
    uint64_t unconfirmed_blocks; /* missing of products that began without the stream's word */
    uint32_t skipped_from, skipped_to; /* indices of the latest jump: missed, not acknowledged */
    struct product **hash;
    size_t hash_mask, count;
    struct tp_timers timers;
    TAILQ_HEAD(, product) asking;
    struct fmtp_outbox out;
    bool stuck, finished; /* finished: the sender said that it was */
    struct fmtp_symbols symbols;
    struct fmtp_reorder reorder;
    /* patience with repairs */
    uint64_t rtt_ns;
    uint64_t answer_ns, answer_var_ns; /* from REPAIR_REQ to the first repair; 0: never measured */
    uint64_t repair_ns;                /* when the latest repair came */
    uint32_t order, repair_order;      /* of the latest request; of the latest one answered */
    /* stream */
    uint8_t head[FMTP_HEADER_LEN];
    size_t head_len;
    struct fmtp_header msg; /* being read while payload_left */
    size_t payload_left;
    uint8_t *body; /* of a payload in pieces: block_bytes */
    struct fmtp_client_stats stats;
};

/* The time is now_ns; a step back counts as none. */
static inline void fmtp_rx_tick(struct fmtp_receiver *r, uint64_t now_ns)
{
    if (now_ns > r->now_ns)
        r->now_ns = now_ns < FMTP_RX_TIME_MAX ? now_ns : FMTP_RX_TIME_MAX;
}

/* ---- receiver.c */
/* Queues a message of a header only for the sender. */
void fmtp_rx_emit(struct fmtp_receiver *r, uint16_t flags, uint32_t index, uint32_t seqnum,
                  uint16_t wanted);
/* Queues a message with a body of h->payloadlen bytes. */
void fmtp_rx_emit_body(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body);
/* Sets the product's timer to the earlier of tau_ns and due_ns. */
void fmtp_rx_arm(struct fmtp_receiver *r, struct product *p);
/* (seqnum, len) is a block of the active product; false: counted as bad. */
bool fmtp_rx_is_block(struct fmtp_receiver *r, const struct product *p,
                      const struct fmtp_header *h);
/* A block that was missing is in its place. Counts it nowhere. */
void fmtp_rx_received(struct fmtp_receiver *r, struct product *p, uint32_t block);
/* The datagrams in the reorder buffer of a product that just became active. False: that completed
 * it. */
bool fmtp_rx_replay(struct fmtp_receiver *r, struct product *p);

/* ---- receiver_index.c */
enum fmtp_rx_seen { FMTP_RX_NEW, FMTP_RX_OLD, FMTP_RX_REFUSED };

/* The entry of that index, or NULL. */
struct product *fmtp_rx_lookup(const struct fmtp_receiver *r, uint32_t index);
/* A message names this product: asks for what that shows to be lost before it. NEW: the caller
 * makes its entry. confirmed: the stream said so; else REFUSED if the index is too far to be
 * believed. */
enum fmtp_rx_seen fmtp_rx_see(struct fmtp_receiver *r, uint32_t index, bool confirmed);
/* see(), and the entry of a product with BOP or one whose BOP is being asked for. NULL: done with,
 * refused or no room. */
struct product *fmtp_rx_see_data(struct fmtp_receiver *r, uint32_t index, bool confirmed);
/* An entry, its BOP asked for. NULL: no room; it is missed. */
struct product *fmtp_rx_ask_bop(struct fmtp_receiver *r, uint32_t index);
/* Takes the entry out and frees it. The index is not done by that. */
void fmtp_rx_drop(struct fmtp_receiver *r, struct product *p);
/* A BOP that was only announced: the product begins, if it may. */
void fmtp_rx_begin_announced(struct fmtp_receiver *r, struct product *p);
/* A BOP came, by multicast or on the stream. */
void fmtp_rx_bop(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body);
/* An EOP came. */
void fmtp_rx_eop(struct fmtp_receiver *r, const struct fmtp_header *h);
/* The product is missed: its entry goes. */
void fmtp_rx_give_up(struct fmtp_receiver *r, struct product *p);
/* True: it was complete, is acknowledged, and p is gone. */
bool fmtp_rx_finish(struct fmtp_receiver *r, struct product *p);
/* Everything incomplete is missed, in order of index. */
void fmtp_rx_miss_all(struct fmtp_receiver *r);
/* The same session on another connection. */
void fmtp_rx_resume(struct fmtp_receiver *r, uint32_t next_index);
/* Counts and reports the index as missed. */
void fmtp_rx_miss(struct fmtp_receiver *r, uint32_t index);

/* ---- receiver_trust.c */
#define FMTP_RX_JUMP 64u /* indices that datagrams may skip before the stream has answered */

/* True if a is newer than b, modulo 2^32. */
static inline bool fmtp_rx_newer(uint32_t a, uint32_t b)
{
    return a - b - 1 < UINT32_MAX / 2;
}

/* Nothing is known: the next index is the first. */
void fmtp_rx_trust_anew(struct fmtp_receiver *r, uint32_t first);
/* True if the index is done: ended, missed, not wanted, or before the first. */
bool fmtp_rx_is_done(const struct fmtp_receiver *r, uint32_t index);
void fmtp_rx_set_done(struct fmtp_receiver *r, uint32_t index);
/* The newest index seen. */
void fmtp_rx_set_latest(struct fmtp_receiver *r, uint32_t index);
/* The stream says that the sender has reached the index. */
void fmtp_rx_reach(struct fmtp_receiver *r, uint32_t index);
/* True if a datagram's jump by this many may be acted upon. */
bool fmtp_rx_is_believable(const struct fmtp_receiver *r, uint32_t ahead);
/* A datagram names an index too far off: the stream is asked, or it is one of a run too short. */
void fmtp_rx_claim(struct fmtp_receiver *r, uint32_t index);
/* True if it is far from all that is known, and nothing confirms that: either may be forged. */
bool fmtp_rx_is_elsewhere(const struct fmtp_receiver *r, uint32_t index);
/* True if it is before the first by more than reordering, and nothing confirms the first. */
bool fmtp_rx_is_earlier(const struct fmtp_receiver *r, uint32_t index);
/* The stream answers about the index; true: that was the claim. */
bool fmtp_rx_end_claim(struct fmtp_receiver *r, uint32_t index);
/* All that is known was forged; the first product is this one. */
void fmtp_rx_rebase(struct fmtp_receiver *r, uint32_t index);
/* The entry was only skipped by a datagram. */
void fmtp_rx_doubt(struct fmtp_receiver *r, struct product *p);
/* It is out of the list of doubts. */
void fmtp_rx_undoubt(struct fmtp_receiver *r, struct product *p);
/* A message names it. */
void fmtp_rx_hear(struct fmtp_receiver *r, struct product *p);
/* Part of the range from `from` to `to` may be a hole. */
void fmtp_rx_leave_open(struct fmtp_receiver *r, uint32_t from, uint32_t to);
/* Asks for the holes before this index. */
void fmtp_rx_ask_holes(struct fmtp_receiver *r, uint32_t before);
/* The sender no longer has the product (RETX_REJ), or an original has not reached it. */
void fmtp_rx_rejected(struct fmtp_receiver *r, uint32_t index);
/* NOT_YET. */
void fmtp_rx_not_yet(struct fmtp_receiver *r, const struct fmtp_header *h);
/* What came of it was forged: the application forgets it, the entry goes, the index is open. */
void fmtp_rx_withdraw(struct fmtp_receiver *r, struct product *p);
/* What is at or after this index on a new connection cannot be the sender's. */
void fmtp_rx_withdraw_from(struct fmtp_receiver *r, uint32_t next_index);
/* The stream is asked how the product begins. */
void fmtp_rx_dispute(struct fmtp_receiver *r, struct product *p);
/* The product began as the sender says. */
void fmtp_rx_confirm(struct fmtp_receiver *r, struct product *p);

/* ---- receiver_ask.c */
/* Blocks below `to` should have arrived by now: the missing ones are asked for. */
void fmtp_rx_passed(struct fmtp_receiver *r, struct product *p, uint32_t to);
/* FEC groups below `to` should have come. */
void fmtp_rx_groups_passed(struct fmtp_receiver *r, struct product *p, uint32_t to);
/* The multicast of the product is over, as far as we can tell. */
void fmtp_rx_ask_all(struct fmtp_receiver *r, struct product *p);
/* tau_rcv is over. */
void fmtp_rx_tau(struct fmtp_receiver *r, struct product *p);
/* Continues to ask where the backlog of messages stopped it. */
void fmtp_rx_ask_on(struct fmtp_receiver *r);
/* Asks again for all that passed. */
void fmtp_rx_ask_again(struct fmtp_receiver *r, struct product *p);
/* Sets the product's due_ns to the earliest of its waiting groups. */
void fmtp_rx_overdue(struct fmtp_receiver *r, struct product *p);
/* The sender reminds us of the product: nothing of it is on its way. Patience with groups that were
 * asked for longer than a round trip ago is over. */
void fmtp_rx_nudged(struct fmtp_receiver *r, struct product *p);
/* Something came that was sent to repair the group. */
void fmtp_rx_answered(struct fmtp_receiver *r, struct product *p, uint32_t g);
/* After the group's blocks or symbols became more: decodes if that is possible. */
void fmtp_rx_decode(struct fmtp_receiver *r, struct product *p, uint32_t g);
/* A parity symbol of the product came: kept, or used to give blocks back. */
void fmtp_rx_parity(struct fmtp_receiver *r, struct product *p, const struct fmtp_header *h,
                    const uint8_t *symbol);

/* ---- receiver_stream.c: fmtp_receiver_stream() */

#endif

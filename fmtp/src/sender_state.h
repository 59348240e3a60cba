/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the sender core share: sender.c (products and time), sender_multicast.c
 * (datagrams), sender_repair.c (extension 1), sender_accounts.c (its limits), sender_peers.c
 * (streams) and sender_requests.c (requests on them). No other file includes it.
 */
#ifndef FMTP_SENDER_STATE_H
#define FMTP_SENDER_STATE_H

#include <sys/queue.h>

#include "fec.h"
#include "loop/timers.h"
#include "requests.h"
#include "sender.h"

#define FMTP_MS UINT64_C(1000000)

/* Blocks of one FEC group. */
struct fmtp_bits {
    uint64_t word[4];
};

enum group_state {
    GROUP_IDLE,
    GROUP_HELD, /* requests are being merged until due_ns */
    GROUP_READY /* its burst is being sent */
};

/* An FEC group of a retained product. Parity symbols with numbers below `parity` are sent or
 * planned, those up to `target` are wanted. */
struct group {
    TAILQ_ENTRY(group) link;     /* in the list of held or ready groups */
    TAILQ_ENTRY(group) settling; /* already multicast, but its loss is not known yet */
    struct product *product;
    uint64_t due_ns, last_ns; /* last_ns: when its last repair was sent */
    uint64_t left_ns;         /* when its last block was sent */
    uint64_t settles_ns;      /* 0: settled */
    struct fmtp_bits wanted;  /* blocks lost by receivers that sent requests, not resent yet */
    struct fmtp_bits resent;  /* blocks resent by the last bursts */
    uint16_t number;
    uint8_t parity, target;
    uint8_t state;  /* enum group_state */
    bool originals; /* the burst resends blocks instead of parity */
    int account;    /* the account whose request last raised the target */
};
TAILQ_HEAD(groups, group);

struct product {
    struct tp_timer timer; /* first: timers are cast back to their product */
    struct tp_timer nudge;
    uint64_t nudge_ns;     /* the interval before this one */
    uint64_t begun_ns;     /* when its BOP was first handed over; 0: not yet */
    uint64_t bop_ns;       /* when its BOP was sent */
    uint64_t left_ns;      /* when its EOP was sent */
    uint64_t acked_ns;     /* when the first peer acknowledged it; 0: none has */
    uint64_t queued_ns;    /* until then it may wait in the system; 0: only briefly */
    struct product *chain; /* hash chain, or list of the dying */
    uint32_t index, size, nblocks, ngroups;
    uint64_t first_block; /* blocks multicast before it */
    struct iovec parts[FMTP_MAX_PARTS];
    int nparts;
    void *cookie;
    enum fmtp_release why;
    bool multicasted;
    bool failed;              /* a receiver could not keep it */
    bool had_peers;           /* a receiver was connected at BOP */
    size_t unfinished;        /* bits set in the set below */
    uint64_t *unfinished_set; /* by peer number */
    uint64_t *done_set;       /* peers that acknowledged it, or could not keep it */
    struct group *groups;     /* NULL: no extension for this product */
    uint32_t busy;            /* how many are held or ready */
    struct served **served;   /* by peer number, sender_requests.c; NULL: nothing was requested */
    uint32_t most_lost;       /* most blocks lost by one receiver, as reported when it finished */
    bool told;                /* a receiver reported that */
    uint16_t body_len;        /* the encoded BOP body as multicast */
    uint8_t body[];
};

/* A group whose RETX_DATA are queued for a peer until the queue's entry number `until` is gone. */
struct answered {
    uint32_t index, group;
    uint64_t until;
};
enum { ANSWERED = 64 };

/* The multicast that a host's receivers cause, sender_accounts.c. */
struct account {
    uint64_t host;
    size_t peers;       /* number connected */
    size_t reporting;   /* those that report their progress */
    uint64_t free_look; /* the last look at which one of them had room */
    bool alone;         /* repaired on its streams alone */
    unsigned relapses;  /* how often that has happened */
    uint64_t relapsed_blocks;
    double debt;        /* symbols multicast for it, minus its share of the data since */
    double part;        /* the same, minus its share of the limit for all hosts */
    double heard, lost; /* blocks it reported on, and how many of them it lost; decaying sums */
    uint64_t blocks;    /* blocks multicast when debt was last updated */
    uint64_t used;      /* when a peer last connected, counted in connections */
};

struct peer {
    bool broken; /* its queue overflowed: must be closed */
    bool extended;
    bool ours;            /* it supports NOT_YET */
    bool reports;         /* it reports its progress: */
    uint64_t read;        /* multicast blocks that it has read */
    uint64_t read_ns;     /* when it last reported that */
    uint64_t buffer;      /* unread bytes that it can hold; 0: unknown */
    uint64_t held_ns;     /* since when its buffer is full; 0: it is not */
    uint64_t patience_ns; /* how long the others will wait for it */
    bool blocked;
    int account;
    uint64_t rtt_ns;
    int64_t allowance; /* bytes it may receive under r_uc */
    uint8_t in[FMTP_HEADER_LEN + FMTP_REPAIR_REQ_MAX];
    size_t in_len;
    struct fmtp_requests queue;
    size_t head_sent; /* bytes of the head message already sent */
    struct fmtp_peer_counters counts;
    struct answered answered[ANSWERED];
    size_t rest_at, rest_len;
    uint8_t rest[]; /* the rest of a half-sent message whose product was released meanwhile */
};

/* What a peer holds back: in total, or limited to what others have acknowledged. */
struct held {
    size_t products;
    uint64_t bytes, since_ns; /* since_ns: of the oldest */
    struct fmtp_held behind;
};

/* A datagram that is planned but not sent. */
struct item {
    struct product *product;
    uint32_t seqnum;
    uint16_t flags;
    int16_t buffer; /* number of a parity symbol's buffer; else -1 */
};

struct fmtp_sender {
    struct fmtp_sender_config cfg;
    uint32_t next_index;
    struct product **hash;
    size_t hash_mask;
    size_t retained;
    uint64_t retained_bytes;
    struct held *held_by; /* by peer number: scratch for sender_held.c */
    uint64_t look_ns;     /* when to check again which peers are behind in time */
    struct tp_timers timers, nudges;

    struct product *current; /* being multicast, until its EOP is sent */
    uint64_t cursor;         /* what is planned so far: 0 nothing, 1 BOP, 1+n n blocks, all */
    struct group *appending; /* its proactive parity precedes the next block */
    struct item items[FMTP_FILL_MAX]; /* ring */
    size_t first_item, nitems;
    size_t filled;         /* how many of them the caller has, until sent() */
    struct product *dying; /* released, but the caller still has datagrams of them */

    struct groups held, ready, settling;
    unsigned repairs_ahead; /* consecutive repairs planned, for which new data must make up */
    uint64_t asked;         /* symbols in all requests */
    double lost, observed;  /* symbols lost and blocks sent; decaying sums */
    uint64_t loop_ns;       /* from a group's last block to its request */
    uint8_t *parity_memory;
    int16_t parity_free[64];
    unsigned parity_buffers, nparity_free;
    uint8_t *scratch; /* blocks that are not contiguous in a product */

    struct peer **peers;
    uint64_t *active;   /* set of peers with something queued */
    uint64_t *runnable; /* those of them that are not blocked */
    size_t turn;
    size_t npeers, nordinary;
    struct account *accounts; /* 2 * max_peers */
    struct account total;     /* totals of all accounts */
    double share_of_all;      /* symbols per block that all hosts may cause; 0: not computed */
    uint64_t looked_blocks;   /* blocks multicast when it was computed */
    size_t naccounts;         /* accounts with a peer */
    uint64_t npeers_ever;
    int worst; /* account from which the loss was last learned; -1: none */
    uint64_t rtt_max_ns;
    bool rtt_stale;
    int64_t uc_tokens; /* bytes, under r_uc */
    uint64_t uc_filled_ns;
    size_t uc_turn;
    uint64_t read_by_all; /* blocks, by those peers that are waited for */
    uint64_t open_to;     /* blocks up to which the peers' buffers let the multicast go */
    uint64_t open_look_ns, open_looked_ns; /* when to find that out again; and when it was */
    size_t nreporting, hosts_reporting;
    uint64_t nlooks;
    struct fmtp_server_stats stats;
};

/* --- sender.c */
/* Returns the retained product with that index, or NULL. */
struct product *fmtp_sender_lookup(const struct fmtp_sender *s, uint32_t index);
/* Releases the product and calls released(); frees it when the caller has no datagram of it. */
void fmtp_sender_release(struct fmtp_sender *s, struct product *p, enum fmtp_release why);
/* Releases the product if no receiver is left to wait for. A product that never had a receiver
 * waits for its timer. */
void fmtp_sender_release_if_done(struct fmtp_sender *s, struct product *p);
/* Removes the peer from those that the product waits for; returns false if it was not among
 * them. */
bool fmtp_sender_finish(struct product *p, int peer);
/* The product's EOP was sent. */
void fmtp_sender_multicasted(struct fmtp_sender *s, struct product *p, uint64_t now_ns);
/* Gives bytes [off, off+len) of the product as iovecs; returns how many. */
int fmtp_sender_product_iov(const struct product *p, uint32_t off, uint32_t len, struct iovec *iov);
/* Frees the product's memory, but not its data. */
void fmtp_sender_free_product(struct fmtp_sender *s, struct product *p);
/* Returns the number of words of a set with a bit for each peer. */
size_t fmtp_sender_set_words(const struct fmtp_sender *s);

/* Returns whether i is in the set. */
static inline bool in_set(const uint64_t *set, size_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

/* Adds i to the set, or removes it. */
static inline void set_put(uint64_t *set, size_t i, bool on)
{
    uint64_t bit = UINT64_C(1) << (i % 64);

    set[i / 64] = on ? set[i / 64] | bit : set[i / 64] & ~bit;
}

/* Returns the first member at or after i, or n. */
static inline size_t set_next(const uint64_t *set, size_t n, size_t i)
{
    while (i < n) {
        uint64_t word = set[i / 64] >> (i % 64);
        if (word) {
            i += (size_t)__builtin_ctzll(word);
            return i < n ? i : n;
        }
        i = (i / 64 + 1) * 64;
    }
    return n;
}

/* This many blocks or symbols of a repair were sent, for the peer (-1: for all). */
static inline void tell_repaired(const struct fmtp_sender *s, int peer, uint32_t index,
                                 uint32_t blocks)
{
    if (blocks && s->cfg.repaired)
        s->cfg.repaired(s->cfg.peers_ctx, peer, index, blocks);
}

/* --- sender_multicast.c */
/* Discards planned datagrams that the caller has not taken: of p, or (NULL) all of extension 1.
 * Returns whether the caller has some of p. */
bool fmtp_multicast_forget(struct fmtp_sender *s, const struct product *p);
/* Returns whether another datagram can be planned. */
bool fmtp_multicast_room(const struct fmtp_sender *s);
/* Plans a datagram; buffer: number of the parity buffer that it uses, -1: none. */
void fmtp_multicast_push(struct fmtp_sender *s, struct product *p, uint16_t flags, uint32_t seqnum,
                         int16_t buffer);

/* --- sender_accounts.c: what is multicast for one host alone */
int fmtp_accounts_init(struct fmtp_sender *s); /* -1: no memory */
/* A peer of that host connects: returns its account, which an earlier peer of the host may have
 * used. */
int fmtp_accounts_enter(struct fmtp_sender *s, uint64_t host);
/* One of its peers disconnects. */
void fmtp_accounts_leave(struct fmtp_sender *s, int account);
/* Charges it this many symbols that are multicast for it. */
void fmtp_accounts_charge(struct fmtp_sender *s, int account, unsigned symbols);
/* Charges it this many symbols that are multicast unasked because of the loss that it reported. */
void fmtp_accounts_charge_unasked(struct fmtp_sender *s, int account, unsigned symbols);
/* It reported that it lost this many of these symbols. */
void fmtp_accounts_heard(struct fmtp_sender *s, int account, unsigned symbols, unsigned lost);
/* Returns how much of the loss seen in requests the group repairs unasked. */
double fmtp_accounts_loss(struct fmtp_sender *s, double taught);
/* Charges it this many symbols that it requested and that were sent on its stream. */
void fmtp_accounts_charge_alone(struct fmtp_sender *s, int account, unsigned symbols);
/* Returns whether it is repaired on its streams alone because it requests more than others can
 * bear. */
bool fmtp_accounts_alone(struct fmtp_sender *s, int account, unsigned symbols);

/* --- sender_progress.c */
/* PROGRESS came. -1: the peer did not agree to that. */
int fmtp_progress_input(struct fmtp_sender *s, int number, const struct fmtp_header *h,
                        uint64_t now_ns);
/* The peer is done with p: of its multicast nothing waits at the peer any more. */
void fmtp_progress_end(struct fmtp_sender *s, int number, const struct product *p, uint64_t now_ns);
/* The peer leaves; its account still has it. */
void fmtp_progress_leave(struct fmtp_sender *s, const struct peer *peer);
/* True if the peer was still reading the multicast of p lately: it will find the end by itself. */
bool fmtp_progress_goes_on(const struct peer *peer, const struct product *p, uint64_t now_ns);

/* --- sender_requests.c */
/* Returns the head of the list of what is queued for the peer of the product's data; NULL: it has
 * requested none, or there was no memory. */
uint64_t *fmtp_requests_queued(struct product *p, size_t number);
/* Forgets what the peer's stream carried of the product. */
void fmtp_requests_forget_peer(struct product *p, int number);
/* Does the same for all peers. */
void fmtp_requests_forget(const struct fmtp_sender *s, struct product *p);

/* --- sender_peers.c */
/* Removes RETX_DATA and RETX_BOP of the product from the peer's queue. */
void fmtp_peers_forget(struct fmtp_sender *s, int number, uint32_t index);
/* Queues a message for the peer; rejects what does not fit. Returns -1 if not even the rejection
 * fits. */
int fmtp_peers_answer(struct fmtp_sender *s, int number, const struct fmtp_request *r);
/* Discards the peers' outstanding requests for the product, with a RETX_REJ. */
void fmtp_peers_purge(struct fmtp_sender *s, uint32_t index);
/* Queues an unsolicited RETX_EOP for every peer that p waits for and to which nothing about it is
 * in flight; returns how many. */
unsigned fmtp_peers_nudge(struct fmtp_sender *s, const struct product *p, uint64_t now_ns);
/* Returns when r_uc lets a peer continue, or TP_NEVER. */
uint64_t fmtp_peers_deadline(const struct fmtp_sender *s);
/* Grants all streams together the bytes that r_uc allows up to now_ns. */
void fmtp_peers_refill(struct fmtp_sender *s, uint64_t now_ns);
/* Returns the longest round-trip time of all peers in ns; 0 if unknown. */
uint64_t fmtp_peers_rtt_max(struct fmtp_sender *s);

#endif

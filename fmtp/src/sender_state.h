/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the sender core share (sender.c products and time, _multicast.c datagrams,
 * _repair.c extension 1, _accounts.c its bounds,
 * _peers.c streams, _requests.c what comes from them). No other file includes it.
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

/* A FEC group of a retained product. Symbols: what the group's parity numbers below `parity` are
 * sent or planned, those up to `target` are wanted. */
struct group {
    TAILQ_ENTRY(group) link;     /* held or ready */
    TAILQ_ENTRY(group) settling; /* multicast, and it is not yet known what was lost of it */
    struct product *product;
    uint64_t due_ns, last_ns; /* last_ns: when its last repair left */
    uint64_t left_ns;         /* when its last block left */
    uint64_t settles_ns;      /* 0: settled */
    struct fmtp_bits wanted;  /* blocks lost by receivers that asked, not resent yet */
    struct fmtp_bits resent;  /* blocks resent by the last bursts */
    uint16_t number;
    uint8_t parity, target;
    uint8_t state;  /* enum group_state */
    bool originals; /* the burst resends blocks instead of parity */
    int account;    /* whose request raised the target last */
};
TAILQ_HEAD(groups, group);

struct product {
    struct tp_timer timer; /* first: timers are cast back to their product */
    struct tp_timer nudge;
    uint64_t nudge_ns;     /* the interval before this one */
    uint64_t bop_ns;       /* when its BOP left */
    uint64_t left_ns;      /* when its EOP left */
    uint64_t acked_ns;     /* when the first peer acknowledged it; 0: none has */
    uint64_t queued_ns;    /* till then it may wait in the system; 0: hardly */
    struct product *chain; /* hash, or list of the dying */
    uint32_t index, size, nblocks, ngroups;
    struct iovec parts[FMTP_MAX_PARTS];
    int nparts;
    void *cookie;
    enum fmtp_release why;
    bool multicasted;
    bool failed;              /* a receiver could not keep it */
    bool had_peers;           /* a receiver was connected at BOP */
    size_t unfinished;        /* bits set in the set below */
    uint64_t *unfinished_set; /* by peer number */
    uint64_t *done_set;       /* peers that acknowledged it */
    struct group *groups;     /* NULL: no extension for this product */
    uint32_t busy;            /* of them held or ready */
    struct served **served;   /* by peer number, sender_requests.c; NULL: nothing was asked for */
    uint32_t most_lost;       /* blocks lost by one receiver, as they reported when done */
    bool told;                /* a receiver did */
    uint16_t body_len;        /* the encoded BOP body, as it was multicast */
    uint8_t body[];
};

/* A group whose RETX_DATA are queued for a peer until its queue's entry number `until` is gone. */
struct answered {
    uint32_t index, group;
    uint64_t until;
};
enum { ANSWERED = 64 };

/* What a host's receivers cause to be multicast, sender_accounts.c. */
struct account {
    uint64_t host;
    size_t peers;      /* that are connected */
    bool alone;        /* repaired on its streams */
    unsigned relapses; /* how often it has become so */
    uint64_t relapsed_blocks;
    double debt;        /* symbols multicast for it, less its part of the data since */
    double part;        /* the same, less its part of what all hosts are borne */
    double heard, lost; /* blocks it reported on, and lost of them, forgetting old ones */
    uint64_t blocks;    /* multicast when debt was brought up to date */
    uint64_t used;      /* when a peer came last, in peers that came */
};

struct peer {
    bool broken; /* its queue overflowed: to be closed */
    bool extended;
    bool ours; /* it knows NOT_YET */
    bool blocked;
    int account;
    uint64_t rtt_ns;
    int64_t allowance; /* bytes it may send under r_uc */
    uint8_t in[FMTP_HEADER_LEN + FMTP_REPAIR_REQ_MAX];
    size_t in_len;
    struct fmtp_requests queue;
    size_t head_sent; /* bytes of the message at the head that left already */
    uint64_t popped;  /* entries of the queue that are gone */
    struct fmtp_peer_counters counts;
    struct answered answered[ANSWERED];
    size_t rest_at, rest_len;
    uint8_t rest[]; /* of a half-sent message whose product was released meanwhile */
};

/* What a peer holds back: in all, and of that what others have acknowledged. */
struct held {
    size_t products;
    uint64_t bytes, since_ns; /* since_ns: of the oldest */
    struct fmtp_held behind;
};

/* A datagram that is planned, and not yet sent. */
struct item {
    struct product *product;
    uint32_t seqnum;
    uint16_t flags;
    int16_t buffer; /* of a parity symbol; else -1 */
};

struct fmtp_sender {
    struct fmtp_sender_config cfg;
    uint32_t next_index;
    struct product **hash;
    size_t hash_mask;
    size_t retained;
    uint64_t retained_bytes;
    struct held *held_by; /* by peer number: room for sender_held.c */
    uint64_t look_ns;     /* when it checks again who is behind in time */
    struct tp_timers timers, nudges;

    struct product *current; /* being multicast, until its EOP was sent */
    uint64_t cursor;         /* what is planned so far: 0 nothing, 1 BOP, 1+n n blocks, all */
    struct group *appending; /* proactive parity comes before the next block */
    struct item items[FMTP_FILL_MAX]; /* ring */
    size_t first_item, nitems;
    size_t filled;         /* of them the caller has, until sent() */
    struct product *dying; /* released, but the caller has datagrams of them */

    struct groups held, ready, settling;
    unsigned repairs_ahead; /* repairs planned in a row that new data has to make up for */
    uint64_t asked;         /* symbols, by all requests */
    double lost, observed;  /* symbols lost and blocks sent, forgetting old ones */
    uint64_t loop_ns;       /* from a group's last block to the request for it */
    uint8_t *parity_memory;
    int16_t parity_free[64];
    unsigned parity_buffers, nparity_free;
    uint8_t *scratch; /* blocks that are not in one piece in a product */

    struct peer **peers;
    uint64_t *active;   /* set of peers with something queued */
    uint64_t *runnable; /* those of them that are not blocked */
    size_t turn;
    size_t npeers, nordinary;
    struct account *accounts; /* 2 * max_peers */
    struct account total;     /* of all of them */
    double share_of_all;      /* symbols per block that all are borne; 0: not looked for */
    uint64_t looked_blocks;   /* multicast when it was */
    size_t naccounts;         /* with a peer */
    uint64_t npeers_ever;
    int worst; /* account that taught the loss last; -1: none */
    uint64_t rtt_max_ns;
    bool rtt_stale;
    int64_t uc_tokens; /* bytes, under r_uc */
    uint64_t uc_filled_ns;
    size_t uc_turn;
    struct fmtp_server_stats stats;
};

/* --- sender.c */
/* The retained product of that index, or NULL. */
struct product *fmtp_sender_lookup(const struct fmtp_sender *s, uint32_t index);
/* Releases the product and calls released(); it is freed when no datagram of it is out. */
void fmtp_sender_release(struct fmtp_sender *s, struct product *p, enum fmtp_release why);
/* No receiver is left to wait for. A product that no receiver was there for waits for its timer. */
void fmtp_sender_release_if_done(struct fmtp_sender *s, struct product *p);
/* Takes the peer out of those the product waits for; false if it was not among them. */
bool fmtp_sender_finish(struct product *p, int peer);
/* The product's EOP left. */
void fmtp_sender_multicasted(struct fmtp_sender *s, struct product *p, uint64_t now_ns);
/* Bytes [off, off+len) of the product as iovecs; returns how many. */
int fmtp_sender_product_iov(const struct product *p, uint32_t off, uint32_t len, struct iovec *iov);
/* Frees the product's memory, not its data. */
void fmtp_sender_free_product(struct fmtp_sender *s, struct product *p);
/* Words of a set with a bit for each peer. */
size_t fmtp_sender_set_words(const struct fmtp_sender *s);

/* True if i is in the set. */
static inline bool in_set(const uint64_t *set, size_t i)
{
    return set[i / 64] >> (i % 64) & 1;
}

/* Puts i into the set, or takes it out. */
static inline void set_put(uint64_t *set, size_t i, bool on)
{
    uint64_t bit = UINT64_C(1) << (i % 64);

    set[i / 64] = on ? set[i / 64] | bit : set[i / 64] & ~bit;
}

/* The first member at or after i, or n. */
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

/* This many blocks or symbols of a repair left, for the peer (-1: all of them). */
static inline void tell_repaired(const struct fmtp_sender *s, int peer, uint32_t index,
                                 uint32_t blocks)
{
    if (blocks && s->cfg.repaired)
        s->cfg.repaired(s->cfg.peers_ctx, peer, index, blocks);
}

/* --- sender_multicast.c */
/* Forgets planned datagrams that the caller has not taken: of p, or (NULL) all of extension 1.
 * Returns whether the caller has some of p. */
bool fmtp_multicast_forget(struct fmtp_sender *s, const struct product *p);
/* True if another datagram can be planned. */
bool fmtp_multicast_room(const struct fmtp_sender *s);
/* Plans a datagram; buffer: number of the parity buffer it is made in, -1: none. */
void fmtp_multicast_push(struct fmtp_sender *s, struct product *p, uint16_t flags, uint32_t seqnum,
                         int16_t buffer);

/* --- sender_accounts.c: what is multicast for one host alone */
int fmtp_accounts_init(struct fmtp_sender *s); /* -1: no memory */
/* A peer of that host comes: its account, which an earlier peer of the host may have used. */
int fmtp_accounts_enter(struct fmtp_sender *s, uint64_t host);
/* One of its peers goes. */
void fmtp_accounts_leave(struct fmtp_sender *s, int account);
/* This many symbols are multicast for it. */
void fmtp_accounts_charge(struct fmtp_sender *s, int account, unsigned symbols);
/* This many are, unasked, because of the loss that it reported. */
void fmtp_accounts_charge_unasked(struct fmtp_sender *s, int account, unsigned symbols);
/* It says that it lost so many symbols of so many. */
void fmtp_accounts_heard(struct fmtp_sender *s, int account, unsigned symbols, unsigned lost);
/* How much of the loss in requests the group repairs unasked. */
double fmtp_accounts_loss(struct fmtp_sender *s, double taught);
/* It asked for so many that went to its stream. */
void fmtp_accounts_charge_alone(struct fmtp_sender *s, int account, unsigned symbols);
/* True if it is repaired on its streams alone, because it asks for more than others can bear. */
bool fmtp_accounts_alone(struct fmtp_sender *s, int account, unsigned symbols);

/* --- sender_requests.c */
/* What its stream had of the product. */
void fmtp_requests_forget_peer(struct product *p, int number);
/* The same of all peers. */
void fmtp_requests_forget(const struct fmtp_sender *s, struct product *p);

/* --- sender_peers.c */
/* Takes RETX_DATA and RETX_BOP of the product out of the peer's queue. */
void fmtp_peers_forget(struct fmtp_sender *s, int number, uint32_t index);
/* Queues a message for the peer; what does not fit is rejected, -1 if not even the rejection
 * fits. */
int fmtp_peers_answer(struct fmtp_sender *s, int number, const struct fmtp_request *r);
/* Forgets the peers' outstanding requests for the product, with a RETX_REJ. */
void fmtp_peers_purge(struct fmtp_sender *s, uint32_t index);
/* Puts an unsolicited RETX_EOP into the queue of every peer that p waits for and to which nothing
 * about it is on its way; returns how many. */
unsigned fmtp_peers_nudge(struct fmtp_sender *s, const struct product *p);
/* When r_uc lets a peer go on, or TP_NEVER. */
uint64_t fmtp_peers_deadline(const struct fmtp_sender *s);
/* Gives all streams together the bytes that r_uc grants up to now_ns. */
void fmtp_peers_refill(struct fmtp_sender *s, uint64_t now_ns);
/* The longest round-trip time of all peers in ns, 0 if unknown. */
uint64_t fmtp_peers_rtt_max(struct fmtp_sender *s);

#endif

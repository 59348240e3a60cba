/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending state machine: no socket, no clock, no thread. The caller brings bytes and the time
 * (now_ns, any monotonic origin) and takes out datagrams and stream bytes as iovecs: headers and
 * parity made here, payload pointers into the offered product (never copied). MPUP16 II; FMTPv3
 * messages in wire.h, FEC in fec.h.
 *
 * Extension 1 (multicast repair) is used while an extended peer is connected; ordinary ones, and
 * those that ask for more than the others can bear, are repaired on their streams.
 *
 * Memory: max_products entries (and, with fec_k, 160 bytes per FEC group of each, and 2 bits per
 * block for each peer that asked for some on its stream), max_peers entries with peer_queue_bytes
 * each, at most 1 MiB or 8 blocks of parity.
 */
#ifndef FMTP_SENDER_H
#define FMTP_SENDER_H

#include "wire.h"

#define FMTP_MAX_PARTS 4
#define FMTP_STREAM_MESSAGES 32
#define FMTP_FILL_MAX 1024 /* datagrams that one fill() gives at most */

struct fmtp_sender_config {
    enum fmtp_layout layout;
    uint32_t first_index;
    uint16_t block_bytes;    /* 0: FMTP_DATA_LEN */
    uint16_t overhead_bytes; /* below FMTP on the way (IP and UDP), for cost */
    uint16_t fec_k;          /* blocks per FEC group, <= FMTP_FEC_MAX_K; 0: no extension */
    bool no_parity;          /* with fec_k: repairs are the lost blocks themselves */
    uint64_t session_id;
    double f_snd;            /* equation (1) */
    bool timer_from_bop;     /* tau_snd runs from BOP, else from EOP */
    uint64_t r_mc_bps;       /* equation (1), and the cost of repair; 0: unknown */
    uint64_t r_uc_bps;       /* all streams together at most; 0: unlimited */
    uint64_t tau_snd_min_ns; /* 0: equation (1) as it is */
    size_t queued_bytes;     /* what may wait in the system behind sent(); 0: 256 KiB */
    size_t max_products, max_peers;
    size_t peer_queue_bytes; /* memory for the queued requests of one peer */
    struct fmtp_held_bounds held;
    void *ctx;
    void (*multicasted)(void *ctx, uint32_t index, void *cookie); /* may be NULL */
    void (*released)(void *ctx, uint32_t index, void *cookie, enum fmtp_release why);
    void (*expired)(void *ctx, uint32_t index); /* tau_snd ended; may be NULL */
    /* These have their own context, and may be NULL. A peer requested a repair of so many blocks;
     * so many of one left (peer -1: by multicast); a peer's queue has no room for an answer. */
    void *peers_ctx;
    void (*requested)(void *ctx, int peer, uint32_t index, uint32_t blocks, bool multicast);
    void (*repaired)(void *ctx, int peer, uint32_t index, uint32_t blocks);
    void (*queue_full)(void *ctx, int peer, uint32_t index);
};

/* A datagram; iov[0] points to head, so the structure must stay where it is. */
struct fmtp_datagram {
    uint8_t head[FMTP_HEADER_LEN];
    struct iovec iov[1 + FMTP_MAX_PARTS];
    int niov;
    size_t len;
};

/* Some messages for one peer's stream; must stay where it is as well. */
struct fmtp_stream_out {
    uint8_t heads[FMTP_STREAM_MESSAGES][FMTP_HEADER_LEN];
    struct iovec iov[FMTP_STREAM_MESSAGES * (1 + FMTP_MAX_PARTS)];
    int niov;
    size_t len;
};

/* A product: nparts <= FMTP_MAX_PARTS parts, which stay until it is released; meta is copied. */
struct fmtp_offer {
    const struct iovec *parts;
    int nparts;
    const void *meta;
    uint16_t meta_len;
    void *cookie;
    struct timespec start; /* CLOCK_REALTIME, goes into the BOP of LAYOUT_2021 */
};

struct fmtp_sender;

struct fmtp_sender *fmtp_sender_new(const struct fmtp_sender_config *cfg); /* NULL: no memory */
/* Releases what is retained with FMTP_RELEASE_CLOSED. */
void fmtp_sender_free(struct fmtp_sender *s);

/* Another session, with other blocks: while there is neither peer nor product. False: there is one,
 * or no memory; nothing changed. */
bool fmtp_sender_renew(struct fmtp_sender *s, uint64_t session_id, uint16_t block_bytes);
/* True if another product can be offered now. */
bool fmtp_sender_ready(const struct fmtp_sender *s);
/* See fmtp_server_offer(). *index (may be NULL) gets its product index. */
int fmtp_sender_offer(struct fmtp_sender *s, const struct fmtp_offer *offer, uint32_t *index,
                      struct tp_error *err);

/* Releases the product and informs peers that lack any of it. false: it is not retained. */
bool fmtp_sender_withdraw(struct fmtp_sender *s, uint32_t index);
/* The bytes of what goes to the peer next cannot be read: withdraws that product. false: they are
 * of none. */
bool fmtp_sender_unreadable(struct fmtp_sender *s, int peer);
/* Tells the extended peers that nothing more comes. */
void fmtp_sender_finish_all(struct fmtp_sender *s);

/* --- multicast output: take datagrams, send them in this order, say how many left */
/* True if there is a datagram to send at now_ns. */
bool fmtp_sender_has_output(const struct fmtp_sender *s, uint64_t now_ns);
/* The next datagrams (BOP, MEM_DATA, EOP, PARITY, REPAIR), at most max and FMTP_FILL_MAX; returns
 * how many. Everything they point to stays until the next call of sent(), whatever happens
 * meanwhile; another fill() before that begins with the same ones. */
unsigned fmtp_sender_fill(struct fmtp_sender *s, struct fmtp_datagram *out, unsigned max,
                          uint64_t now_ns);
/* The first n of the last fill() left at now_ns (0: none, but its datagrams are no longer used).
 * When EOP is among them the sender timer starts. */
void fmtp_sender_sent(struct fmtp_sender *s, unsigned n, uint64_t now_ns);

/* Symbols that extended receivers asked for so far, all together, repeatedly asked ones too. */
uint64_t fmtp_sender_asked(const struct fmtp_sender *s);

/* --- peers: connections that are ready for messages */
/* Number of the new peer (0..max_peers-1), -1 if there is no room. extended: it speaks extension 1;
 * out (may be NULL) is what it must be told. */
int fmtp_sender_peer_add(struct fmtp_sender *s, bool extended, struct fmtp_session *out);
/* The same of a host that may have several: repairs are bounded by host. */
int fmtp_sender_peer_add_from(struct fmtp_sender *s, uint64_t host, bool extended,
                              struct fmtp_session *out);
/* True if it is repaired on its stream alone, because of how much it asks for. */
bool fmtp_sender_peer_alone(struct fmtp_sender *s, int peer);
/* The peer is a program of Downpour. */
void fmtp_sender_peer_ours(struct fmtp_sender *s, int peer);
/* The connection ended: no product waits for this peer any more. */
void fmtp_sender_peer_remove(struct fmtp_sender *s, int peer);
/* Its round-trip time as measured, in ns; 0: unknown. */
void fmtp_sender_peer_rtt(struct fmtp_sender *s, int peer, uint64_t rtt_ns);
/* A peer over a bound of cfg.held at now_ns, and what it holds back; -1: there is none. The caller
 * removes it, and asks again. */
int fmtp_sender_laggard(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_held *out);
/* The peer that holds back the most of the products up to this index, and what; -1: none does. */
int fmtp_sender_holder(struct fmtp_sender *s, uint32_t up_to, uint64_t now_ns,
                       struct fmtp_held *out);
/* Bytes from the peer's stream. -1: garbage or abuse, the caller must close the connection. */
int fmtp_sender_peer_input(struct fmtp_sender *s, int peer, const uint8_t *bytes, size_t len,
                           uint64_t now_ns);
/* True if something may go to this peer now (r_uc permitting). */
bool fmtp_sender_peer_pending(const struct fmtp_sender *s, int peer);
/* True if a stream that is not blocked has something to send: no event will say so again. */
bool fmtp_sender_streams_ready(const struct fmtp_sender *s);
/* A peer for which that holds and that is not blocked, each in turn; -1: none. */
int fmtp_sender_next_ready(struct fmtp_sender *s, uint64_t now_ns);
/* Its socket takes nothing more (true), or something again (false: so it is at first). */
void fmtp_sender_peer_blocked(struct fmtp_sender *s, int peer, bool blocked);
/* Fills out with what goes to the peer next (out->len 0: nothing); then say how many bytes of it
 * left. Nothing else may be called between the two. */
void fmtp_sender_peer_peek(struct fmtp_sender *s, int peer, struct fmtp_stream_out *out,
                           uint64_t now_ns);
/* The first bytes of the last peek left at now_ns. */
void fmtp_sender_peer_sent(struct fmtp_sender *s, int peer, size_t bytes, uint64_t now_ns);

/* --- time */
uint64_t fmtp_sender_deadline(const struct fmtp_sender *s); /* TP_NEVER: none */
/* Does what is due at now_ns: products time out, receivers are asked for their requests. */
void fmtp_sender_timeout(struct fmtp_sender *s, uint64_t now_ns);

/* Counters alone: no counts of what is connected or retained now. */
const struct fmtp_server_stats *fmtp_sender_counts(const struct fmtp_sender *s);
/* What each peer holds back at now_ns, for: */
void fmtp_sender_count_held(struct fmtp_sender *s, uint64_t now_ns);
void fmtp_sender_peer_counters(const struct fmtp_sender *s, int peer,
                               struct fmtp_peer_counters *out);
/* Everything but .receivers' address related fields is filled. */
void fmtp_sender_get_stats(const struct fmtp_sender *s, struct fmtp_server_stats *out);

#endif

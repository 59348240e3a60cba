/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending state machine: no socket, no clock, no thread. The caller supplies bytes and the time
 * (now_ns, any monotonic origin) and takes out datagrams and stream bytes as iovecs: headers and
 * parity are made here, payload pointers lead into the offered product (never copied). MPUP16 II;
 * FMTPv3 messages in wire.h, FEC in fec.h.
 *
 * Extension 1 (multicast repair) is used while an extended peer is connected. Ordinary peers, and
 * those that request more than the others can bear, are repaired on their streams.
 *
 * Memory: max_products entries (and, with fec_k, 160 bytes per FEC group of each, and 2 bits per
 * block for each peer that requested some on its stream), max_peers entries with peer_queue_bytes
 * each, at most 1 MiB or 8 blocks of parity.
 */
#ifndef FMTP_SENDER_H
#define FMTP_SENDER_H

#include "wire.h"

#define FMTP_MAX_PARTS 4
#define FMTP_STREAM_MESSAGES 32
#define FMTP_FILL_MAX 1024 /* most datagrams per fill() */

struct fmtp_sender_config {
    enum fmtp_layout layout;
    uint32_t first_index;
    uint16_t block_bytes;    /* 0: FMTP_DATA_LEN */
    uint16_t overhead_bytes; /* headers below FMTP (IP and UDP), for cost */
    uint16_t fec_k;          /* blocks per FEC group, <= FMTP_FEC_MAX_K; 0: no extension */
    bool no_parity;          /* with fec_k: repairs are the lost blocks themselves */
    uint64_t session_id;
    double f_snd;            /* equation (1) */
    bool timer_from_bop;     /* tau_snd runs from BOP, else from EOP */
    bool timer_by_handover;  /* equation (1) by the time from fill() of BOP to sent() of EOP, */
    uint64_t handover_ns;    /* which is at least this for each datagram */
    bool blocking;           /* a peer's next request waits, see fmtp_sender_peer_wants() */
    uint64_t r_mc_bps;       /* for equation (1) and the cost of repair; 0: unknown */
    uint64_t r_uc_bps;       /* limit of all streams together; 0: unlimited */
    uint64_t tau_snd_min_ns; /* 0: equation (1) as published */
    size_t queued_bytes;     /* what may wait in the system after sent(); 0: 256 KiB */
    size_t max_products, max_peers;
    size_t peer_queue_bytes; /* memory for the queued requests of one peer */
    struct fmtp_held_bounds held;
    void *ctx;
    void (*multicasted)(void *ctx, uint32_t index, void *cookie); /* may be NULL */
    void (*released)(void *ctx, uint32_t index, void *cookie, enum fmtp_release why);
    void (*expired)(void *ctx, uint32_t index); /* tau_snd expired; may be NULL */
    /* These have their own context, and may be NULL. A peer requested a repair of this many blocks;
     * this many were sent (peer -1: by multicast); a peer's queue has no room for an answer. */
    void *peers_ctx;
    void (*requested)(void *ctx, int peer, uint32_t index, uint32_t blocks, bool multicast);
    void (*repaired)(void *ctx, int peer, uint32_t index, uint32_t blocks);
    void (*queue_full)(void *ctx, int peer, uint32_t index);
};

/* A datagram. iov[0] points to head, so the structure must not move. */
struct fmtp_datagram {
    uint8_t head[FMTP_HEADER_LEN];
    struct iovec iov[1 + FMTP_MAX_PARTS];
    int niov;
    size_t len;
};

/* Messages for one peer's stream; must not move either. */
struct fmtp_stream_out {
    uint8_t heads[FMTP_STREAM_MESSAGES][FMTP_HEADER_LEN];
    struct iovec iov[FMTP_STREAM_MESSAGES * (1 + FMTP_MAX_PARTS)];
    int niov;
    size_t len;
};

/* A product: nparts <= FMTP_MAX_PARTS parts, which must remain valid until it is released; meta is
 * copied. */
struct fmtp_offer {
    const struct iovec *parts;
    int nparts;
    const void *meta;
    uint16_t meta_len;
    void *cookie;
    struct timespec start; /* CLOCK_REALTIME, for the BOP of LAYOUT_2021 */
};

struct fmtp_sender;

struct fmtp_sender *fmtp_sender_new(const struct fmtp_sender_config *cfg); /* NULL: no memory */
/* Frees the sender and releases retained products with FMTP_RELEASE_CLOSED. */
void fmtp_sender_free(struct fmtp_sender *s);

/* Starts another session with another block size, while there are neither peers nor products.
 * Returns false if there are any, or without memory; nothing has changed then. */
bool fmtp_sender_renew(struct fmtp_sender *s, uint64_t session_id, uint16_t block_bytes);
/* Returns whether another product can be offered now. */
bool fmtp_sender_ready(const struct fmtp_sender *s);
/* See fmtp_server_offer(). *index (index may be NULL) receives its product index. */
int fmtp_sender_offer(struct fmtp_sender *s, const struct fmtp_offer *offer, uint32_t *index,
                      struct tp_error *err);

/* Releases the product and informs peers that lack any of it. Returns false if it is not
 * retained. */
bool fmtp_sender_withdraw(struct fmtp_sender *s, uint32_t index);
/* The bytes that go to the peer next cannot be read: withdraws their product. Returns false if they
 * belong to none. */
bool fmtp_sender_unreadable(struct fmtp_sender *s, int peer);
/* Tells the extended peers that nothing more will come. */
void fmtp_sender_finish_all(struct fmtp_sender *s);

/* --- multicast output: take datagrams, send them in this order, report how many were sent */
/* Returns whether there is a datagram to send at now_ns. */
bool fmtp_sender_has_output(const struct fmtp_sender *s, uint64_t now_ns);
/* Fills in the next datagrams (BOP, MEM_DATA, EOP, PARITY, REPAIR), at most max and FMTP_FILL_MAX;
 * returns how many. Everything they point to remains valid until the next call of sent(), whatever
 * happens meanwhile; another fill() before that begins with the same ones. */
unsigned fmtp_sender_fill(struct fmtp_sender *s, struct fmtp_datagram *out, unsigned max,
                          uint64_t now_ns);
/* The first n of the last fill() were sent at now_ns (0: none; its datagrams are no longer used).
 * If EOP is among them, the sender timer starts. */
void fmtp_sender_sent(struct fmtp_sender *s, unsigned n, uint64_t now_ns);

/* Returns how many symbols extended receivers have requested so far in total, including repeated
 * requests. */
uint64_t fmtp_sender_asked(const struct fmtp_sender *s);

/* --- peers: connections that are ready for messages */
/* Adds a peer. Returns its number (0..max_peers-1), or -1 if there is no room. extended: it
 * supports extension 1; out (may be NULL) receives what it must be told. */
int fmtp_sender_peer_add(struct fmtp_sender *s, bool extended, struct fmtp_session *out);
/* Does the same for a host that may have several peers: repairs are bounded per host. */
int fmtp_sender_peer_add_from(struct fmtp_sender *s, uint64_t host, bool extended,
                              struct fmtp_session *out);
/* Returns whether it is repaired on its stream alone because it requests too much. */
bool fmtp_sender_peer_alone(struct fmtp_sender *s, int peer);
/* Marks the peer as a program of Downpour. */
void fmtp_sender_peer_ours(struct fmtp_sender *s, int peer);
/* The peer reports its progress. */
void fmtp_sender_peer_reports(struct fmtp_sender *s, int peer);
/* Returns whether all peers report, and how many blocks were multicast and read by all of them. */
bool fmtp_sender_progress(const struct fmtp_sender *s, uint64_t *sent, uint64_t *read);
/* Returns 0 if the peers have read enough for more to be multicast at that rate; otherwise when to
 * ask again. A peer that reports nothing for a while is not waited for. */
uint64_t fmtp_sender_held_until(struct fmtp_sender *s, uint64_t rate_bps, uint64_t now_ns);
/* The connection has ended: no product waits for this peer any more. */
void fmtp_sender_peer_remove(struct fmtp_sender *s, int peer);
/* Sets its measured round-trip time in ns; 0: unknown. */
void fmtp_sender_peer_rtt(struct fmtp_sender *s, int peer, uint64_t rtt_ns);
/* Returns a peer that exceeds a bound of cfg.held at now_ns, and what it holds back; -1: none. The
 * caller removes it and calls this again. */
int fmtp_sender_laggard(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_held *out);
/* Returns the peer that holds back the most of the products up to this index, and what; -1:
 * none. */
int fmtp_sender_holder(struct fmtp_sender *s, uint32_t up_to, uint64_t now_ns,
                       struct fmtp_held *out);
/* Returns how many bytes of the peer's stream to process next, at most. With cfg.blocking they end
 * one message, and there are none until its stream has taken what it was answered. */
size_t fmtp_sender_peer_wants(const struct fmtp_sender *s, int peer);
/* Processes bytes from the peer's stream. Returns -1 on garbage or abuse: the caller must close the
 * connection. */
int fmtp_sender_peer_input(struct fmtp_sender *s, int peer, const uint8_t *bytes, size_t len,
                           uint64_t now_ns);
/* Returns whether something may be sent to this peer now (r_uc permitting). */
bool fmtp_sender_peer_pending(const struct fmtp_sender *s, int peer);
/* Returns whether an unblocked stream has something to send: no event will report it again. */
bool fmtp_sender_streams_ready(const struct fmtp_sender *s);
/* Returns an unblocked peer for which that holds, in round-robin order; -1: none. */
int fmtp_sender_next_ready(struct fmtp_sender *s, uint64_t now_ns);
/* Its socket accepts nothing more (true), or accepts data again (false, the initial state). */
void fmtp_sender_peer_blocked(struct fmtp_sender *s, int peer, bool blocked);
/* Fills in what to send to the peer next (out->len 0: nothing). Then report how many bytes of it
 * were sent; call nothing else in between. */
void fmtp_sender_peer_peek(struct fmtp_sender *s, int peer, struct fmtp_stream_out *out,
                           uint64_t now_ns);
/* The first bytes of the last peek were sent at now_ns. */
void fmtp_sender_peer_sent(struct fmtp_sender *s, int peer, size_t bytes, uint64_t now_ns);

/* --- time */
uint64_t fmtp_sender_deadline(const struct fmtp_sender *s); /* TP_NEVER: none */
/* Does what is due at now_ns: products time out, receivers are reminded. */
void fmtp_sender_timeout(struct fmtp_sender *s, uint64_t now_ns);

/* Returns the counters alone, without the numbers of what is connected or retained now. */
const struct fmtp_server_stats *fmtp_sender_counts(const struct fmtp_sender *s);
/* Counts what each peer holds back at now_ns, for fmtp_sender_peer_counters(). */
void fmtp_sender_count_held(struct fmtp_sender *s, uint64_t now_ns);
void fmtp_sender_peer_counters(const struct fmtp_sender *s, int peer,
                               struct fmtp_peer_counters *out);
/* Fills in everything but the address-related fields of .receivers. */
void fmtp_sender_get_stats(const struct fmtp_sender *s, struct fmtp_server_stats *out);

#endif

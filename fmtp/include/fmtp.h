/* SPDX-License-Identifier: Apache-2.0
 *
 * FMTP: File Multicast Transport Protocol, version 3 on the wire.
 *
 * Other rooms include only this header, fmtp_counters.h and fmtp_events.h. FMTP has two layers:
 *   - fmtp_server / fmtp_client: the thin event loop (sockets, clock, epoll) around the
 *     sans-I/O cores. Each object has one epoll descriptor, to be nested in the caller's loop.
 *   - the protocol cores (fmtp/src/sender.h and fmtp/src/receiver.h), which tests, simulations
 *     and fuzzers drive directly.
 *
 * Names include the units: *_ns nanoseconds, *_bps bits/s, *_bytes bytes. Unless a comment says
 * otherwise, functions return 0 on success and -1 on failure, with the reason in *err.
 */
#ifndef FMTP_H
#define FMTP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "fmtp_counters.h"
#include "net/address.h"
#include "net/key_file.h"

#define FMTP_DATA_LEN 1448u   /* product bytes per block (both layouts, MAC level 0) */
#define FMTP_MAX_BLOCK 65492u /* the largest block of any session: a PDU of 65504 bytes */
#define FMTP_HEADER_LEN 12u
#define FMTP_MAX_METADATA 1430u
#define FMTP_KEY_BYTES TP_KEY_BYTES /* of the key that both ends may be given */

/* A MAC level: level 1 with AES-256-GMAC between programs of Downpour. An original cannot say which
 * level it supports, so with originals it is 0: at a sender if the first receiver is one, at a
 * receiver if the sender is. Never 0 if there is a key. */
#define FMTP_MAC_AUTO 3u

/* Fixed part of the BOP body. LAYOUT_2017: prodsize+metasize (6 bytes, no key exchange on TCP).
 * LAYOUT_2021: start time+prodsize+metasize (18 bytes), and the RSA key exchange even at MAC level
 * 0. */
enum fmtp_layout { FMTP_LAYOUT_2017 = 2017, FMTP_LAYOUT_2021 = 2021 };

/* Addresses are IPv4 or IPv6; a configuration uses only one family. */

/* What the two ends of a connection agreed on (LAYOUT_2021; see docs/reference/contracts.md). If
 * neither `extended` nor `ours` is set, only block_bytes and mac are meaningful. */
struct fmtp_session {
    bool extended;        /* extension 1: multicast repair with FEC */
    uint16_t block_bytes; /* product bytes per block */
    uint16_t fec_k;       /* most blocks per FEC group */
    uint32_t next_index;  /* first product that this receiver must acknowledge */
    uint64_t id;          /* chosen at random when the sender starts */
    bool ours;     /* both are programs of Downpour: they use NOT_YET, and a RETX_REJ is final */
    uint8_t mac;   /* kind of the datagrams' MACs (enum fmtp_mac_kind); 0: none */
    bool progress; /* receivers report how far they have read (PROGRESS) */
};

/* Calls tp_key_read() for a file that the owner's group may also read. */
static inline int fmtp_key_read(const char *path, uint8_t key[FMTP_KEY_BYTES], struct tp_error *err)
{
    return tp_key_read(path, TP_KEY_GROUP_READS, key, err);
}

/* ------------------------------------------------------------------ sending side */

/* Why the sender released a product. */
enum fmtp_release {
    FMTP_RELEASE_ALL_DONE,  /* every receiver that was connected at BOP acknowledged it or left */
    FMTP_RELEASE_FAILED,    /* like ALL_DONE, but a receiver could not keep it */
    FMTP_RELEASE_WITHDRAWN, /* fmtp_server_withdraw() */
    FMTP_RELEASE_TIMEOUT,   /* tau_snd(n) of equation (1) expired with receivers unfinished */
    FMTP_RELEASE_CLOSED     /* the server is being closed */
};

/* How far a receiver may be behind, counting what others have acknowledged but it has not. 0: no
 * bound. total_bytes bounds all that is retained, acknowledged by others or not: above
 * it, the receiver that holds back the most is disconnected. */
struct fmtp_held_bounds {
    size_t products;
    uint64_t bytes, behind_ns, total_bytes;
};

/* What a receiver holds back. */
struct fmtp_held {
    size_t products;
    uint64_t bytes, behind_ns;
};

/* What a host is entitled to. */
struct fmtp_grant {
    size_t places; /* simultaneous connections as a receiver; 0: none */
    bool reserved; /* if all places are taken, it displaces a receiver without this flag */
};

/* What a receiver or an applicant did, or what was done to it. A flood of connections causes a
 * flood of these: limit what you log. */
enum fmtp_notice {
    FMTP_NOTICE_HANDSHAKE, /* ended during its key exchange: invalid, slow, or crowded out */
    FMTP_NOTICE_TOO_MANY,  /* refused: its host already has the most connections allowed */
    FMTP_NOTICE_TOO_FAST,  /* refused: too many key exchanges from its host */
    FMTP_NOTICE_NO_PLACE,  /* refused: max_receivers are connected */
    FMTP_NOTICE_DISPLACED, /* disconnected: its place went to a host with fewer */
    /* Does not support extension 1: repaired by TCP, the others by multicast. */
    FMTP_NOTICE_ORDINARY,
    FMTP_NOTICE_ALONE,    /* requests more repairs than the group can bear: repaired by TCP alone */
    FMTP_NOTICE_TOGETHER, /* requests less again: its repairs are multicast */
    FMTP_NOTICE_EXCESS,   /* requested again what its connection already carried: not sent */
    FMTP_NOTICE_BAD,      /* sent an invalid request */
    FMTP_NOTICE_NO_MAC,   /* an original, and the first receiver: datagrams carry no MACs */
    /* Refused: an original, and datagrams carry MACs that it does not support. */
    FMTP_NOTICE_ORIGINAL,
    FMTP_NOTICE_NO_KEY,    /* refused: it has no key */
    FMTP_NOTICE_OTHER_KEY, /* refused: its key differs, or the connection is being intercepted */
    FMTP_NOTICES
};
/* Describes the notice: "supports no extension: it is repaired by TCP, ...". */
const char *fmtp_notice_text(enum fmtp_notice what);

struct fmtp_server_config {
    enum fmtp_layout layout;
    /* Of NIC1: multicast interface and source, and where receivers connect; port 0: see
     * fmtp_server_tcp_port(). */
    struct sockaddr_storage address;
    struct sockaddr_storage group; /* multicast group and UDP port */
    uint8_t ttl;                   /* time to live or hop limit; 0: 1 */
    unsigned mac_level; /* LAYOUT_2021: 0 none, 1 HMAC-SHA256, 2 Ed25519, or FMTP_MAC_AUTO */
    bool has_key;       /* receivers must prove that they have this key; not in LAYOUT_2017 */
    uint8_t key[FMTP_KEY_BYTES];
    bool unicast_repair; /* offer no extension: repair by TCP only, as the originals do */
    bool no_parity;      /* repair only by multicasting lost blocks again, without FEC */
    /* FMTP packet with header and MAC; 0: 1460 (as in the originals), or less if the path's MTU
     * requires it. */
    unsigned pdu_bytes;
    bool no_gso;                    /* pass datagrams to the system one by one */
    const char *congestion_control; /* of the TCP connections; NULL or "": the system's default */
    /* b_snd, the UDP socket buffer, set by SO_SNDBUFFORCE, else SO_SNDBUF; 0: the system's
     * default. What does not fit waits with the caller (not ready). What fits counts as sent:
     * tau_snd(n) runs while it waits in the system. */
    size_t sndbuf_bytes;
    uint32_t first_index; /* product index of the first product */
    double f_snd;         /* equation (1): tau_snd = max(f_snd*S/r_mc, max RTT) */
    bool timer_from_bop;  /* tau_snd runs from BOP (DRFSM21 2.1.4), else from EOP */
    /* Equation (1) with the time that it took to hand over the product to the system, from BOP to
     * EOP, in place of S/r_mc. That time counts as at least handover_ns for each datagram. */
    bool timer_by_handover;
    uint64_t handover_ns;
    /* Answer a receiver's next request only when its connection has taken the whole answer to the
     * last one, as a blocking thread for each receiver does. */
    bool blocking;
    uint64_t r_mc_bps;       /* multicast rate used in equation (1) */
    uint64_t tau_snd_min_ns; /* 0: equation (1) as published; else the minimum of tau_snd */
    uint64_t pace_bps;    /* 0: no pacing here (the NIC's HTB shapes); else the pace of datagrams */
    bool adaptive_pace;   /* pace as fast as the receivers can follow; they must be extended */
    uint64_t r_uc_bps;    /* total rate of retransmissions by TCP; 0: no limit */
    size_t max_products;  /* most products retained for retransmission (default 4096) */
    size_t max_receivers; /* most receivers connected (default 256) */
    /* Most receivers per host (default 32, at least an eighth of max_receivers); an IPv6 host is
     * its /64. */
    size_t max_per_address;
    /* Most connections during the key exchange (default 256); one more ends the oldest of the host
     * that has the most. */
    size_t max_handshakes;
    uint64_t handshake_ns; /* time limit of a key exchange, from the connection on (default 10 s) */
    /* Memory for the queued requests of one receiver (default 4 MiB; 16 bytes per range, whatever
     * its length). A receiver that exceeds it gets RETX_REJ and never blocks the others. */
    size_t peer_queue_bytes;
    /* A connection ends if its host acknowledges nothing for this long (default 60 s). */
    uint64_t dead_ns;
    struct fmtp_held_bounds held; /* a receiver over one of these bounds is disconnected */
    void *ctx;                    /* passed to the callbacks */
    /* A receiver over a bound of `held` is about to be disconnected. May be NULL. */
    void (*laggard)(void *ctx, const struct sockaddr *peer, const struct fmtp_held *held);
    /* Returns whether this address may open a retransmission connection. NULL: any address may. */
    bool (*authorize)(void *ctx, const struct sockaddr *peer);
    /* Returns what this host is entitled to now. Called when a connection becomes a receiver, and
     * about others when places are scarce. NULL: max_per_address places, nothing reserved. */
    struct fmtp_grant (*grant)(void *ctx, const struct sockaddr *host);
    /* May be NULL. */
    void (*notice)(void *ctx, const struct sockaddr *peer, enum fmtp_notice what);
    /* The product's last datagram (EOP) was passed to the socket. */
    void (*multicasted)(void *ctx, uint32_t index, void *cookie);
    /* The sender no longer needs the product's bytes. Called exactly once for each offered
     * product. */
    void (*released)(void *ctx, uint32_t index, void *cookie, enum fmtp_release why);
    /* A receiver connected (+1) or disconnected (-1); count: receivers connected now. May be
     * NULL. */
    void (*receivers_changed)(void *ctx, const struct sockaddr *peer, int change, size_t count);
    /* A receiver requested a repair of this many blocks, by multicast or on the connection. May be
     * NULL. */
    void (*requested)(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks,
                      bool multicast);
    /* This many blocks or parity symbols of a repair were sent, on the connection or (peer NULL) by
     * multicast. May be NULL, like the next two. */
    void (*repaired)(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks);
    /* The queue has no room for an answer to this receiver. */
    void (*queue_full)(void *ctx, const struct sockaddr *peer, uint32_t index);
    /* tau_snd of the product expired. */
    void (*expired)(void *ctx, uint32_t index);
};

struct fmtp_server_stats {
    uint64_t products, datagrams, datagram_bytes, blocks;
    uint64_t retx_requests, retx_blocks, retx_bytes, rejects, timeouts;
    uint64_t bad_messages;   /* hostile or malformed TCP input, dropped */
    uint64_t acks;           /* RETX_END: a receiver has finished a product */
    uint64_t unacknowledged; /* (product, receiver) pairs released without RETX_END */
    uint64_t failed; /* of these, because the receiver could not keep the product (FMTP_NO_PLACE) */
    uint64_t repair_requests;           /* REPAIR_REQ of extended receivers */
    uint64_t parity_sent, repairs_sent; /* datagrams: PARITY (including proactive), REPAIR */
    uint64_t nudges;                    /* unsolicited RETX_EOP before the timeout */
    /* Datagrams that the system refused for reasons other than lack of room. */
    uint64_t send_errors;
    uint64_t too_long;  /* of these, datagrams that exceed the path's MTU */
    uint64_t refused;   /* connections: unauthorized, or over a bound */
    uint64_t laggards;  /* receivers disconnected for holding back too much */
    uint64_t strangers; /* of these, without the key or with another one */
    uint64_t displaced; /* receivers whose place went to a host with fewer */
    uint64_t excess;    /* blocks requested again on a connection that had already carried them */
    size_t alone;       /* receivers repaired by TCP alone because they request too much */
    /* Requests about products not offered yet: a receiver got forged datagrams, or is hostile. */
    uint64_t ahead;
    size_t receivers, retained;
    uint64_t retained_bytes;
    size_t extended;             /* receivers that support extension 1 */
    size_t handshakes;           /* connections currently in the key exchange */
    unsigned pdu_bytes;          /* in use */
    size_t sndbuf_granted_bytes; /* like rcvbuf_granted_bytes of a client */
};

struct fmtp_server;

/* Opens the sockets of a sender. cfg is copied, but texts in it must remain valid. Returns NULL;
 * err says why and quotes the value at fault. */
struct fmtp_server *fmtp_server_open(const struct fmtp_server_config *cfg, struct tp_error *err);
/* Ends all connections; products still retained are released with FMTP_RELEASE_CLOSED. */
void fmtp_server_close(struct fmtp_server *s);
/* Returns an epoll descriptor that is readable when fmtp_server_service() has work (timers
 * included). */
int fmtp_server_fd(const struct fmtp_server *s);
/* Does everything that can be done now without blocking. */
int fmtp_server_service(struct fmtp_server *s, struct tp_error *err);
/* Returns the TCP port that receivers connect to, even if the system chose it. */
uint16_t fmtp_server_tcp_port(const struct fmtp_server *s);
/* Returns the number of receivers that have finished the key exchange. */
size_t fmtp_server_receivers(const struct fmtp_server *s);
/* Returns whether another product can be offered now: false while the previous product is still
 * being multicast or max_products are retained. Becomes true again during fmtp_server_service(). */
bool fmtp_server_ready(const struct fmtp_server *s);
/* Call this when a subscription of this host (its port is ignored) has ended: if the host has more
 * than `keep` connections, its oldest ones end. Returns how many. */
size_t fmtp_server_disconnect(struct fmtp_server *s, const struct sockaddr_storage *host,
                              size_t keep);
/* Makes room: disconnects, as laggards, the receivers that hold back products up to this index and
 * thereby releases these, except products that were multicast just now. Returns how many
 * receivers. */
size_t fmtp_server_let_go(struct fmtp_server *s, uint32_t up_to);
/* Multicasts a product given as up to 4 parts (concatenated on the wire). The parts must stay valid
 * and unchanged until released() is called for it. meta is copied. *index receives its product
 * index. Returns -1 if not ready, if the product exceeds 2^32-1 bytes or if there is too much
 * metadata. Receivers that hold back too much are disconnected first, so released() may be called
 * for other products. */
int fmtp_server_offer(struct fmtp_server *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, uint32_t *index,
                      struct tp_error *err);
/* The product's bytes are no longer what was offered: releases it and informs receivers that lack
 * any of it. Returns false if it is no longer retained. */
bool fmtp_server_withdraw(struct fmtp_server *s, uint32_t index);
/* Everything is done: informs receivers that support extension 1 (fmtp_client_finished), as far as
 * their connections accept it at once. */
void fmtp_server_finish(struct fmtp_server *s);
/* Fills in the counters since the opening, and what is connected now. */
void fmtp_server_get_stats(const struct fmtp_server *s, struct fmtp_server_stats *out);
/* One receiver's counters, while it is connected. */
struct fmtp_receiver_place {
    struct sockaddr_storage address; /* AF_UNSPEC: an unused place */
    struct fmtp_peer_counters counts;
};
/* Fills out with the first `room` places; returns how many there are (max_receivers). Takes time
 * proportional to the products retained. */
size_t fmtp_server_get_receivers(struct fmtp_server *s, struct fmtp_receiver_place *out,
                                 size_t room);

/* ------------------------------------------------------------------ receiving side */

/* begun() returns this for a product that it cannot keep; the sender is informed. */
#define FMTP_NO_PLACE ((void *)-1)

/* Writes the parts, one after another, to the product's bytes from `at` on, so that they appear
 * where begun() said. Returns false if it cannot; the product must be abandoned then. */
typedef bool fmtp_store_fn(void *ctx, uint32_t index, uint32_t at, const struct iovec *parts,
                           int nparts);

struct fmtp_client_config {
    enum fmtp_layout layout;
    struct sockaddr_storage server; /* FMTP TCP address of the sender */
    struct sockaddr_storage group;  /* multicast group and UDP port */
    /* Address of NIC1 on which to join and from which to connect. */
    struct sockaddr_storage interface;
    unsigned mac_level; /* a sender below this level is refused; FMTP_MAC_AUTO: any level */
    bool has_key;       /* the sender must prove that it has this key */
    uint8_t key[FMTP_KEY_BYTES];
    bool unicast_repair;            /* offer no extension */
    unsigned pdu_bytes;             /* of a sender without extension; 0: 1460 */
    uint64_t connect_ns;            /* how long to try the first connection (default 120 s) */
    uint64_t reconnect_ns;          /* how long to retry a lost connection; 0: not at all */
    uint64_t dead_ns;               /* as in fmtp_server_config */
    const char *congestion_control; /* of the TCP connection; NULL or "": the system's default */
    double f_rcv;                   /* equation (2): tau_rcv = f_rcv*S/r_mc */
    uint64_t r_mc_bps;              /* multicast rate used in equation (2) */
    size_t rcvbuf_bytes; /* b_rcv, the UDP socket buffer; SO_RCVBUFFORCE, else SO_RCVBUF */
    size_t max_products; /* most products in flight (default 4096) */
    size_t parity_bytes; /* memory for FEC parity (default 16 MiB) */
    /* Datagrams kept while their BOP is fetched (default 1024; with unicast_repair none, as in the
     * originals). */
    size_t reorder_blocks;
    /* Limit on what datagrams without MACs may announce. A product begins with its first data;
     * while more than this is announced and neither received nor confirmed by the connection,
     * further products wait for confirmation. 0: a product begins with its BOP. */
    uint64_t announced_bytes;
    void *ctx;
    /* A product begins. Return where its size bytes go (valid until ended() or missed()), or NULL
     * if it is not wanted (duplicate, too large): then RETX_END is sent at once and nothing is
     * requested again. FMTP_NO_PLACE does the same, but the sender counts it as failed. Even a
     * wanted product of 0 bytes needs a pointer. start is the BOP's timestamp (zero in
     * LAYOUT_2017). */
    void *(*begun)(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                   uint16_t meta_len, struct timespec start);
    /* NULL: bytes go straight to where begun() said. Else, at high rates, datagrams gather in the
     * socket for up to 2 ms, to be stored together. */
    fmtp_store_fn *store;
    /* The product is complete. retx_blocks: blocks that arrived by RETX_DATA. delay_s: now - start
     * by CLOCK_REALTIME (0 in LAYOUT_2017). For each wanted product, either this or missed() is
     * called exactly once. */
    void (*ended)(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s);
    /* The product is incomplete and the sender rejected it (RETX_REJ), or the connection was lost
     * for good or now leads to a restarted sender. Also called for indices of which nothing was
     * ever received. */
    void (*missed)(void *ctx, uint32_t index);
    /* What arrived under this index was forged: the sender has not sent it yet, or announced it
     * differently. What begun() returned is no longer used, and what ended() delivered is not the
     * sender's. begun() may be called again for the index. NULL: missed() is called instead. */
    void (*withdrawn)(void *ctx, uint32_t index);
    /* `blocks` blocks from `first` on were missing when their repair was first requested on this
     * connection. May be NULL. */
    void (*lost)(void *ctx, uint32_t index, uint32_t first, uint32_t blocks);
    /* A repair of this many blocks is requested, by multicast or on the connection. May be NULL. */
    void (*requested)(void *ctx, uint32_t index, uint32_t blocks, bool multicast);
    /* tau_rcv of the product expired, or the patience with a repair by multicast. May be NULL. */
    void (*expired)(void *ctx, uint32_t index, bool patience);
    /* Further requests about the product wait until earlier ones have been sent. May be NULL. */
    void (*queue_full)(void *ctx, uint32_t index);
};

struct fmtp_client_stats {
    uint64_t datagrams, blocks, duplicate_blocks, products, missed;
    uint64_t retx_requests, retx_blocks;
    uint64_t repair_requests;                 /* REPAIR_REQ sent */
    uint64_t parity_symbols, parity_drops;    /* PARITY received; of these, without room */
    uint64_t repaired_blocks, decoded_blocks; /* blocks from REPAIR; blocks decoded from parity */
    uint64_t reorder_hits, reorder_drops; /* datagrams before their BOP: used later; discarded */
    uint64_t bad_messages;                /* malformed datagrams or stream bytes, dropped */
    uint64_t socket_drops;                /* SO_MEMINFO drops of the UDP socket (b_rcv too small) */
    uint64_t mac_failures;                /* datagrams with a wrong MAC, dropped */
    uint64_t in_place;    /* blocks that the system wrote directly to their final place */
    uint64_t forged;      /* products withdrawn because what arrived was not the sender's */
    uint64_t connections; /* to the sender, including the first */
    /* What the kernel granted: half of what SO_RCVBUF reports, since the kernel doubles the
     * requested size for its overhead. */
    size_t rcvbuf_granted_bytes;
};

struct fmtp_client;

/* Joins the group and starts to connect to the sender. cfg is copied, but texts in it must remain
 * valid. Returns NULL; err says why. */
struct fmtp_client *fmtp_client_open(const struct fmtp_client_config *cfg, struct tp_error *err);
void fmtp_client_close(struct fmtp_client *c);   /* calls missed() for incomplete products */
int fmtp_client_fd(const struct fmtp_client *c); /* epoll descriptor, as for the server */
/* Returns -1 when the connection to the sender is lost for good (close the client and subscribe
 * again): at once, or after failing to reconnect for reconnect_ns. */
int fmtp_client_service(struct fmtp_client *c, struct tp_error *err);
/* A product that has begun cannot be kept, as if begun() had returned FMTP_NO_PLACE. Its bytes are
 * no longer used. Neither ended() nor missed() is called for it. */
void fmtp_client_abandon(struct fmtp_client *c, uint32_t index);
/* Returns whether the sender said that it was done (extension 1). */
bool fmtp_client_finished(const struct fmtp_client *c);
/* Returns whether the connection to the sender is established, including the key exchange. */
bool fmtp_client_connected(const struct fmtp_client *c);
/* Gives what was agreed on the latest connection, and its MAC level. */
void fmtp_client_get_session(const struct fmtp_client *c, struct fmtp_session *out,
                             unsigned *mac_level);
/* Fills in the counters since the opening. */
void fmtp_client_get_stats(const struct fmtp_client *c, struct fmtp_client_stats *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * FMTP: File Multicast Transport Protocol, version 3 on the wire.
 *
 * This is the only header of this room that other rooms include. It has two layers:
 *   - fmtp_server / fmtp_client: the thin event loop (sockets, clock, epoll) around the
 *     sans-I/O cores. One epoll descriptor per object, to be nested in the caller's loop.
 *   - the protocol cores themselves live in fmtp/src/sender.h and fmtp/src/receiver.h and are
 *     driven directly by tests, simulations and fuzzers.
 *
 * Units are in the names: *_ns nanoseconds, *_bps bits/s, *_bytes bytes. Unless a comment says
 * otherwise, functions return 0 on success and -1 on failure; the reason is in *err.
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
#define FMTP_KEY_BYTES TP_KEY_BYTES /* of the key that both ends can be given */

/* A MAC level: between programs of Downpour 1, with AES-256-GMAC; with an original, which cannot
 * say which it knows, 0: at a sender if the first receiver is one, at a receiver if the sender is.
 * With a key never 0. */
#define FMTP_MAC_AUTO 3u

/* Fixed part of the BOP body: LAYOUT_2017 prodsize+metasize (6 bytes, no key exchange on TCP);
 * LAYOUT_2021 start time+prodsize+metasize (18 bytes) and the RSA key exchange at MAC level 0. */
enum fmtp_layout { FMTP_LAYOUT_2017 = 2017, FMTP_LAYOUT_2021 = 2021 };

/* Addresses are IPv4 or IPv6; within one configuration all of the same family. */

/* What the two ends of a connection agreed on (LAYOUT_2021; see docs/reference/contracts.md).
 * Neither extended nor ours: only block_bytes and mac mean anything. */
struct fmtp_session {
    bool extended;        /* extension 1: multicast repair with FEC */
    uint16_t block_bytes; /* product bytes per block */
    uint16_t fec_k;       /* blocks per FEC group at most */
    uint32_t next_index;  /* first product for which the sender counts this receiver */
    uint64_t id;          /* random per start of the sender */
    bool ours;            /* both are programs of Downpour: NOT_YET, and a RETX_REJ is final */
    uint8_t mac;          /* kind of the MACs of datagrams (enum fmtp_mac_kind); 0: none */
};

/* tp_key_read of a file that the owner's group may read too. */
static inline int fmtp_key_read(const char *path, uint8_t key[FMTP_KEY_BYTES], struct tp_error *err)
{
    return tp_key_read(path, TP_KEY_GROUP_READS, key, err);
}

/* ------------------------------------------------------------------ sending side */

/* Why the sender released a product. */
enum fmtp_release {
    FMTP_RELEASE_ALL_DONE,  /* every receiver that was connected at BOP acknowledged it or left */
    FMTP_RELEASE_FAILED,    /* as ALL_DONE, but a receiver could not keep it */
    FMTP_RELEASE_WITHDRAWN, /* fmtp_server_withdraw() */
    FMTP_RELEASE_TIMEOUT,   /* tau_snd(n) of equation (1) expired with receivers unfinished */
    FMTP_RELEASE_CLOSED     /* the server is being closed */
};

/* How far a receiver may be behind: what it has not acknowledged and others have. 0: no bound.
 * total_bytes bounds all that is retained, acknowledged by others or not: above it, the receiver
 * that holds the most is disconnected. */
struct fmtp_held_bounds {
    size_t products;
    uint64_t bytes, behind_ns, total_bytes;
};

/* What a receiver holds back. */
struct fmtp_held {
    size_t products;
    uint64_t bytes, behind_ns;
};

/* What a host may have. */
struct fmtp_grant {
    size_t places; /* connections as a receiver at once; 0: none */
    bool reserved; /* if all places are taken, it gets that of a receiver that is not reserved */
};

/* What a receiver, or a would-be receiver, did, or what was done to it. A flood of connections
 * causes a flood of these: limit what you log. */
enum fmtp_notice {
    FMTP_NOTICE_HANDSHAKE, /* ended before its key exchange was done: wrong, slow, or crowded out */
    FMTP_NOTICE_TOO_MANY,  /* refused: its host has the most connections allowed */
    FMTP_NOTICE_TOO_FAST,  /* refused: too many key exchanges of its host */
    FMTP_NOTICE_NO_PLACE,  /* refused: max_receivers are connected */
    FMTP_NOTICE_DISPLACED, /* ended: its place went to a host that has fewer */
    FMTP_NOTICE_ORDINARY, /* does not speak extension 1: repaired by TCP, the others by multicast */
    FMTP_NOTICE_ALONE,    /* asks for more repairs than the group can bear: repaired by TCP alone */
    FMTP_NOTICE_TOGETHER, /* no longer: its repairs are multicast again */
    FMTP_NOTICE_EXCESS,   /* asked again for what its connection had brought: not sent again */
    FMTP_NOTICE_BAD,      /* sent an invalid request */
    FMTP_NOTICE_NO_MAC,   /* an original, and the first: datagrams go without MACs */
    FMTP_NOTICE_ORIGINAL, /* refused: an original, and datagrams carry MACs that it does not know */
    FMTP_NOTICE_NO_KEY,   /* refused: it has no key */
    FMTP_NOTICE_OTHER_KEY, /* refused: its key differs, or somebody is in between */
    FMTP_NOTICES
};
/* "speaks no extension: repaired by TCP alone" */
const char *fmtp_notice_text(enum fmtp_notice what);

struct fmtp_server_config {
    enum fmtp_layout layout;
    struct sockaddr_storage address; /* of NIC1: the multicast interface and source, and where
                                       receivers connect; port 0: see fmtp_server_tcp_port() */
    struct sockaddr_storage group;   /* multicast group and UDP port */
    uint8_t ttl;                     /* time to live or hop limit, 1 by default if 0 */
    unsigned mac_level; /* LAYOUT_2021: 0 none, 1 HMAC-SHA256, 2 Ed25519, or FMTP_MAC_AUTO */
    bool has_key; /* receivers have to prove that they were given this key; not in LAYOUT_2017 */
    uint8_t key[FMTP_KEY_BYTES];
    bool unicast_repair; /* offer no extension: repair by TCP only, as the originals do */
    bool no_parity;      /* repair by multicast of the lost blocks alone, without FEC */
    unsigned pdu_bytes;  /* FMTP packet with header and MAC; 0: 1460 (the originals'), or
                            what the path's MTU leaves if that is less */
    bool no_gso;         /* hand datagrams to the system one by one */
    const char *congestion_control; /* of the TCP connections; NULL or "": the system's default */
    size_t sndbuf_bytes;            /* b_snd, the UDP socket buffer; SO_SNDBUFFORCE, else SO_SNDBUF;
                                       0: the system's default. What does not fit waits with the
                                       caller (not ready). What does has left as far as FMTP knows:
                                       tau_snd(n) runs while it waits in the system */
    uint32_t first_index;           /* product index of the first product */
    double f_snd;                   /* equation (1): tau_snd = max(f_snd*S/r_mc, max RTT) */
    bool timer_from_bop;            /* tau_snd runs from BOP (DRFSM21 2.1.4), else from EOP */
    uint64_t r_mc_bps;              /* multicast rate used in equation (1) */
    uint64_t tau_snd_min_ns; /* 0: equation (1) as published; else tau_snd is at least this */
    uint64_t pace_bps;       /* 0: no pacing here (the NIC's HTB shapes); else pace datagrams */
    bool adaptive_pace;      /* pace as fast as the receivers take it; they are extended */
    uint64_t r_uc_bps;       /* rate of all retransmissions by TCP together; 0: no limit */
    size_t max_products;     /* products retained for retransmission at most (default 4096) */
    size_t max_receivers;    /* connections at most (default 256) */
    size_t max_per_address;  /* of these from one host (default 32, at least an eighth of
                                max_receivers); an IPv6 host is its /64 */
    size_t max_handshakes;   /* connections that have not finished the key exchange (default
                                256); one more ends the oldest of the host that has most */
    uint64_t handshake_ns;   /* for a key exchange, from the first moment (default 10 s) */
    size_t peer_queue_bytes; /* memory for the queued requests of one receiver (default
                                4 MiB; 16 bytes per range, whatever its length); a receiver
                                over it gets RETX_REJ, never blocks the others */
    uint64_t dead_ns;        /* a connection whose host acknowledges nothing for so long ends
                                (default 60 s) */
    struct fmtp_held_bounds held; /* a receiver over one of these is disconnected */
    void *ctx;                    /* passed to the callbacks */
    /* A receiver over a bound of held is about to be disconnected. May be NULL. */
    void (*laggard)(void *ctx, const struct sockaddr *peer, const struct fmtp_held *held);
    /* True if this address may open a retransmission connection. NULL: every address may. */
    bool (*authorize)(void *ctx, const struct sockaddr *peer);
    /* What this host may have now; asked when a connection becomes a receiver, and about others
     * when places are scarce. NULL: max_per_address places, nothing reserved. */
    struct fmtp_grant (*grant)(void *ctx, const struct sockaddr *host);
    /* May be NULL. */
    void (*notice)(void *ctx, const struct sockaddr *peer, enum fmtp_notice what);
    /* The product's last datagram (EOP) left for the socket. */
    void (*multicasted)(void *ctx, uint32_t index, void *cookie);
    /* The sender no longer needs the product's bytes. Called exactly once for each offered
     * product. */
    void (*released)(void *ctx, uint32_t index, void *cookie, enum fmtp_release why);
    /* A receiver connected (+1) or went (-1); count = connected now. May be NULL. */
    void (*receivers_changed)(void *ctx, const struct sockaddr *peer, int change, size_t count);
    /* A receiver requested a repair of so many blocks: multicast, or on the connection. May be
     * NULL. */
    void (*requested)(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks,
                      bool multicast);
    /* This many blocks or parity symbols of a repair left: on the connection, or (peer NULL) by
     * multicast. May be NULL, as may the next two. */
    void (*repaired)(void *ctx, const struct sockaddr *peer, uint32_t index, uint32_t blocks);
    /* There is no room for an answer to this receiver. */
    void (*queue_full)(void *ctx, const struct sockaddr *peer, uint32_t index);
    /* tau_snd of the product ended. */
    void (*expired)(void *ctx, uint32_t index);
};

struct fmtp_server_stats {
    uint64_t products, datagrams, datagram_bytes, blocks;
    uint64_t retx_requests, retx_blocks, retx_bytes, rejects, timeouts;
    uint64_t bad_messages;    /* hostile or malformed TCP input, counted and dropped */
    uint64_t acks;            /* RETX_END: a receiver is done with a product */
    uint64_t unacknowledged;  /* (product, receiver) pairs released without RETX_END */
    uint64_t failed;          /* of these, such as the receiver could not keep (FMTP_NO_PLACE) */
    uint64_t repair_requests; /* REPAIR_REQ of extended receivers */
    uint64_t parity_sent, repairs_sent; /* datagrams: PARITY (proactive too), REPAIR */
    uint64_t nudges;                    /* unsolicited RETX_EOP before the timeout */
    uint64_t send_errors; /* datagrams the system refused other than for lack of room */
    uint64_t too_long;    /* of these, datagrams over the path's MTU */
    uint64_t refused;     /* connections: not authorized, or over a bound */
    uint64_t laggards;    /* receivers disconnected because they held back too much */
    uint64_t strangers;   /* of these, without the key, or with another one */
    uint64_t displaced;   /* receivers whose place went to a host with fewer */
    uint64_t excess;      /* blocks asked for again on a connection that had brought them */
    size_t alone;         /* receivers repaired by TCP alone because of what they ask for */
    uint64_t ahead;       /* requests about products that were not offered yet: forged datagrams
                             reach a receiver, or it is hostile */
    size_t receivers, retained;
    uint64_t retained_bytes;
    size_t extended;             /* receivers that speak extension 1 */
    size_t handshakes;           /* connections during the key exchange now */
    unsigned pdu_bytes;          /* in use */
    size_t sndbuf_granted_bytes; /* as rcvbuf_granted_bytes of a client */
};

struct fmtp_server;

/* Opens the sockets of a sender. cfg is copied, but texts in it must stay. NULL: err says why,
 * quoting the value at fault. */
struct fmtp_server *fmtp_server_open(const struct fmtp_server_config *cfg, struct tp_error *err);
/* Ends all connections; products that are retained are released with FMTP_RELEASE_CLOSED. */
void fmtp_server_close(struct fmtp_server *s);
/* epoll descriptor: readable when fmtp_server_service() has something to do (timers included). */
int fmtp_server_fd(const struct fmtp_server *s);
/* Does all that can be done now without blocking. */
int fmtp_server_service(struct fmtp_server *s, struct tp_error *err);
/* The TCP port that receivers connect to, also where the system chose it. */
uint16_t fmtp_server_tcp_port(const struct fmtp_server *s);
/* Receivers that are connected and have finished the key exchange. */
size_t fmtp_server_receivers(const struct fmtp_server *s);
/* True if another product can be offered now. False while the previous product is still being
 * multicast or max_products are retained; becomes true again during fmtp_server_service(). */
bool fmtp_server_ready(const struct fmtp_server *s);
/* The subscription of a receiver at this host (its port is not looked at) ended: if it has more
 * than `keep` connections, the oldest of them ends. Returns how many ended. */
size_t fmtp_server_disconnect(struct fmtp_server *s, const struct sockaddr_storage *host,
                              size_t keep);
/* Room is needed: disconnects, as laggards, the receivers that hold back products up to this index,
 * and so releases them, but not those that were multicast just now. Returns how many. */
size_t fmtp_server_let_go(struct fmtp_server *s, uint32_t up_to);
/* Multicasts a product given as up to 4 parts (concatenated on the wire). The parts must stay valid
 * and unchanged until released() is called for it. meta is copied. *index gets its product index.
 * -1 if not ready, too large (> 2^32-1 bytes) or too much metadata. Receivers that hold back too
 * much are disconnected first, so released() may be called for other products. */
int fmtp_server_offer(struct fmtp_server *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, uint32_t *index,
                      struct tp_error *err);
/* The bytes of the product are no longer what was offered: it is released, and receivers that lack
 * any of it are informed. false: it is no longer retained. */
bool fmtp_server_withdraw(struct fmtp_server *s, uint32_t index);
/* All is done: receivers that speak extension 1 are informed (fmtp_client_finished), as far as
 * their connections take it at once. */
void fmtp_server_finish(struct fmtp_server *s);
/* Counters since the opening, and what is connected now. */
void fmtp_server_get_stats(const struct fmtp_server *s, struct fmtp_server_stats *out);
/* A place for a receiver, as long as it is connected. */
struct fmtp_receiver_place {
    struct sockaddr_storage address; /* AF_UNSPEC: nobody's */
    struct fmtp_peer_counters counts;
};
/* Fills out with the first `room` places; returns how many there are (max_receivers). It goes over
 * all products that are retained. */
size_t fmtp_server_get_receivers(struct fmtp_server *s, struct fmtp_receiver_place *out,
                                 size_t room);

/* ------------------------------------------------------------------ receiving side */

/* What begun() returns for a product that it cannot keep; the sender is informed. */
#define FMTP_NO_PLACE ((void *)-1)

struct fmtp_client_config {
    enum fmtp_layout layout;
    struct sockaddr_storage server; /* FMTP TCP address of the sender */
    struct sockaddr_storage group;  /* multicast group and UDP port */
    struct sockaddr_storage
        interface;      /* address of NIC1 on which to join and from which to connect */
    unsigned mac_level; /* a sender below this level is refused; FMTP_MAC_AUTO: any */
    bool has_key;       /* the sender has to prove that it was given this key */
    uint8_t key[FMTP_KEY_BYTES];
    bool unicast_repair;            /* offer no extension */
    unsigned pdu_bytes;             /* of a sender without extension; 0: 1460 */
    uint64_t connect_ns;            /* how long the first connection is tried (default 120 s) */
    uint64_t reconnect_ns;          /* how long a lost connection is tried again; 0: not at all */
    uint64_t dead_ns;               /* as in fmtp_server_config */
    const char *congestion_control; /* of the TCP connection; NULL or "": the system's default */
    double f_rcv;                   /* equation (2): tau_rcv = f_rcv*S/r_mc */
    uint64_t r_mc_bps;              /* multicast rate used in equation (2) */
    size_t rcvbuf_bytes;      /* b_rcv, the UDP socket buffer; SO_RCVBUFFORCE, else SO_RCVBUF */
    size_t max_products;      /* products in flight at most (default 4096) */
    size_t parity_bytes;      /* memory for FEC parity (default 16 MiB) */
    size_t reorder_blocks;    /* datagrams kept while their BOP is fetched (default 1024; with
                               unicast_repair none, as the originals) */
    uint64_t announced_bytes; /* what datagrams without MACs may announce: a product begins with
                                 its first data, and while more than this is announced and neither
                                 received nor confirmed by the connection, further ones wait for
                                 that; 0: it begins with its BOP */
    void *ctx;
    /* A product begins. Return where its size bytes go (valid until ended()/missed()), or NULL if
     * it is not wanted (duplicate, too large): then RETX_END is sent at once and nothing is asked
     * again; the same with FMTP_NO_PLACE, but the sender counts it as failed. A wanted product of 0
     * bytes needs a pointer as well. start is the BOP's time stamp (zero in LAYOUT_2017). */
    void *(*begun)(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                   uint16_t meta_len, struct timespec start);
    /* The product is complete. retx_blocks: blocks that arrived by RETX_DATA. delay_s: now - start
     * by CLOCK_REALTIME (0 in LAYOUT_2017). Called exactly once per wanted product, or missed(). */
    void (*ended)(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s);
    /* The sender rejected it (RETX_REJ), or the connection was lost for good, or to a sender that
     * has restarted, with the product incomplete.
     * Also called for indices of which nothing was ever received. */
    void (*missed)(void *ctx, uint32_t index);
    /* What arrived under this index was forged: the sender has not sent it yet, or announced it
     * differently. What begun() returned is no longer used, and what ended() delivered is not the
     * sender's. begun() may be called for the index again. NULL: missed() instead. */
    void (*withdrawn)(void *ctx, uint32_t index);
    /* `blocks` blocks from `first` on were missing when a repair of them was first requested on
     * this connection. May be NULL. */
    void (*lost)(void *ctx, uint32_t index, uint32_t first, uint32_t blocks);
    /* A repair of so many blocks is requested: multicast, or on the connection. May be NULL. */
    void (*requested)(void *ctx, uint32_t index, uint32_t blocks, bool multicast);
    /* tau_rcv of the product ended, or the patience with a repair by multicast. May be NULL. */
    void (*expired)(void *ctx, uint32_t index, bool patience);
    /* More requests about the product wait until earlier ones have left. May be NULL. */
    void (*queue_full)(void *ctx, uint32_t index);
};

struct fmtp_client_stats {
    uint64_t datagrams, blocks, duplicate_blocks, products, missed;
    uint64_t retx_requests, retx_blocks;
    uint64_t repair_requests;                 /* REPAIR_REQ sent */
    uint64_t parity_symbols, parity_drops;    /* PARITY received; of these no room for */
    uint64_t repaired_blocks, decoded_blocks; /* blocks by REPAIR; given back by parity */
    uint64_t reorder_hits, reorder_drops; /* datagrams before their BOP: used later; forgotten */
    uint64_t bad_messages;       /* malformed datagrams or stream bytes, counted and dropped */
    uint64_t socket_drops;       /* SO_MEMINFO drops of the UDP socket (b_rcv too small) */
    uint64_t mac_failures;       /* datagrams with a wrong MAC, dropped */
    uint64_t in_place;           /* blocks that the system wrote where they stay */
    uint64_t forged;             /* products withdrawn: what arrived was not the sender's */
    uint64_t connections;        /* to the sender, counting the first */
    size_t rcvbuf_granted_bytes; /* what the kernel granted (half of what SO_RCVBUF reports:
                                    the kernel doubles the asked size for its overhead) */
};

struct fmtp_client;

/* Joins the group and begins to connect to the sender. cfg is copied, but texts in it must stay.
 * NULL: err says why. */
struct fmtp_client *fmtp_client_open(const struct fmtp_client_config *cfg, struct tp_error *err);
void fmtp_client_close(struct fmtp_client *c);   /* calls missed() for what is incomplete */
int fmtp_client_fd(const struct fmtp_client *c); /* epoll descriptor, as for the server */
/* -1 when the connection to the sender is lost for good (the caller closes and re-subscribes):
 * at once, or when reconnecting failed for reconnect_ns. */
int fmtp_client_service(struct fmtp_client *c, struct tp_error *err);
/* A product that has begun cannot be kept: it is as if begun() had returned FMTP_NO_PLACE. Its
 * bytes are no longer used. Neither ended() nor missed() is called for it. */
void fmtp_client_abandon(struct fmtp_client *c, uint32_t index);
/* True if the sender said that it was done (extension 1). */
bool fmtp_client_finished(const struct fmtp_client *c);
/* True if the connection to the sender is established, including the key exchange. */
bool fmtp_client_connected(const struct fmtp_client *c);
/* What was agreed on the latest connection; its MAC level. */
void fmtp_client_get_session(const struct fmtp_client *c, struct fmtp_session *out,
                             unsigned *mac_level);
/* Counters since the opening. */
void fmtp_client_get_stats(const struct fmtp_client *c, struct fmtp_client_stats *out);

#endif

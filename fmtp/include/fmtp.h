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
#include <sys/uio.h>
#include <time.h>

#define FMTP_DATA_LEN 1448u    /* product bytes per block (both layouts, MAC level 0) */
#define FMTP_MAX_BLOCK 65492u    /* the largest block of any session: a PDU of 65504 bytes */
#define FMTP_HEADER_LEN 12u
#define FMTP_MAX_METADATA 1430u

/* Fixed part of the BOP body: LAYOUT_2017 prodsize+metasize (6 bytes, no key exchange on TCP);
 * LAYOUT_2021 start time+prodsize+metasize (18 bytes) and the RSA key exchange at MAC level 0. */
enum fmtp_layout { FMTP_LAYOUT_2017 = 2017, FMTP_LAYOUT_2021 = 2021 };

struct fmtp_error { char text[256]; };

/* What the two ends of a connection agreed on (LAYOUT_2021; see docs/contracts.md). Without the
 * extension only block_bytes means anything. */
struct fmtp_session {
    bool extended;           /* extension 1: multicast repair with FEC */
    uint16_t block_bytes;    /* product bytes per block */
    uint16_t fec_k;          /* blocks per FEC group at most */
    uint32_t next_index;     /* first product for which the sender counts this receiver */
    uint64_t id;             /* random per start of the sender */
};

/* ------------------------------------------------------------------ sending side */

/* Why the sender let go of a product. */
enum fmtp_release {
    FMTP_RELEASE_ALL_DONE,   /* every receiver that was connected at BOP acknowledged it or left */
    FMTP_RELEASE_TIMEOUT,    /* tau_snd(n) of equation (1) expired with receivers unfinished */
    FMTP_RELEASE_CLOSED      /* the server is being closed */
};

struct fmtp_server_config {
    enum fmtp_layout layout;
    struct in_addr tcp_addr;        /* address of NIC1; also the multicast interface and source */
    uint16_t tcp_port;              /* 0: the system chooses; see fmtp_server_tcp_port() */
    struct sockaddr_in group;       /* multicast group and UDP port */
    uint8_t ttl;                    /* 1 by default if 0 */
    uint32_t first_index;           /* product index of the first product */
    double f_snd;                   /* equation (1): tau_snd = max(f_snd*S/r_mc, max RTT) */
    uint64_t r_mc_bps;              /* multicast rate used in equation (1) */
    uint64_t tau_snd_min_ns;        /* 0: equation (1) as published; else tau_snd is at least this */
    uint64_t pace_bps;              /* 0: no pacing here (the NIC's HTB shapes); else pace datagrams */
    size_t max_products;            /* products retained for retransmission at most (default 4096) */
    size_t max_receivers;           /* connections at most (default 256) */
    size_t peer_queue_bytes;        /* memory for the queued requests of one receiver (default
                                       4 MiB; 16 bytes per range, whatever its length); a receiver
                                       over it gets RETX_REJ, never blocks the others */
    void *ctx;                      /* passed to the callbacks */
    /* May this address open a retransmission connection? NULL: everybody may. */
    bool (*authorize)(void *ctx, struct in_addr peer);
    /* The product's last datagram (EOP) left for the socket. */
    void (*multicasted)(void *ctx, uint32_t index, void *cookie);
    /* The sender needs the product's bytes no more. Called exactly once for each offered product. */
    void (*released)(void *ctx, uint32_t index, void *cookie, enum fmtp_release why);
    /* A receiver connected (+1) or went (-1); count = connected now. May be NULL. */
    void (*receivers_changed)(void *ctx, struct in_addr peer, int change, size_t count);
};

struct fmtp_server_stats {
    uint64_t products, datagrams, datagram_bytes, blocks;
    uint64_t retx_requests, retx_blocks, retx_bytes, rejects, timeouts;
    uint64_t bad_messages;          /* hostile or malformed TCP input, counted and dropped */
    uint64_t acks;                  /* RETX_END: a receiver is done with a product */
    uint64_t unacknowledged;        /* (product, receiver) pairs let go without RETX_END */
    uint64_t send_errors;           /* datagrams the system refused other than for lack of room */
    size_t receivers, retained;
};

struct fmtp_server;

struct fmtp_server *fmtp_server_open(const struct fmtp_server_config *cfg, struct fmtp_error *err);
void fmtp_server_close(struct fmtp_server *s);
/* epoll descriptor: readable when fmtp_server_service() has something to do (timers included). */
int fmtp_server_fd(const struct fmtp_server *s);
/* Does all that can be done now without blocking. */
int fmtp_server_service(struct fmtp_server *s, struct fmtp_error *err);
uint16_t fmtp_server_tcp_port(const struct fmtp_server *s);
size_t fmtp_server_receivers(const struct fmtp_server *s);
/* Can another product be offered now? False while the product before is still being multicast or
 * max_products are retained; becomes true again during fmtp_server_service(). */
bool fmtp_server_ready(const struct fmtp_server *s);
/* Multicasts a product given as up to 4 parts (concatenated on the wire). The parts must stay valid
 * and unchanged until released() is called for it. meta is copied. *index gets its product index.
 * -1 if not ready, too large (> 2^32-1 bytes) or too much metadata. */
int fmtp_server_offer(struct fmtp_server *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, uint32_t *index,
                      struct fmtp_error *err);
void fmtp_server_get_stats(const struct fmtp_server *s, struct fmtp_server_stats *out);

/* ------------------------------------------------------------------ receiving side */

struct fmtp_client_config {
    enum fmtp_layout layout;
    struct sockaddr_in server;      /* FMTP TCP address of the sender */
    struct sockaddr_in group;       /* multicast group and UDP port */
    struct in_addr iface_addr;      /* address of NIC1 on which to join and from which to connect */
    double f_rcv;                   /* equation (2): tau_rcv = f_rcv*S/r_mc */
    uint64_t r_mc_bps;              /* multicast rate used in equation (2) */
    size_t rcvbuf_bytes;            /* b_rcv, the UDP socket buffer; SO_RCVBUFFORCE, else SO_RCVBUF */
    size_t max_products;            /* products in flight at most (default 4096) */
    void *ctx;
    /* A product begins. Return where its size bytes go (valid until ended()/missed()), or NULL if
     * it is not wanted (duplicate, too large): then RETX_END is sent at once and nothing is asked
     * again. A wanted product of 0 bytes needs a pointer as well. start is the BOP's time stamp (zero in LAYOUT_2017). */
    void *(*begun)(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                   uint16_t meta_len, struct timespec start);
    /* All bytes are there. retx_blocks: blocks that came by RETX_DATA. delay_s: now - start by
     * CLOCK_REALTIME (0 in LAYOUT_2017). Called exactly once per wanted product, or missed(). */
    void (*ended)(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s);
    /* The sender rejected it (RETX_REJ), or the connection was lost with the product incomplete.
     * Also called for indices of which nothing was ever received. */
    void (*missed)(void *ctx, uint32_t index);
};

struct fmtp_client_stats {
    uint64_t datagrams, blocks, duplicate_blocks, products, missed;
    uint64_t retx_requests, retx_blocks;
    uint64_t repair_requests;       /* REPAIR_REQ sent */
    uint64_t parity_symbols, parity_drops; /* PARITY received; of these no room for */
    uint64_t repaired_blocks, decoded_blocks; /* blocks by REPAIR; given back by parity */
    uint64_t stash_hits, stash_drops; /* datagrams before their BOP: used later; forgotten */
    uint64_t bad_messages;          /* malformed datagrams or stream bytes, counted and dropped */
    uint64_t socket_drops;          /* SO_MEMINFO drops of the UDP socket (b_rcv too small) */
    size_t rcvbuf_granted_bytes;    /* what the kernel granted (half of what SO_RCVBUF reports:
                                       the kernel doubles the asked size for its overhead) */
};

struct fmtp_client;

struct fmtp_client *fmtp_client_open(const struct fmtp_client_config *cfg, struct fmtp_error *err);
void fmtp_client_close(struct fmtp_client *c);   /* calls missed() for what is incomplete */
int fmtp_client_fd(const struct fmtp_client *c); /* epoll descriptor, as for the server */
/* -1 when the connection to the sender is lost for good (the caller closes and re-subscribes). */
int fmtp_client_service(struct fmtp_client *c, struct fmtp_error *err);
bool fmtp_client_connected(const struct fmtp_client *c);
void fmtp_client_get_stats(const struct fmtp_client *c, struct fmtp_client_stats *out);

#endif

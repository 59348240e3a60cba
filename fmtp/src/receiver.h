/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving state machine: no socket, no clock, no thread. The caller supplies datagrams, bytes
 * of the sender's stream and the time (now_ns, any monotonic origin; a step back is ignored), and
 * takes requests out. Data go straight to their place in the buffer that begun() returned.
 *
 * Every product index from the first one on ends in exactly one of ended(), missed(), or a NULL
 * from begun(), unless it is withdrawn. The first index is the session's next_index if it is
 * extended, else the first one seen. A jump of more than max_products (confirmed by the stream, or
 * in next_index after a reconnect) reports the skipped indices as missed, up to 65,536 of them.
 *
 * Datagrams can be forged. What they imply about products other than the one they name is only a
 * reason to ask; receiver_trust.c decides what to believe.
 *
 * Memory, whatever a peer sends, besides the hash table (8 to 32 bytes per max_products):
 *   per product in flight (max_products)   about 200 bytes, a bit per block, 72 bytes per FEC
 *                                          group; its BOP until it begins
 *   parity of all products                 parity_bytes
 *   data that arrived before its BOP       reorder_blocks * (block_bytes + 32)
 *   messages to the sender                 4 * (128 KiB + 256 bytes per max_products)
 *   scratch                                4 * block_bytes; with store() 255 * block_bytes
 */
#ifndef FMTP_RECEIVER_H
#define FMTP_RECEIVER_H

#include "wire.h"

#define FMTP_MIN_BLOCK 64u /* no session has smaller blocks */

struct fmtp_receiver_config {
    enum fmtp_layout layout;
    double f_rcv;      /* equation (2) */
    uint64_t r_mc_bps; /* equation (2) */
    size_t max_products;
    size_t parity_bytes;      /* extension 1: parity kept; what exceeds this is requested again */
    size_t reorder_blocks;    /* datagrams kept for products with unknown BOP; 0: none */
    uint64_t announced_bytes; /* as in fmtp_client_config */
    void *ctx;
    /* Callbacks must not call the receiver. See fmtp_client_config; here ended() gets the timestamp
     * of the BOP instead of a delay. */
    void *(*begun)(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                   uint16_t meta_len, struct timespec start);
    fmtp_store_fn *store; /* may be NULL */
    void (*ended)(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start);
    void (*missed)(void *ctx, uint32_t index);
    void (*withdrawn)(void *ctx, uint32_t index);                             /* may be NULL, */
    void (*lost)(void *ctx, uint32_t index, uint32_t first, uint32_t blocks); /* also this one, */
    void (*requested)(void *ctx, uint32_t index, uint32_t blocks, bool multicast); /* and these */
    void (*expired)(void *ctx, uint32_t index, bool patience);
    void (*queue_full)(void *ctx, uint32_t index);
};

struct fmtp_receiver;

/* Makes a receiver. Until fmtp_receiver_session() it is in an ordinary session with blocks of
 * FMTP_DATA_LEN. */
struct fmtp_receiver *fmtp_receiver_new(const struct fmtp_receiver_config *cfg);
/* Calls missed() for incomplete products in order of index, and frees the receiver. */
void fmtp_receiver_free(struct fmtp_receiver *r);

/* Sets what was agreed on a new connection, before any of its messages. Messages queued for the old
 * connection are discarded. If it is the same extended session (same id), everything incomplete is
 * requested again, and so is what was not seen below next_index. Otherwise incomplete products are
 * missed and indices start over. Returns -1 if block_bytes or fec_k is out of bounds or without
 * memory; nothing has changed then. */
int fmtp_receiver_session(struct fmtp_receiver *r, const struct fmtp_session *session,
                          uint64_t now_ns);
/* Sets the size in bytes of the buffer that holds datagrams until the core gets them. */
void fmtp_receiver_buffer(struct fmtp_receiver *r, size_t bytes);
/* Gives up the product and informs the sender that it could not be kept. */
void fmtp_receiver_abandon(struct fmtp_receiver *r, uint32_t index);
/* Returns whether the sender said that it was done. */
bool fmtp_receiver_finished(const struct fmtp_receiver *r);
/* Sets the measured round-trip time to the sender, for the patience with multicast repairs. */
void fmtp_receiver_rtt(struct fmtp_receiver *r, uint64_t rtt_ns);

/* Predicts where the payloads of the next datagrams will go: consecutive blocks, none of them
 * received yet. Returns how many; 0: no prediction. The caller may overwrite these places until it
 * calls anything else here. first->index and first->seqnum identify the block of out[0]; the others
 * follow it without a gap, in the product and in memory. */
unsigned fmtp_receiver_places(const struct fmtp_receiver *r, struct fmtp_header *first,
                              struct iovec *out, unsigned max);
/* Returns where the payload of a datagram belongs: NULL if it is not a missing block of a product
 * that has begun. */
uint8_t *fmtp_receiver_place(const struct fmtp_receiver *r, const uint8_t head[FMTP_HEADER_LEN],
                             size_t payload_len);
/* Processes a datagram without its MAC; a malformed one is counted and dropped. The payload may be
 * in the place that was predicted for it. It may be in another predicted place only if no payload
 * still to be processed is in the product. The payload of a product that has ended or was missed is
 * not read: its memory may be gone. */
void fmtp_receiver_datagram(struct fmtp_receiver *r, const uint8_t head[FMTP_HEADER_LEN],
                            const uint8_t *payload, size_t payload_len, uint64_t now_ns);
/* Counts a datagram that is shorter than a header or has a wrong MAC. */
void fmtp_receiver_bad_datagram(struct fmtp_receiver *r);
/* Processes bytes of the sender's stream. Returns -1 on garbage: the caller must close the
 * connection. */
int fmtp_receiver_stream(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                         uint64_t now_ns);

/* Returns how many bytes to send next are at *bytes (0: none), valid until any other call here.
 * Then report how many were sent. */
size_t fmtp_receiver_output(const struct fmtp_receiver *r, const uint8_t **bytes);
/* The first bytes of the last fmtp_receiver_output() were sent. */
void fmtp_receiver_sent(struct fmtp_receiver *r, size_t bytes);
/* Returns true if the sender accepts nothing more and the backlog of messages is at its limit: give
 * up, or start a new connection. */
bool fmtp_receiver_stuck(const struct fmtp_receiver *r);

uint64_t fmtp_receiver_deadline(const struct fmtp_receiver *r); /* TP_NEVER: none */
/* Does what is due at now_ns: requests what is late again. */
void fmtp_receiver_timeout(struct fmtp_receiver *r, uint64_t now_ns);

/* Returns the number of products that have begun, or whose BOP is being requested, and have not
 * ended. */
size_t fmtp_receiver_in_flight(const struct fmtp_receiver *r);
/* Fills in everything but the fields about the socket. */
void fmtp_receiver_get_stats(const struct fmtp_receiver *r, struct fmtp_client_stats *out);

#endif

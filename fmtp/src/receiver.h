/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving state machine: no socket, no clock, no thread. The caller brings datagrams, bytes
 * of the sender's stream and the time (now_ns, any monotonic origin; a step back counts as none),
 * and takes requests out. Data goes straight to its place in the buffer that begun() returned.
 *
 * Every product index from the first one on ends in exactly one of ended(), missed(), or a NULL
 * from begun(), unless it is withdrawn. The first one is the session's next_index if it is
 * extended, else the first one seen. A jump of more than max_products (as the stream confirms it,
 * or of next_index after a reconnect) reports what it skips missed, up to 65,536 indices.
 *
 * Datagrams can be forged. What they say of other products than the one they name is only a
 * reason to ask; receiver_trust.c says what is believed.
 *
 * Memory, whatever a peer sends, besides the hash table (8 to 32 bytes per max_products):
 *   per product in flight (max_products)   about 200 bytes, a bit per block, 72 bytes per FEC
 *                                          group, until it begins its BOP
 *   parity of all products                 parity_bytes
 *   data that came before its BOP          reorder_blocks * (block_bytes + 32)
 *   messages to the sender                 4 * (128 KiB + 256 bytes per max_products)
 *   scratch                                4 * block_bytes
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
    size_t parity_bytes;      /* extension 1: parity in hand; what is beyond is asked for again */
    size_t reorder_blocks;    /* datagrams kept for products whose BOP is unknown; 0: none */
    uint64_t announced_bytes; /* as in fmtp_client_config */
    void *ctx;
    /* The callbacks must not call the receiver. See fmtp_client_config; here ended() gets the time
     * stamp of the BOP instead of a delay. */
    void *(*begun)(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                   uint16_t meta_len, struct timespec start);
    void (*ended)(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start);
    void (*missed)(void *ctx, uint32_t index);
    void (*withdrawn)(void *ctx, uint32_t index);                             /* may be NULL, */
    void (*lost)(void *ctx, uint32_t index, uint32_t first, uint32_t blocks); /* this, too, */
    void (*requested)(void *ctx, uint32_t index, uint32_t blocks, bool multicast); /* and these */
    void (*expired)(void *ctx, uint32_t index, bool patience);
    void (*queue_full)(void *ctx, uint32_t index);
};

struct fmtp_receiver;

/* Without fmtp_receiver_session() it is in an ordinary session of blocks of FMTP_DATA_LEN. */
struct fmtp_receiver *fmtp_receiver_new(const struct fmtp_receiver_config *cfg);
/* Calls missed() for what is incomplete, in order of index. */
void fmtp_receiver_free(struct fmtp_receiver *r);

/* What was agreed on a new connection, before any message of it. What was queued for the old one
 * is forgotten. The same extended session as before (same id): everything incomplete is asked for
 * again, and so is what was not seen below next_index. Any other: what is incomplete is missed and
 * indices start over. -1: block_bytes or fec_k out of bounds, or no memory; nothing changed. */
int fmtp_receiver_session(struct fmtp_receiver *r, const struct fmtp_session *session,
                          uint64_t now_ns);
/* Give up the product and inform the sender that it could not be kept. */
void fmtp_receiver_abandon(struct fmtp_receiver *r, uint32_t index);
/* True if the sender said that it was done. */
bool fmtp_receiver_finished(const struct fmtp_receiver *r);
/* Round trip time to the sender as measured, for the patience with multicast repairs. */
void fmtp_receiver_rtt(struct fmtp_receiver *r, uint64_t rtt_ns);

/* Where the payloads of the next datagrams will probably go: consecutive blocks, none of them
 * received yet. Returns how many, 0 if there is no prediction. They may be written to at will until
 * the next call of anything else here. first->index and first->seqnum say which block out[0] is;
 * the others follow it without a gap, in the product and in memory. */
unsigned fmtp_receiver_places(const struct fmtp_receiver *r, struct fmtp_header *first,
                              struct iovec *out, unsigned max);
/* A datagram without its MAC; what is malformed is counted and dropped. The payload may be in the
 * place that was predicted for it; it may be in another one only if nothing that this function will
 * still get is in the product. The payload of a product that has ended or was missed is not read:
 * its memory may be gone. */
void fmtp_receiver_datagram(struct fmtp_receiver *r, const uint8_t head[FMTP_HEADER_LEN],
                            const uint8_t *payload, size_t payload_len, uint64_t now_ns);
/* A datagram that is not even a header, or whose MAC is wrong: counted. */
void fmtp_receiver_bad_datagram(struct fmtp_receiver *r);
/* Bytes of the sender's stream. -1: garbage, the caller must close the connection. */
int fmtp_receiver_stream(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                         uint64_t now_ns);

/* What goes to the sender next: returns how many bytes there are at *bytes (0: nothing), valid
 * until the next call of anything here. Then say how many left. */
size_t fmtp_receiver_output(const struct fmtp_receiver *r, const uint8_t **bytes);
/* The first bytes of the last fmtp_receiver_output() left. */
void fmtp_receiver_sent(struct fmtp_receiver *r, size_t bytes);
/* The sender takes nothing more and the backlog of messages is at its bound: give up, or begin a
 * new connection. */
bool fmtp_receiver_stuck(const struct fmtp_receiver *r);

uint64_t fmtp_receiver_deadline(const struct fmtp_receiver *r); /* TP_NEVER: none */
/* Does what is due at now_ns: asks again for what is late. */
void fmtp_receiver_timeout(struct fmtp_receiver *r, uint64_t now_ns);

/* Products that have begun, or whose BOP is being asked for, and that have not ended. */
size_t fmtp_receiver_in_flight(const struct fmtp_receiver *r);
/* Fills everything but the fields about the socket. */
void fmtp_receiver_get_stats(const struct fmtp_receiver *r, struct fmtp_client_stats *out);

#endif

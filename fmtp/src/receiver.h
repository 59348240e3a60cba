/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving state machine: no socket, no clock, no thread. The caller brings datagrams, bytes
 * of the sender's stream and the time (now_ns, any monotonic origin), and takes requests out.
 * Data goes straight to its place in the buffer that begun() returned.
 *
 * Every product index from the first one seen ends in exactly one of ended(), missed(), or a
 * NULL from begun(). Memory is bounded by max_products (a few words and a bitmap each).
 */
#ifndef FMTP_RECEIVER_H
#define FMTP_RECEIVER_H

#include "wire.h"

struct fmtp_receiver_config {
    enum fmtp_layout layout;
    double f_rcv;                     /* equation (2) */
    uint64_t r_mc_bps;                /* equation (2) */
    size_t max_products;
    void *ctx;
    /* The callbacks must not call the receiver. See fmtp_client_config; here ended() gets the time
     * stamp of the BOP instead of a delay. */
    void *(*begun)(void *ctx, uint32_t index, uint32_t size_bytes, const void *meta,
                   uint16_t meta_len, struct timespec start);
    void (*ended)(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start);
    void (*missed)(void *ctx, uint32_t index);
};

struct fmtp_receiver;

struct fmtp_receiver *fmtp_receiver_new(const struct fmtp_receiver_config *cfg);
/* Calls missed() for what is incomplete, in order of index. */
void fmtp_receiver_free(struct fmtp_receiver *r);

/* A datagram as it came; what is malformed is counted and dropped. */
void fmtp_receiver_datagram(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                            uint64_t now_ns);
/* Bytes of the sender's stream. -1: garbage, the caller must close the connection. */
int fmtp_receiver_stream(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                         uint64_t now_ns);

/* What goes to the sender next: returns how many bytes there are at *bytes (0: nothing), valid
 * until the next call of anything here. Then say how many left. */
size_t fmtp_receiver_output(const struct fmtp_receiver *r, const uint8_t **bytes);
void fmtp_receiver_sent(struct fmtp_receiver *r, size_t bytes);
/* The sender takes nothing more and the backlog of messages is at its bound: give up. */
bool fmtp_receiver_stuck(const struct fmtp_receiver *r);

uint64_t fmtp_receiver_deadline(const struct fmtp_receiver *r);   /* FMTP_NEVER: none */
void fmtp_receiver_timeout(struct fmtp_receiver *r, uint64_t now_ns);

size_t fmtp_receiver_in_flight(const struct fmtp_receiver *r);
/* Fills everything but the fields about the socket. */
void fmtp_receiver_get_stats(const struct fmtp_receiver *r, struct fmtp_client_stats *out);

#endif

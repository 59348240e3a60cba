/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending state machine: no socket, no clock, no thread. The caller brings bytes and the time
 * (now_ns, any monotonic origin) and takes out datagrams and stream bytes as iovecs: headers made
 * here, payload pointers into the offered product (never copied). mpup-ldm7 II; FMTPv3 messages in
 * wire.h.
 *
 * Memory is bounded by max_products, max_peers and peer_queue_bytes.
 */
#ifndef FMTP_SENDER_H
#define FMTP_SENDER_H

#include "wire.h"

#define FMTP_MAX_PARTS 4
#define FMTP_STREAM_MESSAGES 32

struct fmtp_sender_config {
    enum fmtp_layout layout;
    uint32_t first_index;
    double f_snd;                     /* equation (1) */
    uint64_t r_mc_bps;                /* equation (1) */
    uint64_t tau_snd_min_ns;          /* 0: equation (1) as it is */
    size_t max_products, max_peers;
    size_t peer_queue_bytes;          /* memory for the queued requests of one peer */
    void *ctx;
    void (*multicasted)(void *ctx, uint32_t index, void *cookie);             /* may be NULL */
    void (*released)(void *ctx, uint32_t index, void *cookie, enum fmtp_release why);
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

struct fmtp_sender;

struct fmtp_sender *fmtp_sender_new(const struct fmtp_sender_config *cfg);  /* NULL: no memory */
/* Releases what is retained with FMTP_RELEASE_CLOSED. */
void fmtp_sender_free(struct fmtp_sender *s);

bool fmtp_sender_ready(const struct fmtp_sender *s);
/* See fmtp_server_offer(). start: CLOCK_REALTIME, goes into the BOP of LAYOUT_2021. */
int fmtp_sender_offer(struct fmtp_sender *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, struct timespec start,
                      uint32_t *index, struct fmtp_error *err);

/* --- multicast output: look at what comes next, then say how much of it left */
/* Fills the datagram k places after the next one; false if there is none. */
bool fmtp_sender_peek(const struct fmtp_sender *s, uint32_t k, struct fmtp_datagram *out);
/* How many datagrams are left of the product being multicast. */
uint64_t fmtp_sender_pending(const struct fmtp_sender *s);
/* The next n datagrams left at now_ns. When EOP is among them the sender timer starts. */
void fmtp_sender_sent(struct fmtp_sender *s, uint32_t n, uint64_t now_ns);

/* --- peers: connections that are ready for messages */
/* Number of the new peer (0..max_peers-1), -1 if there is no room. */
int fmtp_sender_peer_add(struct fmtp_sender *s);
void fmtp_sender_peer_remove(struct fmtp_sender *s, int peer);
void fmtp_sender_peer_rtt(struct fmtp_sender *s, int peer, uint64_t rtt_ns);
/* Bytes from the peer's stream. -1: garbage or abuse, the caller must close the connection. */
int fmtp_sender_peer_input(struct fmtp_sender *s, int peer, const uint8_t *bytes, size_t len);
bool fmtp_sender_peer_pending(const struct fmtp_sender *s, int peer);
/* Fills out with what goes to the peer next (out->len 0: nothing); then say how many bytes of it
 * left. Nothing else may be called between the two. */
void fmtp_sender_peer_peek(const struct fmtp_sender *s, int peer, struct fmtp_stream_out *out);
void fmtp_sender_peer_sent(struct fmtp_sender *s, int peer, size_t bytes);

/* --- time */
uint64_t fmtp_sender_deadline(const struct fmtp_sender *s);       /* FMTP_NEVER: none */
void fmtp_sender_timeout(struct fmtp_sender *s, uint64_t now_ns);

/* Everything but .receivers' address related fields is filled. */
void fmtp_sender_get_stats(const struct fmtp_sender *s, struct fmtp_server_stats *out);

#endif

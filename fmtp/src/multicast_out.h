/* SPDX-License-Identifier: Apache-2.0
 *
 * The multicast output of a server: takes datagrams from the sender core, adds MACs, and hands them
 * to the transport's paced batches.
 */
#ifndef FMTP_MULTICAST_OUT_H
#define FMTP_MULTICAST_OUT_H

#include "mac.h"
#include "net/batch_out.h"
#include "rate_control.h"
#include "sender.h"

enum {
    FMTP_OUT_BATCH = 192,               /* datagrams per call */
    FMTP_OUT_PARTS = 2 + FMTP_MAX_PARTS /* header, payload, MAC */
};

struct fmtp_multicast_out {
    struct tp_batch_out io;
    struct fmtp_mac *mac;
    unsigned pdu_bytes;    /* in use: header, block, MAC */
    size_t sndbuf_granted; /* bytes */
    bool adapts;           /* the pace follows the receivers' losses */
    uint64_t held_ns;      /* the pace last held datagrams back */
    struct fmtp_rate_control adapt;
    struct fmtp_datagram batch[FMTP_OUT_BATCH];
    uint8_t macs[FMTP_OUT_BATCH][FMTP_MAC_MAX];
    struct iovec parts[FMTP_OUT_BATCH * FMTP_OUT_PARTS];
};

/* Opens socket and MAC key; pdu_bytes is settled. -1 with *err. */
int fmtp_multicast_out_open(struct fmtp_multicast_out *o, const struct fmtp_server_config *cfg,
                            struct tp_error *err);
/* The kind of MACs that a server begins with. */
enum fmtp_mac_kind fmtp_multicast_out_kind(const struct fmtp_server_config *cfg);
/* Another kind, with a fresh key, before any datagram. -1: no memory, nothing changed. */
int fmtp_multicast_out_set_kind(struct fmtp_multicast_out *o, enum fmtp_mac_kind kind);
/* Closes the socket and frees the MAC; o itself is the caller's. */
void fmtp_multicast_out_close(struct fmtp_multicast_out *o);
/* Sends what may go now to that many receivers, one batch at most; returns how many datagrams
 * left. */
unsigned fmtp_multicast_out_send(struct fmtp_multicast_out *o, struct fmtp_sender *core,
                                 size_t peers, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The multicast output of a server: takes datagrams from the sender core, adds MACs, and passes
 * them to the transport's paced batches.
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
    unsigned pdu_bytes;     /* in use: header, block, MAC */
    size_t sndbuf_granted;  /* bytes */
    bool adapts;            /* the pace follows the receivers' losses */
    bool measures;          /* the core measures how long handing over takes */
    uint64_t held_ns;       /* when the pace last held back datagrams */
    uint64_t full_ns;       /* when a receiver's buffer was last full; 0: never */
    uint64_t full_until_ns; /* if one is full: when to look at it again; otherwise 0 */
    struct fmtp_rate_control adapt;
    struct fmtp_datagram batch[FMTP_OUT_BATCH];
    uint8_t macs[FMTP_OUT_BATCH][FMTP_MAC_MAX];
    struct iovec parts[FMTP_OUT_BATCH * FMTP_OUT_PARTS];
};

/* Opens the socket, makes the MAC key and determines pdu_bytes. Returns -1 with *err. */
int fmtp_multicast_out_open(struct fmtp_multicast_out *o, const struct fmtp_server_config *cfg,
                            struct tp_error *err);
/* Returns the kind of MACs that a server starts with. */
enum fmtp_mac_kind fmtp_multicast_out_kind(const struct fmtp_server_config *cfg);
/* Changes the kind, with a fresh key, before any datagram. Returns -1 without memory; nothing has
 * changed then. */
int fmtp_multicast_out_set_kind(struct fmtp_multicast_out *o, enum fmtp_mac_kind kind);
/* Closes the socket and frees the MAC; the caller owns o itself. */
void fmtp_multicast_out_close(struct fmtp_multicast_out *o);
/* Sends what may be sent now to that many receivers, at most one batch; returns how many datagrams
 * were sent. */
unsigned fmtp_multicast_out_send(struct fmtp_multicast_out *o, struct fmtp_sender *core,
                                 size_t peers, uint64_t now_ns);

#endif

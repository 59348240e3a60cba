/* SPDX-License-Identifier: Apache-2.0
 *
 * Extension 1 at the sender: when and how FEC groups are repaired by multicast.
 *
 * Requests for a group are merged for a short time (hold-off), then answered by one burst for all
 * receivers: parity symbols, or the blocks themselves if that is cheaper. The loss seen in requests
 * determines how much parity follows each group unasked.
 */
#ifndef FMTP_SENDER_REPAIR_H
#define FMTP_SENDER_REPAIR_H

#include "sender_state.h"

int fmtp_repair_init(struct fmtp_sender *s); /* -1: no memory */
/* Empties the lists of groups after the sender has moved in memory. */
void fmtp_repair_relist(struct fmtp_sender *s);
/* Frees the memory of the parity. */
void fmtp_repair_free(struct fmtp_sender *s);
/* Returns whether there are extended peers. Others discard what is multicast for them. */
bool fmtp_repair_active(const struct fmtp_sender *s);
/* The last extended peer left: nothing of extension 1 is multicast any more. */
void fmtp_repair_stop(struct fmtp_sender *s);
/* Gives the product its groups (none if it has too many, or without the extension). */
int fmtp_repair_begin(struct fmtp_sender *s, struct product *p); /* -1: no memory */
/* The product is done: its groups rest, and the loss estimate learns from unrequested ones. */
void fmtp_repair_end(struct fmtp_sender *s, struct product *p);

/* Processes a valid request of a peer for the group. */
void fmtp_repair_request(struct fmtp_sender *s, struct group *g, const struct fmtp_repair_req *req,
                         const struct peer *peer, uint64_t now_ns);
/* The same while blocks of the group are still to come: parity follows the last of them. Parity
 * sent earlier would tell the other receivers that the group is over and that they lost it. */
void fmtp_repair_request_early(struct fmtp_sender *s, struct group *g,
                               const struct fmtp_repair_req *req, const struct peer *peer);
/* Starts bursts whose hold-off is over, and learns from groups that no receiver requested. */
void fmtp_repair_due(struct fmtp_sender *s, uint64_t now_ns);
/* Returns when the next hold-off is over, or TP_NEVER. */
uint64_t fmtp_repair_deadline(const struct fmtp_sender *s);

/* Plans at most max datagrams of the burst whose turn it is; 0: nothing to do, or no memory. */
unsigned fmtp_repair_plan(struct fmtp_sender *s, unsigned max);
/* The last block of g is planned: decides how much parity follows it. */
void fmtp_repair_append(struct fmtp_sender *s, struct group *g);
/* Plans at most max symbols of that parity; clears s->appending when it is complete. */
unsigned fmtp_repair_plan_appended(struct fmtp_sender *s, unsigned max);
/* A datagram of the group was sent; last: everything of it that is multicast in order has been
 * sent. */
void fmtp_repair_sent(struct fmtp_sender *s, struct group *g, bool last, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Extension 1 at the sender: when and how FEC groups are repaired by multicast.
 *
 * Requests for a group are merged for a moment (hold-off), then answered by one burst for
 * all receivers: parity symbols, or the blocks themselves where that is cheaper. The loss in
 * requests decides how much parity follows each group unasked.
 */
#ifndef FMTP_SENDER_REPAIR_H
#define FMTP_SENDER_REPAIR_H

#include "sender_state.h"

int fmtp_repair_init(struct fmtp_sender *s); /* -1: no memory */
/* The lists of groups are empty, wherever the sender lay before. */
void fmtp_repair_relist(struct fmtp_sender *s);
/* Frees the memory of the parity. */
void fmtp_repair_free(struct fmtp_sender *s);
/* There are extended peers. Others discard what is multicast for them. */
bool fmtp_repair_active(const struct fmtp_sender *s);
/* The last extended peer went: nothing of extension 1 is multicast any more. */
void fmtp_repair_stop(struct fmtp_sender *s);
/* Gives the product its groups (none if it has too many, or without the extension). */
int fmtp_repair_begin(struct fmtp_sender *s, struct product *p); /* -1: no memory */
/* The product is done with: its groups rest, and what no receiver asked for is learnt from. */
void fmtp_repair_end(struct fmtp_sender *s, struct product *p);

/* A valid request of a peer for the group. */
void fmtp_repair_request(struct fmtp_sender *s, struct group *g, const struct fmtp_repair_req *req,
                         const struct peer *peer, uint64_t now_ns);
/* The same while blocks of it are still to come: parity follows the last of them. Before that it
 * would tell the others that the group is over, and that they lost it. */
void fmtp_repair_request_early(struct fmtp_sender *s, struct group *g,
                               const struct fmtp_repair_req *req, const struct peer *peer);
/* Lets bursts begin whose hold-off is over, and learns from groups that no receiver asked for. */
void fmtp_repair_due(struct fmtp_sender *s, uint64_t now_ns);
/* When the next hold-off is over, or TP_NEVER. */
uint64_t fmtp_repair_deadline(const struct fmtp_sender *s);

/* Plans datagrams of the burst whose turn it is, at most max; 0: nothing to do, or no memory. */
unsigned fmtp_repair_plan(struct fmtp_sender *s, unsigned max);
/* The last block of g is planned: decides how much parity follows it. */
void fmtp_repair_append(struct fmtp_sender *s, struct group *g);
/* Plans that parity, at most max; clears s->appending when it is complete. */
unsigned fmtp_repair_plan_appended(struct fmtp_sender *s, unsigned max);
/* A datagram of the group left; last: what was multicast of it in order is complete. */
void fmtp_repair_sent(struct fmtp_sender *s, struct group *g, bool last, uint64_t now_ns);

#endif

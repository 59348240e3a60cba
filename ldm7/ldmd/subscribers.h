/* SPDX-License-Identifier: Apache-2.0
 *
 * The subscribers of one MULTICAST entry (DRFSM21 2.2.2). Each has a channel, which its up7 keeps
 * open as long as it runs; meanwhile the subscriber's address may connect to FMTP and the entry's
 * path reaches its endpoint. A subscription is answered when the path service has confirmed that.
 */
#ifndef LDMD_SUBSCRIBERS_H
#define LDMD_SUBSCRIBERS_H

#include "fmtp.h"
#include "process.h"

struct subscribers;

/* tcp_port: FMTP's, as announced to subscribers. control_fd: where subscriptions arrive
 * (mldm_subscribe). Returns NULL after logging the reason. */
struct subscribers *subscribers_open(struct loop *loop, const struct options *opt,
                                     const struct conf_multicast *entry, uint16_t tcp_port,
                                     int control_fd);
/* left() is called when a subscription of that address has ended; others: how many connections of
 * the address may remain. */
void subscribers_on_leave(struct subscribers *s,
                          void (*left)(void *ctx, struct in_addr addr, size_t others), void *ctx);
/* Deletes the path, and waits a few seconds for that. */
void subscribers_close(struct subscribers *s);
/* Call this at each turn of the loop. Returns when to call it again at the latest. */
uint64_t subscribers_tend(struct subscribers *s, uint64_t now);
/* Returns whether this address may connect to FMTP. Logs a refusal. */
bool subscribers_authorize(struct subscribers *s, struct in_addr peer);
/* Returns how many connections it may have: one reserved for each subscription, or one that ALLOW
 * entries grant the address. */
struct fmtp_grant subscribers_grant(const struct subscribers *s, struct in_addr peer);
/* Immediately refuses a subscriber that waits for a sender that cannot start. */
void subscribers_refuse_waiting(int control_fd);

#endif

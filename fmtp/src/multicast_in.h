/* SPDX-License-Identifier: Apache-2.0
 *
 * The multicast input of a client: reads datagrams in batches, runs that the kernel has kept
 * together (GRO) as one message, and lets the payloads land in the places that the receiver core
 * predicts, so that they are copied once. What does not land where it belongs is gathered first and
 * copied by the core.
 */
#ifndef FMTP_MULTICAST_IN_H
#define FMTP_MULTICAST_IN_H

#include "mac.h"
#include "receiver.h"

struct fmtp_multicast_in;

/* Opens the socket and joins. -1 (NULL) with *err. */
struct fmtp_multicast_in *fmtp_multicast_in_open(const struct fmtp_client_config *cfg,
                                                 struct tp_error *err);
/* Takes over a bound UDP socket. NULL: no memory, the socket stays open. */
struct fmtp_multicast_in *fmtp_multicast_in_new(int fd);
/* Leaves the group and frees it. in may be NULL. */
void fmtp_multicast_in_close(struct fmtp_multicast_in *in);
/* The UDP socket, readable when there are datagrams. */
int fmtp_multicast_in_fd(const struct fmtp_multicast_in *in);
/* MACs are checked from now on; NULL: none. The caller keeps mac. */
void fmtp_multicast_in_set_mac(struct fmtp_multicast_in *in, struct fmtp_mac *mac);
/* Reads a batch; returns the number of messages, 0: there are none now. */
unsigned fmtp_multicast_in_read(struct fmtp_multicast_in *in, const struct fmtp_receiver *core);
/* True if there could be more than the batch had. */
bool fmtp_multicast_in_was_full(const struct fmtp_multicast_in *in);
/* Gives what was read to the core. A product may end in the middle of the batch and its memory go
 * with it, while later datagrams of the batch are in that memory: all MACs are verified before the
 * core gets the first datagram, and the core reads no payload of a product that has ended. */
void fmtp_multicast_in_deliver(struct fmtp_multicast_in *in, struct fmtp_receiver *core,
                               uint64_t now_ns);
/* Fills the fields about the socket and its datagrams. */
void fmtp_multicast_in_get_stats(const struct fmtp_multicast_in *in, struct fmtp_client_stats *out);

#endif

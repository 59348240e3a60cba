/* SPDX-License-Identifier: Apache-2.0
 *
 * The multicast input of a client: reads datagrams in batches, with runs that the kernel has merged
 * (GRO) as one message, and directs the payloads to the places that the receiver core predicts, so
 * that they are copied only once. What lands elsewhere is gathered first and then copied by the
 * core.
 *
 * If the application stores bytes itself, a batch is small enough for the processor's cache, and
 * consecutive blocks are stored by one call.
 */
#ifndef FMTP_MULTICAST_IN_H
#define FMTP_MULTICAST_IN_H

#include "mac.h"
#include "receiver.h"

struct fmtp_multicast_in;

/* Opens the socket and joins the group. Returns NULL with *err. */
struct fmtp_multicast_in *fmtp_multicast_in_open(const struct fmtp_client_config *cfg,
                                                 struct tp_error *err);
/* Takes over a bound UDP socket. Returns NULL without memory; the socket then stays open. */
struct fmtp_multicast_in *fmtp_multicast_in_new(int fd);
/* Lets the application store the payloads. */
void fmtp_multicast_in_set_store(struct fmtp_multicast_in *in, fmtp_store_fn *store, void *ctx);
/* Leaves the group and frees the input. in may be NULL. */
void fmtp_multicast_in_close(struct fmtp_multicast_in *in);
/* Returns the UDP socket, which is readable when there are datagrams. */
int fmtp_multicast_in_fd(const struct fmtp_multicast_in *in);
/* Returns the size of the socket's buffer in bytes. */
size_t fmtp_multicast_in_buffer(const struct fmtp_multicast_in *in);
/* Checks MACs from now on; NULL: none. The caller still owns mac. */
void fmtp_multicast_in_set_mac(struct fmtp_multicast_in *in, struct fmtp_mac *mac);
/* Reads a batch and returns the number of messages; 0: none now. */
unsigned fmtp_multicast_in_read(struct fmtp_multicast_in *in, const struct fmtp_receiver *core);
/* Returns how many datagrams the last delivered batch had. */
unsigned fmtp_multicast_in_datagrams(const struct fmtp_multicast_in *in);
/* Returns whether there may be more datagrams than fit in the batch. */
bool fmtp_multicast_in_was_full(const struct fmtp_multicast_in *in);
/* Passes what was read to the core. A product may end in the middle of the batch and its memory be
 * freed, while later datagrams of the batch are in that memory. Therefore all MACs are verified
 * before the core gets the first datagram, and the core reads no payload of a product that has
 * ended. */
void fmtp_multicast_in_deliver(struct fmtp_multicast_in *in, struct fmtp_receiver *core,
                               uint64_t now_ns);
/* Fills in the fields about the socket and its datagrams. */
void fmtp_multicast_in_get_stats(const struct fmtp_multicast_in *in, struct fmtp_client_stats *out);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads datagrams from a UDP socket in batches and splits the runs that the kernel has merged
 * (GRO).
 */
#ifndef TRANSPORT_NET_BATCH_IN_H
#define TRANSPORT_NET_BATCH_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Lets the kernel pass runs of datagrams as one message (GRO); older kernels pass single ones. */
void tp_enable_gro(int fd);
/* Returns the length of the datagrams in a message of len bytes; the last may be shorter. */
size_t tp_gro_segment_len(struct msghdr *h, size_t len);
/* Returns how many datagrams were dropped because the socket's buffer was full, since it was
 * opened. */
uint64_t tp_socket_drops(int fd);

struct tp_batch_in;

/* Makes a reader of the socket, which the caller still owns. Returns NULL without memory. */
struct tp_batch_in *tp_batch_in_new(int fd);
void tp_batch_in_free(struct tp_batch_in *in);
/* Calls the function for each datagram of one batch. Returns how many there were; 0: none now. */
typedef void tp_datagram_fn(void *ctx, const uint8_t *bytes, size_t len,
                            const struct sockaddr_storage *from);
unsigned tp_batch_in_read(struct tp_batch_in *in, tp_datagram_fn *give, void *ctx);

#endif

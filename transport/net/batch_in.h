/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams from a UDP socket in batches, runs that the kernel has kept together (GRO) taken apart.
 */
#ifndef TRANSPORT_NET_BATCH_IN_H
#define TRANSPORT_NET_BATCH_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Lets the kernel keep runs together; older kernels give them one by one. */
void tp_enable_gro(int fd);
/* Length of the datagrams of a message of len bytes; the last may be shorter. */
size_t tp_gro_segment_len(struct msghdr *h, size_t len);
/* Datagrams that found the socket's buffer full, since it was opened. */
uint64_t tp_socket_drops(int fd);

struct tp_batch_in;

/* Reads the socket, which stays the caller's. NULL: no memory. */
struct tp_batch_in *tp_batch_in_new(int fd);
void tp_batch_in_free(struct tp_batch_in *in);
/* Gives each datagram of one batch to the function. Returns how many there were, 0: none now. */
typedef void tp_datagram_fn(void *ctx, const uint8_t *bytes, size_t len,
                            const struct sockaddr_storage *from);
unsigned tp_batch_in_read(struct tp_batch_in *in, tp_datagram_fn *give, void *ctx);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams out of a connected UDP socket, paced and in batches; runs of equal length go as one
 * UDP_SEGMENT message (GSO) where kernel and device take it.
 */
#ifndef TRANSPORT_NET_BATCH_OUT_H
#define TRANSPORT_NET_BATCH_OUT_H

#include <sys/uio.h>

#include "pace.h"

struct tp_batch_out {
    int fd;
    struct tp_pace pace;
    unsigned gso_max;  /* datagrams per message; 1: no GSO */
    bool full;         /* no room in the socket buffer: wait for EPOLLOUT */
    uint64_t retry_ns; /* after ENOBUFS, which no event ends */
    uint64_t send_errors, too_long;
    uint64_t datagrams;
    uint64_t messages; /* handed to the system: datagrams or runs of them */
};

/* What a caller has to send. */
struct tp_datagrams {
    void *ctx;
    unsigned count;
    size_t (*len)(void *ctx, unsigned i);
    /* Fills parts with datagram i's; returns how many. Called once for each that may go. */
    size_t (*parts)(void *ctx, unsigned i, struct iovec *parts);
};

/* How many datagrams of len bytes may go as one message at this rate (0: unlimited). */
unsigned tp_gso_limit(uint64_t rate_bps, size_t len, unsigned overhead);
/* True if at least one datagram may go now. */
bool tp_batch_out_ready(struct tp_batch_out *o, uint64_t now_ns);
/* How many datagrams of len bytes a caller should bring, at most n. */
unsigned tp_batch_out_most(const struct tp_batch_out *o, size_t len, unsigned n, uint64_t now_ns);
/* Sends the first of them, as the pace lets; parts has room for the parts of all. Returns how many
 * left, or were lost as the network loses them. */
unsigned tp_batch_out_send(struct tp_batch_out *o, const struct tp_datagrams *d,
                           struct iovec *parts, uint64_t now_ns);
/* When the next datagram can go: 0: when the socket has room (EPOLLOUT), else a time. */
uint64_t tp_batch_out_waits_until(const struct tp_batch_out *o, uint64_t now_ns);

#endif

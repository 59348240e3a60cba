/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends datagrams from a connected UDP socket, paced and in batches. Runs of equal length go as one
 * UDP_SEGMENT message (GSO) if kernel and device support it.
 */
#ifndef TRANSPORT_NET_BATCH_OUT_H
#define TRANSPORT_NET_BATCH_OUT_H

#include <sys/uio.h>

#include "pace.h"

struct tp_batch_out {
    int fd;
    struct tp_pace pace;
    unsigned gso_max;  /* datagrams per message; 1: no GSO */
    bool full;         /* the socket buffer is full: wait for EPOLLOUT */
    uint64_t retry_ns; /* when to retry after ENOBUFS, whose end no event signals */
    uint64_t send_errors, too_long;
    uint64_t datagrams;
    uint64_t messages; /* passed to the system: datagrams or runs of them */
};

/* The datagrams that a caller wants to send. */
struct tp_datagrams {
    void *ctx;
    unsigned count;
    size_t (*len)(void *ctx, unsigned i);
    /* Fills parts with those of datagram i; returns how many. Called once for each that may be
     * sent. */
    size_t (*parts)(void *ctx, unsigned i, struct iovec *parts);
};

/* Returns how many datagrams of len bytes may go as one message at this rate (0: unlimited). */
unsigned tp_gso_limit(uint64_t rate_bps, size_t len, unsigned overhead);
/* Returns whether at least one datagram may be sent now. */
bool tp_batch_out_ready(struct tp_batch_out *o, uint64_t now_ns);
/* Returns how many datagrams of len bytes a caller should offer, at most n. */
unsigned tp_batch_out_most(const struct tp_batch_out *o, size_t len, unsigned n, uint64_t now_ns);
/* Sends as many of the datagrams as the pace permits, from the first; parts has room for the parts
 * of all. Returns how many were sent or counted as lost. */
unsigned tp_batch_out_send(struct tp_batch_out *o, const struct tp_datagrams *d,
                           struct iovec *parts, uint64_t now_ns);
/* Returns when the next datagram can be sent; 0: when the socket has room (EPOLLOUT). */
uint64_t tp_batch_out_waits_until(const struct tp_batch_out *o, uint64_t now_ns);

#endif

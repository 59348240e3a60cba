/* SPDX-License-Identifier: Apache-2.0
 *
 * A carousel's datagrams on their way out: socket, pace, batches. Nothing is printed here.
 */
#ifndef FCAST_TOOLS_OUTGOING_H
#define FCAST_TOOLS_OUTGOING_H

#include "fcast.h"
#include "net/address.h"
#include "net/batch_out.h"

enum {
    OUTGOING_BATCH = 192,
    OUTGOING_DATAGRAM_MAX = 2048,
    OUTGOING_SYMBOL_MAX = OUTGOING_DATAGRAM_MAX - FCAST_OVERHEAD_MAX,
};

struct outgoing {
    uint64_t rate_bps; /* set before: with all headers */
    bool jitter;       /* the same: the time between datagrams varies by half */
    unsigned mtu_bytes;
    struct tp_batch_out batch;
    struct fcast_sender *sender;
    unsigned datagram_bytes;
    uint64_t random;
    unsigned waiting; /* datagrams that are made and not sent */
    size_t lens[OUTGOING_BATCH];
    uint8_t bytes[OUTGOING_BATCH][OUTGOING_DATAGRAM_MAX];
    struct iovec parts[OUTGOING_BATCH];
};

/* Opens the socket. -1 with *err. */
int outgoing_open(struct outgoing *o, const struct sockaddr_storage *from,
                  const struct sockaddr_storage *group, unsigned ttl, struct tp_error *err);
/* The largest symbol that the path's MTU lets, and a good one. */
unsigned outgoing_symbol_most(const struct outgoing *o, bool has_key);
uint16_t outgoing_symbol(const struct outgoing *o, bool has_key);
/* The sender's first datagram may go from now on. */
void outgoing_begin(struct outgoing *o, struct fcast_sender *sender, unsigned symbol_bytes,
                    uint64_t random);
/* Sends what may go now. false: all is sent. */
bool outgoing_send(struct outgoing *o, uint64_t now_ns);
/* Until something may go, a signal comes, or wake_fd (-1: none) can be read. */
void outgoing_wait(struct outgoing *o, uint64_t now_ns, int wake_fd);
/* When what is sent now expires, seconds of NTP: in ten years, but no later than 2036. */
uint32_t outgoing_expires(void);
/* Tells receivers that the session ends, three times in 60 ms. */
void outgoing_say_goodbye(struct outgoing *o);

#endif

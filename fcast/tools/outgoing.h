/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends a carousel's datagrams: socket, pace, batches. Prints nothing.
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
    uint64_t rate_bps; /* set by the caller before opening: includes all headers */
    bool jitter;       /* likewise: the time between datagrams varies by half */
    unsigned mtu_bytes;
    struct tp_batch_out batch;
    struct fcast_sender *sender;
    unsigned datagram_bytes;
    uint64_t random;
    unsigned waiting; /* datagrams made but not sent */
    size_t lens[OUTGOING_BATCH];
    uint8_t bytes[OUTGOING_BATCH][OUTGOING_DATAGRAM_MAX];
    struct iovec parts[OUTGOING_BATCH];
};

/* Opens the socket. Returns -1 with *err. */
int outgoing_open(struct outgoing *o, const struct sockaddr_storage *from,
                  const struct sockaddr_storage *group, unsigned ttl, struct tp_error *err);
/* Return the largest symbol that the path's MTU permits, and a good one. */
unsigned outgoing_symbol_most(const struct outgoing *o, bool has_key);
uint16_t outgoing_symbol(const struct outgoing *o, bool has_key);
/* Starts to send: the first datagram may be sent from now on. */
void outgoing_begin(struct outgoing *o, struct fcast_sender *sender, unsigned symbol_bytes,
                    uint64_t random);
/* Sends what may be sent now. Returns false when everything is sent. */
bool outgoing_send(struct outgoing *o, uint64_t now_ns);
/* Waits until something may be sent, a signal arrives, or wake_fd (-1: none) is readable. */
void outgoing_wait(struct outgoing *o, uint64_t now_ns, int wake_fd);
/* Returns when what is sent now expires, in NTP seconds: in ten years, but no later than 2036. */
uint32_t outgoing_expires(void);
/* Announces the end of the session to receivers, three times in 60 ms. */
void outgoing_say_goodbye(struct outgoing *o);

#endif

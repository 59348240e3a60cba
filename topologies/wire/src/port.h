/* SPDX-License-Identifier: Apache-2.0
 *
 * Linux packet sockets of one line: a TPACKET_V2 receive ring on the incoming interface, in which
 * frames also wait for their time, and a plain socket on the outgoing one. See packet(7).
 */
#ifndef WIRE_PORT_H
#define WIRE_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "line.h"

struct port {
    int rx;
    int tx;
    uint8_t *ring;
    size_t ring_bytes;
    size_t slot_bytes;
    unsigned slots;
    unsigned head;
};

/* Opens both sockets; `slots` is rounded up to whole blocks and updated. Returns 0, or -1 with a
 * message in `error`. */
int port_open(struct port *port, const char *in, const char *out, unsigned *slots, char *error,
              size_t error_size);
void port_close(struct port *port);

/* Sends all frames that are due at `now_ns`. Returns the number of frames taken off the ring. */
size_t port_serve(struct port *port, struct line *line, int64_t now_ns);

/* Adds the kernel's count of frames dropped for lack of a slot to the line's statistics. */
void port_collect_drops(const struct port *port, struct line *line);

#endif

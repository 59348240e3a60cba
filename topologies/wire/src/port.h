/* SPDX-License-Identifier: Apache-2.0
 *
 * Linux packet sockets (packet(7)): each line has a receive ring on its incoming interface, in
 * which frames wait until they are due; all lines send by one socket.
 */
#ifndef WIRE_PORT_H
#define WIRE_PORT_H

#include <linux/if_packet.h>
#include <stddef.h>
#include <stdint.h>

#include "line.h"
#include "ring.h"

struct port {
    struct ring ring;
    int tx; /* shared; the port must not close it */
    struct sockaddr_ll out;
    unsigned head;
};

/* Returns the socket to send by, or -1 with a message in `error`. */
int port_open_sender(char *error, size_t error_size);

/* Opens the ring; frames will leave at `out` by the socket `tx`. `slots` is rounded up to whole
 * blocks and updated. Returns 0, or -1 with a message in `error`. */
int port_open(struct port *port, const char *in, const char *out, int tx, unsigned *slots,
              char *error, size_t error_size);
/* Unmaps the ring and closes its socket. */
void port_close(struct port *port);

/* Clears the error that an interface going down leaves at its socket, which poll() reports until it
 * is cleared. The ring works again when the interface is up. */
void port_clear_error(int fd);

/* Sends all frames that are due at `now_ns`. Returns how many it took from the ring. */
size_t port_serve(struct port *port, struct line *line, int64_t now_ns);

/* Adds the kernel's count of frames dropped for lack of a slot to the line's statistics. */
void port_collect_drops(const struct port *port, struct line *line);

#endif

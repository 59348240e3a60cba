/* SPDX-License-Identifier: Apache-2.0
 *
 * A receive ring of a Linux packet socket (packet(7), TPACKET_V2): the frames that arrive at an
 * interface, each with its arrival time (CLOCK_REALTIME), in memory shared with the kernel.
 */
#ifndef WIRE_RING_H
#define WIRE_RING_H

#include <linux/if_packet.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct ring {
    int fd;
    uint8_t *bytes;
    size_t n_bytes;
    size_t slot_bytes;
    unsigned slots;
};

/* Opens the ring; frames that leave by the interface are not captured. `slots` is rounded up to
 * whole blocks and updated. Returns 0, or -1 with a message in `error`; then call ring_close(). */
int ring_open(struct ring *ring, const char *interface, unsigned *slots, char *error,
              size_t error_size);
/* Unmaps the ring and closes its socket. */
void ring_close(struct ring *ring);

struct tpacket2_hdr *ring_slot(const struct ring *ring, unsigned index);
/* Returns the status of a slot; with TP_STATUS_USER it holds a frame. */
uint32_t ring_status(struct tpacket2_hdr *header);
int64_t ring_arrival_ns(const struct tpacket2_hdr *header);
/* Returns the frame as it was on the wire, with a VLAN tag that the kernel removed put back. Call
 * it once per frame. */
struct iovec ring_frame(struct tpacket2_hdr *header, uint32_t status);
/* Returns the slot to the kernel. */
void ring_give_back(struct tpacket2_hdr *header);

#endif

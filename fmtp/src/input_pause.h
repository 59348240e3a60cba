/* SPDX-License-Identifier: Apache-2.0
 *
 * While datagrams arrive fast, a receiver lets them gather in its socket: a wake-up for each costs
 * more than the datagram, and takes the processor from other programs, on a small machine from the
 * sender or a switch. Sans I/O.
 */
#ifndef FMTP_INPUT_PAUSE_H
#define FMTP_INPUT_PAUSE_H

#include <stddef.h>
#include <stdint.h>

struct fmtp_input_pause {
    uint64_t since_ns, datagrams; /* read since then */
    uint64_t length_ns;           /* of pauses; 0: none, since datagrams arrive slowly */
    uint64_t until_ns;            /* the pause ends; 0: there is none */
};

/* The socket is empty. Sets until_ns: not long enough to fill a noticeable part of the buffer. */
void fmtp_input_drained(struct fmtp_input_pause *p, size_t datagram_bytes, size_t buffer_bytes,
                        uint64_t now_ns);

#endif

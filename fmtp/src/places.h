/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides which connections get a place at the server; connections.c acts on it.
 */
#ifndef FMTP_PLACES_H
#define FMTP_PLACES_H

#include "server_impl.h"

enum fmtp_place {
    FMTP_PLACE_GRANTED,
    FMTP_PLACE_TOO_MANY, /* its host has all it is entitled to */
    FMTP_PLACE_TOO_FAST, /* its host had too many key exchanges recently */
    FMTP_PLACE_NONE      /* all are taken, by hosts with no more than this one */
};

/* Returns the handshake that must end to make room for one of that host; NULL: there is room. */
struct conn *fmtp_places_handshake(const struct fmtp_server *s, const struct fmtp_host *host);
/* Returns whether the handshake may become a receiver. *leaves: the receiver to displace, or
 * NULL. */
enum fmtp_place fmtp_places_receiver(const struct fmtp_server *s, const struct conn *c,
                                     uint64_t now_ns, struct conn **leaves);

#endif

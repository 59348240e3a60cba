/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets a place at the server: decisions alone, connections.c carries them out.
 */
#ifndef FMTP_PLACES_H
#define FMTP_PLACES_H

#include "server_impl.h"

enum fmtp_place {
    FMTP_PLACE_GRANTED,
    FMTP_PLACE_TOO_MANY, /* its host has what it may have */
    FMTP_PLACE_TOO_FAST, /* its host has had too many key exchanges lately */
    FMTP_PLACE_NONE      /* all are taken, by hosts that have no more than this one */
};

/* Which handshake ends to make room for one of that host; NULL: there is room. */
struct conn *fmtp_places_handshake(const struct fmtp_server *s, const struct fmtp_host *host);
/* True if the handshake may become a receiver. *leaves: the receiver that ends for it, or NULL. */
enum fmtp_place fmtp_places_receiver(const struct fmtp_server *s, const struct conn *c,
                                     uint64_t now_ns, struct conn **leaves);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The cores' coming interface over their present one; goes when they have it.
 */
#ifndef FMTP_CORE_SHIM_H
#define FMTP_CORE_SHIM_H

#include <string.h>

#include "sender.h"

static inline bool fmtp_sender_has_output(const struct fmtp_sender *s, uint64_t now_ns)
{
    (void)now_ns;
    return fmtp_sender_pending(s) > 0;
}

static inline unsigned fmtp_sender_fill(struct fmtp_sender *s, struct fmtp_datagram *out,
                                        unsigned max, uint64_t now_ns)
{
    unsigned n = 0;

    (void)now_ns;
    while (n < max && fmtp_sender_peek(s, n, &out[n]))
        n++;
    return n;
}

/* Where s is the fmtp_server. */
#define fmtp_sender_next_ready(core, now_ns) shim_next_ready(s)
#define fmtp_sender_peer_blocked(core, peer, blocked) ((void)(peer))

#define fmtp_sender_peer_add(s, extended, out) \
    ((out)->block_bytes = FMTP_DATA_LEN, (void)(extended), (fmtp_sender_peer_add)(s))
#define fmtp_sender_peer_input(s, p, b, n, now) ((void)(now), (fmtp_sender_peer_input)(s, p, b, n))
#define fmtp_sender_peer_peek(s, p, out, now) ((void)(now), (fmtp_sender_peer_peek)(s, p, out))
#define fmtp_sender_peer_sent(s, p, n, now) ((void)(now), (fmtp_sender_peer_sent)(s, p, n))

#endif

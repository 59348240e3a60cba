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

static bool shim_present[1024], shim_blocked[1024];

static inline int fmtp_sender_next_ready(struct fmtp_sender *s, uint64_t now_ns)
{
    (void)now_ns;
    for (int i = 0; i < 1024; i++)
        if (shim_present[i] && !shim_blocked[i] && fmtp_sender_peer_pending(s, i))
            return i;
    return -1;
}

static inline void fmtp_sender_peer_blocked(struct fmtp_sender *s, int peer, bool blocked)
{
    (void)s;
    shim_present[peer] = true;
    shim_blocked[peer] = blocked;
}

#define fmtp_sender_peer_add(s, extended, out) \
    ((out)->block_bytes = FMTP_DATA_LEN, (void)(extended), (fmtp_sender_peer_add)(s))
#define fmtp_sender_peer_input(s, p, b, n, now) (fmtp_sender_peer_input)(s, p, b, n)
#define fmtp_sender_peer_peek(s, p, out, now) (fmtp_sender_peer_peek)(s, p, out)
#define fmtp_sender_peer_sent(s, p, n, now) (fmtp_sender_peer_sent)(s, p, n)

#endif

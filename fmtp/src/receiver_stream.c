/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the sender's stream: messages in pieces of any size.
 */
#include <string.h>

#include "receiver_core.h"

static void on_data(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *payload)
{
    struct product *p = fmtp_rx_lookup(r, h->index);
    uint32_t block = h->seqnum / r->block;

    if (p)
        fmtp_rx_reach(r, h->index);
    if (p && p->active && !fmtp_rx_is_block(r, p, h))
        return;
    if (p && p->active && p->groups)
        fmtp_rx_answered(r, p, fmtp_groups_of(p->groups, block));
    if (!p || !p->active || fmtp_have(p->received, block)) {
        r->stats.duplicate_blocks++;
        return;
    }
    if (!fmtp_rx_put(r, p, h->seqnum, payload, h->payloadlen))
        return;
    p->retx_blocks++;
    r->stats.retx_blocks++;
    fmtp_rx_received(r, p, block);
    fmtp_rx_finish(r, p);
}

/* Processes a complete message. */
static void on_message(struct fmtp_receiver *r, const uint8_t *payload)
{
    struct fmtp_header h = r->msg;

    switch (h.flags) {
    case FMTP_RETX_REJ:
        if (h.seqnum == FMTP_REJ_BYE)
            r->finished = true;
        else
            fmtp_rx_rejected(r, h.index);
        break;
    case FMTP_NOT_YET: fmtp_rx_not_yet(r, &h); break;
    case FMTP_RETX_EOP: fmtp_rx_eop(r, &h); break;
    case FMTP_RETX_DATA: on_data(r, &h, payload); break;
    default: fmtp_rx_bop(r, &h, payload);
    }
}

/* Returns -1 if a sender may not send this. */
static int check(const struct fmtp_receiver *r, const struct fmtp_header *h)
{
    switch (h->flags) {
    case FMTP_RETX_REJ:
    case FMTP_RETX_EOP: return h->payloadlen ? -1 : 0;
    case FMTP_NOT_YET: return r->session.ours ? 0 : -1;
    case FMTP_RETX_DATA: return h->payloadlen > r->block ? -1 : 0;
    case FMTP_RETX_BOP:
        return h->payloadlen > r->block || h->payloadlen < fmtp_bop_fixed_len(r->cfg.layout) ? -1
                                                                                             : 0;
    default: return -1;
    }
}

static int on_head(struct fmtp_receiver *r, const uint8_t *head)
{
    fmtp_header_get(head, &r->msg);
    if (check(r, &r->msg) < 0) {
        r->stats.bad_messages++;
        return -1;
    }
    r->payload_left = r->msg.flags == FMTP_NOT_YET ? 0 : r->msg.payloadlen;
    if (!r->payload_left)
        on_message(r, r->body);
    return 0;
}

/* Takes len bytes of the payload; copies it only if it arrives in pieces. */
static void on_payload(struct fmtp_receiver *r, const uint8_t *bytes, size_t len)
{
    size_t at = r->msg.payloadlen - r->payload_left;

    r->payload_left -= len;
    if (at || r->payload_left) {
        memcpy(r->body + at, bytes, len);
        bytes = r->body;
    }
    if (!r->payload_left)
        on_message(r, bytes);
}

int fmtp_receiver_stream(struct fmtp_receiver *r, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    fmtp_rx_tick(r, now_ns);
    while (len) {
        size_t take = r->payload_left ? r->payload_left : FMTP_HEADER_LEN - r->head_len;
        if (take > len)
            take = len;
        if (r->payload_left) {
            on_payload(r, bytes, take);
        } else {
            memcpy(r->head + r->head_len, bytes, take);
            r->head_len += take;
            if (r->head_len == FMTP_HEADER_LEN) {
                r->head_len = 0;
                if (on_head(r, r->head) < 0)
                    return -1;
            }
        }
        bytes += take;
        len -= take;
    }
    return 0;
}

bool fmtp_receiver_finished(const struct fmtp_receiver *r)
{
    return r->finished;
}

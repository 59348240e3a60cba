/* SPDX-License-Identifier: Apache-2.0
 *
 * What peers request on their streams, and the limits of that.
 *
 * The stream is reliable: a block that it carried once has arrived. A connection carries each block
 * at most twice, and each BOP a few times, so no more than its receiver can have lost.
 */
#include <stdlib.h>
#include <string.h>

#include "sender_repair.h"
#include "sender_state.h"

enum { BLOCK_TIMES = 2, BOP_TIMES = 4 };

/* What a peer's stream carried of a product. */
struct served {
    uint64_t queued; /* heads the list of what is still queued (requests.h) */
    uint8_t bops;
    uint64_t once[]; /* one bit per block, then those carried twice */
};

static uint16_t block_bytes(const struct fmtp_sender *s)
{
    return s->cfg.block_bytes;
}

/* ------------------------------------------------------------------ no more than can be lost */

static size_t words_of(const struct product *p)
{
    return ((size_t)p->nblocks + 63) / 64;
}

/* gcc's analyzer believes that an object leaks if its only pointer is in a table with a computed
 * index. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
/* Returns NULL without memory; then nothing is bounded. */
static struct served *served_to(const struct fmtp_sender *s, struct product *p, int number)
{
    if (!p->served)
        p->served = calloc(s->cfg.max_peers, sizeof(struct served *));
    if (p->served && !p->served[number])
        p->served[number] =
            calloc(1, sizeof(struct served) + BLOCK_TIMES * words_of(p) * sizeof(uint64_t));
    return p->served ? p->served[number] : NULL;
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

uint64_t *fmtp_requests_queued(struct product *p, size_t number)
{
    return p->served && p->served[number] ? &p->served[number]->queued : NULL;
}

void fmtp_requests_forget_peer(struct product *p, int number)
{
    if (!p->served)
        return;
    free(p->served[number]);
    p->served[number] = NULL;
}

void fmtp_requests_forget(const struct fmtp_sender *s, struct product *p)
{
    for (size_t i = 0; i < s->cfg.max_peers && p->served; i++)
        free(p->served[i]);
    free(p->served);
    p->served = NULL;
}

/* Returns whether the block may be sent to the peer, for the first or the second time. */
static bool take_block(struct fmtp_sender *s, struct product *p, int number, uint32_t block)
{
    struct served *had = served_to(s, p, number);

    if (!had)
        return true;
    for (unsigned i = 0; i < BLOCK_TIMES; i++) {
        uint64_t *set = had->once + i * words_of(p);
        if (!in_set(set, block)) {
            set_put(set, block, true);
            return true;
        }
    }
    s->stats.excess++;
    return false;
}

static bool take_bop(struct fmtp_sender *s, struct product *p, int number)
{
    struct served *had = served_to(s, p, number);

    if (!had || had->bops++ < BOP_TIMES)
        return true;
    had->bops = BOP_TIMES;
    s->stats.excess++;
    return false;
}

/* Queues the blocks that contain bytes [from, to) of the product and may be sent to the peer. */
static int send_blocks(struct fmtp_sender *s, int number, struct product *p, uint32_t from,
                       uint32_t to)
{
    uint32_t first = from / block_bytes(s), end = fmtp_blocks(to, block_bytes(s));
    bool was_done = in_set(p->done_set, (size_t)number);

    for (uint32_t block = first; block < end; block++) {
        uint32_t at = block * block_bytes(s);
        uint32_t len = fmtp_block_len(p->size, at, block_bytes(s));
        struct fmtp_request r = {.index = p->index,
                                 .seq = at,
                                 .end = to - at < len ? to : at + len,
                                 .flags = FMTP_RETX_DATA};
        if (take_block(s, p, number, block) && fmtp_peers_answer(s, number, &r) < 0)
            return -1;
        /* Its queue may have overflowed: then it gets nothing more of the product. */
        if (!was_done && in_set(p->done_set, (size_t)number))
            return 0;
    }
    return 0;
}

/* ------------------------------------------------------------------ requests */

/* Answers a repair request with the blocks themselves on the stream, unless these are still queued
 * for an earlier request. */
static int retransmit(struct fmtp_sender *s, int number, struct product *p, uint32_t group,
                      unsigned k, const struct fmtp_repair_req *req)
{
    struct peer *peer = s->peers[number];
    struct answered *a = &peer->answered[(p->index * 31 + group) % ANSWERED];
    uint32_t first = fmtp_fec_group(p->nblocks, s->cfg.fec_k, group).first;

    if (a->index == p->index && a->group == group && a->until > peer->queue.popped &&
        peer->queue.count)
        return 0;
    for (unsigned i = 0; i < k; i++) {
        uint32_t at = (first + i) * block_bytes(s);
        uint32_t len = fmtp_block_len(p->size, at, block_bytes(s));
        if (req->bitmap[i / 8] >> (i % 8) & 1 && send_blocks(s, number, p, at, at + len) < 0)
            return -1;
    }
    *a = (struct answered){p->index, group, peer->queue.popped + peer->queue.count};
    return 0;
}

/* The peer requests part of a product that did not wait for it: now it does. */
static void count_peer(struct product *p, int number)
{
    if (!in_set(p->unfinished_set, (size_t)number) && !in_set(p->done_set, (size_t)number)) {
        set_put(p->unfinished_set, (size_t)number, true);
        p->unfinished++;
    }
}

static int reject(struct fmtp_sender *s, int number, uint32_t index)
{
    struct fmtp_request r = {.index = index, .flags = FMTP_RETX_REJ};

    s->stats.rejects++;
    s->peers[number]->counts.rejects++;
    return fmtp_peers_answer(s, number, &r);
}

/* There is no product with that index: it was released, or has not been offered yet. No honest
 * receiver can know of the latter unless datagrams are forged. */
static int no_product(struct fmtp_sender *s, int number, const struct fmtp_header *h)
{
    const struct peer *peer = s->peers[number];
    bool acknowledges = h->flags == FMTP_RETX_END;

    if (h->index - s->next_index >= UINT32_MAX / 2)
        return acknowledges ? 0 : reject(s, number, h->index);
    s->stats.ahead++;
    if (peer->ours) {
        struct fmtp_request r = {
            .index = h->index, .seq = s->next_index, .end = h->flags, .flags = FMTP_NOT_YET};
        return fmtp_peers_answer(s, number, &r);
    }
    return acknowledges || peer->extended ? 0 : reject(s, number, h->index);
}

static int bad_message(struct fmtp_sender *s)
{
    s->stats.bad_messages++;
    return 0;
}

static unsigned missing(const struct fmtp_repair_req *req, unsigned k)
{
    unsigned n = 0;

    for (unsigned i = 0; i < k; i++)
        n += req->bitmap[i / 8] >> (i % 8) & 1;
    return n;
}

/* Returns whether blocks of the group are still to be multicast. */
static bool is_coming(const struct fmtp_sender *s, const struct product *p, uint32_t group)
{
    struct fmtp_fec_group range = fmtp_fec_group(p->nblocks, s->cfg.fec_k, group);

    return p == s->current && s->cursor <= (uint64_t)range.first + range.count;
}

static void tell_requested(const struct fmtp_sender *s, int number, uint32_t index, uint32_t blocks,
                           bool multicast)
{
    if (s->cfg.requested)
        s->cfg.requested(s->cfg.peers_ctx, number, index, blocks, multicast);
}

static int repair_request(struct fmtp_sender *s, int number, const struct fmtp_header *h,
                          const uint8_t *body, uint64_t now_ns)
{
    struct product *p = fmtp_sender_lookup(s, h->index);

    s->stats.repair_requests++;
    s->peers[number]->counts.requests++;
    if (!p)
        return no_product(s, number, h);
    if (h->seqnum >= fmtp_fec_groups(p->nblocks, s->cfg.fec_k))
        return bad_message(s);
    unsigned k = fmtp_fec_group(p->nblocks, s->cfg.fec_k, h->seqnum).count;
    struct fmtp_repair_req req;
    if (fmtp_repair_req_get(body, h->payloadlen, k, &req) < 0)
        return bad_message(s);
    tell_requested(s, number, h->index, req.need, true);
    count_peer(p, number);
    bool coming = is_coming(s, p, h->seqnum);
    if (req.round == 0 && !coming)
        fmtp_accounts_heard(s, s->peers[number]->account, k, missing(&req, k));
    if (!fmtp_repair_active(s) || !p->groups ||
        fmtp_accounts_alone(s, s->peers[number]->account, req.need)) {
        fmtp_accounts_charge_alone(s, s->peers[number]->account, req.need);
        return retransmit(s, number, p, h->seqnum, k, &req);
    }
    if (coming)
        fmtp_repair_request_early(s, &p->groups[h->seqnum], &req, s->peers[number]);
    else
        fmtp_repair_request(s, &p->groups[h->seqnum], &req, s->peers[number], now_ns);
    return 0;
}

static void acknowledged(struct fmtp_sender *s, int number, struct product *p, uint32_t lost,
                         uint64_t now_ns)
{
    struct peer *peer = s->peers[number];

    fmtp_progress_end(s, number, p, now_ns);
    if (lost == FMTP_END_FAILED) {
        set_put(p->done_set, (size_t)number, true);
        if (!fmtp_sender_finish(p, number))
            return;
        p->failed = true;
        s->stats.failed++;
        s->stats.unacknowledged++;
        fmtp_peers_forget(s, number, p->index);
        return;
    }
    set_put(p->done_set, (size_t)number, true);
    if (!p->acked_ns)
        p->acked_ns = now_ns;
    /* An extended peer reports how many blocks it lacked; more than half is not loss but an outage,
     * or it joined late. */
    if (peer->extended && lost <= p->nblocks)
        peer->counts.lost_blocks += lost;
    if (peer->extended && lost <= p->nblocks / 2) {
        fmtp_accounts_heard(s, peer->account, p->nblocks, lost);
        if (!fmtp_accounts_alone(s, peer->account, 0)) {
            p->told = true;
            p->most_lost = lost > p->most_lost ? lost : p->most_lost;
        }
    }
    if (fmtp_sender_finish(p, number)) {
        s->stats.acks++;
        peer->counts.acks++;
        fmtp_peers_forget(s, number, p->index);
    }
}

static int plain_request(struct fmtp_sender *s, int number, const struct fmtp_header *h,
                         uint64_t now_ns)
{
    struct product *p = fmtp_sender_lookup(s, h->index);
    struct fmtp_request r = {.index = h->index};

    switch (h->flags) {
    case FMTP_PROGRESS:
        if (fmtp_progress_input(s, number, h, now_ns) == 0)
            return 0;
        bad_message(s);
        return -1;
    case FMTP_RETX_END:
        if (!p)
            return no_product(s, number, h);
        acknowledged(s, number, p, h->seqnum, now_ns);
        return 0;
    case FMTP_RETX_REQ:
        s->stats.retx_requests++;
        s->peers[number]->counts.requests++;
        if (h->payloadlen == 0 || (p && h->seqnum >= p->size))
            return bad_message(s);
        break;
    case FMTP_BOP_REQ: r.flags = FMTP_RETX_BOP; break;
    case FMTP_EOP_REQ: r.flags = FMTP_RETX_EOP; break;
    default: bad_message(s); return -1;
    }
    if (!p)
        return no_product(s, number, h);
    count_peer(p, number);
    if (h->flags == FMTP_RETX_REQ) {
        uint32_t left = p->size - h->seqnum, from = h->seqnum - h->seqnum % block_bytes(s);
        uint32_t to = left < h->payloadlen ? p->size : h->seqnum + h->payloadlen;
        tell_requested(s, number, h->index, fmtp_blocks(to - from, block_bytes(s)), false);
        return send_blocks(s, number, p, from, to);
    }
    if (h->flags == FMTP_BOP_REQ && !take_bop(s, p, number))
        return 0;
    return fmtp_peers_answer(s, number, &r);
}

static int request(struct fmtp_sender *s, int number, const struct fmtp_header *h,
                   const uint8_t *body, uint64_t now_ns)
{
    int rc =
        body ? repair_request(s, number, h, body, now_ns) : plain_request(s, number, h, now_ns);

    /* It may have been acknowledged, or rejected for lack of room. */
    struct product *p = fmtp_sender_lookup(s, h->index);
    if (p)
        fmtp_sender_release_if_done(s, p);
    return rc;
}

/* Returns the length of the message that comes, as far as it is known. */
static size_t whole_len(const struct peer *peer)
{
    struct fmtp_header h = {0};

    if (peer->in_len >= FMTP_HEADER_LEN)
        fmtp_header_get(peer->in, &h); /* only repair requests get here */
    return FMTP_HEADER_LEN + (size_t)h.payloadlen;
}

size_t fmtp_sender_peer_wants(const struct fmtp_sender *s, int number)
{
    const struct peer *peer = s->peers[number];

    if (!s->cfg.blocking)
        return SIZE_MAX;
    return peer->rest_len || peer->queue.count ? 0 : whole_len(peer) - peer->in_len;
}

int fmtp_sender_peer_input(struct fmtp_sender *s, int number, const uint8_t *bytes, size_t len,
                           uint64_t now_ns)
{
    struct peer *peer = s->peers[number];

    if (peer->broken)
        return -1;
    while (len) {
        size_t whole = whole_len(peer);
        size_t take = whole - peer->in_len < len ? whole - peer->in_len : len;
        memcpy(peer->in + peer->in_len, bytes, take);
        peer->in_len += take;
        bytes += take;
        len -= take;
        if (peer->in_len < whole)
            break;
        struct fmtp_header h;
        fmtp_header_get(peer->in, &h);
        bool has_body = h.flags == FMTP_REPAIR_REQ && peer->extended;
        if (has_body && h.payloadlen > FMTP_REPAIR_REQ_MAX) {
            bad_message(s);
            return -1;
        }
        if (has_body && whole < FMTP_HEADER_LEN + (size_t)h.payloadlen)
            continue;
        peer->in_len = 0;
        if (request(s, number, &h, has_body ? peer->in + FMTP_HEADER_LEN : NULL, now_ns) < 0)
            return -1;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the receiver believes. A datagram can be forged (unless it carries a MAC), the stream
 * cannot:
 *   - A datagram is believed about the product that it names. That others exist before it is a
 *     reason to request their BOPs, at most FMTP_RX_JUMP of them until the stream has answered;
 *     about a jump beyond that, the stream is asked first (a claim).
 *   - Our sender says NOT_YET about an index that it has not reached. What arrived under it was
 *     forged; it is withdrawn if the question was sent after it arrived. An index below the
 *     newest with neither entry nor end is a hole; it is requested when a later product is heard.
 *   - An original says RETX_REJ both about what it no longer has and about what it has not
 *     reached. The receiver assumes the former if the stream confirms the index or a datagram
 *     named it: if that datagram was forged, only that product is lost.
 *   - If datagrams contradict one another about a product's BOP, RETX_BOP decides.
 */
#include <string.h>

#include "receiver_core.h"

enum {
    /* Datagrams that must agree on an index beyond max_products before the stream is asked. */
    RUN = 32,
    REOPEN_REPORT = 65536 /* most products withdrawn when a connection shows them to be forged */
};

/* ------------------------------------------------------------------ what is done */

static uint64_t *word_of(const struct fmtp_receiver *r, uint32_t index, uint64_t *bit)
{
    uint32_t at = index & (r->done_bits - 1);

    *bit = UINT64_C(1) << (at % 64);
    return &r->done[at / 64];
}

void fmtp_rx_trust_anew(struct fmtp_receiver *r, uint32_t first)
{
    r->first = first;
    r->base = r->latest = first - 1;
    memset(r->done, 0, r->done_bits / 8);
    r->has_reached = r->has_hole = r->claimed = r->has_ended = false;
    r->stray_count = 0;
    r->skipped_from = r->skipped_to = 0;
}

static bool in_window(const struct fmtp_receiver *r, uint32_t index)
{
    return index - r->base - 1 < r->done_bits;
}

bool fmtp_rx_is_done(const struct fmtp_receiver *r, uint32_t index)
{
    uint64_t bit;

    if (!fmtp_rx_newer(index, r->base))
        return true;
    return in_window(r, index) && *word_of(r, index, &bit) & bit;
}

static void put_done(struct fmtp_receiver *r, uint32_t index, bool on)
{
    uint64_t bit, *word = word_of(r, index, &bit);

    *word = on ? *word | bit : *word & ~bit;
}

void fmtp_rx_set_done(struct fmtp_receiver *r, uint32_t index)
{
    if (in_window(r, index))
        put_done(r, index, true);
}

void fmtp_rx_set_latest(struct fmtp_receiver *r, uint32_t index)
{
    r->latest = index;
    if (index - r->base > 2 * r->done_bits && fmtp_rx_newer(index, r->base)) {
        r->base = index;
        memset(r->done, 0, r->done_bits / 8);
        r->has_hole = false;
        return;
    }
    while (fmtp_rx_newer(index, r->base) && index - r->base > r->done_bits) {
        uint32_t passed = ++r->base;
        bool open = r->has_hole && !fmtp_rx_newer(r->hole, passed);
        uint64_t bit;
        open = open && !(*word_of(r, passed, &bit) & bit) && !fmtp_rx_lookup(r, passed);
        put_done(r, passed, false);
        if (open)
            fmtp_rx_miss(r, passed);
    }
}

/* ------------------------------------------------------------------ doubts and holes */

void fmtp_rx_doubt(struct fmtp_receiver *r, struct product *p)
{
    if (p->doubtful || (r->has_reached && !fmtp_rx_newer(p->index, r->reached)))
        return;
    p->doubtful = p->skipped = true;
    r->ndoubtful++;
    TAILQ_INSERT_TAIL(&r->doubts, p, doubt);
}

void fmtp_rx_undoubt(struct fmtp_receiver *r, struct product *p)
{
    if (!p->doubtful)
        return;
    TAILQ_REMOVE(&r->doubts, p, doubt);
    r->ndoubtful--;
    p->doubtful = false;
}

static void make_hole(struct fmtp_receiver *r, uint32_t index)
{
    /* A newest product that is neither heard of nor done does not exist. */
    while (r->latest != r->base && !(r->has_reached && r->latest == r->reached) &&
           !fmtp_rx_lookup(r, r->latest) && !fmtp_rx_is_done(r, r->latest))
        r->latest--;
    if (!fmtp_rx_newer(index, r->latest))
        fmtp_rx_leave_open(r, index, index);
    if (r->has_hole && fmtp_rx_newer(r->hole, r->latest))
        r->has_hole = false;
}

void fmtp_rx_leave_open(struct fmtp_receiver *r, uint32_t from, uint32_t to)
{
    if (!r->has_hole || fmtp_rx_newer(r->hole, from))
        r->hole = from;
    if (!r->has_hole || fmtp_rx_newer(to, r->hole_to))
        r->hole_to = to;
    r->has_hole = true;
}

void fmtp_rx_ask_holes(struct fmtp_receiver *r, uint32_t before)
{
    uint32_t from = r->hole;

    if (!r->has_hole || !fmtp_rx_newer(before, from))
        return;
    if (!fmtp_rx_newer(from, r->base))
        from = r->base + 1;
    if (fmtp_rx_newer(before, r->hole_to))
        before = r->hole_to + 1;
    for (; fmtp_rx_newer(before, from) && r->count < r->cfg.max_products; from++) {
        if (fmtp_rx_is_done(r, from) || fmtp_rx_lookup(r, from))
            continue;
        struct product *p = fmtp_rx_ask_bop(r, from);
        if (p)
            fmtp_rx_doubt(r, p);
    }
    r->hole = from;
    r->has_hole = !fmtp_rx_newer(from, r->hole_to) && !fmtp_rx_newer(from, r->latest);
}

/* An original would not say whether it has reached what it rejected, so ask it about a product that
 * is in flight, about which it answers. */
static void probe(struct fmtp_receiver *r, const struct product *p)
{
    if (!r->session.ours)
        fmtp_rx_emit(r, FMTP_BOP_REQ, p->index, 0, 0);
}

void fmtp_rx_hear(struct fmtp_receiver *r, struct product *p)
{
    if (p->heard)
        return;
    p->heard = true;
    fmtp_rx_undoubt(r, p);
    if (!r->has_hole)
        return;
    fmtp_rx_ask_holes(r, p->index);
    probe(r, p);
}

/* ------------------------------------------------------------------ what the stream says */

void fmtp_rx_reach(struct fmtp_receiver *r, uint32_t index)
{
    if (r->has_reached && !fmtp_rx_newer(index, r->reached))
        return;
    r->has_reached = true;
    r->reached = index;
    struct product *next;
    for (struct product *p = TAILQ_FIRST(&r->doubts); p; p = next) {
        next = TAILQ_NEXT(p, doubt);
        if (!fmtp_rx_newer(p->index, index))
            fmtp_rx_undoubt(r, p);
    }
    fmtp_rx_ask_holes(r, fmtp_rx_newer(index, r->latest) ? r->latest + 1 : index + 1);
}

bool fmtp_rx_is_believable(const struct fmtp_receiver *r, uint32_t ahead)
{
    size_t skipped = ahead - 1;

    return !skipped || (ahead <= r->cfg.max_products && r->ndoubtful + skipped <= FMTP_RX_JUMP &&
                        r->count + skipped <= r->cfg.max_products);
}

bool fmtp_rx_is_elsewhere(const struct fmtp_receiver *r, uint32_t index)
{
    uint32_t known = r->latest - r->first + 1;

    return !r->has_reached && r->first - index > r->cfg.max_products && index - r->first >= known &&
           index - r->latest > r->cfg.max_products;
}

bool fmtp_rx_is_earlier(const struct fmtp_receiver *r, uint32_t index)
{
    uint32_t by = r->first - index;

    return !r->has_reached && by > FMTP_RX_JUMP && by <= r->cfg.max_products;
}

void fmtp_rx_claim(struct fmtp_receiver *r, uint32_t index)
{
    bool far = index - r->latest > r->cfg.max_products && !fmtp_rx_is_earlier(r, index);

    r->stats.bad_messages += far;
    if (r->stray_count && index - r->stray < r->cfg.max_products)
        r->stray_count++;
    else
        r->stray_count = 1;
    r->stray = index;
    if (r->claimed || (far && r->stray_count < RUN))
        return;
    r->claimed = true;
    r->claim = index;
    fmtp_rx_emit(r, FMTP_BOP_REQ, index, 0, 0);
}

void fmtp_rx_rebase(struct fmtp_receiver *r, uint32_t index)
{
    for (size_t i = 0; i <= r->hash_mask; i++)
        while (r->hash[i])
            fmtp_rx_withdraw(r, r->hash[i]);
    fmtp_rx_trust_anew(r, index);
}

bool fmtp_rx_end_claim(struct fmtp_receiver *r, uint32_t index)
{
    if (!r->claimed || r->claim != index)
        return false;
    r->claimed = false;
    r->stray_count = 0;
    return true;
}

void fmtp_rx_rejected(struct fmtp_receiver *r, uint32_t index)
{
    bool claimed = fmtp_rx_end_claim(r, index);
    bool gone = r->session.ours || (r->has_reached && !fmtp_rx_newer(index, r->reached));
    struct product *p = fmtp_rx_lookup(r, index);

    if (gone && !p && claimed && fmtp_rx_see(r, index, true) == FMTP_RX_NEW)
        fmtp_rx_miss(r, index);
    if (!p)
        return;
    if (r->session.ours)
        fmtp_rx_reach(r, index);
    if (gone || (p->heard && (!p->skipped || p->asked_heard))) {
        fmtp_rx_give_up(r, p);
    } else if (p->heard) {
        /* It was requested because it was skipped, and has arrived since. */
        p->asked_heard = true;
        fmtp_rx_emit(r, FMTP_BOP_REQ, index, 0, 0);
    } else {
        fmtp_rx_drop(r, p);
        make_hole(r, index);
    }
}

/* The stream names products that are far ahead of any datagram. */
static void catch_up(struct fmtp_receiver *r)
{
    if (fmtp_rx_newer(r->reached, r->latest) && r->reached - r->latest > FMTP_RX_JUMP)
        fmtp_rx_see_data(r, r->reached, true);
}

/* What ended at or after this index was not the sender's. */
static void reopen_from(struct fmtp_receiver *r, uint32_t next_index)
{
    uint32_t n = fmtp_rx_newer(next_index, r->latest) ? 0 : r->latest - next_index + 1;

    for (uint32_t i = 0; i < n && i < REOPEN_REPORT; i++) {
        uint32_t index = next_index + i;
        bool reopens = fmtp_rx_is_done(r, index) && !fmtp_rx_lookup(r, index);
        if (reopens && in_window(r, index))
            put_done(r, index, false);
        if (reopens && r->cfg.withdrawn)
            r->cfg.withdrawn(r->cfg.ctx, index);
    }
}

/* So many were forged that the base has passed what is still to come. */
static void reopen_base(struct fmtp_receiver *r, uint32_t next_index)
{
    if (!fmtp_rx_newer(r->base, next_index - 1))
        return;
    reopen_from(r, next_index);
    r->base = next_index - 1;
    if (fmtp_rx_newer(r->first, next_index))
        r->first = next_index;
    memset(r->done, 0, r->done_bits / 8);
    make_hole(r, r->latest);
    make_hole(r, next_index);
}

void fmtp_rx_not_yet(struct fmtp_receiver *r, const struct fmtp_header *h)
{
    uint32_t index = h->index;
    bool claimed = fmtp_rx_end_claim(r, index);

    if (!fmtp_rx_newer(index, h->seqnum - 1) ||
        (r->has_reached && fmtp_rx_newer(r->reached, h->seqnum - 1))) {
        r->stats.bad_messages++;
        return;
    }
    fmtp_rx_reach(r, h->seqnum - 1);
    reopen_base(r, h->seqnum);
    if (claimed)
        catch_up(r);
    if (!fmtp_rx_newer(index, r->reached))
        return; /* it has been reached since */
    struct product *p = fmtp_rx_lookup(r, index);
    if (!p && h->payloadlen == FMTP_RETX_END && r->cfg.withdrawn && in_window(r, index) &&
        fmtp_rx_is_done(r, index)) {
        /* We acknowledged it before it was sent: what ended was forged. */
        put_done(r, index, false);
        make_hole(r, index);
        r->stats.forged++;
        r->cfg.withdrawn(r->cfg.ctx, index);
    } else if (p && h->payloadlen == FMTP_BOP_REQ && p->heard && !p->asked_heard) {
        /* It was requested because it was skipped, and has arrived since. */
        p->asked_heard = true;
        fmtp_rx_emit(r, FMTP_BOP_REQ, index, 0, 0);
    } else if (p && p->heard && !p->confirmed) {
        fmtp_rx_withdraw(r, p);
        make_hole(r, index);
    } else if (p && !p->heard) {
        fmtp_rx_drop(r, p);
        make_hole(r, index);
    }
}

/* ------------------------------------------------------------------ what a product is */

void fmtp_rx_withdraw(struct fmtp_receiver *r, struct product *p)
{
    uint32_t index = p->index;
    bool active = p->active;

    r->stats.forged += p->heard;
    fmtp_rx_drop(r, p);
    if (active && r->cfg.withdrawn)
        r->cfg.withdrawn(r->cfg.ctx, index);
    else if (active)
        fmtp_rx_miss(r, index);
}

void fmtp_rx_withdraw_from(struct fmtp_receiver *r, uint32_t next_index)
{
    if (r->has_reached && fmtp_rx_newer(r->reached, next_index - 1))
        return; /* a sender does not go back */
    for (size_t i = 0; i <= r->hash_mask; i++) {
        struct product *next;
        for (struct product *p = r->hash[i]; p; p = next) {
            next = p->chain;
            if (!fmtp_rx_newer(next_index, p->index))
                fmtp_rx_withdraw(r, p);
        }
    }
    reopen_base(r, next_index);
    reopen_from(r, next_index);
    if (fmtp_rx_newer(r->latest, next_index - 1))
        r->latest = next_index - 1;
    if (r->has_hole && fmtp_rx_newer(r->hole, r->latest))
        r->has_hole = false;
}

void fmtp_rx_dispute(struct fmtp_receiver *r, struct product *p)
{
    if (p->disputed)
        return;
    p->disputed = p->asked_heard = true;
    fmtp_rx_emit(r, FMTP_BOP_REQ, p->index, 0, 0);
}

void fmtp_rx_confirm(struct fmtp_receiver *r, struct product *p)
{
    if (p->active && !p->confirmed)
        r->unconfirmed_blocks -= p->nleft;
    p->confirmed = true;
    p->disputed = false;
}

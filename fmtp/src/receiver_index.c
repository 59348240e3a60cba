/* SPDX-License-Identifier: Apache-2.0
 *
 * Which products there are: the order of their indices shows which are lost, each ends in exactly
 * one way, and a new connection continues where the old one ended.
 */
#include <stdlib.h>
#include <string.h>

#include "receiver_core.h"

enum { RESYNC_REPORT = 65536 /* most skipped indices reported as missed */ };

/* ------------------------------------------------------------------ entries */

struct product *fmtp_rx_lookup(const struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = r->hash[index & r->hash_mask];

    while (p && p->index != index)
        p = p->chain;
    return p;
}

void fmtp_rx_drop(struct fmtp_receiver *r, struct product *p)
{
    struct product **link = &r->hash[p->index & r->hash_mask];
    size_t cursor = 0;

    while (*link != p)
        link = &(*link)->chain;
    *link = p->chain;
    r->count--;
    tp_timer_disarm(&r->timers, &p->timer);
    if (p->asking)
        TAILQ_REMOVE(&r->asking, p, link);
    if (p->has_early)
        while (fmtp_reorder_take(&r->reorder, p->index, &cursor))
            r->stats.reorder_drops++;
    fmtp_rx_undoubt(r, p);
    if (p->active && !p->confirmed)
        r->unconfirmed_blocks -= p->nleft;
    fmtp_groups_free(p->groups, &r->symbols);
    free(p->announced);
    free(p->received);
    free(p);
}

void fmtp_rx_miss(struct fmtp_receiver *r, uint32_t index)
{
    fmtp_rx_set_done(r, index);
    r->stats.missed++;
    r->cfg.missed(r->cfg.ctx, index);
}

/* gcc's analyzer believes that an object leaks if its only pointer is in a table with a computed
 * index. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
static struct product *entry(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = r->count < r->cfg.max_products ? calloc(1, sizeof *p) : NULL;

    if (!p) {
        /* No room: FMTP is done with it; the application fetches it by other means. */
        fmtp_rx_emit(r, FMTP_RETX_END, index, 0, 0);
        fmtp_rx_miss(r, index);
        return NULL;
    }
    p->index = index;
    p->tau_ns = p->due_ns = TP_NEVER;
    p->chain = r->hash[index & r->hash_mask];
    r->hash[index & r->hash_mask] = p;
    r->count++;
    return p;
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

struct product *fmtp_rx_ask_bop(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = entry(r, index);

    if (p)
        fmtp_rx_emit(r, FMTP_BOP_REQ, index, 0, 0);
    return p;
}

static int older_first(const void *a, const void *b, void *latest)
{
    uint32_t newest = *(const uint32_t *)latest;
    uint32_t age_a = newest - (*(struct product *const *)a)->index;
    uint32_t age_b = newest - (*(struct product *const *)b)->index;

    return age_a < age_b ? 1 : age_a > age_b ? -1 : 0;
}

/* Returns all entries, oldest first, in an array that the caller frees; NULL: none, or no
 * memory. */
static struct product **all_by_age(const struct fmtp_receiver *r)
{
    struct product **all = r->count ? calloc(r->count, sizeof(struct product *)) : NULL;
    uint32_t latest = r->latest;
    size_t n = 0;

    if (!all)
        return NULL;
    for (size_t i = 0; i <= r->hash_mask; i++)
        for (struct product *p = r->hash[i]; p; p = p->chain)
            all[n++] = p;
    qsort_r(all, n, sizeof(struct product *), older_first, &latest);
    return all;
}

void fmtp_rx_give_up(struct fmtp_receiver *r, struct product *p)
{
    uint32_t index = p->index;

    fmtp_rx_drop(r, p);
    fmtp_rx_miss(r, index);
}

void fmtp_rx_miss_all(struct fmtp_receiver *r)
{
    if (r->done)
        fmtp_rx_ask_holes(r, r->latest + 1);
    struct product **all = all_by_age(r);
    size_t n = all ? r->count : 0;

    for (size_t i = 0; i < n; i++)
        fmtp_rx_give_up(r, all[i]);
    free(all);
    for (size_t i = 0; r->count && i <= r->hash_mask; i++)
        while (r->hash[i])
            fmtp_rx_give_up(r, r->hash[i]);
}

/* ------------------------------------------------------------------ order */

/* Gives up everything between the latest index and this one. */
static void skip_to(struct fmtp_receiver *r, uint32_t index)
{
    r->skipped_from = r->latest + 1;
    r->skipped_to = index;
    if (index - r->latest <= RESYNC_REPORT)
        for (uint32_t i = r->latest + 1; i != index; i++)
            fmtp_rx_miss(r, i);
    fmtp_rx_set_latest(r, index - 1);
}

/* The product that was newest until now has passed. */
static void end_before(struct fmtp_receiver *r, struct product *before)
{
    if (before && before->announced)
        fmtp_rx_begin_announced(r, before);
    else if (before && before->active)
        fmtp_rx_ask_all(r, before);
}

/* Handles a jump from the newest index to this one: what lies between may be lost. */
static void jump(struct fmtp_receiver *r, uint32_t index, bool confirmed, bool first_word)
{
    struct product *before = fmtp_rx_lookup(r, r->latest);

    /* Until the stream's first word, what is known may have been forged, and what arrives now of
     * products shortly before this one was not believed. */
    uint32_t room = (uint32_t)(r->cfg.max_products - r->count), ahead = index - r->latest;
    if (ahead > r->cfg.max_products && !first_word)
        skip_to(r, index);
    else if (ahead > (first_word ? room / 2 : room))
        skip_to(r, index - room / 2);
    r->stray_count = 0;
    uint32_t skipped = r->latest + 1;
    fmtp_rx_set_latest(r, index);
    end_before(r, before);
    for (; skipped != index; skipped++) {
        struct product *p = NULL;
        if (!fmtp_rx_is_done(r, skipped) && !fmtp_rx_lookup(r, skipped))
            p = fmtp_rx_ask_bop(r, skipped);
        if (p && !confirmed)
            fmtp_rx_doubt(r, p);
    }
}

/* Joins at the index of the first message. Returns false if a datagram named an index far from what
 * the sender said when we connected. */
static bool join(struct fmtp_receiver *r, uint32_t index, bool confirmed)
{
    if (r->joined)
        return true;
    /* The predecessor of the next index may be in flight. */
    if (!confirmed && r->session.ours && index - r->session.next_index + 1 >= FMTP_RX_JUMP)
        return false;
    bool has_reached = r->has_reached;
    uint32_t reached = r->reached;
    fmtp_rx_trust_anew(r, index);
    r->has_reached = has_reached;
    r->reached = reached;
    r->joined = true;
    return true;
}

enum fmtp_rx_seen fmtp_rx_see(struct fmtp_receiver *r, uint32_t index, bool confirmed)
{
    if (!join(r, index, confirmed))
        return FMTP_RX_REFUSED;
    bool elsewhere = fmtp_rx_is_elsewhere(r, index), first_word = !r->has_reached;
    if (confirmed && elsewhere && !(r->has_ended && index - r->latest <= RESYNC_REPORT))
        fmtp_rx_rebase(r, index);
    if (confirmed)
        fmtp_rx_reach(r, index);
    if (fmtp_rx_lookup(r, index))
        return FMTP_RX_OLD;
    if (!confirmed && (elsewhere || fmtp_rx_is_earlier(r, index))) {
        fmtp_rx_claim(r, index);
        return fmtp_rx_is_done(r, index) ? FMTP_RX_OLD : FMTP_RX_REFUSED;
    }
    if (fmtp_rx_is_done(r, index))
        return FMTP_RX_OLD;
    uint32_t ahead = index - r->latest;
    if (!fmtp_rx_newer(index, r->latest))
        return FMTP_RX_NEW; /* a hole */
    if (!confirmed && !fmtp_rx_is_believable(r, ahead)) {
        fmtp_rx_claim(r, index);
        return FMTP_RX_REFUSED;
    }
    jump(r, index, confirmed, first_word);
    return FMTP_RX_NEW;
}

struct product *fmtp_rx_see_data(struct fmtp_receiver *r, uint32_t index, bool confirmed)
{
    struct product *p = NULL;

    switch (fmtp_rx_see(r, index, confirmed)) {
    case FMTP_RX_NEW:
        p = fmtp_rx_ask_bop(r, index);
        if (p)
            p->asked_heard = true;
        break;
    case FMTP_RX_OLD: p = fmtp_rx_lookup(r, index); break;
    default: return NULL;
    }
    if (p)
        fmtp_rx_hear(r, p);
    return p;
}

/* ------------------------------------------------------------------ begin, end */

bool fmtp_rx_finish(struct fmtp_receiver *r, struct product *p)
{
    if (!p->active || p->nleft)
        return false;
    uint32_t index = p->index, retx_blocks = p->retx_blocks;
    struct timespec start = p->start;
    /* With extension 1 the sender learns how much was lost in the network. */
    uint32_t lost = r->session.extended ? p->nblocks - p->first_time : 0;
    fmtp_rx_emit(r, FMTP_RETX_END, index, lost, 0);
    fmtp_rx_drop(r, p);
    fmtp_rx_set_done(r, index);
    r->has_ended = true;
    r->stats.products++;
    r->cfg.ended(r->cfg.ctx, index, retx_blocks, start);
    return true;
}

/* As above. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
static bool allocate(struct fmtp_receiver *r, struct product *p)
{
    p->received = calloc(p->nblocks / 64 + 1, sizeof *p->received);
    if (!p->received)
        return false;
    if (!r->session.extended || !p->nblocks ||
        fmtp_fec_groups(p->nblocks, r->session.fec_k) > FMTP_FEC_MAX_GROUPS)
        return true;
    p->groups = fmtp_groups_new(p->nblocks, r->session.fec_k);
    return p->groups;
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

/* Begins p, whose BOP arrived at at_ns by multicast or on the stream. */
static void begin(struct fmtp_receiver *r, struct product *p, const struct fmtp_bop *bop,
                  uint64_t at_ns)
{
    uint32_t index = p->index, seen = p->expected;
    void *data =
        r->cfg.begun(r->cfg.ctx, index, bop->size_bytes, bop->meta, bop->meta_len, bop->start);

    p->size = bop->size_bytes;
    p->nleft = p->nblocks = fmtp_blocks(p->size, r->block);
    bool no_place = data == FMTP_NO_PLACE;
    if (!data || no_place || !allocate(r, p)) {
        fmtp_rx_emit(r, FMTP_RETX_END, index, no_place ? FMTP_END_FAILED : 0, 0);
        fmtp_rx_drop(r, p);
        fmtp_rx_set_done(r, index);
        if (data && !no_place)
            fmtp_rx_miss(r, index);
        return;
    }
    p->active = true;
    if (!p->confirmed)
        r->unconfirmed_blocks += p->nleft;
    p->data = data;
    p->start = bop->start;
    p->expected = 0;
    if (fmtp_rx_finish(r, p))
        return;
    if (p->eop || index != r->latest) {
        if (fmtp_rx_replay(r, p))
            fmtp_rx_ask_all(r, p);
        return;
    }
    p->heard_ns = at_ns;
    p->tau_ns = at_ns + fmtp_scaled_tx_ns(r->cfg.f_rcv, p->size, r->cfg.r_mc_bps);
    fmtp_rx_arm(r, p);
    /* It is still being multicast: request what passed before its BOP was known. */
    if (fmtp_rx_replay(r, p))
        fmtp_rx_passed(r, p, seen < p->nblocks ? seen : p->nblocks);
}

/* FNV-1a of everything but the time. */
static uint64_t digest(const struct fmtp_bop *bop)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (unsigned i = 0; i < 4; i++)
        sum = (sum ^ (bop->size_bytes >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
    for (uint16_t i = 0; i < bop->meta_len; i++)
        sum = (sum ^ bop->meta[i]) * UINT64_C(0x100000001b3);
    return sum;
}

void fmtp_rx_begin_announced(struct fmtp_receiver *r, struct product *p)
{
    struct announced *a = p->announced;
    uint64_t missing = r->unconfirmed_blocks * r->block;

    if (!a || p->disputed)
        return;
    if (missing + a->size_bytes > r->cfg.announced_bytes) {
        fmtp_rx_dispute(r, p);
        return;
    }
    p->announced = NULL;
    begin(r, p, &(struct fmtp_bop){a->start, a->size_bytes, a->meta_len, a->meta}, a->at_ns);
    free(a);
}

/* Keeps the BOP until data arrive. Returns false without memory. */
static bool announce(struct fmtp_receiver *r, struct product *p, const struct fmtp_bop *bop)
{
    struct announced *a = malloc(sizeof *a + bop->meta_len);

    if (!a)
        return false;
    *a = (struct announced){bop->start, r->now_ns, bop->size_bytes, bop->meta_len};
    if (bop->meta_len)
        memcpy(a->meta, bop->meta, bop->meta_len);
    p->announced = a;
    if (p->has_early || p->eop || p->index != r->latest) {
        fmtp_rx_begin_announced(r, p);
        return true;
    }
    p->tau_ns = r->now_ns + fmtp_scaled_tx_ns(r->cfg.f_rcv, a->size_bytes, r->cfg.r_mc_bps);
    fmtp_rx_arm(r, p);
    return true;
}

/* A BOP by multicast is believed only as far as datagrams are. */
static void bop_datagram(struct fmtp_receiver *r, struct product *p, const struct fmtp_bop *bop)
{
    bool known = p->active || p->announced;

    fmtp_rx_hear(r, p);
    if (known && p->digest != digest(bop) && !p->confirmed)
        fmtp_rx_dispute(r, p);
    if (known)
        return;
    p->digest = digest(bop);
    bool waits = r->cfg.announced_bytes && !r->session.mac && bop->size_bytes;
    if (!waits || !announce(r, p, bop))
        begin(r, p, bop, r->now_ns);
}

/* A BOP on the stream is authoritative. */
static void bop_confirmed(struct fmtp_receiver *r, struct product *p, const struct fmtp_bop *bop)
{
    if (p->active && p->digest == digest(bop)) {
        fmtp_rx_confirm(r, p);
        return;
    }
    uint32_t index = p->index, expected = p->expected;
    if (p->active) {
        bool eop = p->eop;
        fmtp_rx_withdraw(r, p);
        p = fmtp_rx_is_done(r, index) ? NULL : entry(r, index);
        if (!p)
            return;
        p->eop = eop;
        p->expected = expected;
    }
    free(p->announced);
    p->announced = NULL;
    p->heard = p->confirmed = true;
    p->disputed = false;
    fmtp_rx_undoubt(r, p);
    p->digest = digest(bop);
    begin(r, p, bop, r->now_ns);
}

/* The sender waits for us to finish a product before the first that we know of, and so with all
 * later ones. If there are many, we request later ones when it gets close to them: what we took for
 * the first may have been forged. */
static struct product *begin_earlier(struct fmtp_receiver *r, uint32_t index)
{
    uint32_t until = r->first, i = index;

    r->first = index;
    if (r->latest - index < r->done_bits)
        r->base = index - 1;
    for (; i != until && i - index < FMTP_RX_JUMP; i++) {
        struct product *p = fmtp_rx_lookup(r, i) ? NULL : fmtp_rx_ask_bop(r, i);
        if (p && i != index)
            fmtp_rx_doubt(r, p);
    }
    if (i != until)
        fmtp_rx_leave_open(r, i, until - 1);
    return fmtp_rx_lookup(r, index);
}

void fmtp_rx_bop(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body)
{
    bool confirmed = h->flags == FMTP_RETX_BOP;

    struct fmtp_bop bop;
    if (fmtp_bop_get(r->cfg.layout, body, h->payloadlen, &bop) < 0 || h->seqnum) {
        r->stats.bad_messages++;
        return;
    }
    struct product *p;
    bool claimed = confirmed && fmtp_rx_end_claim(r, h->index);
    switch (fmtp_rx_see(r, h->index, confirmed)) {
    case FMTP_RX_NEW: p = entry(r, h->index); break;
    case FMTP_RX_OLD: p = fmtp_rx_lookup(r, h->index); break;
    default: return;
    }
    if (!p && claimed && r->first - h->index - 1 < r->cfg.max_products)
        p = begin_earlier(r, h->index);
    if (p && confirmed)
        bop_confirmed(r, p, &bop);
    else if (p)
        bop_datagram(r, p, &bop);
}

void fmtp_rx_eop(struct fmtp_receiver *r, const struct fmtp_header *h)
{
    bool unasked = h->flags == FMTP_RETX_EOP;
    struct product *p = fmtp_rx_see_data(r, h->index, unasked);

    if (!p && unasked && h->index - r->skipped_from < r->skipped_to - r->skipped_from)
        fmtp_rx_emit(r, FMTP_RETX_END, h->index, 0, 0);
    else if (!p && unasked && r->first - h->index - 1 < r->cfg.max_products)
        p = begin_earlier(r, h->index);
    if (!p)
        return;
    /* The first one after an EOP_REQ is its answer. */
    bool nudged = unasked && (p->eop || !p->eop_asked);
    p->eop = true;
    if (p->announced) {
        fmtp_rx_begin_announced(r, p);
        return;
    }
    if (!p->active)
        return;
    fmtp_rx_ask_all(r, p);
    if (nudged)
        fmtp_rx_nudged(r, p);
}

void fmtp_receiver_abandon(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = fmtp_rx_lookup(r, index);

    if (!p)
        return;
    fmtp_rx_emit(r, FMTP_RETX_END, index, FMTP_END_FAILED, 0);
    fmtp_rx_drop(r, p);
    fmtp_rx_set_done(r, index);
}

/* ------------------------------------------------------------------ another connection */

/* A request makes the sender count us for the product again, if it still has it. */
static void ask_product_again(struct fmtp_receiver *r, struct product *p)
{
    fmtp_rx_emit(r, FMTP_BOP_REQ, p->index, 0, 0);
    if (p->active)
        fmtp_rx_ask_again(r, p);
}

void fmtp_rx_resume(struct fmtp_receiver *r, uint32_t next_index)
{
    fmtp_rx_withdraw_from(r, next_index);
    fmtp_rx_reach(r, next_index - 1);
    struct product **all = all_by_age(r), *before = fmtp_rx_lookup(r, r->latest);
    uint32_t ahead = next_index - 1 - r->latest;

    for (size_t i = 0; all && i < r->count; i++)
        ask_product_again(r, all[i]);
    for (size_t i = 0; !all && i <= r->hash_mask; i++)
        for (struct product *p = r->hash[i]; p; p = p->chain)
            ask_product_again(r, p);
    free(all);
    if (ahead == 0 || ahead > UINT32_MAX / 2)
        return;
    if (ahead > r->cfg.max_products)
        skip_to(r, next_index - (uint32_t)r->cfg.max_products);
    uint32_t unseen = r->latest + 1;
    fmtp_rx_set_latest(r, next_index - 1);
    end_before(r, before);
    for (; unseen != next_index; unseen++)
        if (!fmtp_rx_is_done(r, unseen) && !fmtp_rx_lookup(r, unseen))
            fmtp_rx_ask_bop(r, unseen);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which products there are: the order of their indices tells which are lost, each ends in exactly
 * one way, and a new connection takes up where the old one ended.
 */
#include <stdlib.h>
#include <string.h>

#include "receiver_core.h"

enum {
    RESYNC_DATAGRAMS = 32, /* consistent far-off datagrams that are believed */
    RESYNC_REPORT = 65536  /* skipped indices reported missed at most */
};

/* ------------------------------------------------------------------ entries */

struct product *fmtp_rx_lookup(const struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = r->hash[index & r->hash_mask];

    while (p && p->index != index)
        p = p->chain;
    return p;
}

static void drop(struct fmtp_receiver *r, struct product *p)
{
    struct product **link = &r->hash[p->index & r->hash_mask];
    size_t cursor = 0;

    while (*link != p)
        link = &(*link)->chain;
    *link = p->chain;
    r->count--;
    fmtp_timer_disarm(&r->timers, &p->timer);
    if (p->asking)
        TAILQ_REMOVE(&r->asking, p, link);
    if (p->has_early)
        while (fmtp_reorder_take(&r->reorder, p->index, &cursor))
            r->stats.reorder_drops++;
    fmtp_groups_free(p->groups, &r->symbols);
    free(p->received);
    free(p);
}

void fmtp_rx_miss(struct fmtp_receiver *r, uint32_t index)
{
    r->stats.missed++;
    r->cfg.missed(r->cfg.ctx, index);
}

/* gcc's analyzer takes an object for lost whose only pointer is in a table with a computed
 * index. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
static struct product *entry(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = r->count < r->cfg.max_products ? calloc(1, sizeof *p) : NULL;

    if (!p) {
        /* No room: FMTP is done with it here, the application pulls it otherwise. */
        fmtp_rx_emit(r, FMTP_RETX_END, index, 0, 0);
        fmtp_rx_miss(r, index);
        return NULL;
    }
    p->index = index;
    p->tau_ns = p->due_ns = FMTP_NEVER;
    p->chain = r->hash[index & r->hash_mask];
    r->hash[index & r->hash_mask] = p;
    r->count++;
    return p;
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

static struct product *ask_bop(struct fmtp_receiver *r, uint32_t index)
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

/* All entries, the oldest first, to be freed by the caller; NULL: none, or no memory. */
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

static void give_up(struct fmtp_receiver *r, struct product *p)
{
    uint32_t index = p->index;

    drop(r, p);
    fmtp_rx_miss(r, index);
}

void fmtp_rx_miss_all(struct fmtp_receiver *r)
{
    struct product **all = all_by_age(r);
    size_t n = all ? r->count : 0;

    for (size_t i = 0; i < n; i++)
        give_up(r, all[i]);
    free(all);
    for (size_t i = 0; r->count && i <= r->hash_mask; i++)
        while (r->hash[i])
            give_up(r, r->hash[i]);
}

/* ------------------------------------------------------------------ order */

/* All between the latest index and this one is given up. */
static void skip_to(struct fmtp_receiver *r, uint32_t index)
{
    r->skipped_from = r->latest + 1;
    r->skipped_to = index;
    if (index - r->latest <= RESYNC_REPORT)
        for (uint32_t i = r->latest + 1; i != index; i++)
            fmtp_rx_miss(r, i);
    r->latest = index - 1;
}

/* A far jump forward is believed only when a run of datagrams agrees on it: one corrupt or forged
 * datagram must not make us ask for a million products. */
static bool far_jump(struct fmtp_receiver *r, uint32_t index)
{
    r->stats.bad_messages++;
    if (r->stray_count && index - r->stray < r->cfg.max_products)
        r->stray_count++;
    else
        r->stray_count = 1;
    r->stray = index;
    if (r->stray_count < RESYNC_DATAGRAMS)
        return false;
    skip_to(r, index);
    return true;
}

enum fmtp_rx_seen fmtp_rx_see(struct fmtp_receiver *r, uint32_t index)
{
    if (!r->joined) {
        r->joined = true;
        r->first = index;
        r->latest = index - 1;
    }
    uint32_t ahead = index - r->latest;
    if (ahead == 0 || ahead > UINT32_MAX / 2)
        return FMTP_RX_OLD;
    struct product *before = fmtp_rx_lookup(r, r->latest);
    if (ahead > r->cfg.max_products && !far_jump(r, index))
        return FMTP_RX_REFUSED;
    r->stray_count = 0;
    uint32_t skipped = r->latest + 1;
    r->latest = index;
    if (before && before->active)
        fmtp_rx_ask_all(r, before);
    for (; skipped != index; skipped++)
        ask_bop(r, skipped);
    return FMTP_RX_NEW;
}

struct product *fmtp_rx_see_data(struct fmtp_receiver *r, uint32_t index)
{
    switch (fmtp_rx_see(r, index)) {
    case FMTP_RX_NEW: return ask_bop(r, index);
    case FMTP_RX_OLD: return fmtp_rx_lookup(r, index);
    default: return NULL;
    }
}

/* ------------------------------------------------------------------ begin, end */

bool fmtp_rx_finish(struct fmtp_receiver *r, struct product *p)
{
    if (!p->active || p->nleft)
        return false;
    uint32_t index = p->index, retx_blocks = p->retx_blocks;
    struct timespec start = p->start;
    /* With extension 1 the sender is told how much was lost on the way. */
    uint32_t lost = r->session.extended ? p->nblocks - p->first_time : 0;
    fmtp_rx_emit(r, FMTP_RETX_END, index, lost, 0);
    drop(r, p);
    r->stats.products++;
    r->cfg.ended(r->cfg.ctx, index, retx_blocks, start);
    return true;
}

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

/* The BOP of p is here, whichever way. */
static void begin(struct fmtp_receiver *r, struct product *p, const struct fmtp_bop *bop)
{
    uint32_t index = p->index, seen = p->expected;
    void *data =
        r->cfg.begun(r->cfg.ctx, index, bop->size_bytes, bop->meta, bop->meta_len, bop->start);

    p->size = bop->size_bytes;
    p->nleft = p->nblocks = fmtp_blocks(p->size, r->block);
    if (!data || !allocate(r, p)) {
        fmtp_rx_emit(r, FMTP_RETX_END, index, 0, 0);
        drop(r, p);
        if (data)
            fmtp_rx_miss(r, index);
        return;
    }
    p->active = true;
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
    p->heard_ns = r->now_ns;
    p->tau_ns = r->now_ns + fmtp_scaled_tx_ns(r->cfg.f_rcv, p->size, r->cfg.r_mc_bps);
    fmtp_rx_arm(r, p);
    /* Still being multicast: ask for what passed before its BOP was known. */
    if (fmtp_rx_replay(r, p))
        fmtp_rx_passed(r, p, seen < p->nblocks ? seen : p->nblocks);
}

void fmtp_rx_bop(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body)
{
    struct fmtp_bop bop;
    if (fmtp_bop_get(r->cfg.layout, body, h->payloadlen, &bop) < 0 || h->seqnum) {
        r->stats.bad_messages++;
        return;
    }
    struct product *p;
    switch (fmtp_rx_see(r, h->index)) {
    case FMTP_RX_NEW: p = entry(r, h->index); break;
    case FMTP_RX_OLD: p = fmtp_rx_lookup(r, h->index); break;
    default: return;
    }
    if (p && !p->active)
        begin(r, p, &bop);
}

/* The sender waits for us with a product from before the first that we know of; then it does so
 * with all since. */
static struct product *begin_earlier(struct fmtp_receiver *r, uint32_t index)
{
    uint32_t until = r->first;

    r->first = index;
    for (uint32_t i = index; i != until; i++)
        ask_bop(r, i);
    return fmtp_rx_lookup(r, index);
}

void fmtp_rx_eop(struct fmtp_receiver *r, const struct fmtp_header *h)
{
    bool unasked = h->flags == FMTP_RETX_EOP;
    struct product *p = fmtp_rx_see_data(r, h->index);

    if (!p && unasked && h->index - r->skipped_from < r->skipped_to - r->skipped_from)
        fmtp_rx_emit(r, FMTP_RETX_END, h->index, 0, 0);
    else if (!p && unasked && r->first - h->index - 1 < r->cfg.max_products)
        p = begin_earlier(r, h->index);
    if (!p)
        return;
    /* The first one after an EOP_REQ is its answer. */
    bool nudged = unasked && (p->eop || !p->eop_asked);
    p->eop = true;
    if (!p->active)
        return;
    fmtp_rx_ask_all(r, p);
    if (nudged)
        fmtp_rx_nudged(r, p);
}

void fmtp_rx_rejected(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = fmtp_rx_lookup(r, index);

    if (p)
        give_up(r, p);
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
    r->latest = next_index - 1;
    if (before && before->active)
        fmtp_rx_ask_all(r, before);
    for (; unseen != next_index; unseen++)
        ask_bop(r, unseen);
}

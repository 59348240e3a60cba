/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's products: offered, retained while peers are unfinished, released; and its timers.
 */
#include "sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sender_repair.h"
#include "sender_state.h"

#define NUDGE_MIN_NS (100 * FMTP_MS)
#define NUDGE_MAX_NS (5000 * FMTP_MS)
/* How much of what was passed to the system may still wait in its queues, in bytes. */
#define QUEUED_BYTES (256u << 10)

size_t fmtp_sender_set_words(const struct fmtp_sender *s)
{
    return (s->cfg.max_peers + 63) / 64;
}

struct product *fmtp_sender_lookup(const struct fmtp_sender *s, uint32_t index)
{
    struct product *p = s->hash[index & s->hash_mask];

    while (p && p->index != index)
        p = p->chain;
    return p;
}

int fmtp_sender_product_iov(const struct product *p, uint32_t off, uint32_t len, struct iovec *iov)
{
    int n = 0;
    size_t at = off;

    for (int i = 0; i < p->nparts && len; i++) {
        if (at >= p->parts[i].iov_len) {
            at -= p->parts[i].iov_len;
            continue;
        }
        size_t here = p->parts[i].iov_len - at;
        if (here > len)
            here = len;
        iov[n++] = (struct iovec){(uint8_t *)p->parts[i].iov_base + at, here};
        len -= (uint32_t)here;
        at = 0;
    }
    return n;
}

/* ------------------------------------------------------------------ life */

static void free_sender(struct fmtp_sender *s)
{
    fmtp_repair_free(s);
    tp_timers_free(&s->timers);
    tp_timers_free(&s->nudges);
    free(s->hash);
    free(s->peers);
    free(s->active);
    free(s->held_by);
    free(s->accounts);
    free(s);
}

struct fmtp_sender *fmtp_sender_new(const struct fmtp_sender_config *cfg)
{
    struct fmtp_sender *s = calloc(1, sizeof *s);
    size_t buckets = 16;

    if (!s)
        return NULL;
    s->cfg = *cfg;
    if (!s->cfg.block_bytes)
        s->cfg.block_bytes = FMTP_DATA_LEN;
    if (s->cfg.fec_k > FMTP_FEC_MAX_K)
        s->cfg.fec_k = FMTP_FEC_MAX_K;
    s->next_index = cfg->first_index;
    while (buckets < cfg->max_products)
        buckets *= 2;
    s->hash_mask = buckets - 1;
    s->hash = calloc(buckets, sizeof(struct product *));
    s->peers = calloc(cfg->max_peers, sizeof(struct peer *));
    s->active = calloc(2 * fmtp_sender_set_words(s), sizeof *s->active);
    s->held_by = calloc(cfg->max_peers, sizeof *s->held_by);
    s->runnable = s->active ? s->active + fmtp_sender_set_words(s) : NULL;
    int rc = tp_timers_init(&s->timers, cfg->max_products);
    rc |= tp_timers_init(&s->nudges, cfg->max_products);
    rc |= fmtp_repair_init(s);
    rc |= fmtp_accounts_init(s);
    if (rc || !s->hash || !s->peers || !s->active || !s->held_by) {
        free_sender(s);
        return NULL;
    }
    return s;
}

void fmtp_sender_free(struct fmtp_sender *s)
{
    if (!s)
        return;
    fmtp_sender_sent(s, 0, 0);
    for (size_t i = 0; i <= s->hash_mask; i++)
        while (s->hash[i])
            fmtp_sender_release(s, s->hash[i], FMTP_RELEASE_CLOSED);
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i]) {
            fmtp_requests_free(&s->peers[i]->queue);
            free(s->peers[i]);
        }
    free_sender(s);
}

bool fmtp_sender_renew(struct fmtp_sender *s, uint64_t session_id, uint16_t block_bytes)
{
    if (s->npeers || s->retained || s->nitems)
        return false;
    struct fmtp_sender old = *s;
    s->parity_memory = s->scratch = NULL;
    s->parity_buffers = s->nparity_free = 0;
    s->cfg.block_bytes = block_bytes;
    if (fmtp_repair_init(s) < 0) {
        fmtp_repair_free(s);
        *s = old;
        fmtp_repair_relist(s);
        return false;
    }
    fmtp_repair_free(&old);
    s->cfg.session_id = session_id;
    return true;
}

/* ------------------------------------------------------------------ products */

bool fmtp_sender_ready(const struct fmtp_sender *s)
{
    return !s->current && s->retained < s->cfg.max_products;
}

/* Checks an offer. Returns its size, or -1. */
static int64_t check(const struct fmtp_sender *s, const struct iovec *parts, int nparts,
                     uint16_t meta_len, struct tp_error *err)
{
    unsigned max_meta = s->cfg.block_bytes - (unsigned)fmtp_bop_fixed_len(s->cfg.layout);
    uint64_t size = 0;

    if (!fmtp_sender_ready(s)) {
        snprintf(err->text, sizeof err->text, "not ready for another product: %s",
                 s->current ? "the previous product is still being multicast"
                            : "max_products are retained");
        return -1;
    }
    if (nparts < 0 || nparts > FMTP_MAX_PARTS) {
        snprintf(err->text, sizeof err->text, "%d parts; a product has 0 to %d", nparts,
                 FMTP_MAX_PARTS);
        return -1;
    }
    if (meta_len > max_meta) {
        snprintf(err->text, sizeof err->text, "%u bytes of metadata; at most %u fit into a BOP",
                 (unsigned)meta_len, max_meta);
        return -1;
    }
    for (int i = 0; i < nparts; i++) {
        if (parts[i].iov_len > UINT32_MAX - size) {
            snprintf(err->text, sizeof err->text,
                     "product of more than %u bytes; FMTP's size field has 32 bits", UINT32_MAX);
            return -1;
        }
        size += parts[i].iov_len;
    }
    if (fmtp_sender_lookup(s, s->next_index)) {
        snprintf(err->text, sizeof err->text, "product index %u is still in use", s->next_index);
        return -1;
    }
    return (int64_t)size;
}

static void free_memory(struct product *p)
{
    free(p->unfinished_set);
    free(p->groups);
    free(p);
}

int fmtp_sender_offer(struct fmtp_sender *s, const struct fmtp_offer *offer, uint32_t *index,
                      struct tp_error *err)
{
    int64_t size = check(s, offer->parts, offer->nparts, offer->meta_len, err);

    if (size < 0)
        return -1;
    struct product *p = calloc(1, sizeof *p + FMTP_BOP_FIXED_MAX + offer->meta_len);
    if (p) {
        p->size = (uint32_t)size;
        p->nblocks = fmtp_blocks(p->size, s->cfg.block_bytes);
        p->unfinished_set = calloc(2 * fmtp_sender_set_words(s), sizeof *p->unfinished_set);
    }
    if (!p || !p->unfinished_set || fmtp_repair_begin(s, p) < 0) {
        snprintf(err->text, sizeof err->text, "out of memory");
        if (p)
            free_memory(p);
        return -1;
    }
    p->done_set = p->unfinished_set + fmtp_sender_set_words(s);
    p->index = s->next_index++;
    p->first_block = s->stats.blocks;
    p->nparts = offer->nparts;
    if (offer->nparts)
        memcpy(p->parts, offer->parts, (size_t)offer->nparts * sizeof *offer->parts);
    p->cookie = offer->cookie;
    struct fmtp_bop bop = {offer->start, p->size, offer->meta_len, offer->meta};
    p->body_len = (uint16_t)fmtp_bop_put(s->cfg.layout, p->body, &bop);
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i]) {
            set_put(p->unfinished_set, i, true);
            p->unfinished++;
        }
    p->had_peers = p->unfinished > 0;
    p->chain = s->hash[p->index & s->hash_mask];
    s->hash[p->index & s->hash_mask] = p;
    s->retained++;
    s->retained_bytes += p->size;
    s->current = p;
    s->cursor = 0;
    if (index)
        *index = p->index;
    return 0;
}

/* Frees a released product as soon as the caller has no datagram of it. */
void fmtp_sender_free_product(struct fmtp_sender *s, struct product *p)
{
    uint32_t index = p->index;
    void *cookie = p->cookie;
    enum fmtp_release why = p->why;

    s->retained_bytes -= p->size;
    fmtp_requests_forget(s, p);
    free_memory(p);
    s->retained--;
    if (s->cfg.released)
        s->cfg.released(s->cfg.ctx, index, cookie, why);
}

void fmtp_sender_release(struct fmtp_sender *s, struct product *p, enum fmtp_release why)
{
    struct product **link = &s->hash[p->index & s->hash_mask];

    fmtp_peers_purge(s, p->index);
    fmtp_repair_end(s, p);
    while (*link != p)
        link = &(*link)->chain;
    *link = p->chain;
    tp_timer_disarm(&s->timers, &p->timer);
    tp_timer_disarm(&s->nudges, &p->nudge);
    s->stats.unacknowledged += p->unfinished;
    if (s->current == p)
        s->current = NULL;
    p->why = why;
    if (fmtp_multicast_forget(s, p)) {
        p->chain = s->dying;
        s->dying = p;
    } else {
        fmtp_sender_free_product(s, p);
    }
}

bool fmtp_sender_finish(struct product *p, int peer)
{
    if (!in_set(p->unfinished_set, (size_t)peer))
        return false;
    set_put(p->unfinished_set, (size_t)peer, false);
    p->unfinished--;
    return true;
}

void fmtp_sender_release_if_done(struct fmtp_sender *s, struct product *p)
{
    if (p->multicasted && p->had_peers && !p->unfinished)
        fmtp_sender_release(s, p, p->failed ? FMTP_RELEASE_FAILED : FMTP_RELEASE_ALL_DONE);
}

bool fmtp_sender_withdraw(struct fmtp_sender *s, uint32_t index)
{
    struct product *p = fmtp_sender_lookup(s, index);
    size_t max = s->cfg.max_peers;

    if (!p)
        return false;
    for (size_t i = set_next(p->unfinished_set, max, 0); i < max;
         i = set_next(p->unfinished_set, max, i + 1)) {
        struct fmtp_request r = {.index = index, .flags = FMTP_RETX_REJ};
        fmtp_peers_answer(s, (int)i, &r);
    }
    fmtp_sender_release(s, p, FMTP_RELEASE_WITHDRAWN);
    return true;
}

bool fmtp_sender_unreadable(struct fmtp_sender *s, int peer)
{
    const struct fmtp_requests *queue = &s->peers[peer]->queue;

    return queue->count && fmtp_requests_at(queue, 0)->flags == FMTP_RETX_DATA &&
           fmtp_sender_withdraw(s, fmtp_requests_at(queue, 0)->index);
}

void fmtp_sender_finish_all(struct fmtp_sender *s)
{
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i] && s->peers[i]->extended)
            fmtp_peers_answer(s, (int)i,
                              &(struct fmtp_request){.index = s->next_index,
                                                     .seq = FMTP_REJ_BYE,
                                                     .flags = FMTP_RETX_REJ});
}

/* ------------------------------------------------------------------ time */

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint32_t queued_bytes(const struct fmtp_sender *s)
{
    size_t bytes = s->cfg.queued_bytes > QUEUED_BYTES ? s->cfg.queued_bytes : QUEUED_BYTES;

    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

/* Returns tau_snd of equation (1), without the round trip. */
static uint64_t scaled_ns(const struct fmtp_sender *s, const struct product *p, uint64_t now_ns)
{
    if (!s->cfg.timer_by_handover)
        return fmtp_scaled_tx_ns(s->cfg.f_snd, p->size, s->cfg.r_mc_bps);
    uint64_t least_ns = (p->nblocks + UINT64_C(2)) * s->cfg.handover_ns;
    return fmtp_scaled_ns(s->cfg.f_snd, (double)max64(now_ns - p->begun_ns, least_ns));
}

void fmtp_sender_multicasted(struct fmtp_sender *s, struct product *p, uint64_t now_ns)
{
    uint64_t rtt_ns = fmtp_peers_rtt_max(s);
    uint64_t tau_ns = max64(scaled_ns(s, p, now_ns), rtt_ns);

    s->current = NULL;
    s->stats.products++;
    p->multicasted = true;
    p->left_ns = now_ns;
    tp_timer_arm(&s->timers, &p->timer,
                 (s->cfg.timer_from_bop ? p->bop_ns : now_ns) +
                     max64(tau_ns, s->cfg.tau_snd_min_ns));
    p->nudge_ns =
        max64(2 * rtt_ns, NUDGE_MIN_NS) + fmtp_scaled_tx_ns(1, queued_bytes(s), s->cfg.r_mc_bps);
    p->queued_ns = s->cfg.queued_bytes ? now_ns + p->nudge_ns : 0;
    if (p->had_peers)
        tp_timer_arm(&s->nudges, &p->nudge, now_ns + p->nudge_ns);
    if (s->cfg.multicasted)
        s->cfg.multicasted(s->cfg.ctx, p->index, p->cookie);
    fmtp_sender_release_if_done(s, p);
}

/* A peer that lost the end of a product, or all of it, may not know: reminds it. */
static void nudge(struct fmtp_sender *s, struct product *p, uint64_t now_ns)
{
    if (!p->busy)
        s->stats.nudges += fmtp_peers_nudge(s, p, now_ns);
    p->nudge_ns =
        p->nudge_ns < NUDGE_MAX_NS / 2 ? 2 * p->nudge_ns : max64(p->nudge_ns, NUDGE_MAX_NS);
    tp_timer_arm(&s->nudges, &p->nudge, now_ns + p->nudge_ns);
    fmtp_sender_release_if_done(s, p); /* a peer may have been rejected for lack of room */
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t fmtp_sender_deadline(const struct fmtp_sender *s)
{
    uint64_t at = min64(tp_timers_next(&s->timers), tp_timers_next(&s->nudges));

    return min64(at, min64(fmtp_repair_deadline(s), fmtp_peers_deadline(s)));
}

/* Sends the unsolicited RETX_EOP of a timeout. */
static void force_eop(struct fmtp_sender *s, struct product *p)
{
    size_t max = s->cfg.max_peers;

    for (size_t i = set_next(p->unfinished_set, max, 0); i < max;
         i = set_next(p->unfinished_set, max, i + 1)) {
        struct fmtp_request r = {.index = p->index, .flags = FMTP_RETX_EOP};
        fmtp_peers_answer(s, (int)i, &r);
    }
}

void fmtp_sender_timeout(struct fmtp_sender *s, uint64_t now_ns)
{
    struct tp_timer *t;

    while ((t = tp_timers_pop(&s->timers, now_ns))) {
        struct product *p = (struct product *)t;
        if (p->unfinished)
            s->stats.timeouts++;
        if (s->cfg.expired)
            s->cfg.expired(s->cfg.ctx, p->index);
        /* Our receivers take this as a call to request everything they lack, which includes what
         * still waits in the system. */
        if (now_ns >= p->queued_ns)
            force_eop(s, p);
        fmtp_sender_release(s, p, FMTP_RELEASE_TIMEOUT);
    }
    while ((t = tp_timers_pop(&s->nudges, now_ns)))
        nudge(s, (struct product *)((char *)t - offsetof(struct product, nudge)), now_ns);
    fmtp_repair_due(s, now_ns);
    fmtp_peers_refill(s, now_ns);
}

void fmtp_sender_get_stats(const struct fmtp_sender *s, struct fmtp_server_stats *out)
{
    *out = s->stats;
    out->receivers = s->npeers;
    out->retained = s->retained;
    out->retained_bytes = s->retained_bytes;
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        out->alone += s->peers[i] && s->accounts[s->peers[i]->account].alone;
}

const struct fmtp_server_stats *fmtp_sender_counts(const struct fmtp_sender *s)
{
    return &s->stats;
}

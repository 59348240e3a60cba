/* SPDX-License-Identifier: Apache-2.0 */
#include "sender_repair.h"

#include <stdlib.h>
#include <string.h>

#define HOLD_MIN_NS FMTP_MS
#define HOLD_MAX_NS (10 * FMTP_MS)
#define SETTLE_NS (50 * FMTP_MS) /* beyond two round trips: no receiver has requested */
#define PARITY_BYTES (1u << 20)  /* memory for parity waiting to be sent */
#define CODE_BYTES_PER_NS 4      /* speed of the code, for its cost */
#define PACKET_MIN_NS 1000       /* per datagram, however fast the link */
#define LONG_PRODUCT 4           /* groups */
#define WINDOW_BLOCKS 1600.0     /* memory of the loss estimate, in blocks */
/* A group that no receiver requested lost at most the parity that was sent with it. How much less
 * is unknown: assume this share of the expected loss. */
#define UNASKED 0.75

void fmtp_repair_relist(struct fmtp_sender *s)
{
    TAILQ_INIT(&s->held);
    TAILQ_INIT(&s->ready);
    TAILQ_INIT(&s->settling);
}

int fmtp_repair_init(struct fmtp_sender *s)
{
    unsigned n = PARITY_BYTES / s->cfg.block_bytes;

    fmtp_repair_relist(s);
    if (!s->cfg.fec_k)
        return 0;
    n = n < 8 ? 8 : n > 64 ? 64 : n;
    s->parity_memory = malloc((size_t)n * s->cfg.block_bytes);
    s->scratch = malloc((size_t)FMTP_MAX_PARTS * s->cfg.block_bytes);
    for (s->parity_buffers = 0; s->parity_buffers < n; s->parity_buffers++)
        s->parity_free[s->nparity_free++] = (int16_t)s->parity_buffers;
    return s->parity_memory && s->scratch ? 0 : -1;
}

void fmtp_repair_free(struct fmtp_sender *s)
{
    free(s->parity_memory);
    free(s->scratch);
}

bool fmtp_repair_active(const struct fmtp_sender *s)
{
    return s->cfg.fec_k && s->npeers > s->nordinary;
}

int fmtp_repair_begin(struct fmtp_sender *s, struct product *p)
{
    if (!s->cfg.fec_k || !p->nblocks ||
        fmtp_fec_groups(p->nblocks, s->cfg.fec_k) > FMTP_FEC_MAX_GROUPS)
        return 0;
    p->ngroups = fmtp_fec_groups(p->nblocks, s->cfg.fec_k);
    p->groups = calloc(p->ngroups, sizeof *p->groups);
    if (!p->groups)
        return -1;
    for (uint32_t i = 0; i < p->ngroups; i++) {
        p->groups[i].product = p;
        p->groups[i].number = (uint16_t)i;
    }
    return 0;
}

static unsigned blocks_of(const struct fmtp_sender *s, const struct group *g)
{
    return fmtp_fec_group(g->product->nblocks, s->cfg.fec_k, g->number).count;
}

static void rest(struct fmtp_sender *s, struct group *g)
{
    if (g->state == GROUP_IDLE)
        return;
    TAILQ_REMOVE(g->state == GROUP_HELD ? &s->held : &s->ready, g, link);
    g->state = GROUP_IDLE;
    g->wanted = (struct fmtp_bits){0};
    g->target = g->parity;
    g->originals = false;
    g->product->busy--;
}

/* ------------------------------------------------------------------ bits */

static unsigned bits(const struct fmtp_bits *b)
{
    unsigned n = 0;

    for (int i = 0; i < 4; i++)
        n += (unsigned)__builtin_popcountll(b->word[i]);
    return n;
}

static int first_bit(const struct fmtp_bits *b)
{
    for (int i = 0; i < 4; i++)
        if (b->word[i])
            return i * 64 + __builtin_ctzll(b->word[i]);
    return -1;
}

/* ------------------------------------------------------------------ what is lost on the way */

/* Learns that a group of k blocks needed `lost` more symbols at the receiver that lost the most. */
static void learn(struct fmtp_sender *s, double k, double lost)
{
    double keep = WINDOW_BLOCKS / (WINDOW_BLOCKS + k);

    s->observed = s->observed * keep + k;
    s->lost = s->lost * keep + lost;
}

uint64_t fmtp_sender_asked(const struct fmtp_sender *s)
{
    return s->asked;
}

/* Returns the share of the multicast that the receiver with the most losses loses. */
static double loss(const struct fmtp_sender *s)
{
    return s->observed > 0 ? s->lost / s->observed : 0;
}

static void settle(struct fmtp_sender *s, struct group *g, double lost)
{
    if (g->settles_ns) {
        TAILQ_REMOVE(&s->settling, g, settling);
        g->settles_ns = 0;
        learn(s, blocks_of(s, g), lost);
    }
}

/* No receiver requested the group in time, or the product is done. */
static void settle_unasked(struct fmtp_sender *s, struct group *g)
{
    const struct product *p = g->product;
    double k = blocks_of(s, g), lost = UNASKED * loss(s) * k;

    if (p->told)
        lost = k * p->most_lost / p->nblocks;
    settle(s, g, lost < g->parity ? lost : g->parity);
}

/* Learns how long after a group's last block was sent it was requested: the round trip plus
 * queueing. */
static void learn_loop(struct fmtp_sender *s, const struct group *g, uint64_t now_ns)
{
    uint64_t ns = now_ns > g->left_ns ? now_ns - g->left_ns : 0;

    s->loop_ns = ns > s->loop_ns ? ns : s->loop_ns - (s->loop_ns - ns) / 8;
}

static uint64_t packet_ns(const struct fmtp_sender *s)
{
    uint64_t bytes = FMTP_HEADER_LEN + s->cfg.block_bytes + (uint64_t)s->cfg.overhead_bytes;
    uint64_t ns = s->cfg.r_mc_bps ? bytes * 8 * 1000000000u / s->cfg.r_mc_bps : 0;

    return ns > PACKET_MIN_NS ? ns : PACKET_MIN_NS;
}

/* Returns the time to make or use one symbol of k blocks. */
static uint64_t code_ns(const struct fmtp_sender *s, unsigned k)
{
    return (uint64_t)k * s->cfg.block_bytes / CODE_BYTES_PER_NS;
}

static uint64_t hold_ns(struct fmtp_sender *s)
{
    uint64_t ns = fmtp_peers_rtt_max(s) / 4;

    if (s->npeers < s->nordinary + 2)
        return 0; /* no other receiver to wait for */
    return ns < HOLD_MIN_NS ? HOLD_MIN_NS : ns > HOLD_MAX_NS ? HOLD_MAX_NS : ns;
}

/* Returns whether a request about what is planned next would arrive after the product's last data
 * was sent. */
static bool near_end(struct fmtp_sender *s, const struct product *p)
{
    uint64_t planned = p == s->current && s->cursor ? s->cursor - 1 : p->nblocks;
    uint64_t left = planned < p->nblocks ? p->nblocks - planned : 0;
    uint64_t loop_ns = fmtp_peers_rtt_max(s) > s->loop_ns ? fmtp_peers_rtt_max(s) : s->loop_ns;

    return left * packet_ns(s) <= loop_ns + hold_ns(s);
}

void fmtp_repair_append(struct fmtp_sender *s, struct group *g)
{
    unsigned k = blocks_of(s, g), max = fmtp_fec_max_parity(k);
    double part = fmtp_accounts_loss(s, loss(s)), expected = part * k;

    if (!fmtp_repair_active(s) || s->cfg.no_parity)
        return;
    unsigned n;
    if (near_end(s, g->product)) {
        /* Near the end a request would delay the product by a round trip, so some parity in reserve
         * is cheaper. The largest loss among many receivers very rarely exceeds its expected value
         * by 2.5 times its root. A small product is always near its end and has only half a root to
         * spare. */
        double spread = (g->product->ngroups < LONG_PRODUCT ? 0.25 : 6.25) * expected;
        for (n = 0; expected >= 0.25 && n * n < spread; n++)
            ;
        expected += n;
    } else if (code_ns(s, k) > 2 * packet_ns(s)) {
        return;
    }
    n = (unsigned)(expected + 0.25);
    if (n > max)
        n = max;
    /* A receiver that considered the group passed may already have requested more. */
    if (n > g->target)
        g->target = (uint8_t)n;
    if (g->target > g->parity)
        s->appending = g;
    unsigned for_loss = (unsigned)(part * k + 0.5);
    if (s->worst >= 0)
        fmtp_accounts_charge_unasked(s, s->worst, for_loss < n ? for_loss : n);
}

/* ------------------------------------------------------------------ requests */

void fmtp_repair_request(struct fmtp_sender *s, struct group *g, const struct fmtp_repair_req *req,
                         const struct peer *peer, uint64_t now_ns)
{
    unsigned k = blocks_of(s, g), max = fmtp_fec_max_parity(k), need = req->need;
    /* The request was made before the latest repairs reached its receiver. */
    bool crossed = g->last_ns && now_ns < g->last_ns + peer->rtt_ns;
    struct fmtp_bits lost = {0};

    s->asked += need;
    if (g->settles_ns && g->state == GROUP_IDLE && req->round == 0)
        learn_loop(s, g, now_ns);
    for (unsigned i = 0; i < (k + 7) / 8; i++)
        lost.word[i / 8] |= (uint64_t)req->bitmap[i] << (i % 8 * 8);
    if (crossed || g->state == GROUP_READY) {
        unsigned all = bits(&lost);
        for (int i = 0; i < 4; i++)
            lost.word[i] &= ~g->resent.word[i];
        unsigned coming = all - bits(&lost);
        if (need <= coming)
            return;
        need -= coming;
    }
    unsigned target;
    if (req->round == 0)
        target = req->high + need;
    else if (crossed || g->state == GROUP_READY)
        return;
    else
        target = g->parity + need;
    if (target <= g->parity)
        return; /* enough of it is in flight */
    if (target > max || s->cfg.no_parity) {
        /* Parity numbers run out, or there are none: only the blocks themselves help every
         * receiver. */
        g->originals = true;
        target = target < max ? target : max;
    }
    unsigned before = bits(&g->wanted), more = 0;
    for (int i = 0; i < 4; i++)
        g->wanted.word[i] |= lost.word[i];
    if (target > g->target) {
        more = target - (g->target > g->parity ? g->target : g->parity);
        g->target = (uint8_t)target;
        g->account = peer->account;
    }
    if (g->originals)
        more = bits(&g->wanted) - before;
    fmtp_accounts_charge(s, peer->account, more);
    if (g->state == GROUP_IDLE) {
        g->state = GROUP_HELD;
        g->due_ns = now_ns + hold_ns(s);
        g->product->busy++;
        TAILQ_INSERT_TAIL(&s->held, g, link);
    }
}

void fmtp_repair_request_early(struct fmtp_sender *s, struct group *g,
                               const struct fmtp_repair_req *req, const struct peer *peer)
{
    unsigned max = fmtp_fec_max_parity(blocks_of(s, g)), target = req->high + req->need;

    target = target < max ? target : max;
    if (target <= g->target || s->cfg.no_parity)
        return;
    fmtp_accounts_charge(s, peer->account, target - g->target);
    g->target = (uint8_t)target;
    g->account = peer->account;
}

/* The hold-off is over: chooses between parity for all and the lost blocks themselves. */
static void begin_burst(struct fmtp_sender *s, struct group *g, uint64_t now_ns)
{
    unsigned k = blocks_of(s, g), n = g->target - g->parity;
    uint64_t packet = packet_ns(s);
    /* Losing a lone repair costs a round trip plus patience: at the end of a long product much more
     * than an extra symbol. In a small product that symbol matters. */
    double least = g->product->ngroups < LONG_PRODUCT ? 0.1 : 0.005;

    if (g->settles_ns)
        s->worst = g->account;
    settle(s, g, g->target);
    if (!n && !g->originals) {
        rest(s, g); /* what was appended meanwhile suffices */
        return;
    }
    if (g->last_ns + fmtp_peers_rtt_max(s) < now_ns)
        g->resent = (struct fmtp_bits){0};
    if (n && n * loss(s) >= least && near_end(s, g->product)) {
        /* Part of the burst may get lost again. */
        unsigned target = g->target + 1 + (unsigned)(n * loss(s));
        unsigned max = fmtp_fec_max_parity(k);
        g->target = (uint8_t)(target < max ? target : max);
        n = g->target - g->parity;
    }
    /* Coding costs time here and, simultaneously everywhere, at the receivers. But only parity
     * shows when a burst is over and was too short: near the end that avoids a timeout. */
    if (bits(&g->wanted) * packet <= n * (packet + 2 * code_ns(s, k)) &&
        (n < 2 || !near_end(s, g->product) || 2 * code_ns(s, k) * n > fmtp_peers_rtt_max(s)))
        g->originals = true;
    g->state = GROUP_READY;
    TAILQ_REMOVE(&s->held, g, link);
    TAILQ_INSERT_TAIL(&s->ready, g, link);
}

void fmtp_repair_due(struct fmtp_sender *s, uint64_t now_ns)
{
    struct group *g;

    while ((g = TAILQ_FIRST(&s->held)) && g->due_ns <= now_ns)
        begin_burst(s, g, now_ns);
    while ((g = TAILQ_FIRST(&s->settling)) && g->settles_ns <= now_ns)
        settle_unasked(s, g);
}

uint64_t fmtp_repair_deadline(const struct fmtp_sender *s)
{
    const struct group *g = TAILQ_FIRST(&s->held);

    return g ? g->due_ns : TP_NEVER;
}

/* ------------------------------------------------------------------ bursts */

/* Gives the group's blocks as symbols: in place if they are contiguous in the product, else
 * copied. */
static void symbols(struct fmtp_sender *s, const struct group *g, unsigned k,
                    const uint8_t *blocks[FMTP_FEC_MAX_K])
{
    const struct product *p = g->product;
    uint32_t first = fmtp_fec_group(p->nblocks, s->cfg.fec_k, g->number).first;
    size_t block_bytes = s->cfg.block_bytes;
    uint8_t *scratch = s->scratch;

    for (unsigned i = 0; i < k; i++) {
        uint32_t at = (first + i) * s->cfg.block_bytes;
        uint32_t len = fmtp_block_len(p->size, at, s->cfg.block_bytes);
        struct iovec iov[FMTP_MAX_PARTS];
        int n = fmtp_sender_product_iov(p, at, len, iov);
        if (n == 1 && len == block_bytes) {
            blocks[i] = iov[0].iov_base;
            continue;
        }
        /* At most one block per boundary between parts, and the last one. */
        blocks[i] = scratch;
        memset(scratch + len, 0, block_bytes - len);
        for (int j = 0; j < n; j++) {
            memcpy(scratch, iov[j].iov_base, iov[j].iov_len);
            scratch += iov[j].iov_len;
        }
        scratch += block_bytes - len;
    }
}

/* Makes and plans at most max parity symbols of the group. */
static unsigned plan_parity(struct fmtp_sender *s, struct group *g, unsigned max)
{
    unsigned k = blocks_of(s, g), n = 0;

    if (max > (unsigned)(g->target - g->parity))
        max = g->target - g->parity;
    uint8_t *out[64];
    for (; n < max && s->nparity_free && fmtp_multicast_room(s); n++) {
        int16_t buffer = s->parity_free[--s->nparity_free];
        struct fmtp_parity at = {g->number, (uint8_t)(g->parity + n), g->target};
        out[n] = s->parity_memory + (size_t)buffer * s->cfg.block_bytes;
        fmtp_multicast_push(s, g->product, FMTP_PARITY, fmtp_parity_seqnum(at), buffer);
    }
    if (n) {
        const uint8_t *blocks[FMTP_FEC_MAX_K];
        symbols(s, g, k, blocks);
        fmtp_fec_encode(k, g->parity, n, s->cfg.block_bytes, blocks, out);
        g->parity = (uint8_t)(g->parity + n);
    }
    return n;
}

static unsigned plan_originals(struct fmtp_sender *s, struct group *g, unsigned max)
{
    uint32_t first = fmtp_fec_group(g->product->nblocks, s->cfg.fec_k, g->number).first;
    unsigned n = 0;
    int bit;

    for (; n < max && fmtp_multicast_room(s) && (bit = first_bit(&g->wanted)) >= 0; n++) {
        g->wanted.word[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
        g->resent.word[bit / 64] |= UINT64_C(1) << (bit % 64);
        fmtp_multicast_push(s, g->product, FMTP_REPAIR,
                            (first + (uint32_t)bit) * s->cfg.block_bytes, -1);
    }
    return n;
}

unsigned fmtp_repair_plan(struct fmtp_sender *s, unsigned max)
{
    struct group *g = TAILQ_FIRST(&s->ready);
    unsigned n = g->originals ? plan_originals(s, g, max) : plan_parity(s, g, max);

    if (g->originals ? first_bit(&g->wanted) < 0 : g->parity == g->target)
        rest(s, g);
    return n;
}

unsigned fmtp_repair_plan_appended(struct fmtp_sender *s, unsigned max)
{
    struct group *g = s->appending;
    unsigned n = plan_parity(s, g, max);

    if (g->parity == g->target)
        s->appending = NULL;
    return n;
}

void fmtp_repair_sent(struct fmtp_sender *s, struct group *g, bool last, uint64_t now_ns)
{
    if (!last) {
        g->last_ns = now_ns;
    } else if (fmtp_repair_active(s)) {
        g->left_ns = now_ns;
        g->settles_ns = now_ns + 2 * fmtp_peers_rtt_max(s) + SETTLE_NS;
        TAILQ_INSERT_TAIL(&s->settling, g, settling);
    }
}

/* ------------------------------------------------------------------ ends */

void fmtp_repair_end(struct fmtp_sender *s, struct product *p)
{
    for (uint32_t i = 0; i < p->ngroups && p->groups; i++) {
        struct group *g = &p->groups[i];
        settle_unasked(s, g);
        rest(s, g);
    }
    if (s->appending && s->appending->product == p)
        s->appending = NULL;
}

void fmtp_repair_stop(struct fmtp_sender *s)
{
    struct group *g;

    while ((g = TAILQ_FIRST(&s->held)) || (g = TAILQ_FIRST(&s->ready)))
        rest(s, g);
    while ((g = TAILQ_FIRST(&s->settling))) {
        TAILQ_REMOVE(&s->settling, g, settling);
        g->settles_ns = 0;
    }
    if (s->appending)
        s->appending->target = s->appending->parity;
    s->appending = NULL;
    fmtp_multicast_forget(s, NULL);
}

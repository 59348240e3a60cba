/* SPDX-License-Identifier: Apache-2.0
 *
 * How much multicast repair the group bears for one host: a share of what is multicast anyway. A
 * host that requests more, because it loses or claims to lose that much, is repaired on its own
 * streams; the others do not wait for its repairs. When it requests less, its repairs are multicast
 * again. A host keeps its account when it reconnects.
 *
 * The limit for all hosts together grows with the loss of the median host, which a minority cannot
 * raise. When they request more than that, each gets the same share of it, so that a host that
 * requests little is still served by multicast.
 */
#include <stdlib.h>

#include "sender_state.h"

#define SHARE 0.25        /* symbols multicast for one host, per block of data */
#define MOST 256.0        /* debt allowed before that limit applies */
#define TOGETHER 64.0     /* with a debt below this, repairs are multicast again */
#define LEAST_OF_ALL 0.04 /* limit for all hosts, */
/* ... plus this times the median host's loss: the worst of many loses more, and repairs get lost.
 */
#define PER_LOSS 3.0
#define SHARE_OF_ALL 0.25 /* but at most this */
/* With a debt of all hosts above this, each is limited to its share and to a debt of FEW. */
#define MOST_OF_ALL 256.0
#define FEW 8.0
#define WINDOW_BLOCKS 1600.0 /* a host's earlier losses are forgotten */
#define LOOK_BLOCKS 64       /* interval at which the median is computed */
enum { STEPS = 256 };        /* of loss, up to 1 */
#define RELAPSES 6           /* relapses that count; each halves how fast a debt is forgiven, */
#define FORGET_BLOCKS 100000 /* for this many blocks */

int fmtp_accounts_init(struct fmtp_sender *s)
{
    s->worst = -1;
    s->accounts = calloc(2 * s->cfg.max_peers, sizeof *s->accounts);
    return s->accounts ? 0 : -1;
}

int fmtp_accounts_enter(struct fmtp_sender *s, uint64_t host)
{
    size_t oldest = SIZE_MAX, at = SIZE_MAX;

    for (size_t i = 0; i < 2 * s->cfg.max_peers && at == SIZE_MAX; i++) {
        const struct account *a = &s->accounts[i];
        if (a->used && a->host == host)
            at = i;
        if (!a->peers && (oldest == SIZE_MAX || a->used < s->accounts[oldest].used))
            oldest = i;
    }
    if (at == SIZE_MAX) {
        at = oldest; /* at least half of them have no peer */
        s->accounts[at] = (struct account){.host = host, .blocks = s->stats.blocks};
        if (s->worst == (int)at)
            s->worst = -1;
    }
    s->accounts[at].used = ++s->npeers_ever;
    s->naccounts += !s->accounts[at].peers++;
    return (int)at;
}

void fmtp_accounts_leave(struct fmtp_sender *s, int account)
{
    s->naccounts -= !--s->accounts[account].peers;
}

void fmtp_accounts_heard(struct fmtp_sender *s, int account, unsigned symbols, unsigned lost)
{
    struct account *a = &s->accounts[account];
    double keep = WINDOW_BLOCKS / (WINDOW_BLOCKS + symbols);

    a->heard = a->heard * keep + symbols;
    a->lost = a->lost * keep + (lost < symbols ? lost : symbols);
}

/* Returns what the median host loses, among those that reported it; negative: none has. */
static double median_loss(const struct fmtp_sender *s)
{
    size_t count[STEPS + 1] = {0}, hosts = 0, below = 0;

    for (size_t i = 0; i < 2 * s->cfg.max_peers; i++) {
        const struct account *a = &s->accounts[i];
        if (a->peers && a->heard > 0) {
            count[(size_t)(a->lost / a->heard * STEPS)]++;
            hosts++;
        }
    }
    for (size_t i = 0; hosts && i <= STEPS; i++)
        if ((below += count[i]) * 2 >= hosts)
            return (double)(i + 1) / STEPS;
    return -1;
}

/* Returns the share of the blocks that all hosts together may cause. */
static double share_of_all(struct fmtp_sender *s)
{
    if (!s->share_of_all || s->stats.blocks >= s->looked_blocks + LOOK_BLOCKS) {
        double median = median_loss(s), share = LEAST_OF_ALL + PER_LOSS * median;
        s->share_of_all = median < 0 || share > SHARE_OF_ALL ? SHARE_OF_ALL : share;
        s->looked_blocks = s->stats.blocks;
    }
    return s->share_of_all;
}

static double less(double debt, double paid)
{
    return debt > paid ? debt - paid : 0;
}

static void settle(struct fmtp_sender *s, struct account *a, double share)
{
    double blocks = (double)(s->stats.blocks - a->blocks);

    a->debt = less(a->debt, share * blocks);
    a->part = less(a->part, share_of_all(s) / (double)s->naccounts * blocks);
    a->blocks = s->stats.blocks;
}

static double share_of(const struct account *a)
{
    return SHARE / (1u << a->relapses);
}

static double at_most(double debt, double most)
{
    return debt < most ? debt : most; /* only what it does now counts */
}

/* Charges this many requested symbols, of which this many are multicast (none if it is alone). */
static void charge(struct fmtp_sender *s, int account, unsigned symbols, unsigned multicast)
{
    struct account *a = &s->accounts[account];

    settle(s, a, share_of(a));
    a->debt = at_most(a->debt + symbols, 2 * MOST);
    a->part = at_most(a->part + multicast, 2 * FEW);
}

static void charge_all(struct fmtp_sender *s, unsigned symbols)
{
    settle(s, &s->total, share_of_all(s));
    s->total.debt = at_most(s->total.debt + symbols, 2 * MOST_OF_ALL);
}

void fmtp_accounts_charge(struct fmtp_sender *s, int account, unsigned symbols)
{
    charge(s, account, symbols, symbols);
    charge_all(s, symbols);
}

void fmtp_accounts_charge_unasked(struct fmtp_sender *s, int account, unsigned symbols)
{
    charge(s, account, symbols, 0);
    charge_all(s, symbols);
}

void fmtp_accounts_charge_alone(struct fmtp_sender *s, int account, unsigned symbols)
{
    charge(s, account, symbols, 0);
}

/* Returns whether all hosts together request more than the group can bear. */
static bool crowded(struct fmtp_sender *s)
{
    settle(s, &s->total, share_of_all(s));
    return s->total.debt > MOST_OF_ALL;
}

/* Returns the debt that each is then allowed: the more they owe, the smaller. */
static double few(const struct fmtp_sender *s)
{
    return FEW * (2 - s->total.debt / MOST_OF_ALL);
}

double fmtp_accounts_loss(struct fmtp_sender *s, double taught)
{
    double most = share_of_all(s) - LEAST_OF_ALL;

    return s->naccounts > 1 && taught > most && crowded(s) ? most : taught;
}

bool fmtp_accounts_alone(struct fmtp_sender *s, int account, unsigned symbols)
{
    struct account *a = &s->accounts[account];

    settle(s, a, share_of(a));
    bool alone = s->naccounts > 1 && a->debt + symbols > (a->alone ? TOGETHER : MOST);
    /* The loss learned from it concerned only this host. */
    if (alone && !a->alone && s->worst == account)
        s->lost = 0;
    if (alone && !a->alone && a->relapses < RELAPSES) {
        a->relapses++;
        a->relapsed_blocks = s->stats.blocks;
    } else if (a->relapses && s->stats.blocks - a->relapsed_blocks > FORGET_BLOCKS) {
        a->relapses--;
        a->relapsed_blocks = s->stats.blocks;
    }
    a->alone = alone;
    return alone || (s->naccounts > 1 && crowded(s) && a->part + symbols > few(s));
}

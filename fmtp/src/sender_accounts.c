/* SPDX-License-Identifier: Apache-2.0
 *
 * What the group bears for one host: a part of what is multicast anyway. A host that asks for more,
 * because it loses that much or says so, is repaired on its own streams; the others do not wait for
 * its repairs. It is multicast to again when it asks for less. A host keeps its account when it
 * connects again.
 *
 * All hosts together are borne more the more the median host loses: a minority cannot raise that.
 * When they ask for more, each has the same part of it, so that a host that asks for little is
 * still served by multicast.
 */
#include <stdlib.h>

#include "sender_state.h"

#define SHARE 0.25        /* symbols multicast for one host, per block of data */
#define MOST 256.0        /* and so many before that counts */
#define TOGETHER 64.0     /* owing less than that it is multicast to again */
#define LEAST_OF_ALL 0.04 /* for all hosts, */
#define PER_LOSS 3.0      /* and for what the median host loses; largest of many, lost again */
#define SHARE_OF_ALL 0.25 /* never more */
#define MOST_OF_ALL 256.0 /* then each has its part of it, and may owe no more than FEW */
#define FEW 8.0
#define WINDOW_BLOCKS 1600.0 /* what a host lost before is forgotten */
#define LOOK_BLOCKS 64       /* how often the median is looked for */
enum { STEPS = 256 };        /* of loss, up to 1 */
#define RELAPSES 6           /* each halves what a host is forgiven per block, */
#define FORGET_BLOCKS 100000 /* for so long */

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
        at = oldest; /* half of them at least have no peer */
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

/* What the median host loses, of those that said it; negative: none has. */
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

/* The part of the blocks that all hosts are borne. */
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
    return debt < most ? debt : most; /* what it does now counts, not what it did */
}

/* This many of the requested ones are multicast, or (for it alone) none. */
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

/* True if all together ask for more than the group can bear. */
static bool crowded(struct fmtp_sender *s)
{
    settle(s, &s->total, share_of_all(s));
    return s->total.debt > MOST_OF_ALL;
}

/* What each may owe then: the less, the more they owe. */
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
    /* What it taught about loss was for it alone. */
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the group bears for one host: a part of what is multicast anyway. A host that asks for more,
 * because it loses that much or says so, is repaired on its own streams; the others do not wait for
 * its repairs. It is multicast to again when it asks for less. A host keeps its account when it
 * connects again; all accounts together have a limit as well.
 */
#include <stdlib.h>

#include "sender_state.h"

#define SHARE 0.25        /* symbols multicast for one host, per block of data */
#define MOST 256.0        /* and so many before that counts */
#define TOGETHER 64.0     /* owing less than that it is multicast to again */
#define SHARE_OF_ALL 0.5  /* for all hosts */
#define MOST_OF_ALL 256.0 /* then each may owe no more than FEW */
#define FEW 4.0
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

static void settle(const struct fmtp_sender *s, struct account *a, double share)
{
    double paid = share * (double)(s->stats.blocks - a->blocks);

    a->debt = a->debt > paid ? a->debt - paid : 0;
    a->blocks = s->stats.blocks;
}

static double share_of(const struct account *a)
{
    return SHARE / (1u << a->relapses);
}

static void charge(const struct fmtp_sender *s, struct account *a, double share, double most,
                   unsigned symbols)
{
    settle(s, a, share);
    a->debt += symbols;
    if (a->debt > 2 * most)
        a->debt = 2 * most; /* what it does now counts, not what it did */
}

void fmtp_accounts_charge(struct fmtp_sender *s, int account, unsigned symbols)
{
    charge(s, &s->accounts[account], share_of(&s->accounts[account]), MOST, symbols);
    charge(s, &s->total, SHARE_OF_ALL, MOST_OF_ALL, symbols);
}

void fmtp_accounts_charge_alone(struct fmtp_sender *s, int account, unsigned symbols)
{
    charge(s, &s->accounts[account], share_of(&s->accounts[account]), MOST, symbols);
}

bool fmtp_accounts_alone(struct fmtp_sender *s, int account, unsigned symbols)
{
    struct account *a = &s->accounts[account];

    settle(s, a, share_of(a));
    settle(s, &s->total, SHARE_OF_ALL);
    double most = s->total.debt > MOST_OF_ALL ? FEW : MOST;
    bool alone = s->naccounts > 1 && a->debt + symbols > (a->alone ? TOGETHER : most);
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
    return alone;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What peers hold back, and their counters: products that were multicast and wait for an
 * acknowledgement.
 */
#include <string.h>

#include "sender_state.h"

#define GRACE_NS (200 * FMTP_MS) /* no peer can be behind on a product sent this recently */
#define LOOK_NS (1000 * FMTP_MS)

/* Returns whether a peer may exceed a bound. Cheap; checks the time bound once a second. */
static bool may_exceed(struct fmtp_sender *s, uint64_t now_ns)
{
    const struct fmtp_held_bounds *b = &s->cfg.held;

    if ((b->products && s->retained > b->products) || (b->bytes && s->retained_bytes > b->bytes) ||
        (b->total_bytes && s->retained_bytes > b->total_bytes))
        return true;
    if (!b->behind_ns || now_ns < s->look_ns)
        return false;
    s->look_ns = now_ns + LOOK_NS;
    return true;
}

static void count(struct fmtp_sender *s, const struct product *p, uint64_t now_ns)
{
    size_t n = s->cfg.max_peers;

    for (size_t i = set_next(p->unfinished_set, n, 0); i < n;
         i = set_next(p->unfinished_set, n, i + 1)) {
        struct held *h = &s->held_by[i];
        h->products++;
        h->bytes += p->size;
        if (now_ns > p->left_ns && now_ns - p->left_ns > h->since_ns)
            h->since_ns = now_ns - p->left_ns;
        if (!p->acked_ns)
            continue;
        h->behind.products++;
        h->behind.bytes += p->size;
        if (now_ns > p->acked_ns && now_ns - p->acked_ns > h->behind.behind_ns)
            h->behind.behind_ns = now_ns - p->acked_ns;
    }
}

static bool exceeds(const struct fmtp_held_bounds *b, const struct fmtp_held *h)
{
    return (b->products && h->products > b->products) || (b->bytes && h->bytes > b->bytes) ||
           (b->behind_ns && h->behind_ns > b->behind_ns);
}

static int holds_most(const struct fmtp_sender *s)
{
    int most = -1;

    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->held_by[i].bytes && (most < 0 || s->held_by[i].bytes > s->held_by[most].bytes))
            most = (int)i;
    return most;
}

int fmtp_sender_holder(struct fmtp_sender *s, uint32_t up_to, uint64_t now_ns,
                       struct fmtp_held *out)
{
    memset(s->held_by, 0, s->cfg.max_peers * sizeof *s->held_by);
    for (size_t i = 0; i <= s->hash_mask; i++)
        for (const struct product *p = s->hash[i]; p; p = p->chain)
            if (p->multicasted && now_ns > p->left_ns + GRACE_NS &&
                up_to - p->index <= UINT32_MAX / 2)
                count(s, p, now_ns);
    int most = holds_most(s);
    if (most < 0)
        return -1;
    *out = s->held_by[most].behind;
    out->bytes = s->held_by[most].bytes;
    return most;
}

int fmtp_sender_laggard(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_held *out)
{
    const struct fmtp_held_bounds *b = &s->cfg.held;
    int worst = -1, most = -1;

    if (!s->retained || !may_exceed(s, now_ns))
        return -1;
    memset(s->held_by, 0, s->cfg.max_peers * sizeof *s->held_by);
    for (size_t i = 0; i <= s->hash_mask; i++)
        for (const struct product *p = s->hash[i]; p; p = p->chain)
            if (p->multicasted && now_ns > p->left_ns + GRACE_NS)
                count(s, p, now_ns);
    for (size_t i = 0; i < s->cfg.max_peers; i++) {
        const struct held *h = &s->held_by[i];
        if (exceeds(b, &h->behind) && (worst < 0 || h->bytes > s->held_by[worst].bytes))
            worst = (int)i;
        if (h->bytes && (most < 0 || h->bytes > s->held_by[most].bytes))
            most = (int)i;
    }
    if (worst < 0 && b->total_bytes && s->retained_bytes > b->total_bytes)
        worst = most;
    if (worst < 0)
        return -1;
    s->look_ns = 0;
    *out = s->held_by[worst].behind;
    if (s->held_by[worst].bytes > out->bytes)
        out->bytes = s->held_by[worst].bytes;
    return worst;
}

void fmtp_sender_count_held(struct fmtp_sender *s, uint64_t now_ns)
{
    memset(s->held_by, 0, s->cfg.max_peers * sizeof *s->held_by);
    for (size_t i = 0; i <= s->hash_mask; i++)
        for (const struct product *p = s->hash[i]; p; p = p->chain)
            if (p->multicasted)
                count(s, p, now_ns);
}

void fmtp_sender_peer_counters(const struct fmtp_sender *s, int number,
                               struct fmtp_peer_counters *out)
{
    const struct peer *peer = s->peers[number];
    const struct held *h = &s->held_by[number];

    *out = peer->counts;
    out->pinned_products = h->products;
    out->pinned_bytes = h->bytes;
    out->pinned_seconds = h->since_ns;
    out->behind_products = h->behind.products;
    out->behind_bytes = h->behind.bytes;
    out->behind_seconds = h->behind.behind_ns;
    out->rtt_seconds = peer->rtt_ns;
    out->extended = peer->extended;
    out->alone = s->accounts[peer->account].alone;
}

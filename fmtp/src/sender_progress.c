/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the peers have read the multicast, as they report it, and how far it may be ahead of
 * them: what a receiver has not read is in its buffer, and what finds that full is lost.
 *
 * One that reads nothing for a while is not waited for, and neither is one that the others wait for
 * too often: it loses what its buffer does not hold, and is repaired like any other. Only if most
 * hosts have no room does the multicast wait for as long as they read at all; connections of one
 * host count once.
 */
#include "sender_state.h"

#define LOOK_NS (10 * FMTP_MS)
#define PATIENCE_NS (200 * FMTP_MS)
enum {
    BUFFER_PART = 2,  /* of a buffer that may be full: the system counts more than the data */
    PATIENCE_PART = 8 /* of the time that the others may wait for one */
};

void fmtp_sender_peer_reports(struct fmtp_sender *s, int number)
{
    struct peer *peer = s->peers[number];
    const struct product *p = s->current;

    if (!peer->reports) {
        s->nreporting++;
        s->hosts_reporting += !s->accounts[peer->account].reporting++;
    }
    peer->reports = true;
    peer->patience_ns = PATIENCE_NS;
    peer->read = p ? p->first_block + p->nblocks : s->stats.blocks;
}

void fmtp_progress_leave(struct fmtp_sender *s, const struct peer *peer)
{
    s->open_look_ns = 0;
    if (!peer->reports)
        return;
    s->nreporting--;
    s->hosts_reporting -= !--s->accounts[peer->account].reporting;
}

bool fmtp_sender_progress(const struct fmtp_sender *s, uint64_t *sent, uint64_t *read)
{
    *sent = s->stats.blocks;
    *read = s->read_by_all;
    return s->npeers && s->nreporting == s->npeers && s->read_by_all != UINT64_MAX;
}

static void has_read(struct fmtp_sender *s, struct peer *peer, uint64_t read, uint64_t now_ns)
{
    if (!peer->reports || read <= peer->read)
        return;
    peer->read = read;
    peer->read_ns = now_ns;
    s->open_look_ns = 0;
}

void fmtp_progress_end(struct fmtp_sender *s, int number, const struct product *p, uint64_t now_ns)
{
    has_read(s, s->peers[number], p->first_block + p->nblocks, now_ns);
}

int fmtp_progress_input(struct fmtp_sender *s, int number, const struct fmtp_header *h,
                        uint64_t now_ns)
{
    struct peer *peer = s->peers[number];
    const struct product *p = fmtp_sender_lookup(s, h->index);
    uint64_t buffer = (uint64_t)h->payloadlen * FMTP_PROGRESS_UNIT;

    if (!peer->reports)
        return -1;
    if (buffer != peer->buffer)
        s->open_look_ns = 0;
    peer->buffer = buffer;
    if (p) {
        uint32_t block = h->seqnum / s->cfg.block_bytes;
        uint64_t read = p->first_block + (block < p->nblocks ? block : p->nblocks);
        has_read(s, peer, read < s->stats.blocks ? read : s->stats.blocks, now_ns);
    }
    return 0;
}

bool fmtp_progress_goes_on(const struct peer *peer, const struct product *p, uint64_t now_ns)
{
    return peer->reports && peer->read < p->first_block + p->nblocks &&
           now_ns - peer->read_ns < p->nudge_ns;
}

/* Blocks that may be on the way to the peer or in its buffer. */
static uint64_t room(const struct fmtp_sender *s, const struct peer *peer, uint64_t rate_bps)
{
    if (!peer->buffer)
        return UINT32_MAX; /* not known yet */
    uint64_t on_the_way = rate_bps / 8 * (peer->rtt_ns / 1000) / 1000000;

    return (peer->buffer / BUFFER_PART + on_the_way) / s->cfg.block_bytes + 1;
}

/* True if the multicast waits for the peer. alone: most hosts have room. A peer that is full is
 * waited for until it has read nothing for PATIENCE_NS, or its patience is used up: reading a
 * little now and then does not renew it. */
static bool waits_for(struct peer *peer, bool full, bool alone, uint64_t now_ns, uint64_t passed_ns)
{
    uint64_t since_ns = peer->held_ns; /* as it was in the time that has passed */

    if (!since_ns) {
        peer->patience_ns += passed_ns / PATIENCE_PART;
        if (peer->patience_ns > PATIENCE_NS)
            peer->patience_ns = PATIENCE_NS;
    } else if (alone) {
        passed_ns = passed_ns < LOOK_NS ? passed_ns : LOOK_NS; /* the rest was idle */
        peer->patience_ns -= passed_ns < peer->patience_ns ? passed_ns : peer->patience_ns;
    }
    peer->held_ns = !full ? 0 : since_ns ? since_ns : now_ns;
    since_ns = peer->held_ns > peer->read_ns ? peer->held_ns : peer->read_ns;
    return !full || (peer->patience_ns && now_ns - since_ns < PATIENCE_NS);
}

static void look(struct fmtp_sender *s, uint64_t rate_bps, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - s->open_looked_ns;
    size_t hosts_free = 0;

    s->nlooks++;
    for (size_t i = 0; i < s->cfg.max_peers; i++) {
        const struct peer *peer = s->peers[i];
        if (!peer || !peer->reports || s->stats.blocks >= peer->read + room(s, peer, rate_bps))
            continue;
        struct account *a = &s->accounts[peer->account];
        hosts_free += a->free_look != s->nlooks;
        a->free_look = s->nlooks;
    }
    s->open_to = s->read_by_all = UINT64_MAX;
    for (size_t i = 0; i < s->cfg.max_peers; i++) {
        struct peer *peer = s->peers[i];
        if (!peer || !peer->reports)
            continue;
        uint64_t to = peer->read + room(s, peer, rate_bps);
        bool full = s->stats.blocks >= to;
        if (!waits_for(peer, full, 2 * hosts_free >= s->hosts_reporting, now_ns, passed_ns))
            continue;
        s->open_to = to < s->open_to ? to : s->open_to;
        s->read_by_all = peer->read < s->read_by_all ? peer->read : s->read_by_all;
    }
    s->open_looked_ns = now_ns;
    s->open_look_ns = now_ns + LOOK_NS;
}

uint64_t fmtp_sender_held_until(struct fmtp_sender *s, uint64_t rate_bps, uint64_t now_ns)
{
    if (!s->nreporting)
        return 0;
    if (now_ns >= s->open_look_ns || s->stats.blocks >= s->open_to)
        look(s, rate_bps, now_ns);
    return s->stats.blocks < s->open_to ? 0 : s->open_look_ns;
}

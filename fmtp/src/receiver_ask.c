/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests blocks that did not arrive.
 *
 * Ordinary sessions: a block is requested once, by RETX_REQ, when a later block, EOP, a newer
 * product or tau_rcv shows that it should have arrived; the answer comes by TCP and cannot get
 * lost.
 *
 * With extension 1, an FEC group that has passed and lacks more blocks than the parity received can
 * replace is requested by REPAIR_REQ. The answer is multicast and can get lost. Each symbol says
 * how many there will be when its burst ends; if the group is still short then, more are requested
 * at once. If nothing shows the end, patience ends after a time derived from measured answer times;
 * a later request tells the sender which round it is. When several rounds bring nothing and no
 * repairs arrive any more, the blocks are requested by RETX_REQ.
 */
#include "receiver_core.h"

#define MS UINT64_C(1000000)
#define PATIENCE_MAX_NS (5000 * MS)
/* The silence after which a multicast counts as over: at most this per block still to come, plus
 * patience. */
#define QUIET_BLOCK_NS (MS / 10)
#define QUIET_MAX_NS (1000 * MS)
/* The same during a burst of repairs: new data may come between its symbols. */
#define BURST_QUIET_NS (10 * MS)
#define BURST_QUIET_BLOCKS 24
enum {
    ROUNDS = 3, /* unanswered timeouts before RETX_REQ, unless repairs arrive */
    ASKS = 32   /* most REPAIR_REQ for one group */
};

static bool is_full(const struct fmtp_receiver *r)
{
    return r->out.len >= FMTP_RX_SOFT_BYTES;
}

static void tell_requested(const struct fmtp_receiver *r, const struct product *p, uint32_t blocks,
                           bool multicast)
{
    if (r->cfg.requested)
        r->cfg.requested(r->cfg.ctx, p->index, blocks, multicast);
}

static void tell_expired(const struct fmtp_receiver *r, const struct product *p, bool patience)
{
    if (r->cfg.expired)
        r->cfg.expired(r->cfg.ctx, p->index, patience);
}

/* Reports each run of missing blocks in [from, to) as lost. */
static void tell_lost(const struct fmtp_receiver *r, const struct product *p, uint32_t from,
                      uint32_t to)
{
    if (!r->cfg.lost)
        return;
    for (uint32_t block = from, n; block < to; block += n + 1) {
        for (n = 0; block + n < to && !fmtp_have(p->received, block + n);)
            n++;
        if (n)
            r->cfg.lost(r->cfg.ctx, p->index, block, n);
    }
}

/* Sends RETX_REQ for the missing blocks in [from, to); if bounded, only while there is room for
 * requests. Returns how far it got. */
static uint32_t request_runs(struct fmtp_receiver *r, struct product *p, uint32_t from, uint32_t to,
                             bool bounded)
{
    uint32_t most = UINT16_MAX / r->block, block = from;

    while (block < to) {
        if (block % 64 == 0 && p->received[block / 64] == UINT64_MAX) {
            block = to - block < 64 ? to : block + 64;
            continue;
        }
        if (fmtp_have(p->received, block)) {
            block++;
            continue;
        }
        if (bounded && is_full(r))
            break;
        uint32_t n = 1;
        while (n < most && block + n < to && !fmtp_have(p->received, block + n))
            n++;
        if (!p->groups)
            tell_lost(r, p, block, block + n);
        tell_requested(r, p, n, false);
        fmtp_rx_emit(r, FMTP_RETX_REQ, p->index, block * r->block, (uint16_t)(n * r->block));
        r->stats.retx_requests++;
        block += n;
    }
    return block;
}

/* ------------------------------------------------------------------ groups */

/* Returns how long an answer to a REPAIR_REQ may take. */
static uint64_t patience_ns(const struct fmtp_receiver *r)
{
    uint64_t more = r->answer_ns ? 5 * MS : 20 * MS;
    uint64_t least = r->rtt_ns < PATIENCE_MAX_NS ? r->rtt_ns * 3 / 2 + more : PATIENCE_MAX_NS;
    uint64_t usual = r->answer_ns + 4 * r->answer_var_ns;
    uint64_t ns = usual > least ? usual : least;

    return ns < PATIENCE_MAX_NS ? ns : PATIENCE_MAX_NS;
}

static void wait_for(struct fmtp_receiver *r, struct product *p, struct fmtp_group *group,
                     uint64_t ns)
{
    group->due_ns = r->now_ns + ns;
    if (group->state != FMTP_GROUP_WAITING)
        TAILQ_INSERT_TAIL(&p->groups->waiting, group, link);
    group->state = FMTP_GROUP_WAITING;
    if (group->due_ns < p->due_ns) {
        p->due_ns = group->due_ns;
        fmtp_rx_arm(r, p);
    }
}

static void ask_by_stream(struct fmtp_receiver *r, struct product *p, uint32_t g)
{
    struct fmtp_group *group = &p->groups->group[g];
    struct fmtp_fec_group at = fmtp_groups_blocks(p->groups, g);

    if (group->state == FMTP_GROUP_WAITING)
        TAILQ_REMOVE(&p->groups->waiting, group, link);
    group->state = FMTP_GROUP_STREAM;
    request_runs(r, p, at.first, at.first + at.count, false);
}

/* Requests symbols for a group that has passed and is short. */
static void ask_group(struct fmtp_receiver *r, struct product *p, uint32_t g)
{
    struct fmtp_group *group = &p->groups->group[g];
    struct fmtp_fec_group at = fmtp_groups_blocks(p->groups, g);
    int need = group->missing - group->held; /* below 1: there was no memory to decode */

    if (!group->asks)
        tell_lost(r, p, at.first, at.first + at.count);
    if (need < 1 || group->asks >= ASKS) {
        ask_by_stream(r, p, g);
        return;
    }
    uint8_t bitmap[32];
    fmtp_groups_bitmap(p->groups, g, p->received, bitmap);
    struct fmtp_repair_req req = {group->high, group->round, (uint16_t)need, bitmap};
    uint8_t body[FMTP_REPAIR_REQ_MAX];
    struct fmtp_header h = {p->index, g, (uint16_t)fmtp_repair_req_put(body, &req, at.count),
                            FMTP_REPAIR_REQ};
    tell_requested(r, p, (uint32_t)need, true);
    fmtp_rx_emit_body(r, &h, body);
    r->stats.repair_requests++;
    if (group->asks++ == 0) {
        group->asked_ns = r->now_ns;
        group->answered = false;
    }
    group->asked_high = group->high;
    group->order = ++r->order;
    wait_for(r, p, group, patience_ns(r) << group->round);
}

void fmtp_rx_answered(struct fmtp_receiver *r, struct product *p, uint32_t g)
{
    struct fmtp_group *group = &p->groups->group[g];

    if (group->state == FMTP_GROUP_OPEN)
        return;
    r->repair_ns = r->now_ns;
    if (group->order - r->repair_order < UINT32_MAX / 2)
        r->repair_order = group->order;
    if (group->answered)
        return;
    group->answered = true;
    /* It may answer a later round, which makes this too long. But if only answers to the first
     * round counted, patience would never grow as long as necessary. */
    uint64_t took = r->now_ns - group->asked_ns;
    uint64_t off = took > r->answer_ns ? took - r->answer_ns : r->answer_ns - took;
    if (!r->answer_ns) {
        r->answer_ns = took;
        r->answer_var_ns = took / 2;
    } else {
        r->answer_var_ns = (3 * r->answer_var_ns + off) / 4;
        r->answer_ns = (7 * r->answer_ns + took) / 8;
    }
}

struct target {
    struct fmtp_receiver *r;
    struct product *p;
};

static bool put(void *ctx, uint32_t at, const uint8_t *bytes, size_t len)
{
    const struct target *t = ctx;

    return fmtp_rx_put(t->r, t->p, at, bytes, len);
}

void fmtp_rx_decode(struct fmtp_receiver *r, struct product *p, uint32_t g)
{
    struct fmtp_group *group = &p->groups->group[g];

    if (!group->missing || group->held < group->missing)
        return;
    struct target target = {r, p};
    const struct fmtp_target to = {p->data, p->size, p->received, r->cfg.store ? put : NULL,
                                   &target};
    unsigned n = fmtp_groups_decode(p->groups, &r->symbols, g, &to);
    p->nleft -= n;
    r->unconfirmed_blocks -= p->confirmed ? 0 : n;
    r->stats.decoded_blocks += n;
}

void fmtp_rx_parity(struct fmtp_receiver *r, struct product *p, const struct fmtp_header *h,
                    const uint8_t *symbol)
{
    struct fmtp_parity at = fmtp_parity_get(h->seqnum);

    if (!p->groups || at.group >= p->groups->count || at.number >= at.end ||
        at.end > fmtp_fec_max_parity(fmtp_groups_blocks(p->groups, at.group).count)) {
        r->stats.bad_messages++;
        return;
    }
    struct fmtp_group *group = &p->groups->group[at.group];
    r->stats.parity_symbols++;
    fmtp_rx_answered(r, p, at.group);
    if (at.end > group->high)
        group->high = at.end;
    if (group->missing) {
        if (fmtp_groups_keep(p->groups, &r->symbols, at.group, at.number, symbol) ==
            FMTP_KEEP_NO_ROOM)
            r->stats.parity_drops++;
        fmtp_rx_decode(r, p, at.group);
    }
    /* All blocks of a group are multicast before its parity. */
    fmtp_rx_groups_passed(r, p, at.group + (at.number + 1u == at.end));
    if (!group->missing || group->state != FMTP_GROUP_WAITING || at.end <= group->asked_high)
        return;
    if (at.number + 1 == at.end) {
        group->round = 0;
        ask_group(r, p, at.group);
    } else {
        /* The rest of the burst arrives soon, or its end is lost. */
        wait_for(r, p, group,
                 BURST_QUIET_NS + fmtp_scaled_tx_ns(BURST_QUIET_BLOCKS, r->block, r->cfg.r_mc_bps));
    }
}

static void out_of_patience(struct fmtp_receiver *r, struct product *p, struct fmtp_group *group)
{
    uint32_t g = (uint32_t)(group - p->groups->group);
    uint64_t patience = patience_ns(r);
    bool flows = r->repair_order && r->now_ns - r->repair_ns < patience;
    bool passed_over = r->repair_order - group->order < UINT32_MAX / 2;

    /* While the sender works on earlier requests, the answer to ours is still to come. */
    if (flows && !passed_over) {
        wait_for(r, p, group, r->repair_ns + patience - r->now_ns);
        return;
    }
    if (is_full(r)) {
        wait_for(r, p, group, patience);
        return;
    }
    tell_expired(r, p, true);
    if (group->high > group->asked_high) {
        group->round = 0;
        ask_group(r, p, g);
    } else if (group->round == ROUNDS && !flows) {
        ask_by_stream(r, p, g);
    } else {
        /* As long as anything is repaired by multicast, an extra copy for each receiver would only
         * slow that down. */
        group->round += group->round < ROUNDS;
        ask_group(r, p, g);
    }
}

void fmtp_rx_overdue(struct fmtp_receiver *r, struct product *p)
{
    /* Include some that are nearly due, so that a long list is not scanned for each of them. */
    uint64_t until_ns = r->now_ns + patience_ns(r) / 16;

    struct fmtp_group *group, *next;
    for (group = TAILQ_FIRST(&p->groups->waiting); group; group = next) {
        next = TAILQ_NEXT(group, link);
        if (group->due_ns <= until_ns)
            out_of_patience(r, p, group);
    }
    p->due_ns = TP_NEVER;
    TAILQ_FOREACH (group, &p->groups->waiting, link)
        if (group->due_ns < p->due_ns)
            p->due_ns = group->due_ns;
}

void fmtp_rx_nudged(struct fmtp_receiver *r, struct product *p)
{
    if (!p->groups)
        return;
    struct fmtp_group *group;
    TAILQ_FOREACH (group, &p->groups->waiting, link)
        if (r->now_ns - group->asked_ns > r->rtt_ns)
            group->due_ns = r->now_ns;
    fmtp_rx_overdue(r, p);
    fmtp_rx_arm(r, p);
}

/* ------------------------------------------------------------------ what passed */

static void ask(struct fmtp_receiver *r, struct product *p)
{
    if (!p->groups) {
        p->ask_from = request_runs(r, p, p->ask_from, p->ask_to, true);
    } else {
        for (; p->ask_from < p->ask_to && !is_full(r); p->ask_from++) {
            struct fmtp_group *group = &p->groups->group[p->ask_from];
            if (group->missing && group->state == FMTP_GROUP_OPEN)
                ask_group(r, p, p->ask_from);
        }
    }
    bool more = p->ask_from < p->ask_to;
    if (more && !p->asking) {
        TAILQ_INSERT_TAIL(&r->asking, p, link);
        if (r->cfg.queue_full)
            r->cfg.queue_full(r->cfg.ctx, p->index);
    } else if (!more && p->asking) {
        TAILQ_REMOVE(&r->asking, p, link);
    }
    p->asking = more;
}

static void ask_below(struct fmtp_receiver *r, struct product *p, uint32_t to)
{
    if (to <= p->ask_to)
        return;
    p->ask_to = to;
    ask(r, p);
}

void fmtp_rx_passed(struct fmtp_receiver *r, struct product *p, uint32_t to)
{
    if (to <= p->expected)
        return;
    p->expected = to;
    if (!p->groups)
        ask_below(r, p, to);
    else
        ask_below(r, p, fmtp_groups_of(p->groups, to - 1));
}

void fmtp_rx_groups_passed(struct fmtp_receiver *r, struct product *p, uint32_t to)
{
    if (!to)
        return;
    struct fmtp_fec_group last = fmtp_groups_blocks(p->groups, to - 1);
    if (p->expected < last.first + last.count)
        p->expected = last.first + last.count;
    ask_below(r, p, to);
}

void fmtp_rx_ask_all(struct fmtp_receiver *r, struct product *p)
{
    p->tau_ns = TP_NEVER;
    fmtp_rx_arm(r, p);
    if (p->groups)
        fmtp_rx_groups_passed(r, p, p->groups->count);
    else
        fmtp_rx_passed(r, p, p->nblocks);
    /* With groups, EOP no longer matters once a newer product was seen. */
    if (p->eop || p->eop_asked || (p->groups && p->index != r->latest))
        return;
    p->eop_asked = true;
    fmtp_rx_emit(r, FMTP_EOP_REQ, p->index, 0, 0);
}

void fmtp_rx_tau(struct fmtp_receiver *r, struct product *p)
{
    if (!p->active) {
        p->tau_ns = TP_NEVER;
        fmtp_rx_begin_announced(r, p);
        return;
    }
    uint64_t left_ns = (uint64_t)(p->nblocks - p->expected) * QUIET_BLOCK_NS;
    uint64_t quiet_ns = (left_ns < QUIET_MAX_NS ? left_ns : QUIET_MAX_NS) + patience_ns(r);

    /* tau_rcv assumes the configured rate. If the multicast continues beyond it, for example
     * because the sender adapts to its receivers' pace, a request would bring twice what is still
     * to come. Without groups it works as published. */
    if (p->groups && r->now_ns - p->heard_ns < quiet_ns) {
        p->tau_ns = p->heard_ns + quiet_ns;
        return;
    }
    tell_expired(r, p, false);
    fmtp_rx_ask_all(r, p);
}

void fmtp_rx_ask_on(struct fmtp_receiver *r)
{
    struct product *p;

    while (r->out.len < FMTP_RX_SOFT_BYTES / 2 && (p = TAILQ_FIRST(&r->asking)))
        ask(r, p);
}

void fmtp_rx_ask_again(struct fmtp_receiver *r, struct product *p)
{
    uint32_t passed = p->ask_to;

    p->eop_asked = false;
    p->ask_from = p->ask_to = 0;
    p->due_ns = TP_NEVER;
    for (uint32_t g = 0; p->groups && g < p->groups->count; g++) {
        struct fmtp_group *group = &p->groups->group[g];
        if (group->state == FMTP_GROUP_WAITING)
            TAILQ_REMOVE(&p->groups->waiting, group, link);
        group->state = FMTP_GROUP_OPEN;
        group->round = group->asks = 0;
    }
    fmtp_rx_arm(r, p);
    ask_below(r, p, passed);
}

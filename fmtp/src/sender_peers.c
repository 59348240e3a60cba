/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's peers: how they are added and removed, and what goes to their streams.
 */
#include <stdlib.h>
#include <string.h>

#include "sender_repair.h"
#include "sender_state.h"

#define BYTE_NS UINT64_C(8000000000) /* at 1 bit/s */

enum {
    NUDGE_SCAN = 64, /* a longer queue is not searched: it tells the peer enough */
    UC_BURST_MS = 5  /* r_uc tokens that can accumulate while idle */
};

static uint16_t block_bytes(const struct fmtp_sender *s)
{
    return s->cfg.block_bytes;
}

/* ------------------------------------------------------------------ messages */

/* Returns the length on the wire of the message that answers r next. */
static size_t message_len(const struct fmtp_sender *s, const struct fmtp_request *r)
{
    size_t len = FMTP_HEADER_LEN;

    if (r->flags == FMTP_RETX_DATA)
        len += r->end - r->seq < block_bytes(s) ? r->end - r->seq : block_bytes(s);
    else if (r->flags == FMTP_RETX_BOP)
        len += fmtp_sender_lookup(s, r->index)->body_len;
    return len;
}

/* Makes that message as a header and iovecs; returns their number. */
static int message(const struct fmtp_sender *s, const struct fmtp_request *r,
                   uint8_t head[FMTP_HEADER_LEN], struct iovec *iov)
{
    uint32_t len = (uint32_t)(message_len(s, r) - FMTP_HEADER_LEN);
    struct fmtp_header h = {r->index, r->seq, (uint16_t)len, (uint16_t)r->flags};

    if (r->flags == FMTP_NOT_YET)
        h.payloadlen = (uint16_t)r->end;
    fmtp_header_put(head, &h);
    if (!len)
        return 0;
    struct product *p = fmtp_sender_lookup(s, r->index);
    if (r->flags == FMTP_RETX_DATA)
        return fmtp_sender_product_iov(p, r->seq, len, iov);
    iov[0] = (struct iovec){p->body, p->body_len};
    return 1;
}

/* The head message is half sent and its product is released: keeps a copy of the rest. */
static void save_rest(const struct fmtp_sender *s, struct peer *peer)
{
    struct iovec iov[1 + FMTP_MAX_PARTS];
    uint8_t head[FMTP_HEADER_LEN];
    struct fmtp_request *r = fmtp_requests_at(&peer->queue, 0);
    size_t skip = peer->head_sent;
    int n = 1 + message(s, r, head, iov + 1);

    iov[0] = (struct iovec){head, sizeof head};
    peer->rest_at = peer->rest_len = 0;
    for (int i = 0; i < n; i++) {
        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        memcpy(peer->rest + peer->rest_len, (uint8_t *)iov[i].iov_base + skip,
               iov[i].iov_len - skip);
        peer->rest_len += iov[i].iov_len - skip;
        skip = 0;
    }
    peer->head_sent = 0;
    if (r->flags == FMTP_RETX_DATA && r->end - r->seq > block_bytes(s))
        r->seq += block_bytes(s);
    else
        fmtp_requests_pop(&peer->queue);
}

static void update_active(struct fmtp_sender *s, size_t number)
{
    const struct peer *peer = s->peers[number];

    bool active = peer && (peer->rest_len || peer->queue.count);

    set_put(s->active, number, active);
    set_put(s->runnable, number, active && !peer->blocked);
}

void fmtp_sender_peer_blocked(struct fmtp_sender *s, int peer, bool blocked)
{
    s->peers[peer]->blocked = blocked;
    update_active(s, (size_t)peer);
}

/* Returns the head of the list of what is queued for the peer of the product's data, or NULL. */
static uint64_t *list_of(const struct fmtp_sender *s, size_t number, uint32_t index)
{
    struct product *p = fmtp_sender_lookup(s, index);

    return p ? fmtp_requests_queued(p, number) : NULL;
}

/* Discards one peer's outstanding requests for the product. */
static size_t purge(struct fmtp_sender *s, size_t number, uint32_t index, bool reject)
{
    struct peer *peer = s->peers[number];

    if (!peer->queue.count)
        return 0;
    if (peer->head_sent && fmtp_requests_at(&peer->queue, 0)->index == index)
        save_rest(s, peer);
    size_t found = fmtp_requests_purge(&peer->queue, index, list_of(s, number, index), reject);
    if (found && reject) {
        s->stats.rejects++;
        peer->counts.rejects++;
    }
    update_active(s, number);
    return found;
}

void fmtp_peers_purge(struct fmtp_sender *s, uint32_t index)
{
    size_t n = s->cfg.max_peers;

    for (size_t i = set_next(s->active, n, 0); i < n; i = set_next(s->active, n, i + 1))
        purge(s, i, index, true);
}

void fmtp_peers_forget(struct fmtp_sender *s, int number, uint32_t index)
{
    purge(s, (size_t)number, index, false);
}

/* The queue is full: rejects the product for this peer, as if its requests came too late. */
static bool do_without(struct fmtp_sender *s, int number, uint32_t index)
{
    struct product *p = fmtp_sender_lookup(s, index);

    if (!p || !purge(s, (size_t)number, index, true))
        return false;
    set_put(p->done_set, (size_t)number, true);
    if (fmtp_sender_finish(p, number))
        s->stats.unacknowledged++;
    return true;
}

static int push(struct fmtp_sender *s, int number, const struct fmtp_request *r)
{
    struct peer *peer = s->peers[number];
    struct fmtp_requests *q = &peer->queue;
    size_t locked = peer->head_sent ? 1 : 0, n = (size_t)number;
    uint64_t *last;

    if (fmtp_requests_push(q, r, locked, list_of(s, n, r->index)) == 0)
        return 0;
    if (!fmtp_requests_compact(q))
        return -1;
    for (size_t i = 0; i < q->count; i++)
        if ((last = list_of(s, n, fmtp_requests_at(q, i)->index)))
            *last = 0;
    for (size_t i = 0; i < q->count; i++)
        if (fmtp_requests_of_data(fmtp_requests_at(q, i)) &&
            (last = list_of(s, n, fmtp_requests_at(q, i)->index)))
            fmtp_requests_list(q, i, last);
    return fmtp_requests_push(q, r, locked, list_of(s, n, r->index));
}

int fmtp_peers_answer(struct fmtp_sender *s, int number, const struct fmtp_request *r)
{
    struct peer *peer = s->peers[number];

    if (push(s, number, r) < 0) {
        if (s->cfg.queue_full)
            s->cfg.queue_full(s->cfg.peers_ctx, number, r->index);
        struct fmtp_request last = *fmtp_requests_at(&peer->queue, peer->queue.count - 1);
        if (r->flags != FMTP_RETX_REJ && do_without(s, number, r->index))
            return 0;
        /* A message about another product: make room by rejecting the latest. */
        if (!do_without(s, number, last.index) || push(s, number, r) < 0) {
            peer->broken = true;
            return -1;
        }
    }
    update_active(s, (size_t)number);
    return 0;
}

unsigned fmtp_peers_nudge(struct fmtp_sender *s, const struct product *p, uint64_t now_ns)
{
    size_t max = s->cfg.max_peers;
    unsigned n = 0;

    for (size_t i = set_next(p->unfinished_set, max, 0); i < max;
         i = set_next(p->unfinished_set, max, i + 1)) {
        struct fmtp_request r = {.index = p->index, .flags = FMTP_RETX_EOP};
        struct fmtp_requests *q = &s->peers[i]->queue;
        bool queued = s->peers[i]->rest_len || q->count > NUDGE_SCAN ||
                      (s->cfg.blocking && q->count) ||
                      fmtp_progress_goes_on(s->peers[i], p, now_ns);
        for (size_t j = 0; j < q->count && !queued; j++)
            queued = fmtp_requests_at(q, j)->flags && fmtp_requests_at(q, j)->index == p->index;
        if (!queued && fmtp_peers_answer(s, (int)i, &r) == 0)
            n++;
    }
    return n;
}

/* ------------------------------------------------------------------ come and go */

/* gcc's analyzer believes that an object leaks if its only pointer is in a table with a computed
 * index. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
int fmtp_sender_peer_add_from(struct fmtp_sender *s, uint64_t host, bool extended,
                              struct fmtp_session *out)
{
    size_t i = 0;

    while (i < s->cfg.max_peers && s->peers[i])
        i++;
    struct peer *peer =
        i < s->cfg.max_peers ? calloc(1, sizeof *peer + FMTP_HEADER_LEN + block_bytes(s)) : NULL;
    if (!peer)
        return -1;
    fmtp_requests_init(&peer->queue, s->cfg.peer_queue_bytes);
    peer->extended = extended && s->cfg.fec_k;
    peer->account = fmtp_accounts_enter(s, host);
    s->peers[i] = peer;
    s->npeers++;
    s->nordinary += !peer->extended;
    if (out)
        *out = (struct fmtp_session){.extended = peer->extended,
                                     .block_bytes = block_bytes(s),
                                     .fec_k = s->cfg.fec_k,
                                     .next_index = s->next_index,
                                     .id = s->cfg.session_id};
    return (int)i;
}
#if defined __GNUC__ && !defined __clang__
#pragma GCC diagnostic pop
#endif

int fmtp_sender_peer_add(struct fmtp_sender *s, bool extended, struct fmtp_session *out)
{
    return fmtp_sender_peer_add_from(s, UINT64_MAX - s->npeers_ever, extended, out);
}

bool fmtp_sender_peer_alone(struct fmtp_sender *s, int peer)
{
    return fmtp_accounts_alone(s, s->peers[peer]->account, 0);
}

void fmtp_sender_peer_ours(struct fmtp_sender *s, int peer)
{
    s->peers[peer]->ours = true;
}

void fmtp_sender_peer_remove(struct fmtp_sender *s, int number)
{
    struct peer *peer = s->peers[number];

    s->npeers--;
    fmtp_progress_leave(s, peer);
    s->nordinary -= !peer->extended;
    fmtp_accounts_leave(s, peer->account);
    if (s->npeers && s->npeers == s->nordinary)
        fmtp_repair_stop(s);
    fmtp_requests_free(&peer->queue);
    free(peer);
    s->peers[number] = NULL;
    s->rtt_stale = true;
    update_active(s, (size_t)number);
    for (size_t i = 0; i <= s->hash_mask; i++) {
        struct product *p = s->hash[i], *chain;
        for (; p; p = chain) {
            chain = p->chain;
            set_put(p->done_set, (size_t)number, false);
            fmtp_requests_forget_peer(p, number);
            if (fmtp_sender_finish(p, number)) {
                s->stats.unacknowledged++;
                fmtp_sender_release_if_done(s, p);
            }
        }
    }
}

void fmtp_sender_peer_rtt(struct fmtp_sender *s, int peer, uint64_t rtt_ns)
{
    s->peers[peer]->rtt_ns = rtt_ns;
    s->rtt_stale = true;
}

uint64_t fmtp_peers_rtt_max(struct fmtp_sender *s)
{
    if (!s->rtt_stale)
        return s->rtt_max_ns;
    s->rtt_max_ns = 0;
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i] && s->peers[i]->rtt_ns > s->rtt_max_ns)
            s->rtt_max_ns = s->peers[i]->rtt_ns;
    s->rtt_stale = false;
    return s->rtt_max_ns;
}

/* ------------------------------------------------------------------ r_uc */

static int64_t quantum(const struct fmtp_sender *s)
{
    return FMTP_HEADER_LEN + block_bytes(s);
}

static bool may_send(const struct fmtp_sender *s, const struct peer *peer)
{
    return !s->cfg.r_uc_bps || peer->allowance > 0;
}

/* Distributes the tokens among peers with queued messages, one block at a time in turn. Unused
 * tokens of a peer are bounded, so that a stuck one does not hoard them. */
void fmtp_peers_refill(struct fmtp_sender *s, uint64_t now_ns)
{
    size_t n = s->cfg.max_peers, idle = 0;
    int64_t burst = (int64_t)(s->cfg.r_uc_bps / 8 * UC_BURST_MS / 1000) + quantum(s);
    uint64_t passed_ns = now_ns - s->uc_filled_ns;

    if (!s->cfg.r_uc_bps || now_ns < s->uc_filled_ns)
        return;
    if (passed_ns > UC_BURST_MS * FMTP_MS) {
        s->uc_tokens = burst;
        s->uc_filled_ns = now_ns;
    } else {
        uint64_t bytes = passed_ns * s->cfg.r_uc_bps / BYTE_NS;
        s->uc_tokens += (int64_t)bytes;
        s->uc_filled_ns += bytes * BYTE_NS / s->cfg.r_uc_bps;
    }
    if (s->uc_tokens > burst)
        s->uc_tokens = burst;
    while (s->uc_tokens >= quantum(s) && idle < 2) {
        size_t i = set_next(s->runnable, n, s->uc_turn);
        if (i == n) {
            s->uc_turn = 0;
            idle++;
            continue;
        }
        s->uc_turn = i + 1;
        if (s->peers[i]->allowance > 0)
            continue;
        s->peers[i]->allowance += quantum(s);
        s->uc_tokens -= quantum(s);
        idle = 0;
    }
}

uint64_t fmtp_peers_deadline(const struct fmtp_sender *s)
{
    size_t n = s->cfg.max_peers;

    if (!s->cfg.r_uc_bps)
        return TP_NEVER;
    for (size_t i = set_next(s->runnable, n, 0); i < n; i = set_next(s->runnable, n, i + 1))
        if (s->peers[i]->allowance <= 0) {
            int64_t lack = quantum(s) - s->uc_tokens;
            return s->uc_filled_ns + (lack > 0 ? (uint64_t)lack : 0) * BYTE_NS / s->cfg.r_uc_bps +
                   1;
        }
    return TP_NEVER;
}

/* ------------------------------------------------------------------ output */

bool fmtp_sender_peer_pending(const struct fmtp_sender *s, int peer)
{
    return in_set(s->active, (size_t)peer) && may_send(s, s->peers[peer]);
}

bool fmtp_sender_streams_ready(const struct fmtp_sender *s)
{
    size_t n = s->cfg.max_peers;

    for (size_t i = set_next(s->runnable, n, 0); i < n; i = set_next(s->runnable, n, i + 1))
        if (may_send(s, s->peers[i]))
            return true;
    return false;
}

int fmtp_sender_next_ready(struct fmtp_sender *s, uint64_t now_ns)
{
    size_t n = s->cfg.max_peers, from = s->turn;

    fmtp_peers_refill(s, now_ns);
    for (int wrapped = 0; wrapped < 2;) {
        size_t i = set_next(s->runnable, n, s->turn);
        if (i == n || (wrapped && i >= from)) {
            s->turn = 0;
            wrapped++;
            continue;
        }
        s->turn = i + 1;
        if (may_send(s, s->peers[i]))
            return (int)i;
    }
    return -1;
}

void fmtp_sender_peer_peek(struct fmtp_sender *s, int number, struct fmtp_stream_out *out,
                           uint64_t now_ns)
{
    const struct peer *peer = s->peers[number];
    size_t skip = peer->head_sent, most = SIZE_MAX;
    int messages = 0;

    fmtp_peers_refill(s, now_ns);
    out->niov = 0;
    out->len = 0;
    if (s->cfg.r_uc_bps)
        most = peer->allowance > 0 ? (size_t)peer->allowance : 0;
    if (peer->rest_len && most) {
        out->iov[out->niov++] =
            (struct iovec){(void *)(peer->rest + peer->rest_at), peer->rest_len};
        out->len = peer->rest_len;
        messages++;
    }
    for (size_t i = 0; i < peer->queue.count && messages < FMTP_STREAM_MESSAGES; i++) {
        struct fmtp_request r = *fmtp_requests_at(&peer->queue, i);
        if (!r.flags)
            continue;
        do {
            struct iovec *iov = out->iov + out->niov;
            if (out->len >= skip && out->len - skip >= most)
                goto full;
            int n = 1 + message(s, &r, out->heads[messages], iov + 1);
            iov[0] = (struct iovec){out->heads[messages], FMTP_HEADER_LEN};
            out->niov += n;
            out->len += message_len(s, &r);
            messages++;
            r.seq += block_bytes(s);
        } while (r.flags == FMTP_RETX_DATA && r.seq < r.end && r.seq >= block_bytes(s) &&
                 messages < FMTP_STREAM_MESSAGES);
    }
full:
    if (!messages)
        return;
    out->len -= skip;
    for (int i = 0; skip; i++) {
        size_t cut = out->iov[i].iov_len < skip ? out->iov[i].iov_len : skip;
        out->iov[i].iov_base = (uint8_t *)out->iov[i].iov_base + cut;
        out->iov[i].iov_len -= cut;
        skip -= cut;
    }
}

void fmtp_sender_peer_sent(struct fmtp_sender *s, int number, size_t bytes, uint64_t now_ns)
{
    struct peer *peer = s->peers[number];
    size_t take = bytes < peer->rest_len ? bytes : peer->rest_len;
    uint32_t index = 0, blocks = 0; /* of a run of repairs of one product */

    if (s->cfg.r_uc_bps)
        peer->allowance -= (int64_t)bytes;
    peer->rest_at += take;
    peer->rest_len -= take;
    bytes += peer->head_sent - take;
    peer->head_sent = 0;
    while (peer->queue.count) {
        struct fmtp_request *r = fmtp_requests_at(&peer->queue, 0);
        size_t len = message_len(s, r);
        if (bytes < len) {
            peer->head_sent = bytes;
            break;
        }
        bytes -= len;
        if (r->flags == FMTP_RETX_DATA) {
            s->stats.retx_blocks++;
            peer->counts.stream_blocks++;
            s->stats.retx_bytes += len - FMTP_HEADER_LEN;
            if (blocks && r->index != index) {
                tell_repaired(s, number, index, blocks);
                blocks = 0;
            }
            index = r->index;
            blocks++;
            if (r->end - r->seq > block_bytes(s)) {
                r->seq += block_bytes(s);
                continue;
            }
        }
        fmtp_requests_pop(&peer->queue);
    }
    tell_repaired(s, number, index, blocks);
    update_active(s, (size_t)number);
    fmtp_peers_refill(s, now_ns);
}

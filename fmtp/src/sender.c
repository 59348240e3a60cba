/* SPDX-License-Identifier: Apache-2.0 */
#include "sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "requests.h"
#include "timers.h"

struct product {
    struct fmtp_timer timer;          /* first: timers are cast back to their product */
    struct product *chain;            /* hash */
    uint32_t index, size, nblocks;
    struct iovec parts[FMTP_MAX_PARTS];
    int nparts;
    void *cookie;
    bool multicasted;
    bool had_peers;                   /* somebody was connected at BOP */
    size_t unfinished;                /* bits set in the set below */
    uint64_t *unfinished_set;         /* by peer number */
    uint16_t body_len;                /* the encoded BOP body, as it was multicast */
    uint8_t body[];
};

struct peer {
    bool broken;                      /* its queue overflowed: to be closed */
    uint64_t rtt_ns;
    uint8_t in[FMTP_HEADER_LEN];
    size_t in_len;
    struct fmtp_requests queue;
    size_t head_sent;                 /* bytes of the message at the head that left already */
    /* The rest of a half-sent message whose product was let go meanwhile. */
    uint8_t rest[FMTP_MAX_PACKET];
    size_t rest_at, rest_len;
};

struct fmtp_sender {
    struct fmtp_sender_config cfg;
    uint32_t next_index;
    struct product *current;          /* being multicast */
    uint64_t cursor;                  /* 0 BOP, 1..nblocks data, nblocks+1 EOP */
    struct product **hash;
    size_t hash_mask;
    size_t retained;
    struct fmtp_timers timers;
    struct peer **peers;
    size_t npeers;
    struct fmtp_server_stats stats;
};

static size_t set_words(const struct fmtp_sender *s)
{
    return (s->cfg.max_peers + 63) / 64;
}

static bool in_set(const struct product *p, int peer)
{
    return p->unfinished_set[peer / 64] >> (peer % 64) & 1;
}

static struct product *lookup(const struct fmtp_sender *s, uint32_t index)
{
    struct product *p = s->hash[index & s->hash_mask];

    while (p && p->index != index)
        p = p->chain;
    return p;
}

/* ------------------------------------------------------------------ life */

struct fmtp_sender *fmtp_sender_new(const struct fmtp_sender_config *cfg)
{
    struct fmtp_sender *s = calloc(1, sizeof *s);
    size_t buckets = 16;

    if (!s)
        return NULL;
    s->cfg = *cfg;
    s->next_index = cfg->first_index;
    while (buckets < cfg->max_products)
        buckets *= 2;
    s->hash_mask = buckets - 1;
    s->hash = calloc(buckets, sizeof(struct product *));
    s->peers = calloc(cfg->max_peers, sizeof(struct peer *));
    if (fmtp_timers_init(&s->timers, cfg->max_products) < 0 || !s->hash || !s->peers) {
        fmtp_timers_free(&s->timers);
        free(s->hash);
        free(s->peers);
        free(s);
        return NULL;
    }
    return s;
}

/* Bytes [off, off+len) of the product as iovecs; returns how many. */
static int product_iov(const struct product *p, uint32_t off, uint32_t len, struct iovec *iov)
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

/* Length on the wire of the message that answers r next. */
static size_t message_len(const struct fmtp_sender *s, const struct fmtp_request *r)
{
    size_t len = FMTP_HEADER_LEN;

    if (r->flags == FMTP_RETX_DATA)
        len += r->end - r->seq < FMTP_DATA_LEN ? r->end - r->seq : FMTP_DATA_LEN;
    else if (r->flags == FMTP_RETX_BOP)
        len += lookup(s, r->index)->body_len;
    return len;
}

/* That message as a header and iovecs behind it; returns their number. */
static int message(const struct fmtp_sender *s, const struct fmtp_request *r,
                   uint8_t head[FMTP_HEADER_LEN], struct iovec *iov)
{
    uint32_t len = (uint32_t)(message_len(s, r) - FMTP_HEADER_LEN);
    struct fmtp_header h = {r->index, r->seq, (uint16_t)len, (uint16_t)r->flags};
    struct product *p;

    fmtp_header_put(head, &h);
    if (!len)
        return 0;
    p = lookup(s, r->index);
    if (r->flags == FMTP_RETX_DATA)
        return product_iov(p, r->seq, len, iov);
    iov[0] = (struct iovec){p->body, p->body_len};
    return 1;
}

/* The head message is half sent and its product goes: keep a copy of the other half. */
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
    if (r->flags == FMTP_RETX_DATA && r->end - r->seq > FMTP_DATA_LEN)
        r->seq += FMTP_DATA_LEN;
    else
        fmtp_requests_pop(&peer->queue);
}

/* Forgets the peer's outstanding requests for the product. */
static size_t purge(struct fmtp_sender *s, struct peer *peer, uint32_t index, bool reject)
{
    size_t found;

    if (!peer->queue.count)
        return 0;
    if (peer->head_sent && fmtp_requests_at(&peer->queue, 0)->index == index)
        save_rest(s, peer);
    found = fmtp_requests_purge(&peer->queue, peer->head_sent ? 1 : 0, index, reject);
    if (found && reject)
        s->stats.rejects++;
    return found;
}

static void release(struct fmtp_sender *s, struct product *p, enum fmtp_release why)
{
    struct product **link = &s->hash[p->index & s->hash_mask];

    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i])
            purge(s, s->peers[i], p->index, true);
    while (*link != p)
        link = &(*link)->chain;
    *link = p->chain;
    fmtp_timer_disarm(&s->timers, &p->timer);
    s->retained--;
    s->stats.unacknowledged += p->unfinished;
    if (s->current == p)
        s->current = NULL;
    uint32_t index = p->index;
    void *cookie = p->cookie;
    free(p->unfinished_set);
    free(p);
    if (s->cfg.released)
        s->cfg.released(s->cfg.ctx, index, cookie, why);
}

void fmtp_sender_free(struct fmtp_sender *s)
{
    if (!s)
        return;
    for (size_t i = 0; i <= s->hash_mask; i++)
        while (s->hash[i])
            release(s, s->hash[i], FMTP_RELEASE_CLOSED);
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i]) {
            fmtp_requests_free(&s->peers[i]->queue);
            free(s->peers[i]);
        }
    fmtp_timers_free(&s->timers);
    free(s->hash);
    free(s->peers);
    free(s);
}

/* ------------------------------------------------------------------ multicast */

bool fmtp_sender_ready(const struct fmtp_sender *s)
{
    return !s->current && s->retained < s->cfg.max_products;
}

int fmtp_sender_offer(struct fmtp_sender *s, const struct iovec *parts, int nparts,
                      const void *meta, uint16_t meta_len, void *cookie, struct timespec start,
                      uint32_t *index, struct fmtp_error *err)
{
    uint64_t size = 0;
    struct product *p;

    if (!fmtp_sender_ready(s)) {
        snprintf(err->text, sizeof err->text, "not ready for another product: %s",
                 s->current ? "the product before is still being multicast"
                            : "max_products are retained");
        return -1;
    }
    if (nparts < 0 || nparts > FMTP_MAX_PARTS) {
        snprintf(err->text, sizeof err->text, "%d parts; a product has 0 to %d", nparts,
                 FMTP_MAX_PARTS);
        return -1;
    }
    if (meta_len > FMTP_MAX_METADATA) {
        snprintf(err->text, sizeof err->text, "%u bytes of metadata; at most %u fit into a BOP",
                 (unsigned)meta_len, FMTP_MAX_METADATA);
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
    p = calloc(1, sizeof *p + FMTP_BOP_FIXED_MAX + meta_len);
    if (p)
        p->unfinished_set = calloc(set_words(s), sizeof *p->unfinished_set);
    if (!p || !p->unfinished_set || lookup(s, s->next_index)) {
        snprintf(err->text, sizeof err->text, !p || !p->unfinished_set
                 ? "out of memory" : "product index %u is still in use", s->next_index);
        if (p)
            free(p->unfinished_set);
        free(p);
        return -1;
    }
    p->index = s->next_index++;
    p->size = (uint32_t)size;
    p->nblocks = fmtp_blocks(p->size, FMTP_DATA_LEN);
    p->nparts = nparts;
    if (nparts)
        memcpy(p->parts, parts, (size_t)nparts * sizeof *parts);
    p->cookie = cookie;
    struct fmtp_bop bop = {start, p->size, meta_len, meta};
    p->body_len = (uint16_t)fmtp_bop_put(s->cfg.layout, p->body, &bop);
    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i]) {
            p->unfinished_set[i / 64] |= UINT64_C(1) << (i % 64);
            p->unfinished++;
        }
    p->had_peers = p->unfinished > 0;
    p->chain = s->hash[p->index & s->hash_mask];
    s->hash[p->index & s->hash_mask] = p;
    s->retained++;
    s->current = p;
    s->cursor = 0;
    if (index)
        *index = p->index;
    return 0;
}

uint64_t fmtp_sender_pending(const struct fmtp_sender *s)
{
    return s->current ? s->current->nblocks + UINT64_C(2) - s->cursor : 0;
}

bool fmtp_sender_peek(const struct fmtp_sender *s, uint32_t k, struct fmtp_datagram *out)
{
    const struct product *p = s->current;
    struct fmtp_header h = {0};

    if (k >= fmtp_sender_pending(s))
        return false;
    uint64_t at = s->cursor + k;
    h.index = p->index;
    out->iov[0] = (struct iovec){out->head, sizeof out->head};
    out->niov = 1;
    if (at == 0) {
        h.flags = FMTP_BOP;
        h.payloadlen = p->body_len;
        out->iov[out->niov++] = (struct iovec){(void *)p->body, p->body_len};
    } else if (at <= p->nblocks) {
        h.flags = FMTP_MEM_DATA;
        h.seqnum = (uint32_t)(at - 1) * FMTP_DATA_LEN;
        h.payloadlen = (uint16_t)fmtp_block_len(p->size, h.seqnum, FMTP_DATA_LEN);
        out->niov += product_iov(p, h.seqnum, h.payloadlen, out->iov + 1);
    } else {
        h.flags = FMTP_EOP;
    }
    fmtp_header_put(out->head, &h);
    out->len = FMTP_HEADER_LEN + (size_t)h.payloadlen;
    return true;
}

/* Nobody is left to wait for. A product that nobody was there to receive waits for its timer. */
static void release_if_done(struct fmtp_sender *s, struct product *p)
{
    if (p->multicasted && p->had_peers && !p->unfinished)
        release(s, p, FMTP_RELEASE_ALL_DONE);
}

static uint64_t sender_timer_ns(const struct fmtp_sender *s, const struct product *p)
{
    uint64_t tau = fmtp_scaled_tx_ns(s->cfg.f_snd, p->size, s->cfg.r_mc_bps);

    for (size_t i = 0; i < s->cfg.max_peers; i++)
        if (s->peers[i] && s->peers[i]->rtt_ns > tau)
            tau = s->peers[i]->rtt_ns;
    return tau > s->cfg.tau_snd_min_ns ? tau : s->cfg.tau_snd_min_ns;
}

void fmtp_sender_sent(struct fmtp_sender *s, uint32_t n, uint64_t now_ns)
{
    struct product *p = s->current;

    for (; n && s->current; n--) {
        s->stats.datagrams++;
        s->stats.datagram_bytes += FMTP_HEADER_LEN;
        if (s->cursor == 0) {
            s->stats.datagram_bytes += p->body_len;
        } else if (s->cursor <= p->nblocks) {
            s->stats.blocks++;
            s->stats.datagram_bytes +=
                fmtp_block_len(p->size, (uint32_t)(s->cursor - 1) * FMTP_DATA_LEN, FMTP_DATA_LEN);
        } else {
            s->current = NULL;
            s->stats.products++;
            p->multicasted = true;
            fmtp_timer_arm(&s->timers, &p->timer, now_ns + sender_timer_ns(s, p));
            if (s->cfg.multicasted)
                s->cfg.multicasted(s->cfg.ctx, p->index, p->cookie);
            release_if_done(s, p);
            return;
        }
        s->cursor++;
    }
}

/* ------------------------------------------------------------------ peers */

int fmtp_sender_peer_add(struct fmtp_sender *s)
{
    for (size_t i = 0; i < s->cfg.max_peers; i++) {
        if (s->peers[i])
            continue;
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer)
            return -1;
        fmtp_requests_init(&peer->queue, s->cfg.peer_queue_bytes);
        s->peers[i] = peer;
        s->npeers++;
        return (int)i;
    }
    return -1;
}

static bool finish(struct product *p, int peer)
{
    if (!in_set(p, peer))
        return false;
    p->unfinished_set[peer / 64] &= ~(UINT64_C(1) << (peer % 64));
    p->unfinished--;
    return true;
}

void fmtp_sender_peer_remove(struct fmtp_sender *s, int peer)
{
    fmtp_requests_free(&s->peers[peer]->queue);
    free(s->peers[peer]);
    s->peers[peer] = NULL;
    s->npeers--;
    for (size_t i = 0; i <= s->hash_mask; i++) {
        struct product *p = s->hash[i], *chain;
        for (; p; p = chain) {
            chain = p->chain;
            if (finish(p, peer)) {
                s->stats.unacknowledged++;
                release_if_done(s, p);
            }
        }
    }
}

void fmtp_sender_peer_rtt(struct fmtp_sender *s, int peer, uint64_t rtt_ns)
{
    s->peers[peer]->rtt_ns = rtt_ns;
}

/* Queues an answer; what does not fit is rejected, -1 if not even the rejection fits. */
static int answer(struct fmtp_sender *s, struct peer *peer, const struct fmtp_request *r)
{
    if (fmtp_requests_push(&peer->queue, r, peer->head_sent ? 1 : 0) == 0)
        return 0;
    if (r->flags != FMTP_RETX_REJ && purge(s, peer, r->index, true))
        return 0;
    peer->broken = true;
    return -1;
}

static int request(struct fmtp_sender *s, struct peer *peer, int number,
                   const struct fmtp_header *h)
{
    struct product *p = lookup(s, h->index);
    struct fmtp_request r = {.index = h->index};

    switch (h->flags) {
    case FMTP_RETX_END:
        if (p && finish(p, number)) {
            s->stats.acks++;
            purge(s, peer, p->index, false);
            release_if_done(s, p);
        }
        return 0;
    case FMTP_RETX_REQ:
        s->stats.retx_requests++;
        r.flags = FMTP_RETX_DATA;
        if (h->payloadlen == 0 || (p && h->seqnum >= p->size)) {
            s->stats.bad_messages++;
            return 0;
        }
        r.seq = h->seqnum - h->seqnum % FMTP_DATA_LEN;
        if (p)
            r.end = p->size - h->seqnum < h->payloadlen ? p->size : h->seqnum + h->payloadlen;
        break;
    case FMTP_BOP_REQ:
        r.flags = FMTP_RETX_BOP;
        break;
    case FMTP_EOP_REQ:
        r.flags = FMTP_RETX_EOP;
        break;
    default:
        s->stats.bad_messages++;
        return -1;
    }
    if (!p) {
        s->stats.rejects++;
        r = (struct fmtp_request){.index = h->index, .flags = FMTP_RETX_REJ};
    }
    return answer(s, peer, &r);
}

int fmtp_sender_peer_input(struct fmtp_sender *s, int number, const uint8_t *bytes, size_t len)
{
    struct peer *peer = s->peers[number];

    if (peer->broken)
        return -1;
    while (len) {
        size_t take = FMTP_HEADER_LEN - peer->in_len;
        struct fmtp_header h;

        if (take > len)
            take = len;
        memcpy(peer->in + peer->in_len, bytes, take);
        peer->in_len += take;
        bytes += take;
        len -= take;
        if (peer->in_len < FMTP_HEADER_LEN)
            break;
        peer->in_len = 0;
        fmtp_header_get(peer->in, &h);
        if (request(s, peer, number, &h) < 0)
            return -1;
    }
    return 0;
}

bool fmtp_sender_peer_pending(const struct fmtp_sender *s, int peer)
{
    return s->peers[peer]->rest_len || s->peers[peer]->queue.count;
}

void fmtp_sender_peer_peek(const struct fmtp_sender *s, int number, struct fmtp_stream_out *out)
{
    const struct peer *peer = s->peers[number];
    size_t skip = peer->head_sent;
    int messages = 0;

    out->niov = 0;
    out->len = 0;
    if (peer->rest_len) {
        out->iov[out->niov++] = (struct iovec){(void *)(peer->rest + peer->rest_at),
                                               peer->rest_len};
        out->len = peer->rest_len;
        messages++;
    }
    for (size_t i = 0; i < peer->queue.count && messages < FMTP_STREAM_MESSAGES; i++) {
        struct fmtp_request r = *fmtp_requests_at(&peer->queue, i);
        do {
            struct iovec *iov = out->iov + out->niov;
            int n = 1 + message(s, &r, out->heads[messages], iov + 1);
            iov[0] = (struct iovec){out->heads[messages], FMTP_HEADER_LEN};
            out->niov += n;
            out->len += message_len(s, &r);
            messages++;
            r.seq += FMTP_DATA_LEN;
        } while (r.flags == FMTP_RETX_DATA && r.seq < r.end && r.seq >= FMTP_DATA_LEN &&
                 messages < FMTP_STREAM_MESSAGES);
    }
    out->len -= skip;
    for (int i = 0; skip; i++) {
        size_t cut = out->iov[i].iov_len < skip ? out->iov[i].iov_len : skip;
        out->iov[i].iov_base = (uint8_t *)out->iov[i].iov_base + cut;
        out->iov[i].iov_len -= cut;
        skip -= cut;
    }
}

void fmtp_sender_peer_sent(struct fmtp_sender *s, int number, size_t bytes)
{
    struct peer *peer = s->peers[number];
    size_t take = bytes < peer->rest_len ? bytes : peer->rest_len;

    peer->rest_at += take;
    peer->rest_len -= take;
    bytes += peer->head_sent - take;
    peer->head_sent = 0;
    while (peer->queue.count) {
        struct fmtp_request *r = fmtp_requests_at(&peer->queue, 0);
        size_t len = message_len(s, r);
        if (bytes < len) {
            peer->head_sent = bytes;
            return;
        }
        bytes -= len;
        if (r->flags == FMTP_RETX_DATA) {
            s->stats.retx_blocks++;
            s->stats.retx_bytes += len - FMTP_HEADER_LEN;
            if (r->end - r->seq > FMTP_DATA_LEN) {
                r->seq += FMTP_DATA_LEN;
                continue;
            }
        }
        fmtp_requests_pop(&peer->queue);
    }
}

/* ------------------------------------------------------------------ time */

uint64_t fmtp_sender_deadline(const struct fmtp_sender *s)
{
    return fmtp_timers_next(&s->timers);
}

void fmtp_sender_timeout(struct fmtp_sender *s, uint64_t now_ns)
{
    struct product *p;

    while ((p = (struct product *)fmtp_timers_pop(&s->timers, now_ns))) {
        if (p->unfinished)
            s->stats.timeouts++;
        for (size_t i = 0; i < s->cfg.max_peers; i++)
            if (in_set(p, (int)i)) {
                struct fmtp_request r = {.index = p->index, .flags = FMTP_RETX_EOP};
                answer(s, s->peers[i], &r);
            }
        release(s, p, FMTP_RELEASE_TIMEOUT);
    }
}

void fmtp_sender_get_stats(const struct fmtp_sender *s, struct fmtp_server_stats *out)
{
    *out = s->stats;
    out->receivers = s->npeers;
    out->retained = s->retained;
}

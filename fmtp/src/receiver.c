/* SPDX-License-Identifier: Apache-2.0 */
#include "receiver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "timers.h"

enum {
    SOFT_MESSAGES = 4096,             /* above it no more RETX_REQ are made until some have left */
    RESYNC_DATAGRAMS = 32,            /* consistent far-off datagrams that are believed */
    RESYNC_REPORT = 65536             /* skipped indices reported missed at most */
};

struct product {
    struct fmtp_timer timer;          /* first: timers are cast back to their product */
    struct product *chain;            /* hash */
    TAILQ_ENTRY(product) link;        /* in r->scans, if scanning */
    uint32_t index, size, nblocks, nleft, retx_blocks;
    uint32_t expected;                /* blocks below it were received or are asked for */
    uint32_t scan_from, scan_to;      /* blocks whose missing ones are still to be asked for */
    bool active;                      /* BOP is known; else it is being asked for */
    bool eop, eop_asked, scanning;
    uint8_t *data;
    struct timespec start;
    uint64_t *received;               /* bitmap */
};

struct fmtp_receiver {
    struct fmtp_receiver_config cfg;
    bool joined;
    uint32_t latest;                  /* newest index seen; older ones without entry are done */
    uint32_t first;                   /* index at which we joined */
    uint32_t stray, stray_count;      /* resynchronisation after a far jump */
    struct product **hash;
    size_t hash_mask, count;
    struct fmtp_timers timers;
    TAILQ_HEAD(, product) scans;
    uint8_t *out;
    size_t out_at, out_len, out_capacity, out_limit;
    bool stuck;
    /* stream */
    uint8_t head[FMTP_HEADER_LEN];
    size_t head_len;
    struct fmtp_header msg;           /* valid while payload_left */
    size_t payload_left;
    bool skip;                        /* the payload is for nobody */
    uint8_t body[FMTP_MAX_BOP_BODY];
    struct fmtp_client_stats stats;
};

/* ------------------------------------------------------------------ life, lookup */

struct fmtp_receiver *fmtp_receiver_new(const struct fmtp_receiver_config *cfg)
{
    struct fmtp_receiver *r = calloc(1, sizeof *r);
    size_t buckets = 16;

    if (!r)
        return NULL;
    r->cfg = *cfg;
    TAILQ_INIT(&r->scans);
    while (buckets < cfg->max_products)
        buckets *= 2;
    r->hash_mask = buckets - 1;
    r->hash = calloc(buckets, sizeof(struct product *));
    r->out_capacity = 64 * FMTP_HEADER_LEN;
    r->out_limit = (SOFT_MESSAGES + 4 * cfg->max_products) * FMTP_HEADER_LEN;
    r->out = malloc(r->out_capacity);
    if (fmtp_timers_init(&r->timers, cfg->max_products) < 0 || !r->hash || !r->out) {
        fmtp_timers_free(&r->timers);
        free(r->hash);
        free(r->out);
        free(r);
        return NULL;
    }
    return r;
}

static struct product *lookup(const struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = r->hash[index & r->hash_mask];

    while (p && p->index != index)
        p = p->chain;
    return p;
}

static void drop(struct fmtp_receiver *r, struct product *p)
{
    struct product **link = &r->hash[p->index & r->hash_mask];

    while (*link != p)
        link = &(*link)->chain;
    *link = p->chain;
    r->count--;
    fmtp_timer_disarm(&r->timers, &p->timer);
    if (p->scanning)
        TAILQ_REMOVE(&r->scans, p, link);
    free(p->received);
    free(p);
}

static void miss(struct fmtp_receiver *r, uint32_t index)
{
    r->stats.missed++;
    r->cfg.missed(r->cfg.ctx, index);
}

static int by_age(const void *a, const void *b, void *latest)
{
    uint32_t newest = *(const uint32_t *)latest;
    uint32_t age_a = newest - *(const uint32_t *)a, age_b = newest - *(const uint32_t *)b;

    return age_a < age_b ? 1 : age_a > age_b ? -1 : 0;
}

void fmtp_receiver_free(struct fmtp_receiver *r)
{
    if (!r)
        return;
    size_t n = 0;
    uint32_t *incomplete = r->count ? calloc(r->count, sizeof *incomplete) : NULL;
    for (size_t i = 0; i <= r->hash_mask; i++)
        while (r->hash[i]) {
            if (incomplete)
                incomplete[n++] = r->hash[i]->index;
            else
                miss(r, r->hash[i]->index);
            drop(r, r->hash[i]);
        }
    if (n)
        qsort_r(incomplete, n, sizeof *incomplete, by_age, &r->latest);
    for (size_t i = 0; i < n; i++)
        miss(r, incomplete[i]);
    free(incomplete);
    fmtp_timers_free(&r->timers);
    free(r->hash);
    free(r->out);
    free(r);
}

/* ------------------------------------------------------------------ requests */

static void emit(struct fmtp_receiver *r, uint16_t flags, uint32_t index, uint32_t seqnum,
                 uint16_t wanted)
{
    struct fmtp_header h = {index, seqnum, wanted, flags};

    if (r->out_at + r->out_len + FMTP_HEADER_LEN > r->out_capacity && r->out_at) {
        memmove(r->out, r->out + r->out_at, r->out_len);
        r->out_at = 0;
    }
    if (r->out_len + FMTP_HEADER_LEN > r->out_capacity) {
        size_t capacity = r->out_capacity * 2;
        uint8_t *out = r->out_len < r->out_limit ? realloc(r->out, capacity) : NULL;
        if (!out) {
            r->stuck = true;
            return;
        }
        r->out = out;
        r->out_capacity = capacity;
    }
    fmtp_header_put(r->out + r->out_at + r->out_len, &h);
    r->out_len += FMTP_HEADER_LEN;
}

static bool have(const struct product *p, uint32_t block)
{
    return p->received[block / 64] >> (block % 64) & 1;
}

/* Asks for the missing blocks of [scan_from, scan_to), as far as there is room for requests. */
static void scan(struct fmtp_receiver *r, struct product *p)
{
    uint32_t block = p->scan_from;

    while (block < p->scan_to) {
        if (block % 64 == 0 && p->received[block / 64] == UINT64_MAX) {
            block = p->scan_to - block < 64 ? p->scan_to : block + 64;
            continue;
        }
        if (have(p, block)) {
            block++;
            continue;
        }
        if (r->out_len >= SOFT_MESSAGES * FMTP_HEADER_LEN)
            break;
        uint32_t n = 1;
        while (n < FMTP_REQ_BLOCKS && block + n < p->scan_to && !have(p, block + n))
            n++;
        emit(r, FMTP_RETX_REQ, p->index, block * FMTP_DATA_LEN, (uint16_t)(n * FMTP_DATA_LEN));
        r->stats.retx_requests++;
        block += n;
    }
    p->scan_from = block;
    bool more = block < p->scan_to;
    if (more && !p->scanning)
        TAILQ_INSERT_TAIL(&r->scans, p, link);
    else if (!more && p->scanning)
        TAILQ_REMOVE(&r->scans, p, link);
    p->scanning = more;
}

/* Blocks below `to` should have come by now: ask for those that did not. */
static void ask_below(struct fmtp_receiver *r, struct product *p, uint32_t to)
{
    if (to <= p->expected)
        return;
    if (!p->scanning)
        p->scan_from = p->expected;
    p->scan_to = to;
    p->expected = to;
    scan(r, p);
}

/* The multicast of the product is over, as far as we can tell. */
static void ask_all(struct fmtp_receiver *r, struct product *p)
{
    fmtp_timer_disarm(&r->timers, &p->timer);
    ask_below(r, p, p->nblocks);
    if (!p->eop && !p->eop_asked) {
        p->eop_asked = true;
        emit(r, FMTP_EOP_REQ, p->index, 0, 0);
    }
}

/* ------------------------------------------------------------------ products */

static struct product *entry(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = r->count < r->cfg.max_products ? calloc(1, sizeof *p) : NULL;

    if (!p) {
        /* No room: FMTP is done with it here, the application pulls it otherwise. */
        emit(r, FMTP_RETX_END, index, 0, 0);
        miss(r, index);
        return NULL;
    }
    p->index = index;
    p->chain = r->hash[index & r->hash_mask];
    r->hash[index & r->hash_mask] = p;
    r->count++;
    return p;
}

static struct product *ask_bop(struct fmtp_receiver *r, uint32_t index)
{
    struct product *p = entry(r, index);

    if (p)
        emit(r, FMTP_BOP_REQ, index, 0, 0);
    return p;
}

/* A far jump forward is believed only when a run of datagrams agrees on it: one corrupt or forged
 * datagram must not make us ask for a million products. */
static bool far_jump(struct fmtp_receiver *r, uint32_t index)
{
    r->stats.bad_messages++;
    if (r->stray_count && index - r->stray < r->cfg.max_products)
        r->stray_count++;
    else
        r->stray_count = 1;
    r->stray = index;
    if (r->stray_count < RESYNC_DATAGRAMS)
        return false;
    r->stray_count = 0;
    if (index - r->latest <= RESYNC_REPORT)
        for (uint32_t i = r->latest + 1; i != index; i++)
            miss(r, i);
    r->latest = index - 1;
    return true;
}

enum seen { SEEN_NEW, SEEN_OLD, SEEN_REFUSED };

/* A message that tells of product index: asks for what it proves lost before it. SEEN_NEW: the
 * index is the newest from now on and the caller makes its entry. */
static enum seen see(struct fmtp_receiver *r, uint32_t index)
{
    if (!r->joined) {
        r->joined = true;
        r->first = index;
        r->latest = index - 1;
    }
    uint32_t ahead = index - r->latest;
    if (ahead == 0 || ahead > UINT32_MAX / 2)
        return SEEN_OLD;
    struct product *before = lookup(r, r->latest);
    if (ahead > r->cfg.max_products && !far_jump(r, index))
        return SEEN_REFUSED;
    r->stray_count = 0;
    if (before && before->active)
        ask_all(r, before);
    for (uint32_t i = r->latest + 1; i != index; i++)
        ask_bop(r, i);
    r->latest = index;
    return SEEN_NEW;
}

static bool finish_if_complete(struct fmtp_receiver *r, struct product *p)
{
    if (!p->active || p->nleft)
        return false;
    uint32_t index = p->index, retx_blocks = p->retx_blocks;
    struct timespec start = p->start;
    emit(r, FMTP_RETX_END, index, 0, 0);
    drop(r, p);
    r->stats.products++;
    r->cfg.ended(r->cfg.ctx, index, retx_blocks, start);
    return true;
}

/* The BOP of p is here, whichever way. */
static void begin(struct fmtp_receiver *r, struct product *p, const struct fmtp_bop *bop,
                  uint64_t now_ns)
{
    uint32_t index = p->index, seen = p->expected;
    void *data = r->cfg.begun(r->cfg.ctx, index, bop->size_bytes, bop->meta, bop->meta_len,
                              bop->start);

    if (!data) {
        emit(r, FMTP_RETX_END, index, 0, 0);
        drop(r, p);
        return;
    }
    p->nblocks = fmtp_blocks(bop->size_bytes, FMTP_DATA_LEN);
    p->received = calloc(p->nblocks / 64 + 1, sizeof *p->received);
    if (!p->received) {
        emit(r, FMTP_RETX_END, index, 0, 0);
        drop(r, p);
        miss(r, index);
        return;
    }
    p->active = true;
    p->data = data;
    p->size = bop->size_bytes;
    p->nleft = p->nblocks;
    p->start = bop->start;
    p->expected = 0;
    if (finish_if_complete(r, p))
        return;
    if (p->eop || index != r->latest) {
        ask_all(r, p);
        return;
    }
    /* Still being multicast: ask for what passed before its BOP was known. */
    ask_below(r, p, seen < p->nblocks ? seen : p->nblocks);
    fmtp_timer_arm(&r->timers, &p->timer,
                   now_ns + fmtp_scaled_tx_ns(r->cfg.f_rcv, p->size, r->cfg.r_mc_bps));
}

static void on_bop(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body,
                   uint64_t now_ns)
{
    struct fmtp_bop bop;
    struct product *p;

    if (fmtp_bop_get(r->cfg.layout, body, h->payloadlen, &bop) < 0 || h->seqnum) {
        r->stats.bad_messages++;
        return;
    }
    switch (see(r, h->index)) {
    case SEEN_NEW:
        p = entry(r, h->index);
        break;
    case SEEN_OLD:
        p = lookup(r, h->index);
        break;
    default:
        return;
    }
    if (p && !p->active)
        begin(r, p, &bop, now_ns);
}

static void on_eop(struct fmtp_receiver *r, const struct fmtp_header *h)
{
    struct product *p = NULL;

    switch (see(r, h->index)) {
    case SEEN_NEW:
        p = ask_bop(r, h->index);
        break;
    case SEEN_OLD:
        p = lookup(r, h->index);
        /* Unsolicited, and from before we joined: the sender counted us already. */
        if (!p && h->flags == FMTP_RETX_EOP && r->first - h->index - 1 < r->cfg.max_products)
            p = ask_bop(r, h->index);
        break;
    case SEEN_REFUSED:
        break;
    }
    if (!p)
        return;
    p->eop = true;
    if (p->active)
        ask_all(r, p);
}

/* Is (seqnum, len) a whole block of the product? */
static bool is_block(const struct product *p, uint32_t seqnum, uint16_t len)
{
    return seqnum % FMTP_DATA_LEN == 0 && seqnum < p->size &&
           len == fmtp_block_len(p->size, seqnum, FMTP_DATA_LEN);
}

static void mark(struct product *p, uint32_t block)
{
    p->received[block / 64] |= UINT64_C(1) << (block % 64);
    p->nleft--;
}

static void on_data(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *data)
{
    uint32_t block = h->seqnum / FMTP_DATA_LEN;
    struct product *p;

    if (h->payloadlen == 0 || h->payloadlen > FMTP_DATA_LEN || h->seqnum % FMTP_DATA_LEN) {
        r->stats.bad_messages++;
        return;
    }
    switch (see(r, h->index)) {
    case SEEN_NEW:
        p = ask_bop(r, h->index);
        break;
    case SEEN_OLD:
        p = lookup(r, h->index);
        break;
    default:
        return;
    }
    if (!p) {
        r->stats.duplicate_blocks++;
        return;
    }
    if (!p->active) {
        if (p->expected <= block)
            p->expected = block + 1;
        return;
    }
    if (!is_block(p, h->seqnum, h->payloadlen)) {
        r->stats.bad_messages++;
        return;
    }
    if (have(p, block)) {
        r->stats.duplicate_blocks++;
    } else {
        memcpy(p->data + h->seqnum, data, h->payloadlen);
        mark(p, block);
        r->stats.blocks++;
    }
    ask_below(r, p, block + 1);
    finish_if_complete(r, p);
}

void fmtp_receiver_datagram(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                            uint64_t now_ns)
{
    struct fmtp_header h;

    r->stats.datagrams++;
    if (len < FMTP_HEADER_LEN || len > FMTP_MAX_PACKET) {
        r->stats.bad_messages++;
        return;
    }
    fmtp_header_get(bytes, &h);
    if (len != FMTP_HEADER_LEN + (size_t)h.payloadlen) {
        r->stats.bad_messages++;
        return;
    }
    bytes += FMTP_HEADER_LEN;
    if (h.flags == FMTP_MEM_DATA)
        on_data(r, &h, bytes);
    else if (h.flags == FMTP_BOP)
        on_bop(r, &h, bytes, now_ns);
    else if (h.flags == FMTP_EOP && h.payloadlen == 0)
        on_eop(r, &h);
    else
        r->stats.bad_messages++;
}

/* ------------------------------------------------------------------ stream */

/* The product that still wants the RETX_DATA being read, or NULL. */
static struct product *wanted(const struct fmtp_receiver *r)
{
    struct product *p = lookup(r, r->msg.index);

    return p && p->active && is_block(p, r->msg.seqnum, r->msg.payloadlen) &&
           !have(p, r->msg.seqnum / FMTP_DATA_LEN) ? p : NULL;
}

/* A header came; -1 if it is none that a sender may send. */
static int on_stream_header(struct fmtp_receiver *r)
{
    struct product *p;

    fmtp_header_get(r->head, &r->msg);
    switch (r->msg.flags) {
    case FMTP_RETX_REJ:
        p = lookup(r, r->msg.index);
        if (p) {
            drop(r, p);
            miss(r, r->msg.index);
        }
        break;
    case FMTP_RETX_EOP:
        on_eop(r, &r->msg);
        break;
    case FMTP_RETX_DATA:
        if (r->msg.payloadlen > FMTP_DATA_LEN)
            return -1;
        p = lookup(r, r->msg.index);
        if (p && p->active && !is_block(p, r->msg.seqnum, r->msg.payloadlen))
            r->stats.bad_messages++;
        r->skip = !wanted(r);
        r->payload_left = r->msg.payloadlen;
        return 0;
    case FMTP_RETX_BOP:
        if (r->msg.payloadlen > FMTP_MAX_BOP_BODY ||
            r->msg.payloadlen < fmtp_bop_fixed_len(r->cfg.layout))
            return -1;
        r->payload_left = r->msg.payloadlen;
        return 0;
    default:
        return -1;
    }
    return r->msg.payloadlen ? -1 : 0;
}

static void on_stream_payload(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                              uint64_t now_ns)
{
    size_t at = r->msg.payloadlen - r->payload_left;
    struct product *p;

    r->payload_left -= len;
    if (r->msg.flags == FMTP_RETX_BOP) {
        memcpy(r->body + at, bytes, len);
        if (!r->payload_left) {
            r->msg.seqnum = 0;
            on_bop(r, &r->msg, r->body, now_ns);
        }
        return;
    }
    /* Between two reads the multicast may have brought the block, or ended the product, whose
     * buffer then is no longer ours. */
    p = r->skip ? NULL : wanted(r);
    if (!p)
        r->skip = true;
    else
        memcpy(p->data + r->msg.seqnum + at, bytes, len);
    if (r->payload_left)
        return;
    if (!p) {
        r->stats.duplicate_blocks++;
        return;
    }
    mark(p, r->msg.seqnum / FMTP_DATA_LEN);
    p->retx_blocks++;
    r->stats.retx_blocks++;
    finish_if_complete(r, p);
}

int fmtp_receiver_stream(struct fmtp_receiver *r, const uint8_t *bytes, size_t len,
                         uint64_t now_ns)
{
    while (len) {
        size_t take = r->payload_left ? r->payload_left : FMTP_HEADER_LEN - r->head_len;
        if (take > len)
            take = len;
        if (r->payload_left) {
            on_stream_payload(r, bytes, take, now_ns);
        } else {
            memcpy(r->head + r->head_len, bytes, take);
            r->head_len += take;
            if (r->head_len == FMTP_HEADER_LEN) {
                r->head_len = 0;
                if (on_stream_header(r) < 0) {
                    r->stats.bad_messages++;
                    return -1;
                }
            }
        }
        bytes += take;
        len -= take;
    }
    return 0;
}

/* ------------------------------------------------------------------ output, time */

size_t fmtp_receiver_output(const struct fmtp_receiver *r, const uint8_t **bytes)
{
    *bytes = r->out + r->out_at;
    return r->out_len;
}

void fmtp_receiver_sent(struct fmtp_receiver *r, size_t bytes)
{
    struct product *p;

    r->out_at += bytes;
    r->out_len -= bytes;
    if (!r->out_len)
        r->out_at = 0;
    while (r->out_len < SOFT_MESSAGES / 2 * FMTP_HEADER_LEN && (p = TAILQ_FIRST(&r->scans)))
        scan(r, p);
}

bool fmtp_receiver_stuck(const struct fmtp_receiver *r)
{
    return r->stuck;
}

uint64_t fmtp_receiver_deadline(const struct fmtp_receiver *r)
{
    return fmtp_timers_next(&r->timers);
}

void fmtp_receiver_timeout(struct fmtp_receiver *r, uint64_t now_ns)
{
    struct product *p;

    while ((p = (struct product *)fmtp_timers_pop(&r->timers, now_ns)))
        ask_all(r, p);
}

size_t fmtp_receiver_in_flight(const struct fmtp_receiver *r)
{
    return r->count;
}

void fmtp_receiver_get_stats(const struct fmtp_receiver *r, struct fmtp_client_stats *out)
{
    *out = r->stats;
}

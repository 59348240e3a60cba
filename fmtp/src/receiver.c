/* SPDX-License-Identifier: Apache-2.0 */
#include "receiver.h"

#include <stdlib.h>
#include <string.h>

#include "receiver_core.h"

enum {
    DONE_BITS_MIN = 1024,
    REPORTS_PER_BUFFER = 32,
    REPORT_MIN_BYTES = 65536,
    REPORT_MAX_BYTES = 4 << 20
};

/* ------------------------------------------------------------------ life */

/* Makes the buffers whose size depends on the block size; incomplete products are missed first.
 * Returns -1 without memory; nothing has changed then. */
static int begin_anew(struct fmtp_receiver *r, uint32_t block_bytes)
{
    uint8_t *body = malloc(block_bytes);

    struct fmtp_symbols symbols;
    struct fmtp_reorder reorder = {0};
    if (fmtp_symbols_init(&symbols, block_bytes, r->cfg.parity_bytes) < 0 ||
        fmtp_reorder_init(&reorder, r->cfg.reorder_blocks, block_bytes) < 0 || !body) {
        fmtp_symbols_free(&symbols);
        fmtp_reorder_free(&reorder);
        free(body);
        return -1;
    }
    fmtp_rx_miss_all(r);
    fmtp_symbols_free(&r->symbols);
    fmtp_reorder_free(&r->reorder);
    free(r->body);
    r->symbols = symbols;
    r->reorder = reorder;
    r->body = body;
    r->block = block_bytes;
    return 0;
}

static void free_all(struct fmtp_receiver *r)
{
    tp_timers_free(&r->timers);
    fmtp_outbox_free(&r->out);
    fmtp_symbols_free(&r->symbols);
    fmtp_reorder_free(&r->reorder);
    free(r->body);
    free(r->hash);
    free(r->done);
    free(r);
}

struct fmtp_receiver *fmtp_receiver_new(const struct fmtp_receiver_config *cfg)
{
    struct fmtp_receiver *r = calloc(1, sizeof *r);
    size_t buckets = 16;

    if (!r)
        return NULL;
    r->cfg = *cfg;
    r->session.block_bytes = FMTP_DATA_LEN;
    TAILQ_INIT(&r->asking);
    TAILQ_INIT(&r->doubts);
    while (buckets < cfg->max_products)
        buckets *= 2;
    r->hash_mask = buckets - 1;
    r->hash = calloc(buckets, sizeof(struct product *));
    r->done_bits = DONE_BITS_MIN;
    while (r->done_bits < 2 * buckets)
        r->done_bits *= 2;
    r->done = calloc(r->done_bits / 64, sizeof *r->done);
    fmtp_outbox_init(&r->out, (size_t)2 * FMTP_RX_SOFT_BYTES + 256 * cfg->max_products);
    if (tp_timers_init(&r->timers, cfg->max_products) < 0 || !r->hash || !r->done ||
        begin_anew(r, FMTP_DATA_LEN) < 0) {
        free_all(r);
        return NULL;
    }
    return r;
}

void fmtp_receiver_free(struct fmtp_receiver *r)
{
    if (!r)
        return;
    fmtp_rx_miss_all(r);
    free_all(r);
}

static bool is_same(const struct fmtp_session *a, const struct fmtp_session *b)
{
    return a->extended && b->extended && a->id == b->id && a->block_bytes == b->block_bytes &&
           a->fec_k == b->fec_k;
}

/* Blocks between reports: a part of the buffer. */
static uint32_t report_blocks(const struct fmtp_receiver *r)
{
    size_t bytes = r->buffer / REPORTS_PER_BUFFER;

    bytes = bytes < REPORT_MIN_BYTES ? REPORT_MIN_BYTES : bytes;
    bytes = bytes > REPORT_MAX_BYTES ? REPORT_MAX_BYTES : bytes;
    return (uint32_t)(bytes / r->block + 1);
}

/* MEM_DATA of the product below seqnum was read, or lost. Not told if the sender takes nothing. */
static void report(struct fmtp_receiver *r, uint32_t index, uint32_t seqnum)
{
    size_t units = r->buffer / FMTP_PROGRESS_UNIT;

    if (r->out.len < FMTP_RX_SOFT_BYTES)
        fmtp_rx_emit(r, FMTP_PROGRESS, index, seqnum,
                     (uint16_t)(units < UINT16_MAX ? units : UINT16_MAX));
}

void fmtp_receiver_buffer(struct fmtp_receiver *r, size_t bytes)
{
    r->buffer = bytes;
}

int fmtp_receiver_session(struct fmtp_receiver *r, const struct fmtp_session *session,
                          uint64_t now_ns)
{
    bool same = is_same(&r->session, session);

    if (session->block_bytes < FMTP_MIN_BLOCK || session->block_bytes > FMTP_MAX_BLOCK ||
        (session->extended && (session->fec_k < 1 || session->fec_k > FMTP_FEC_MAX_K)))
        return -1;
    if (!same && begin_anew(r, session->block_bytes) < 0)
        return -1;
    fmtp_rx_tick(r, now_ns);
    fmtp_outbox_clear(&r->out);
    r->stuck = r->finished = false;
    r->head_len = r->payload_left = 0;
    r->stray_count = 0;
    r->session = *session;
    r->claimed = false;
    r->report_blocks = session->progress ? report_blocks(r) : 0;
    if (session->progress)
        report(r, session->next_index, 0);
    if (same) {
        fmtp_rx_resume(r, session->next_index);
        return 0;
    }
    r->answer_ns = r->answer_var_ns = 0;
    r->joined = session->extended;
    fmtp_rx_trust_anew(r, session->next_index);
    if (session->extended || session->ours)
        fmtp_rx_reach(r, session->next_index - 1);
    return 0;
}

void fmtp_receiver_rtt(struct fmtp_receiver *r, uint64_t rtt_ns)
{
    r->rtt_ns = rtt_ns;
}

/* ------------------------------------------------------------------ messages to the sender */

void fmtp_rx_emit(struct fmtp_receiver *r, uint16_t flags, uint32_t index, uint32_t seqnum,
                  uint16_t wanted)
{
    struct fmtp_header h = {index, seqnum, wanted, flags};
    uint8_t head[FMTP_HEADER_LEN];

    fmtp_header_put(head, &h);
    if (fmtp_outbox_put(&r->out, head, sizeof head, NULL, 0) < 0)
        r->stuck = true;
}

void fmtp_rx_emit_body(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *body)
{
    uint8_t head[FMTP_HEADER_LEN];

    fmtp_header_put(head, h);
    if (fmtp_outbox_put(&r->out, head, sizeof head, body, h->payloadlen) < 0)
        r->stuck = true;
}

size_t fmtp_receiver_output(const struct fmtp_receiver *r, const uint8_t **bytes)
{
    *bytes = r->out.len ? r->out.bytes + r->out.at : NULL;
    return r->out.len;
}

void fmtp_receiver_sent(struct fmtp_receiver *r, size_t bytes)
{
    fmtp_outbox_sent(&r->out, bytes);
    if (r->out.len < FMTP_RX_SOFT_BYTES / 2)
        fmtp_rx_ask_on(r);
}

bool fmtp_receiver_stuck(const struct fmtp_receiver *r)
{
    return r->stuck;
}

/* ------------------------------------------------------------------ datagrams */

bool fmtp_rx_is_block(struct fmtp_receiver *r, const struct product *p, const struct fmtp_header *h)
{
    if (h->seqnum % r->block == 0 && h->seqnum < p->size &&
        h->payloadlen == fmtp_block_len(p->size, h->seqnum, r->block))
        return true;
    r->stats.bad_messages++;
    return false;
}

bool fmtp_rx_put(struct fmtp_receiver *r, struct product *p, uint32_t at, const uint8_t *bytes,
                 size_t len)
{
    if (bytes == p->data + at)
        return true;
    if (r->cfg.store)
        return r->cfg.store(r->cfg.ctx, p->index, at, &(struct iovec){(void *)bytes, len}, 1);
    memmove(p->data + at, bytes, len);
    return true;
}

void fmtp_rx_received(struct fmtp_receiver *r, struct product *p, uint32_t block)
{
    fmtp_mark(p->received, block);
    p->nleft--;
    r->unconfirmed_blocks -= !p->confirmed;
    if (p->groups) {
        uint32_t g = fmtp_groups_of(p->groups, block);
        fmtp_groups_received(p->groups, &r->symbols, g);
        fmtp_rx_decode(r, p, g);
    }
}

/* Returns how many blocks after the last report the next is due: fewer at first, when the sender's
 * rate grows. */
static uint32_t report_after(const struct fmtp_receiver *r, const struct product *p)
{
    uint32_t least = REPORT_MIN_BYTES / r->block + 1, some = p->reported / 2;

    some = some < least ? least : some;
    return some < r->report_blocks ? some : r->report_blocks;
}

/* Stores a multicast block of an active product. Returns true if it was missing. */
static bool store(struct fmtp_receiver *r, struct product *p, const struct fmtp_header *h,
                  const uint8_t *payload)
{
    if (fmtp_have(p->received, h->seqnum / r->block)) {
        r->stats.duplicate_blocks++;
        return false;
    }
    if (!fmtp_rx_put(r, p, h->seqnum, payload, h->payloadlen))
        return false;
    fmtp_rx_received(r, p, h->seqnum / r->block);
    return true;
}

/* Processes MEM_DATA, REPAIR or PARITY of an active product. Returns true if that completed it. */
static bool on_active(struct fmtp_receiver *r, struct product *p, const struct fmtp_header *h,
                      const uint8_t *payload)
{
    if (h->flags == FMTP_PARITY) {
        fmtp_rx_parity(r, p, h, payload);
    } else if (fmtp_rx_is_block(r, p, h)) {
        uint32_t block = h->seqnum / r->block;
        bool is_repair = h->flags == FMTP_REPAIR;
        if (is_repair && p->groups)
            fmtp_rx_answered(r, p, fmtp_groups_of(p->groups, block));
        if (store(r, p, h, payload)) {
            if (is_repair)
                r->stats.repaired_blocks++;
            else
                r->stats.blocks++;
            p->first_time += !is_repair;
        }
        if (!is_repair) {
            p->next = block + 1;
            p->heard_ns = r->now_ns;
            fmtp_rx_passed(r, p, block + 1);
            if (r->report_blocks && block >= p->reported + report_after(r, p)) {
                p->reported = block;
                report(r, p->index, h->seqnum);
            }
        }
    }
    return fmtp_rx_finish(r, p);
}

static void keep_early(struct fmtp_receiver *r, struct product *p, const struct fmtp_header *h,
                       const uint8_t *payload)
{
    bool forgot;

    if (fmtp_reorder_put(&r->reorder, h, payload, &forgot))
        p->has_early = true;
    else
        forgot = true;
    r->stats.reorder_drops += forgot;
}

bool fmtp_rx_replay(struct fmtp_receiver *r, struct product *p)
{
    uint32_t index = p->index;
    size_t cursor = 0;
    bool done = false;

    if (!p->has_early)
        return true;
    p->has_early = false;
    const struct fmtp_reordered *s;
    while ((s = fmtp_reorder_take(&r->reorder, index, &cursor))) {
        if (done)
            continue;
        r->stats.reorder_hits++;
        done = on_active(r, p, &s->h, s->payload);
    }
    return !done;
}

static void on_data(struct fmtp_receiver *r, const struct fmtp_header *h, const uint8_t *payload)
{
    if (h->flags == FMTP_PARITY
            ? h->payloadlen != r->block
            : h->payloadlen == 0 || h->payloadlen > r->block || h->seqnum % r->block) {
        r->stats.bad_messages++;
        return;
    }
    struct product *p = fmtp_rx_see_data(r, h->index, false);
    if (p && p->announced)
        fmtp_rx_begin_announced(r, p);
    p = fmtp_rx_lookup(r, h->index);
    if (p && p->active) {
        on_active(r, p, h, payload);
    } else if (p) {
        if (h->flags == FMTP_MEM_DATA && p->expected <= h->seqnum / r->block)
            p->expected = h->seqnum / r->block + 1;
        keep_early(r, p, h, payload);
    } else if (h->flags != FMTP_PARITY && h->index - r->first <= INT32_MAX) {
        r->stats.duplicate_blocks++;
    }
}

void fmtp_receiver_datagram(struct fmtp_receiver *r, const uint8_t head[FMTP_HEADER_LEN],
                            const uint8_t *payload, size_t payload_len, uint64_t now_ns)
{
    fmtp_rx_tick(r, now_ns);
    struct fmtp_header h;
    fmtp_header_get(head, &h);
    if (payload_len != h.payloadlen || payload_len > r->block) {
        fmtp_receiver_bad_datagram(r);
        return;
    }
    r->stats.datagrams++;
    if (h.flags == FMTP_MEM_DATA ||
        ((h.flags == FMTP_PARITY || h.flags == FMTP_REPAIR) && r->session.extended))
        on_data(r, &h, payload);
    else if (h.flags == FMTP_BOP)
        fmtp_rx_bop(r, &h, payload);
    else if (h.flags == FMTP_EOP && h.payloadlen == 0)
        fmtp_rx_eop(r, &h);
    else if (r->cfg.layout != FMTP_LAYOUT_2021 ||
             (h.flags != FMTP_PARITY && h.flags != FMTP_REPAIR))
        r->stats.bad_messages++; /* these two are only for extended receivers of the group */
}

void fmtp_receiver_bad_datagram(struct fmtp_receiver *r)
{
    r->stats.datagrams++;
    r->stats.bad_messages++;
}

unsigned fmtp_receiver_places(const struct fmtp_receiver *r, struct fmtp_header *first,
                              struct iovec *out, unsigned max)
{
    const struct product *p = fmtp_rx_lookup(r, r->latest);
    unsigned n = 0;

    if (!p || !p->active || p->eop)
        return 0;
    *first = (struct fmtp_header){
        .index = p->index, .seqnum = p->next * r->block, .flags = FMTP_MEM_DATA};
    for (uint32_t b = p->next; n < max && b < p->nblocks && !fmtp_have(p->received, b); b++) {
        uint32_t seqnum = b * r->block;
        out[n++] = (struct iovec){p->data + seqnum, fmtp_block_len(p->size, seqnum, r->block)};
    }
    return n;
}

uint8_t *fmtp_receiver_place(const struct fmtp_receiver *r, const uint8_t head[FMTP_HEADER_LEN],
                             size_t payload_len)
{
    struct fmtp_header h;

    fmtp_header_get(head, &h);
    if (payload_len != h.payloadlen ||
        (h.flags != FMTP_MEM_DATA && !(h.flags == FMTP_REPAIR && r->session.extended)))
        return NULL;
    const struct product *p = fmtp_rx_lookup(r, h.index);
    bool is_missing = p && p->active && h.seqnum % r->block == 0 && h.seqnum < p->size &&
                      payload_len == fmtp_block_len(p->size, h.seqnum, r->block) &&
                      !fmtp_have(p->received, h.seqnum / r->block);
    return is_missing ? p->data + h.seqnum : NULL;
}

/* ------------------------------------------------------------------ time */

void fmtp_rx_arm(struct fmtp_receiver *r, struct product *p)
{
    uint64_t at_ns = p->tau_ns < p->due_ns ? p->tau_ns : p->due_ns;

    if (at_ns == TP_NEVER)
        tp_timer_disarm(&r->timers, &p->timer);
    else if (!p->timer.pos || p->timer.at_ns != at_ns)
        tp_timer_arm(&r->timers, &p->timer, at_ns);
}

uint64_t fmtp_receiver_deadline(const struct fmtp_receiver *r)
{
    return tp_timers_next(&r->timers);
}

void fmtp_receiver_timeout(struct fmtp_receiver *r, uint64_t now_ns)
{
    fmtp_rx_tick(r, now_ns);
    struct product *p;
    while ((p = (struct product *)tp_timers_pop(&r->timers, r->now_ns))) {
        uint32_t index = p->index;
        if (p->tau_ns <= r->now_ns)
            fmtp_rx_tau(r, p);
        if (fmtp_rx_lookup(r, index) != p)
            continue; /* it was announced but is not wanted */
        if (p->due_ns <= r->now_ns)
            fmtp_rx_overdue(r, p);
        fmtp_rx_arm(r, p);
    }
}

size_t fmtp_receiver_in_flight(const struct fmtp_receiver *r)
{
    return r->count;
}

void fmtp_receiver_get_stats(const struct fmtp_receiver *r, struct fmtp_client_stats *out)
{
    *out = r->stats;
}

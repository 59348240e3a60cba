/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's multicast: a ring of planned datagrams. fill() plans and renders them, sent()
 * removes them. Planning alternates between the product being multicast and repairs of older
 * groups.
 */
#include "sender.h"
#include "sender_repair.h"
#include "sender_state.h"

enum { PARITY_BATCH = 12 }; /* parity symbols made at once */

static struct item *item_at(struct fmtp_sender *s, size_t i)
{
    return &s->items[(s->first_item + i) % FMTP_FILL_MAX];
}

bool fmtp_multicast_room(const struct fmtp_sender *s)
{
    return s->nitems < FMTP_FILL_MAX;
}

void fmtp_multicast_push(struct fmtp_sender *s, struct product *p, uint16_t flags, uint32_t seqnum,
                         int16_t buffer)
{
    s->nitems++;
    *item_at(s, s->nitems - 1) = (struct item){p, seqnum, flags, buffer};
}

static void give_back(struct fmtp_sender *s, const struct item *item)
{
    if (item->buffer >= 0)
        s->parity_free[s->nparity_free++] = item->buffer;
}

bool fmtp_multicast_forget(struct fmtp_sender *s, const struct product *p)
{
    bool with_caller = false;
    size_t kept = s->filled;

    for (size_t i = 0; i < s->filled && p; i++)
        with_caller |= item_at(s, i)->product == p;
    for (size_t i = s->filled; i < s->nitems; i++) {
        struct item item = *item_at(s, i);
        if (p ? item.product == p : (item.flags & (FMTP_PARITY | FMTP_REPAIR)) != 0)
            give_back(s, &item);
        else
            *item_at(s, kept++) = item;
    }
    s->nitems = kept;
    return with_caller;
}

/* ------------------------------------------------------------------ planning */

/* Returns whether part of the current product is not planned yet. */
static bool more_of_current(const struct fmtp_sender *s)
{
    return s->current && s->cursor <= s->current->nblocks + UINT64_C(1);
}

/* Plans a BOP, a block or an EOP. */
static void plan_current(struct fmtp_sender *s)
{
    struct product *p = s->current;
    uint64_t at = s->cursor++;
    uint32_t block = (uint32_t)(at - 1);

    if (at == 0) {
        fmtp_multicast_push(s, p, FMTP_BOP, 0, -1);
    } else if (at > p->nblocks) {
        fmtp_multicast_push(s, p, FMTP_EOP, 0, -1);
    } else {
        fmtp_multicast_push(s, p, FMTP_MEM_DATA, block * s->cfg.block_bytes, -1);
        if (s->repairs_ahead)
            s->repairs_ahead--;
        if (p->groups) {
            struct group *g = &p->groups[fmtp_fec_group_of(p->nblocks, s->cfg.fec_k, block)];
            struct fmtp_fec_group range = fmtp_fec_group(p->nblocks, s->cfg.fec_k, g->number);
            if (block + 1 == range.first + range.count)
                fmtp_repair_append(s, g);
        }
    }
}

/* Plans at least one datagram, if there is one and memory for it. */
static bool plan(struct fmtp_sender *s)
{
    if (s->appending)
        return fmtp_repair_plan_appended(s, PARITY_BATCH) > 0 || !s->appending;
    /* Alternate, so that neither new data nor repairs starve. */
    if (!TAILQ_EMPTY(&s->ready) && (!s->repairs_ahead || !more_of_current(s))) {
        unsigned n = fmtp_repair_plan(s, PARITY_BATCH);
        s->repairs_ahead = more_of_current(s) ? s->repairs_ahead + n : 0;
        if (n)
            return true;
    }
    if (!more_of_current(s))
        return false;
    plan_current(s);
    return true;
}

bool fmtp_sender_has_output(const struct fmtp_sender *s, uint64_t now_ns)
{
    return s->nitems || more_of_current(s) || !TAILQ_EMPTY(&s->ready) ||
           fmtp_repair_deadline(s) <= now_ns;
}

static void render(struct fmtp_sender *s, const struct item *item, struct fmtp_datagram *out)
{
    const struct product *p = item->product;
    struct fmtp_header h = {p->index, item->seqnum, 0, item->flags};

    out->iov[0] = (struct iovec){out->head, sizeof out->head};
    out->niov = 1;
    switch (item->flags) {
    case FMTP_BOP:
        h.payloadlen = p->body_len;
        out->iov[out->niov++] = (struct iovec){(void *)p->body, p->body_len};
        break;
    case FMTP_MEM_DATA:
    case FMTP_REPAIR:
        h.payloadlen = (uint16_t)fmtp_block_len(p->size, h.seqnum, s->cfg.block_bytes);
        out->niov += fmtp_sender_product_iov(p, h.seqnum, h.payloadlen, out->iov + 1);
        break;
    case FMTP_PARITY:
        h.payloadlen = s->cfg.block_bytes;
        out->iov[out->niov++] = (struct iovec){
            s->parity_memory + (size_t)item->buffer * s->cfg.block_bytes, h.payloadlen};
        break;
    }
    fmtp_header_put(out->head, &h);
    out->len = FMTP_HEADER_LEN + (size_t)h.payloadlen;
}

unsigned fmtp_sender_fill(struct fmtp_sender *s, struct fmtp_datagram *out, unsigned max,
                          uint64_t now_ns)
{
    unsigned n = 0;

    fmtp_repair_due(s, now_ns);
    while (s->nitems < max && fmtp_multicast_room(s) && plan(s))
        ;
    for (; n < max && n < s->nitems; n++) {
        struct item *item = item_at(s, n);
        if (item->flags == FMTP_BOP && !item->product->begun_ns)
            item->product->begun_ns = now_ns;
        render(s, item, &out[n]);
    }
    if (s->filled < n)
        s->filled = n;
    return n;
}

/* ------------------------------------------------------------------ sent */

static void count(struct fmtp_sender *s, const struct item *item)
{
    const struct product *p = item->product;

    s->stats.datagrams++;
    s->stats.datagram_bytes += FMTP_HEADER_LEN;
    switch (item->flags) {
    case FMTP_BOP: s->stats.datagram_bytes += p->body_len; break;
    case FMTP_PARITY:
        s->stats.parity_sent++;
        s->stats.datagram_bytes += s->cfg.block_bytes;
        break;
    case FMTP_MEM_DATA:
    case FMTP_REPAIR:
        if (item->flags == FMTP_MEM_DATA)
            s->stats.blocks++;
        else
            s->stats.repairs_sent++;
        s->stats.datagram_bytes += fmtp_block_len(p->size, item->seqnum, s->cfg.block_bytes);
        break;
    }
}

static bool is_dying(const struct fmtp_sender *s, const struct product *p)
{
    const struct product *d = s->dying;

    while (d && d != p)
        d = d->chain;
    return d;
}

static void left(struct fmtp_sender *s, const struct item *item, uint64_t now_ns)
{
    struct product *p = item->product;

    count(s, item);
    give_back(s, item);
    if (s->dying && is_dying(s, p))
        return;
    if (item->flags == FMTP_BOP)
        p->bop_ns = now_ns;
    if (item->flags == FMTP_EOP) {
        fmtp_sender_multicasted(s, p, now_ns);
    } else if (p->groups && item->flags == FMTP_PARITY) {
        fmtp_repair_sent(s, &p->groups[item->seqnum >> 16], false, now_ns);
    } else if (p->groups && item->flags != FMTP_BOP) {
        uint32_t block = item->seqnum / s->cfg.block_bytes;
        uint32_t g = fmtp_fec_group_of(p->nblocks, s->cfg.fec_k, block);
        struct fmtp_fec_group at = fmtp_fec_group(p->nblocks, s->cfg.fec_k, g);
        if (item->flags == FMTP_REPAIR)
            fmtp_repair_sent(s, &p->groups[g], false, now_ns);
        else if (block + 1 == at.first + at.count)
            fmtp_repair_sent(s, &p->groups[g], true, now_ns);
    }
}

/* Reports each run of repairs of one product among the first n datagrams. */
static void tell_sent(struct fmtp_sender *s, unsigned n)
{
    uint32_t index = 0, blocks = 0;

    for (unsigned i = 0; i < n; i++) {
        const struct item *item = item_at(s, i);
        bool is_repair = item->flags == FMTP_PARITY || item->flags == FMTP_REPAIR;
        if (blocks && (!is_repair || item->product->index != index)) {
            tell_repaired(s, -1, index, blocks);
            blocks = 0;
        }
        if (is_repair) {
            index = item->product->index;
            blocks++;
        }
    }
    tell_repaired(s, -1, index, blocks);
}

void fmtp_sender_sent(struct fmtp_sender *s, unsigned n, uint64_t now_ns)
{
    if (n > s->filled)
        n = (unsigned)s->filled;
    if (s->cfg.repaired)
        tell_sent(s, n);
    while (n--) {
        struct item item = *item_at(s, 0);
        s->first_item = (s->first_item + 1) % FMTP_FILL_MAX;
        s->nitems--;
        s->filled--;
        left(s, &item, now_ns);
    }
    s->filled = 0;
    struct product *p;
    while ((p = s->dying)) {
        s->dying = p->chain;
        fmtp_multicast_forget(s, p);
        fmtp_sender_free_product(s, p);
    }
}

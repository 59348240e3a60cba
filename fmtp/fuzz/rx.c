/* SPDX-License-Identifier: Apache-2.0 */
#include "rx.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "receiver_core.h"

enum { LARGEST = 1 << 18, PLACES = 4, REPORTED = 65536 };

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* ------------------------------------------------------------------ the application */

/* After a jump too far to be reported, indices may recur: they are counted modulo 2^32. */
static void hear(struct rx *rx, uint32_t index)
{
    if (index - rx->newest > REPORTED && index - rx->newest < UINT32_MAX / 2)
        memset(rx->done, 0, sizeof rx->done);
    if (index - rx->newest < UINT32_MAX / 2)
        rx->newest = index;
}

static bool is_done(const struct rx *rx, uint32_t index)
{
    return rx->done[index % RX_DONE].used && rx->done[index % RX_DONE].index == index;
}

static void done(struct rx *rx, uint32_t index)
{
    hear(rx, index);
    check(!is_done(rx, index));
    rx->done[index % RX_DONE].index = index;
    rx->done[index % RX_DONE].used = true;
}

/* Makes two mappings of the same bytes, one of them to be read only. */
static void map_twice(struct rx_product *p)
{
    int fd = memfd_create("rx", MFD_CLOEXEC);

    p->has = calloc(p->size + 1, sizeof *p->has);
    check(fd >= 0 && ftruncate(fd, (off_t)p->size + 1) == 0 && p->has);
    p->data = mmap(NULL, p->size + 1, PROT_READ, MAP_SHARED, fd, 0);
    p->written = mmap(NULL, p->size + 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(p->data != MAP_FAILED && p->written != MAP_FAILED);
    close(fd);
}

static void open_product(struct rx *rx, struct rx_product *p)
{
    if (rx->storing)
        map_twice(p);
    else
        p->data = malloc(p->size ? p->size : 1);
}

static void close_product(struct rx_product *p)
{
    if (p->written) {
        munmap(p->written, p->size + 1);
        munmap(p->data, p->size + 1);
        free(p->has);
    } else {
        free(p->data);
    }
    *p = (struct rx_product){.data = NULL};
}

static struct rx_product *find(struct rx *rx, uint32_t index)
{
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (rx->open[i].data && rx->open[i].index == index)
            return &rx->open[i];
    return NULL;
}

bool rx_store(void *ctx, uint32_t index, uint32_t at, const struct iovec *parts, int nparts)
{
    struct rx_product *p = find(ctx, index);

    check(p && nparts > 0);
    if (p->fails)
        return false;
    for (int i = 0; i < nparts; i++) {
        check(at <= p->size && parts[i].iov_len <= p->size - at);
        memcpy(p->written + at, parts[i].iov_base, parts[i].iov_len);
        memset(p->has + at, true, parts[i].iov_len);
        at += (uint32_t)parts[i].iov_len;
    }
    return true;
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct rx *rx = ctx;
    uint8_t sum = 0;

    (void)start;
    hear(rx, index);
    for (uint16_t i = 0; i < meta_len; i++)
        sum ^= ((const uint8_t *)meta)[i];
    check(!find(rx, index));
    if (size > LARGEST || sum == 0x55) {
        done(rx, index);
        return NULL;
    }
    check(!is_done(rx, index));
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (!rx->open[i].data) {
            rx->open[i] = (struct rx_product){.index = index, .size = size, .fails = sum == 0xaa};
            open_product(rx, &rx->open[i]);
            return rx->open[i].data;
        }
    abort(); /* more in flight than max_products */
}

/* Returns whether it had begun. */
static bool take(struct rx *rx, uint32_t index)
{
    struct rx_product *p = find(rx, index);

    done(rx, index);
    if (p)
        close_product(p);
    return p;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    const struct rx_product *p = find(ctx, index);

    (void)retx_blocks;
    (void)start;
    for (uint32_t i = 0; p && p->has && i < p->size; i++)
        check(p->has[i]);
    check(take(ctx, index));
}

static void missed(void *ctx, uint32_t index)
{
    take(ctx, index); /* it may not have begun */
}

/* The index may be used again. */
static void withdrawn(void *ctx, uint32_t index)
{
    struct rx *rx = ctx;

    if (!is_done(rx, index))
        take(rx, index);
    rx->done[index % RX_DONE].used = false;
}

static struct fmtp_receiver *new_receiver(struct rx *rx, enum fmtp_layout layout,
                                          fmtp_store_fn *store)
{
    struct fmtp_receiver_config cfg = {.layout = layout,
                                       .f_rcv = 5,
                                       .r_mc_bps = 20000000,
                                       .max_products = RX_PRODUCTS,
                                       .parity_bytes =
                                           RX_SYMBOLS * (sizeof(struct fmtp_symbol) + RX_BLOCK),
                                       .reorder_blocks = RX_REORDER,
                                       .announced_bytes = layout == FMTP_LAYOUT_2021 ? LARGEST : 0,
                                       .ctx = rx,
                                       .begun = begun,
                                       .store = store,
                                       .ended = ended,
                                       .missed = missed,
                                       .withdrawn = withdrawn};

    memset(rx, 0, sizeof *rx);
    rx->storing = store;
    return fmtp_receiver_new(&cfg);
}

struct fmtp_receiver *rx_new(struct rx *rx, enum fmtp_layout layout)
{
    return new_receiver(rx, layout, NULL);
}

struct fmtp_receiver *rx_new_storing(struct rx *rx, enum fmtp_layout layout)
{
    return new_receiver(rx, layout, rx_store);
}

void rx_abandon(struct rx *rx, struct fmtp_receiver *r)
{
    for (int i = 0; i < RX_PRODUCTS; i++)
        if (rx->open[i].data && rx->open[i].fails) {
            fmtp_receiver_abandon(r, rx->open[i].index);
            take(rx, rx->open[i].index);
        }
}

void rx_session(struct rx *rx, struct fmtp_receiver *r, bool extended, uint32_t next_index,
                uint64_t id)
{
    struct fmtp_session s = {.extended = extended,
                             .block_bytes = extended ? RX_BLOCK : FMTP_DATA_LEN,
                             .fec_k = 3,
                             .next_index = next_index,
                             .id = id,
                             .ours = extended};
    bool same = extended && r->session.extended && r->session.id == id;

    fmtp_receiver_session(r, &s, 0);
    if (!same)
        memset(rx->done, 0, sizeof rx->done); /* indices start over */
}

void rx_free(struct rx *rx, struct fmtp_receiver *r)
{
    rx_check(r);
    fmtp_receiver_free(r);
    for (int i = 0; i < RX_PRODUCTS; i++)
        check(!rx->open[i].data);
}

void rx_drain(struct fmtp_receiver *r, size_t n)
{
    const uint8_t *bytes;
    size_t len = fmtp_receiver_output(r, &bytes);
    volatile uint8_t sum = 0;

    len = len < n ? len : n;
    for (size_t i = 0; i < len; i++)
        sum ^= bytes[i];
    (void)sum;
    fmtp_receiver_sent(r, len);
}

void rx_datagram(struct fmtp_receiver *r, const uint8_t *bytes, size_t len, uint64_t now_ns)
{
    struct fmtp_header first;
    struct iovec place[PLACES];
    unsigned n = fmtp_receiver_places(r, &first, place, PLACES);
    const uint8_t *payload = bytes + FMTP_HEADER_LEN;

    for (unsigned i = 0; i < n; i++) {
        const struct product *p = fmtp_rx_lookup(r, first.index);
        uint32_t seqnum = first.seqnum + i * r->block;
        check(p && !fmtp_have(p->received, seqnum / r->block));
        check(place[i].iov_base == p->data + seqnum);
        memset(place[i].iov_base, 0xdd, place[i].iov_len);
    }
    if (len < FMTP_HEADER_LEN) {
        fmtp_receiver_bad_datagram(r);
        return;
    }
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    if (n && len - FMTP_HEADER_LEN <= place[0].iov_len) {
        memcpy(place[0].iov_base, payload, len - FMTP_HEADER_LEN);
        payload = place[0].iov_base;
    }
    fmtp_receiver_datagram(r, bytes, payload, len - FMTP_HEADER_LEN, now_ns);
}

/* ------------------------------------------------------------------ the books */

static uint32_t count_missing(const struct product *p, uint32_t first, uint32_t count)
{
    uint32_t n = 0;

    for (uint32_t b = first; b < first + count; b++)
        n += !fmtp_have(p->received, b);
    return n;
}

/* Returns the symbols held. */
static size_t check_groups(const struct product *p)
{
    const struct fmtp_groups *gs = p->groups;
    size_t held = 0, waiting = 0, listed = 0;
    const struct fmtp_group *group;

    for (uint32_t g = 0; g < gs->count; g++) {
        struct fmtp_fec_group at = fmtp_fec_group(gs->nblocks, gs->fec_k, g);
        size_t n = 0;
        group = &gs->group[g];
        check(group->missing == count_missing(p, at.first, at.count));
        for (const struct fmtp_symbol *s = group->parity; s; s = s->next)
            n++;
        check(n == group->held && (n < group->missing || !n));
        check(group->high <= fmtp_fec_max_parity(at.count));
        check(group->state != FMTP_GROUP_WAITING || group->due_ns >= p->due_ns);
        waiting += group->state == FMTP_GROUP_WAITING;
        held += n;
    }
    TAILQ_FOREACH (group, &gs->waiting, link)
        listed++;
    check(listed == waiting);
    check(!waiting || p->timer.pos);
    return held;
}

void rx_check(const struct fmtp_receiver *r)
{
    size_t products = 0, symbols = 0, early = 0;
    const struct product *p;

    for (size_t i = 0; i <= r->hash_mask; i++)
        for (p = r->hash[i]; p; p = p->chain) {
            products++;
            check(p->active == !!p->data);
            if (!p->active)
                continue;
            check(p->nleft && p->nleft == count_missing(p, 0, p->nblocks));
            check(p->expected <= p->nblocks && p->asking == (p->ask_from < p->ask_to));
            if (p->groups)
                symbols += check_groups(p);
        }
    check(products == r->count && products <= RX_PRODUCTS);
    check(symbols == r->symbols.count && symbols <= RX_SYMBOLS);
    for (size_t i = 0; i < r->reorder.capacity; i++)
        early += r->reorder.ring[i].used;
    check(early == r->reorder.count && r->reorder.capacity <= RX_REORDER);
    check(r->out.len <= r->out.limit && r->out.capacity <= 4 * r->out.limit);
}

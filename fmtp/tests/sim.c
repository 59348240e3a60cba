/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "timers.h"

enum kind { DATAGRAM, TO_RECEIVER, TO_SENDER };

struct sim_event {
    uint64_t at_ns, order;
    enum kind kind;
    int rx;
    size_t len;
    uint8_t *bytes;
};

/* ------------------------------------------------------------------ random, events */

static uint32_t next_random(struct sim *s)         /* splitmix64 */
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ z >> 31) >> 16);
}

uint32_t sim_random(struct sim *s, uint32_t n)
{
    return (uint32_t)((uint64_t)next_random(s) * n >> 32);
}

static bool chance(struct sim *s, double p)
{
    return p > 0 && next_random(s) < p * 4294967296.0;
}

static bool before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(struct sim *s, enum kind kind, int rx, uint64_t at_ns, const uint8_t *bytes,
                 size_t len)
{
    struct sim_event e = {at_ns, s->order++, kind, rx, len, malloc(len)};
    size_t i = s->nevents++;

    memcpy(e.bytes, bytes, len);
    if (s->nevents > s->events_capacity) {
        s->events_capacity = s->events_capacity ? 2 * s->events_capacity : 256;
        s->events = realloc(s->events, s->events_capacity * sizeof *s->events);
    }
    for (; i && before(&e, &s->events[(i - 1) / 2]); i = (i - 1) / 2)
        s->events[i] = s->events[(i - 1) / 2];
    s->events[i] = e;
}

static struct sim_event pop(struct sim *s)
{
    struct sim_event top = s->events[0], last = s->events[--s->nevents];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < s->nevents) {
        if (child + 1 < s->nevents && before(&s->events[child + 1], &s->events[child]))
            child++;
        if (!before(&s->events[child], &last))
            break;
        s->events[i] = s->events[child];
        i = child;
    }
    if (s->nevents)
        s->events[i] = last;
    return top;
}

/* ------------------------------------------------------------------ callbacks of the cores */

static size_t slot(const struct sim *s, uint32_t index)
{
    uint32_t i = index - s->cfg.first_index;

    assert(i < SIM_PRODUCTS);
    return i;
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct sim_receiver *rx = ctx;
    size_t i = slot(rx->sim, index);

    rx->begun[i]++;
    assert(size == rx->sim->product[i].size);
    assert(meta_len == 4 && memcmp(meta, "meta", 4) == 0);
    assert(start.tv_sec == (rx->sim->cfg.layout == FMTP_LAYOUT_2021 ? 1000 + (time_t)i : 0));
    if (rx->sim->cfg.refuse_all)
        return NULL;
    rx->data[i] = calloc(1, (size_t)size + 1);
    return rx->data[i];
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    struct sim_receiver *rx = ctx;
    size_t i = slot(rx->sim, index);

    (void)start;
    rx->ended[i]++;
    rx->retx_blocks[i] = retx_blocks;
    rx->ended_ns[i] = rx->sim->now_ns;
    rx->intact[i] = rx->data[i] &&
                    memcmp(rx->data[i], rx->sim->product[i].data, rx->sim->product[i].size) == 0;
    /* The buffer is the application's again: a later write would be seen by the sanitizer. */
    free(rx->data[i]);
    rx->data[i] = NULL;
}

static void missed(void *ctx, uint32_t index)
{
    struct sim_receiver *rx = ctx;
    size_t i = slot(rx->sim, index);

    rx->missed[i]++;
    free(rx->data[i]);
    rx->data[i] = NULL;
}

static void on_multicasted(void *ctx, uint32_t index, void *cookie)
{
    struct sim *s = ctx;
    size_t i = slot(s, index);

    assert(cookie == s->product[i].data);
    s->multicasted[i]++;
    s->multicasted_ns[i] = s->now_ns;
}

static void on_released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct sim *s = ctx;
    size_t i = slot(s, index);

    assert(cookie == s->product[i].data);
    s->released[i]++;
    s->why[i] = why;
    s->released_ns[i] = s->now_ns;
}

/* ------------------------------------------------------------------ life */

struct sim *sim_new(const struct sim_config *cfg)
{
    struct sim *s = calloc(1, sizeof *s);
    struct fmtp_sender_config sender = {
        .layout = cfg->layout, .first_index = cfg->first_index, .f_snd = cfg->f_snd,
        .r_mc_bps = cfg->rate_bps, .max_products = cfg->max_products ? cfg->max_products : 64,
        .max_peers = SIM_RECEIVERS,
        .peer_queue_bytes = cfg->peer_queue_bytes ? cfg->peer_queue_bytes : 1 << 20,
        .ctx = s, .multicasted = on_multicasted, .released = on_released};

    s->cfg = *cfg;
    s->random = cfg->seed;
    s->sender = fmtp_sender_new(&sender);
    assert(s->sender);
    for (int i = 0; i < cfg->receivers; i++)
        sim_join(s);
    return s;
}

struct sim_receiver *sim_join(struct sim *s)
{
    struct sim_receiver *rx = &s->rx[s->nrx++];
    struct fmtp_receiver_config cfg = {
        .layout = s->cfg.layout, .f_rcv = s->cfg.f_rcv, .r_mc_bps = s->cfg.rate_bps,
        .max_products = s->cfg.max_products ? s->cfg.max_products : 64,
        .ctx = rx, .begun = begun, .ended = ended, .missed = missed};

    rx->sim = s;
    rx->peer = fmtp_sender_peer_add(s->sender);
    fmtp_sender_peer_rtt(s->sender, rx->peer, 2 * s->cfg.delay_ns);
    rx->core = fmtp_receiver_new(&cfg);
    assert(rx->peer >= 0 && rx->core);
    return rx;
}

void sim_free(struct sim *s)
{
    fmtp_sender_free(s->sender);
    for (int i = 0; i < s->nrx; i++) {
        fmtp_receiver_free(s->rx[i].core);
        for (int p = 0; p < SIM_PRODUCTS; p++)
            free(s->rx[i].data[p]);
        free(s->rx[i].log);
    }
    while (s->nevents)
        free(pop(s).bytes);
    for (int p = 0; p < s->nproducts; p++)
        free(s->product[p].data);
    free(s->events);
    free(s);
}

void sim_product(struct sim *s, uint32_t size, uint64_t at_ns)
{
    int i = s->nproducts++;

    assert(i < SIM_PRODUCTS);
    s->product[i].size = size;
    s->product[i].at_ns = at_ns;
    s->product[i].data = malloc((size_t)size + 1);
    for (uint32_t b = 0; b < size; b++)
        s->product[i].data[b] = (uint8_t)next_random(s);
}

/* ------------------------------------------------------------------ the network */

static void offer(struct sim *s)
{
    int i = s->offered++;
    uint32_t size = s->product[i].size, index, cut = size ? sim_random(s, size) : 0;
    uint8_t *data = s->product[i].data;
    struct iovec parts[2] = {{data, cut}, {data + cut, size - cut}};
    struct timespec start = {1000 + i, 5};
    struct fmtp_error err;
    int rc = fmtp_sender_offer(s->sender, parts, 2, "meta", 4, data, start, &index, &err);

    assert(rc == 0 && slot(s, index) == (size_t)i);
    (void)rc;
}

static void multicast(struct sim *s)
{
    struct fmtp_datagram d;
    uint8_t bytes[FMTP_MAX_PACKET];
    struct fmtp_header h;
    size_t len = 0;
    bool any = fmtp_sender_peek(s->sender, 0, &d);

    assert(any);
    (void)any;
    for (int i = 0; i < d.niov; i++) {
        memcpy(bytes + len, d.iov[i].iov_base, d.iov[i].iov_len);
        len += d.iov[i].iov_len;
    }
    assert(len == d.len);
    fmtp_header_get(bytes, &h);
    s->nic_free_ns = s->now_ns + len * 8 * 1000000000u / s->cfg.rate_bps;
    for (int i = 0; i < s->nrx; i++) {
        if ((s->cfg.drop && s->cfg.drop(i, &h)) || chance(s, s->cfg.loss))
            continue;
        int copies = chance(s, s->cfg.duplicate) ? 2 : 1;
        while (copies--) {
            uint64_t extra = chance(s, s->cfg.reorder)
                             ? sim_random(s, (uint32_t)s->cfg.reorder_ns) : 0;
            push(s, DATAGRAM, i, s->nic_free_ns + s->cfg.delay_ns + extra, bytes, len);
        }
    }
    fmtp_sender_sent(s->sender, 1, s->now_ns);
}

static void log_stream(struct sim_receiver *rx, bool from_sender, const uint8_t *bytes, size_t len)
{
    for (; len; bytes++, len--) {
        uint8_t *partial = rx->partial[from_sender];
        size_t *n = &rx->partial_len[from_sender];
        struct fmtp_header h;

        partial[(*n)++] = *bytes;
        if (*n < FMTP_HEADER_LEN)
            continue;
        fmtp_header_get(partial, &h);
        size_t whole = FMTP_HEADER_LEN +
                       (h.flags & (FMTP_RETX_DATA | FMTP_RETX_BOP) ? h.payloadlen : 0u);
        if (*n < whole)
            continue;
        *n = 0;
        rx->log = realloc(rx->log, (rx->nlog + 1) * sizeof *rx->log);
        rx->log[rx->nlog++] = (struct sim_message){rx->sim->now_ns, from_sender, h};
    }
}

static void stream_out(struct sim *s, struct sim_receiver *rx)
{
    struct fmtp_stream_out out;
    uint8_t bytes[4000];
    size_t want = 1 + sim_random(s, sizeof bytes), len = 0;

    fmtp_sender_peer_peek(s->sender, rx->peer, &out);
    for (int i = 0; i < out.niov && len < want; i++) {
        size_t n = out.iov[i].iov_len < want - len ? out.iov[i].iov_len : want - len;
        memcpy(bytes + len, out.iov[i].iov_base, n);
        len += n;
    }
    assert(len && len <= out.len);
    fmtp_sender_peer_sent(s->sender, rx->peer, len);
    rx->stream_free_ns = s->now_ns + len * 8 * 1000000000u / s->cfg.unicast_bps;
    push(s, TO_RECEIVER, (int)(rx - s->rx), rx->stream_free_ns + s->cfg.delay_ns, bytes, len);
}

static void deliver(struct sim *s, struct sim_event *e)
{
    struct sim_receiver *rx = &s->rx[e->rx];

    if (e->kind == DATAGRAM) {
        fmtp_receiver_datagram(rx->core, e->bytes, e->bytes + FMTP_HEADER_LEN,
                               e->len - FMTP_HEADER_LEN, s->now_ns);
    } else if (e->kind == TO_RECEIVER) {
        log_stream(rx, true, e->bytes, e->len);
        int rc = fmtp_receiver_stream(rx->core, e->bytes, e->len, s->now_ns);
        assert(rc == 0);
        (void)rc;
    } else {
        log_stream(rx, false, e->bytes, e->len);
        int rc = fmtp_sender_peer_input(s->sender, rx->peer, e->bytes, e->len);
        assert(rc == 0);
        (void)rc;
    }
    free(e->bytes);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t next_time(const struct sim *s)
{
    uint64_t t = s->nevents ? s->events[0].at_ns : FMTP_NEVER;

    t = earlier(t, fmtp_sender_deadline(s->sender));
    if (fmtp_sender_pending(s->sender))
        t = earlier(t, s->nic_free_ns);
    if (s->offered < s->nproducts && fmtp_sender_ready(s->sender))
        t = earlier(t, s->product[s->offered].at_ns);
    for (int i = 0; i < s->nrx; i++) {
        const uint8_t *bytes;
        t = earlier(t, fmtp_receiver_deadline(s->rx[i].core));
        if (fmtp_sender_peer_pending(s->sender, s->rx[i].peer))
            t = earlier(t, s->rx[i].stream_free_ns);
        if (fmtp_receiver_output(s->rx[i].core, &bytes))
            t = earlier(t, s->now_ns);
    }
    return t == FMTP_NEVER ? t : later(t, s->now_ns);
}

void sim_run(struct sim *s, uint64_t until_ns)
{
    for (;;) {
        uint64_t t = next_time(s);
        if (t == FMTP_NEVER || t > until_ns)
            break;
        s->now_ns = t;
        while (s->nevents && s->events[0].at_ns <= t) {
            struct sim_event e = pop(s);
            deliver(s, &e);
        }
        fmtp_sender_timeout(s->sender, t);
        if (s->offered < s->nproducts && fmtp_sender_ready(s->sender) &&
            s->product[s->offered].at_ns <= t)
            offer(s);
        if (fmtp_sender_pending(s->sender) && s->nic_free_ns <= t)
            multicast(s);
        for (int i = 0; i < s->nrx; i++) {
            struct sim_receiver *rx = &s->rx[i];
            const uint8_t *bytes;
            size_t len;
            fmtp_receiver_timeout(rx->core, t);
            while ((len = fmtp_receiver_output(rx->core, &bytes))) {
                push(s, TO_SENDER, i, t + s->cfg.delay_ns, bytes, len);
                fmtp_receiver_sent(rx->core, len);
            }
            if (fmtp_sender_peer_pending(s->sender, rx->peer) && rx->stream_free_ns <= t)
                stream_out(s, rx);
        }
    }
    if (until_ns != FMTP_NEVER)
        s->now_ns = later(s->now_ns, until_ns);
}

int sim_count(const struct sim_receiver *rx, uint16_t flags, uint32_t index)
{
    int n = 0;

    for (size_t i = 0; i < rx->nlog; i++)
        n += rx->log[i].h.flags == flags && rx->log[i].h.index == index;
    return n;
}

const struct sim_message *sim_find(const struct sim_receiver *rx, uint16_t flags, uint32_t index)
{
    for (size_t i = 0; i < rx->nlog; i++)
        if (rx->log[i].h.flags == flags && rx->log[i].h.index == index)
            return &rx->log[i];
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sim.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "loop/timers.h"
#include "sim/random.h"

enum kind { DATAGRAM, READ, TO_RECEIVER, TO_SENDER };

uint32_t sim_random(struct sim *s, uint32_t n)
{
    return tp_random_below(&s->random, n);
}

static struct tp_event event_for(const struct sim_receiver *rx, enum kind kind, uint64_t at_ns)
{
    return (struct tp_event){
        .at_ns = at_ns, .kind = kind, .to = (int)(rx - rx->sim->rx), .connection = rx->connection};
}

/* ------------------------------------------------------------------ callbacks of the cores */

static size_t slot(const struct sim *s, uint32_t index)
{
    uint32_t i = index - s->cfg.first_index;

    assert(i < s->cfg.products);
    return i;
}

/* Returns whether the sender has no such product: another index, or another announcement. */
static bool is_stray(const struct sim *s, uint32_t index)
{
    uint32_t i = index - s->cfg.first_index;

    return s->cfg.forged && (i >= s->cfg.products || i >= (uint32_t)s->nproducts);
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct sim_receiver *rx = ctx;

    bool said = meta_len == 4 && memcmp(meta, "meta", 4) == 0;
    if (is_stray(rx->sim, index) || (rx->sim->cfg.forged && !said)) {
        rx->strays = realloc(rx->strays, (rx->nstrays + 1) * sizeof *rx->strays);
        return rx->strays[rx->nstrays++] = malloc((size_t)size + 1);
    }
    size_t i = slot(rx->sim, index);
    rx->begun[i]++;
    assert(size == rx->sim->product[i].size);
    assert(said);
    assert(start.tv_sec == (rx->sim->cfg.layout == FMTP_LAYOUT_2021 ? 1000 + (time_t)i : 0));
    if (rx->sim->cfg.refuse_all)
        return NULL;
    assert(!rx->data[i]);
    rx->data[i] = malloc((size_t)size + 1);
    return rx->data[i];
}

/* The application owns the buffer again: the sanitizer detects a later write. */
static void take_back(struct sim_receiver *rx, size_t i)
{
    free(rx->data[i]);
    rx->data[i] = NULL;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    struct sim_receiver *rx = ctx;

    (void)start;
    if (is_stray(rx->sim, index) || (rx->sim->cfg.forged && !rx->data[slot(rx->sim, index)])) {
        rx->forged_ended++;
        return;
    }
    size_t i = slot(rx->sim, index);
    rx->ended[i]++;
    rx->retx_blocks[i] = retx_blocks;
    rx->ended_ns[i] = rx->sim->now_ns;
    rx->intact[i] =
        rx->data[i] && memcmp(rx->data[i], rx->sim->product[i].data, rx->sim->product[i].size) == 0;
    take_back(rx, i);
}

static void missed(void *ctx, uint32_t index)
{
    struct sim_receiver *rx = ctx;

    if (is_stray(rx->sim, index))
        return;
    size_t i = slot(rx->sim, index);
    rx->missed[i]++;
    take_back(rx, i);
}

static void withdrawn(void *ctx, uint32_t index)
{
    struct sim_receiver *rx = ctx;

    assert(rx->sim->cfg.forged);
    rx->withdrawn++;
    if (is_stray(rx->sim, index))
        return;
    size_t i = slot(rx->sim, index);
    rx->begun[i] -= rx->data[i] != NULL;
    take_back(rx, i);
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

static uint64_t sender_now(const struct sim *s)
{
    return s->now_ns + s->sender_leapt_ns;
}

static uint64_t receiver_now(const struct sim_receiver *rx)
{
    return rx->sim->now_ns + rx->leapt_ns;
}

static void start_sender(struct sim *s)
{
    struct fmtp_sender_config cfg = {.layout = s->cfg.layout,
                                     .first_index = s->cfg.first_index + (uint32_t)s->offered,
                                     .block_bytes = s->cfg.block_bytes,
                                     .fec_k = s->cfg.fec_k,
                                     .no_parity = s->cfg.no_parity,
                                     .session_id = ++s->session,
                                     .overhead_bytes = (uint16_t)s->cfg.overhead_bytes,
                                     .f_snd = s->cfg.f_snd,
                                     .timer_from_bop = s->cfg.timer_from_bop,
                                     .timer_by_handover = s->cfg.timer_by_handover,
                                     .handover_ns = s->cfg.handover_ns,
                                     .blocking = s->cfg.blocking,
                                     .r_mc_bps = s->cfg.rate_bps,
                                     .r_uc_bps = s->cfg.r_uc_bps,
                                     .max_products = s->cfg.max_products,
                                     .max_peers =
                                         s->cfg.receivers > SIM_PEERS ? SIM_RECEIVERS : SIM_PEERS,
                                     .peer_queue_bytes = s->cfg.peer_queue_bytes,
                                     .ctx = s,
                                     .multicasted = on_multicasted,
                                     .released = on_released};

    s->sender = fmtp_sender_new(&cfg);
    assert(s->sender);
}

static void start_receiver(struct sim_receiver *rx)
{
    const struct sim_config *cfg = &rx->sim->cfg;
    struct fmtp_receiver_config core = {.layout = cfg->layout,
                                        .f_rcv = cfg->f_rcv,
                                        .r_mc_bps = cfg->rate_bps,
                                        .max_products = cfg->max_products,
                                        .parity_bytes = cfg->parity_bytes,
                                        .reorder_blocks = cfg->reorder_blocks,
                                        .announced_bytes = cfg->announced_bytes,
                                        .ctx = rx,
                                        .begun = begun,
                                        .ended = ended,
                                        .missed = missed,
                                        .withdrawn = withdrawn};

    rx->core = fmtp_receiver_new(&core);
    assert(rx->core);
    fmtp_receiver_buffer(rx->core, cfg->buffer_bytes);
}

/* A receiver's life, or its session, is over: checks that each product ended in exactly one way. */
static void close_books(struct sim_receiver *rx)
{
    for (size_t i = 0; i < rx->sim->cfg.products; i++) {
        assert(rx->begun[i] <= 1 && rx->ended[i] + rx->missed[i] <= 1);
        assert(rx->sim->cfg.refuse_all || rx->begun[i] <= rx->ended[i] + rx->missed[i]);
        assert(!rx->ended[i] || rx->intact[i] || rx->sim->cfg.forged);
        assert(!rx->data[i]);
        rx->ended_before += (uint64_t)rx->ended[i];
        rx->missed_before += (uint64_t)rx->missed[i];
        rx->begun[i] = rx->ended[i] = rx->missed[i] = 0;
    }
}

static void connect_receiver(struct sim_receiver *rx)
{
    struct sim *s = rx->sim;

    struct fmtp_session session;
    rx->peer = fmtp_sender_peer_add(s->sender, rx->extended, &session);
    assert(rx->peer >= 0);
    session.ours = rx->ours;
    if (rx->ours)
        fmtp_sender_peer_ours(s->sender, rx->peer);
    fmtp_sender_peer_rtt(s->sender, rx->peer, 2 * rx->delay_ns);
    session.progress = s->cfg.progress;
    if (s->cfg.progress)
        fmtp_sender_peer_reports(s->sender, rx->peer);
    int rc = fmtp_receiver_session(rx->core, &session, receiver_now(rx));
    assert(rc == 0);
    (void)rc;
    if (!session.extended || session.id != rx->session)
        close_books(rx);
    rx->session = session.extended ? session.id : 0;
    fmtp_receiver_rtt(rx->core, 2 * rx->delay_ns);
    rx->connection++;
    rx->inbox_len = 0;
    rx->partial_len[0] = rx->partial_len[1] = rx->skip[0] = rx->skip[1] = 0;
    rx->stream_free_ns = s->now_ns;
}

struct sim *sim_new(const struct sim_config *cfg)
{
    struct sim *s = calloc(1, sizeof *s);

    s->cfg = *cfg;
    if (!s->cfg.max_products)
        s->cfg.max_products = 64;
    if (!s->cfg.products)
        s->cfg.products = 64;
    if (!s->cfg.peer_queue_bytes)
        s->cfg.peer_queue_bytes = 1 << 20;
    if (!s->cfg.parity_bytes)
        s->cfg.parity_bytes = 4 << 20;
    s->random = cfg->seed;
    s->product = calloc(s->cfg.products, sizeof *s->product);
    s->multicasted = calloc(s->cfg.products, sizeof *s->multicasted);
    s->released = calloc(s->cfg.products, sizeof *s->released);
    s->why = calloc(s->cfg.products, sizeof *s->why);
    s->offered_ns = calloc(s->cfg.products, sizeof *s->offered_ns);
    s->multicasted_ns = calloc(s->cfg.products, sizeof *s->multicasted_ns);
    s->released_ns = calloc(s->cfg.products, sizeof *s->released_ns);
    start_sender(s);
    for (int i = 0; i < cfg->receivers; i++)
        sim_join(s);
    return s;
}

struct sim_receiver *sim_join(struct sim *s)
{
    int i = s->nrx++;
    struct sim_receiver *rx = &s->rx[i];
    size_t n = s->cfg.products;

    assert(i < SIM_RECEIVERS);
    rx->sim = s;
    rx->extended = s->cfg.layout == FMTP_LAYOUT_2021 && (!s->cfg.extended || s->cfg.extended(i));
    rx->ours = s->cfg.layout == FMTP_LAYOUT_2021 && !s->cfg.original;
    rx->delay_ns = s->cfg.delay_ns + (uint64_t)i * s->cfg.delay_spread_ns;
    rx->data = calloc(n, sizeof *rx->data);
    rx->begun = calloc(n, sizeof *rx->begun);
    rx->ended = calloc(n, sizeof *rx->ended);
    rx->missed = calloc(n, sizeof *rx->missed);
    rx->intact = calloc(n, sizeof *rx->intact);
    rx->retx_blocks = calloc(n, sizeof *rx->retx_blocks);
    rx->ended_ns = calloc(n, sizeof *rx->ended_ns);
    start_receiver(rx);
    connect_receiver(rx);
    return rx;
}

void sim_reconnect(struct sim *s, int receiver, bool restart)
{
    struct sim_receiver *rx = &s->rx[receiver];

    fmtp_sender_peer_remove(s->sender, rx->peer);
    if (restart) {
        fmtp_receiver_free(rx->core);
        close_books(rx);
        rx->session = 0;
        start_receiver(rx);
    }
    connect_receiver(rx);
}

void sim_leave(struct sim *s, int receiver)
{
    struct sim_receiver *rx = &s->rx[receiver];

    fmtp_sender_peer_remove(s->sender, rx->peer);
    rx->connection++;
    rx->peer = -1;
    fmtp_receiver_free(rx->core);
    rx->core = NULL;
    close_books(rx);
}

void sim_restart_sender(struct sim *s)
{
    fmtp_sender_free(s->sender);
    s->restarted = true;
    start_sender(s);
    for (int i = 0; i < s->nrx; i++)
        if (s->rx[i].core)
            connect_receiver(&s->rx[i]);
}

void sim_leap(struct sim *s, int receiver, uint64_t ns)
{
    if (receiver < 0)
        s->sender_leapt_ns += ns;
    else
        s->rx[receiver].leapt_ns += ns;
}

void sim_free(struct sim *s)
{
    fmtp_sender_free(s->sender);
    for (int i = 0; i < s->nrx; i++) {
        struct sim_receiver *rx = &s->rx[i];
        fmtp_receiver_free(rx->core);
        for (size_t p = 0; p < s->cfg.products; p++)
            free(rx->data[p]);
        free(rx->data);
        free(rx->begun);
        free(rx->ended);
        free(rx->missed);
        free(rx->intact);
        free(rx->retx_blocks);
        free(rx->ended_ns);
        free(rx->log);
        free(rx->inbox);
        for (size_t n = 0; n < rx->nstrays; n++)
            free(rx->strays[n]);
        free(rx->strays);
    }
    tp_events_free(&s->events);
    for (int p = 0; p < s->nproducts; p++)
        free(s->product[p].data);
    free(s->product);
    free(s->multicasted);
    free(s->released);
    free(s->why);
    free(s->offered_ns);
    free(s->multicasted_ns);
    free(s->released_ns);
    free(s);
}

void sim_product(struct sim *s, uint32_t size, uint64_t at_ns)
{
    size_t i = (size_t)s->nproducts++;

    assert(i < s->cfg.products);
    s->product[i].size = size;
    s->product[i].at_ns = at_ns;
    s->product[i].data = malloc((size_t)size + 1);
    for (uint32_t b = 0; b < size; b++)
        s->product[i].data[b] = (uint8_t)tp_random_bits(&s->random);
}

/* ------------------------------------------------------------------ the network */

static void offer(struct sim *s)
{
    int i = s->offered++;
    uint32_t size = s->product[i].size, index, cut = size ? sim_random(s, size) : 0;
    uint8_t *data = s->product[i].data;
    struct iovec parts[2] = {{data, cut}, {data + cut, size - cut}};
    struct timespec start = {1000 + i, 5};
    struct tp_error err;
    int rc = fmtp_sender_offer(s->sender,
                               &(struct fmtp_offer){.parts = parts,
                                                    .nparts = 2,
                                                    .meta = "meta",
                                                    .meta_len = 4,
                                                    .cookie = data,
                                                    .start = start},
                               &index, &err);

    assert(rc == 0 && slot(s, index) == (size_t)i);
    (void)rc;
    s->offered_ns[i] = s->now_ns;
}

static bool lost(struct sim *s, struct sim_receiver *rx, const struct fmtp_header *h)
{
    if (s->cfg.burst_begins > 0)
        rx->bad = rx->bad ? !tp_random_chance(&s->random, s->cfg.burst_ends)
                          : tp_random_chance(&s->random, s->cfg.burst_begins);
    return rx->bad || (s->cfg.drop && s->cfg.drop((int)(rx - s->rx), h)) ||
           tp_random_chance(&s->random, s->cfg.loss);
}

static void multicast(struct sim *s)
{
    struct fmtp_datagram d[4];
    size_t len = 0;
    unsigned n = fmtp_sender_fill(s->sender, d, 1 + (s->datagrams & 3), sender_now(s));

    if (!n)
        return; /* what was due is no longer needed */
    uint8_t bytes[SIM_DATAGRAM];
    for (int i = 0; i < d[0].niov; i++) {
        assert(len + d[0].iov[i].iov_len <= sizeof bytes);
        memcpy(bytes + len, d[0].iov[i].iov_base, d[0].iov[i].iov_len);
        len += d[0].iov[i].iov_len;
    }
    assert(len == d[0].len);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    s->datagrams++;
    s->datagram_bytes += len;
    s->nic_free_ns =
        s->now_ns + (len + s->cfg.overhead_bytes) * UINT64_C(8000000000) / s->cfg.rate_bps;
    struct tp_packet *packet = tp_packet_new(bytes, len);
    for (int i = 0; i < s->nrx; i++) {
        struct sim_receiver *rx = &s->rx[i];
        if (!rx->core || lost(s, rx, &h))
            continue;
        int copies = tp_random_chance(&s->random, s->cfg.duplicate) ? 2 : 1;
        while (copies--) {
            uint64_t extra = tp_random_chance(&s->random, s->cfg.reorder)
                                 ? sim_random(s, (uint32_t)s->cfg.reorder_ns)
                                 : 0;
            struct tp_event e = event_for(rx, DATAGRAM, s->nic_free_ns + rx->delay_ns + extra);
            e.packet = packet;
            tp_events_push(&s->events, e);
        }
    }
    tp_packet_done(packet);
    fmtp_sender_sent(s->sender, 1, sender_now(s));
}

static void log_stream(struct sim_receiver *rx, bool from_sender, const uint8_t *bytes, size_t len)
{
    const unsigned with_body = FMTP_RETX_DATA | FMTP_RETX_BOP | FMTP_REPAIR_REQ;
    uint8_t *partial = rx->partial[from_sender];
    size_t *n = &rx->partial_len[from_sender], *skip = &rx->skip[from_sender];
    struct fmtp_header h;

    while (len && !rx->sim->cfg.quiet) {
        size_t take = *n < FMTP_HEADER_LEN ? FMTP_HEADER_LEN - *n : *skip;
        if (take > len)
            take = len;
        if (*n < FMTP_HEADER_LEN) {
            memcpy(partial + *n, bytes, take);
            *n += take;
            fmtp_header_get(partial, &h);
            *skip = *n == FMTP_HEADER_LEN && h.flags & with_body ? h.payloadlen : 0;
        } else {
            *skip -= take;
        }
        bytes += take;
        len -= take;
        if (*n < FMTP_HEADER_LEN || *skip)
            continue;
        *n = 0;
        fmtp_header_get(partial, &h);
        if ((rx->nlog & (rx->nlog - 1)) == 0)
            rx->log = realloc(rx->log, (rx->nlog ? 2 * rx->nlog : 1) * sizeof *rx->log);
        rx->log[rx->nlog++] = (struct sim_message){rx->sim->now_ns, from_sender, h};
    }
}

static void stream_out(struct sim *s, struct sim_receiver *rx)
{
    uint8_t bytes[4000];
    size_t want = 1 + sim_random(s, sizeof bytes), len = 0;

    struct fmtp_stream_out out;
    fmtp_sender_peer_peek(s->sender, rx->peer, &out, sender_now(s));
    for (int i = 0; i < out.niov && len < want; i++) {
        size_t n = out.iov[i].iov_len < want - len ? out.iov[i].iov_len : want - len;
        memcpy(bytes + len, out.iov[i].iov_base, n);
        len += n;
    }
    assert(len && len <= out.len);
    fmtp_sender_peer_sent(s->sender, rx->peer, len, sender_now(s));
    s->stream_bytes += len;
    rx->stream_free_ns = s->now_ns + len * UINT64_C(8000000000) / s->cfg.unicast_bps;
    tp_events_push_bytes(&s->events, event_for(rx, TO_RECEIVER, rx->stream_free_ns + rx->delay_ns),
                         bytes, len);
}

/* Half of the payloads lie where the receiver predicted one, correctly or not. */
static void deliver_datagram(struct sim *s, struct sim_receiver *rx, const struct tp_packet *p)
{
    const uint8_t *payload = p->bytes + FMTP_HEADER_LEN;
    size_t len = p->len - FMTP_HEADER_LEN;
    struct iovec place[2];

    struct fmtp_header first;
    if (s->events.order & 1 && fmtp_receiver_places(rx->core, &first, place, 2) &&
        place[0].iov_len >= len) {
        memcpy(place[0].iov_base, payload, len);
        payload = place[0].iov_base;
    }
    fmtp_receiver_datagram(rx->core, p->bytes, payload, len, receiver_now(rx));
}

/* A datagram has come, and waits to be read. */
static void buffer_datagram(struct sim *s, struct sim_receiver *rx, struct tp_packet *p)
{
    const struct sim_config *cfg = &s->cfg;

    if (rx->buffered + p->len > cfg->buffer_bytes) {
        rx->overflows++;
        return;
    }
    rx->buffered += p->len;
    if (rx->read_ns < s->now_ns)
        rx->read_ns = s->now_ns;
    if (rx == s->rx && rx->read_ns >= cfg->pause_ns && rx->read_ns < cfg->pause_end_ns)
        rx->read_ns = cfg->pause_end_ns;
    uint64_t rate_bps = rx == s->rx && cfg->first_reads_bps ? cfg->first_reads_bps : cfg->reads_bps;
    rx->read_ns += p->len * UINT64_C(8000000000) / rate_bps;
    struct tp_event e = event_for(rx, READ, rx->read_ns);
    e.packet = p;
    tp_events_push(&s->events, e);
}

/* The sender reads what it wants of what arrived. */
static void read_inbox(struct sim *s, struct sim_receiver *rx)
{
    size_t wants = fmtp_sender_peer_wants(s->sender, rx->peer);
    size_t n = wants < rx->inbox_len ? wants : rx->inbox_len;

    if (!n)
        return;
    int rc = fmtp_sender_peer_input(s->sender, rx->peer, rx->inbox, n, sender_now(s));
    rx->inbox_len -= n;
    memmove(rx->inbox, rx->inbox + n, rx->inbox_len);
    if (rc < 0) {
        s->closed++; /* its queue overflowed */
        sim_reconnect(s, (int)(rx - s->rx), false);
    }
}

static void deliver(struct sim *s, struct tp_event *e)
{
    struct sim_receiver *rx = &s->rx[e->to];
    struct tp_packet *p = e->packet;
    int rc = 0;

    if (e->kind == DATAGRAM && rx->core && s->cfg.buffer_bytes) {
        buffer_datagram(s, rx, p);
    } else if (e->kind == DATAGRAM && rx->core) {
        deliver_datagram(s, rx, p);
    } else if (e->kind == READ && rx->core) {
        rx->buffered -= p->len;
        deliver_datagram(s, rx, p);
    } else if (e->kind == TO_RECEIVER && e->connection == rx->connection) {
        log_stream(rx, true, p->bytes, p->len);
        rc = fmtp_receiver_stream(rx->core, p->bytes, p->len, receiver_now(rx));
    } else if (e->kind == TO_SENDER && e->connection == rx->connection) {
        log_stream(rx, false, p->bytes, p->len);
        rx->inbox = realloc(rx->inbox, rx->inbox_len + p->len);
        memcpy(rx->inbox + rx->inbox_len, p->bytes, p->len);
        rx->inbox_len += p->len;
        read_inbox(s, rx);
    }
    assert(rc == 0);
    (void)rc;
    tp_packet_done(e->packet);
}

void sim_forge(struct sim *s, int receiver, const struct fmtp_header *h, const uint8_t *payload)
{
    uint8_t bytes[SIM_DATAGRAM];
    struct tp_packet *p;

    assert(h->payloadlen <= sizeof bytes - FMTP_HEADER_LEN);
    fmtp_header_put(bytes, h);
    if (h->payloadlen)
        memcpy(bytes + FMTP_HEADER_LEN, payload, h->payloadlen);
    p = tp_packet_new(bytes, FMTP_HEADER_LEN + (size_t)h->payloadlen);
    deliver_datagram(s, &s->rx[receiver], p);
    tp_packet_done(p);
}

void sim_forge_bop(struct sim *s, int receiver, uint32_t index, uint32_t size)
{
    struct fmtp_bop bop = {.size_bytes = size, .meta_len = 4, .meta = (const uint8_t *)"evil"};
    uint8_t body[FMTP_BOP_FIXED_MAX + 4];
    uint16_t len = (uint16_t)fmtp_bop_put(s->cfg.layout, body, &bop);

    sim_forge(s, receiver, &(struct fmtp_header){index, 0, len, FMTP_BOP}, body);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Converts a core's deadline to the network's time. */
static uint64_t unleap(uint64_t deadline_ns, uint64_t leapt_ns)
{
    if (deadline_ns == TP_NEVER)
        return TP_NEVER;
    return deadline_ns > leapt_ns ? deadline_ns - leapt_ns : 0;
}

static uint64_t next_time(const struct sim *s)
{
    uint64_t t = tp_events_next(&s->events);

    t = earlier(t, unleap(fmtp_sender_deadline(s->sender), s->sender_leapt_ns));
    if (fmtp_sender_has_output(s->sender, sender_now(s)))
        t = earlier(t, later(s->nic_free_ns, s->held_ns));
    if (s->offered < s->nproducts && fmtp_sender_ready(s->sender))
        t = earlier(t, s->product[s->offered].at_ns);
    for (int i = 0; i < s->nrx; i++) {
        const struct sim_receiver *rx = &s->rx[i];
        if (!rx->core)
            continue;
        t = earlier(t, unleap(fmtp_receiver_deadline(rx->core), rx->leapt_ns));
        if (fmtp_sender_peer_pending(s->sender, rx->peer))
            t = earlier(t, rx->stream_free_ns);
        if (rx->inbox_len && fmtp_sender_peer_wants(s->sender, rx->peer))
            t = earlier(t, s->now_ns);
        const uint8_t *bytes;
        if (fmtp_receiver_output(rx->core, &bytes))
            t = earlier(t, s->now_ns);
    }
    return t == TP_NEVER ? t : later(t, s->now_ns);
}

static void serve(struct sim *s, struct sim_receiver *rx)
{
    read_inbox(s, rx);
    fmtp_receiver_timeout(rx->core, receiver_now(rx));
    const uint8_t *bytes;
    size_t len;
    while ((len = fmtp_receiver_output(rx->core, &bytes))) {
        tp_events_push_bytes(&s->events, event_for(rx, TO_SENDER, s->now_ns + rx->delay_ns), bytes,
                             len);
        fmtp_receiver_sent(rx->core, len);
    }
    if (fmtp_sender_peer_pending(s->sender, rx->peer) && rx->stream_free_ns <= s->now_ns)
        stream_out(s, rx);
}

void sim_run(struct sim *s, uint64_t until_ns)
{
    for (;;) {
        uint64_t t = next_time(s);
        if (t == TP_NEVER || t > until_ns)
            break;
        s->now_ns = t;
        while (tp_events_next(&s->events) <= t) {
            struct tp_event e = tp_events_pop(&s->events);
            deliver(s, &e);
        }
        fmtp_sender_timeout(s->sender, sender_now(s));
        if (s->offered < s->nproducts && fmtp_sender_ready(s->sender) &&
            s->product[s->offered].at_ns <= t)
            offer(s);
        if (s->cfg.progress)
            s->held_ns = fmtp_sender_held_until(s->sender, s->cfg.rate_bps, sender_now(s));
        if (fmtp_sender_has_output(s->sender, sender_now(s)) && s->nic_free_ns <= t && !s->held_ns)
            multicast(s);
        for (int i = 0; i < s->nrx; i++)
            if (s->rx[i].core)
                serve(s, &s->rx[i]);
    }
    if (until_ns != TP_NEVER)
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "bottleneck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "feed.h"
#include "file.h"
#include "sim/events.h"
#include "sim/random.h"
#include "tcp.h"
#include "windows.h"

enum kind {
    SEND,
    JOIN,
    LEAVE,
    DEPART,
    ARRIVE,
    TICK,
    ACK,
    TIMEOUT,
    START_TCP,
    START_RECEIVER,
    SHORT
};
enum { SHORT_BYTES = 3160 /* mean of the short connections: 85 % have less than 6 KB */ };

struct frame {
    int flow; /* sessions first, then TCP connections, then all short ones */
    struct m2c_due due;
    uint32_t segment, all; /* TCP; all: of an acknowledgement */
    unsigned channel;      /* JOIN, LEAVE */
    uint64_t leave;        /* number of the leave: a later join cancels it */
};

struct receiver {
    struct m2c_cc *cc;
    struct windows windows;
    bool hears[M2C_WAVE_CHANNELS_MAX + 1];
    uint64_t leaves[M2C_WAVE_CHANNELS_MAX + 1];
    uint64_t tick_ns, begun_ns, packets;
    struct got got;
    uint64_t done_ns;
};

struct sim {
    const struct bn_config *cfg;
    struct bn_result *out;
    struct tp_events events;
    uint64_t now_ns, random;
    struct m2c_wave wave;
    struct m2c_feed feeds[BN_SESSIONS_MAX];
    struct m2c_due due[BN_SESSIONS_MAX];
    uint64_t phase_ns[BN_SESSIONS_MAX]; /* phases of their time slots */
    struct receiver receivers[BN_SESSIONS_MAX][BN_RECEIVERS_MAX];
    struct tcp tcp[BN_TCP_MAX];
    uint64_t tcp_armed_ns[BN_TCP_MAX], tcp_packets[BN_TCP_MAX], tcp_begun_ns[BN_TCP_MAX];
    struct windows tcp_windows[BN_TCP_MAX];
    uint32_t segments; /* in each connection's file */
    struct file file;
    unsigned queued, open; /* open: receivers without the complete file, TCP included */
    uint64_t free_ns;      /* when the line will have sent what is queued */
};

static uint64_t ns_of(double seconds)
{
    return (uint64_t)llround(seconds * 1e9);
}

static void fail(const char *what)
{
    fprintf(stderr, "simulation: %s\n", what);
    exit(1);
}

static void push(struct sim *s, uint64_t at_ns, enum kind kind, int to, const struct frame *f)
{
    const struct frame none = {0};

    tp_events_push_bytes(&s->events, (struct tp_event){.at_ns = at_ns, .kind = kind, .to = to},
                         (const uint8_t *)(f ? f : &none), sizeof *f);
}

static bool is_measured(const struct sim *s)
{
    return s->now_ns >= ns_of(s->cfg->from_s);
}

/* Counts a packet that arrives now. */
static void count_packet(const struct sim *s, struct windows *of)
{
    if (!is_measured(s))
        return;
    const uint64_t window_ns = s->cfg->window_s > 0 ? ns_of(s->cfg->window_s) : 1000000000;
    windows_count(of, (s->now_ns - ns_of(s->cfg->from_s)) / window_ns);
}

static double soon(struct sim *s, double most_s)
{
    return most_s * tp_random_below(&s->random, 1000000) / 1e6;
}

/* ------------------------------------------------------------------ the queue */

static struct bn_flow *flow_of(struct sim *s, int flow)
{
    const int sessions = (int)s->cfg->sessions, tcp = (int)s->cfg->tcp;

    if (flow >= sessions + tcp)
        return &s->out->shorts;
    return flow < sessions ? &s->out->sessions[flow] : &s->out->tcp[flow - sessions];
}

static void enqueue(struct sim *s, const struct frame *f)
{
    struct bn_flow *flow = flow_of(s, f->flow);

    flow->arrived += is_measured(s);
    if (s->queued > s->cfg->queue_packets) { /* the + 1: one packet is being sent */
        flow->dropped += is_measured(s);
        return;
    }
    s->queued++;
    s->free_ns = s->free_ns > s->now_ns ? s->free_ns : s->now_ns;
    s->free_ns += ns_of(BN_PACKET_BYTES * 8 / s->cfg->rate_bps);
    push(s, s->free_ns, DEPART, 0, f);
}

/* ------------------------------------------------------------------ multicast */

/* Carries out the joins and leaves of the receiver's congestion control. */
static void obey(struct sim *s, int to)
{
    struct receiver *r = &s->receivers[to / BN_RECEIVERS_MAX][to % BN_RECEIVERS_MAX];
    const uint64_t way_ns = s->now_ns + ns_of(s->cfg->delay_s);
    struct m2c_change c;

    while (m2c_cc_change(r->cc, &c)) {
        const struct frame f = {.channel = c.channel, .leave = r->leaves[c.channel]};
        push(s, c.joins ? way_ns : way_ns + ns_of(s->cfg->leave_latency_s), c.joins ? JOIN : LEAVE,
             to, &f);
        r->leaves[c.channel] += c.joins; /* cancels earlier leaves */
    }
    const uint64_t deadline = m2c_cc_deadline(r->cc);
    if (deadline < r->tick_ns) {
        r->tick_ns = deadline;
        push(s, deadline, TICK, to, NULL);
    }
}

static void take_symbol(struct sim *s, struct receiver *r, uint32_t number)
{
    if (!r->got.file || !got_symbol(&r->got, file_symbol(&s->file, number)))
        return;
    r->done_ns = s->now_ns;
    memset(r->hears, 0, sizeof r->hears);
    s->open--;
}

static void deliver(struct sim *s, const struct frame *f)
{
    for (unsigned i = 0; i < s->cfg->receivers; i++) {
        struct receiver *r = &s->receivers[f->flow][i];
        if (!r->cc || !r->hears[f->due.cci.channel] || r->done_ns)
            continue;
        r->packets += is_measured(s);
        count_packet(s, &r->windows);
        m2c_cc_packet(r->cc, f->due.cci, s->now_ns);
        take_symbol(s, r, f->due.block);
        if (!r->done_ns)
            obey(s, f->flow * BN_RECEIVERS_MAX + (int)i);
    }
}

static void send_layer(struct sim *s, int session)
{
    const struct frame f = {.flow = session, .due = s->due[session]};
    bool is_heard = false;

    for (unsigned i = 0; i < s->cfg->receivers; i++)
        is_heard |= s->receivers[session][i].hears[f.due.cci.channel];
    if (is_heard)
        enqueue(s, &f);
    if (!m2c_feed_next(&s->feeds[session], &s->due[session]))
        fail("no memory");
    push(s, s->due[session].at_ns + s->phase_ns[session] - ns_of(s->cfg->sent_s), SEND, session,
         NULL);
}

static void start_receiver(struct sim *s, int to)
{
    struct receiver *r = &s->receivers[to / BN_RECEIVERS_MAX][to % BN_RECEIVERS_MAX];
    const struct m2c_cc_config cfg = {.kind = s->cfg->kind, .wave = s->wave};

    r->cc = m2c_cc_new(&cfg, s->now_ns);
    if (!r->cc)
        fail("no memory");
    if (s->cfg->file_bytes > 0)
        got_init(&r->got, &s->file, s->cfg->decodes);
    r->tick_ns = UINT64_MAX;
    r->begun_ns = s->now_ns;
    obey(s, to);
}

/* ------------------------------------------------------------------ TCP */

static void run_tcp(struct sim *s, int i)
{
    struct tcp *t = &s->tcp[i];
    struct frame f = {.flow = (int)s->cfg->sessions + i};

    if (s->out->tcp[i].time_s > 0)
        return;
    while (tcp_send(t, s->now_ns, &f.segment))
        enqueue(s, &f);
    if (t->timeout_ns < s->tcp_armed_ns[i]) {
        s->tcp_armed_ns[i] = t->timeout_ns;
        push(s, t->timeout_ns, TIMEOUT, i, NULL);
    }
}

static void time_out(struct sim *s, int i)
{
    struct tcp *t = &s->tcp[i];

    s->tcp_armed_ns[i] = UINT64_MAX;
    if (s->now_ns >= t->timeout_ns)
        tcp_time_out(t, s->now_ns);
    run_tcp(s, i);
    if (t->timeout_ns != UINT64_MAX && s->tcp_armed_ns[i] == UINT64_MAX) {
        s->tcp_armed_ns[i] = t->timeout_ns;
        push(s, t->timeout_ns, TIMEOUT, i, NULL);
    }
}

static void arrive(struct sim *s, struct frame *f)
{
    const int i = f->flow - (int)s->cfg->sessions;

    if (s->cfg->lost > 0 && soon(s, 1) < s->cfg->lost)
        return;
    if (i < 0)
        deliver(s, f);
    if (i < 0 || i >= (int)s->cfg->tcp)
        return;
    s->tcp_packets[i] += is_measured(s);
    count_packet(s, &s->tcp_windows[i]);
    const uint32_t before = s->tcp[i].expected;
    f->all = tcp_receive(&s->tcp[i], f->segment);
    /* One in order waits for a second one, 40 ms at most. */
    const bool waits = s->cfg->tcp_is_of_2010 && f->all == before + 1 && f->all % 2;
    if (i < (int)s->cfg->tcp_files && f->all >= s->segments && s->out->tcp[i].time_s == 0) {
        s->out->tcp[i].time_s = (double)(s->now_ns - s->tcp_begun_ns[i]) / 1e9;
        s->open--;
    }
    const double overhead_s = soon(s, BN_PACKET_BYTES * 8 / s->cfg->rate_bps);
    push(s, s->now_ns + ns_of(s->cfg->delay_s + overhead_s + (waits ? 0.04 : 0)), ACK, i, f);
}

/* ------------------------------------------------------------------ short connections */

static double exponential(struct sim *s, double mean)
{
    return -mean * log(1 - soon(s, 1));
}

/* Starts a short connection and schedules the next. Hardly any has more than a first window, so it
 * sends all at once and nothing again. */
static void send_short(struct sim *s)
{
    const struct frame f = {.flow = (int)(s->cfg->sessions + s->cfg->tcp)};

    for (double left = exponential(s, SHORT_BYTES); left > 0; left -= BN_SEGMENT_BYTES)
        enqueue(s, &f);
    push(s, s->now_ns + ns_of(exponential(s, 60 / s->cfg->short_per_min)), SHORT, 0, NULL);
}

/* ------------------------------------------------------------------ all */

static void handle(struct sim *s, const struct tp_event *e)
{
    struct frame f;
    struct receiver *r = &s->receivers[e->to / BN_RECEIVERS_MAX][e->to % BN_RECEIVERS_MAX];

    memcpy(&f, e->packet->bytes, sizeof f);
    switch ((enum kind)e->kind) {
    case SEND: send_layer(s, e->to); break;
    case JOIN: r->hears[f.channel] = !r->done_ns; break;
    case LEAVE: r->hears[f.channel] &= f.leave != r->leaves[f.channel]; break;
    case DEPART:
        s->queued--;
        push(s, s->now_ns + ns_of(s->cfg->delay_s), ARRIVE, 0, &f);
        break;
    case ARRIVE: arrive(s, &f); break;
    case TICK:
        r->tick_ns = UINT64_MAX;
        if (r->done_ns)
            break;
        m2c_cc_time(r->cc, s->now_ns);
        obey(s, e->to);
        break;
    case ACK:
        tcp_acknowledge(&s->tcp[e->to], f.all, f.segment, s->now_ns);
        run_tcp(s, e->to);
        break;
    case TIMEOUT: time_out(s, e->to); break;
    case START_TCP: run_tcp(s, e->to); break;
    case START_RECEIVER: start_receiver(s, e->to); break;
    case SHORT: send_short(s); break;
    }
}

static void begin(struct sim *s)
{
    const struct bn_config *cfg = s->cfg;
    struct m2c_wave_config wave = {.slot_s = cfg->slot_s, .is_static = cfg->kind == M2C_CC_STATIC};

    /* Enough layers for twice the line rate. */
    wave.layers = m2c_wave_layers_for(&wave, 2 * cfg->rate_bps / 8 / BN_PACKET_BYTES);
    if (m2c_wave_init(&s->wave, &wave) < 0)
        fail("this wave cannot be");
    if (cfg->file_bytes > 0)
        file_init(&s->file, cfg->file_bytes, BN_SYMBOL_BYTES);
    const uint32_t blocks = cfg->file_bytes > 0 ? s->file.symbols : 20000;
    for (unsigned i = 0; i < cfg->sessions; i++) {
        s->phase_ns[i] = ns_of(soon(s, s->wave.cfg.slot_s));
        if (m2c_feed_init(&s->feeds[i], &s->wave, blocks, ns_of(cfg->sent_s)) < 0 ||
            !m2c_feed_next(&s->feeds[i], &s->due[i]))
            fail("no feed");
        push(s, s->due[i].at_ns + s->phase_ns[i] - ns_of(cfg->sent_s), SEND, (int)i, NULL);
        for (unsigned r = 0; r < cfg->receivers; r++)
            push(s, ns_of(s->wave.cfg.slot_s + 2 + soon(s, 2)), START_RECEIVER,
                 (int)(i * BN_RECEIVERS_MAX + r), NULL);
    }
    for (unsigned i = 0; i < cfg->tcp; i++) {
        tcp_init(&s->tcp[i], cfg->tcp_is_of_2010);
        s->tcp_armed_ns[i] = UINT64_MAX;
        s->tcp_begun_ns[i] = ns_of(soon(s, 3));
        push(s, s->tcp_begun_ns[i], START_TCP, (int)i, NULL);
    }
    s->segments = (uint32_t)ceil(cfg->file_bytes / BN_SEGMENT_BYTES);
    s->open = cfg->file_bytes > 0 ? cfg->sessions * cfg->receivers + cfg->tcp_files : UINT32_MAX;
    if (cfg->short_per_min > 0)
        push(s, ns_of(exponential(s, 60 / cfg->short_per_min)), SHORT, 0, NULL);
}

/* Computes the criteria of M2C10, 7.2. */
static void measure_file(const struct sim *s, const struct receiver *r, struct bn_receiver *out)
{
    const double file = s->cfg->file_bytes, link = (double)r->packets * BN_FRAME_BYTES;
    const double useful = (double)r->got.useful, k = (double)s->file.partition.symbols;

    out->time_s = (double)(r->done_ns - r->begun_ns) / 1e9;
    out->useful = r->got.useful;
    out->redundant = r->got.redundant;
    out->gput_bps = 8 * file / out->time_s;
    out->tput_bps = 8 * link / out->time_s;
    out->dup = 100 * (double)r->got.redundant / useful;
    out->sym = 100 * (useful / k - 1);
    out->net = 100 * (link / file - 1);
}

static void end(struct sim *s)
{
    const struct bn_config *cfg = s->cfg;
    const double each = BN_PACKET_BYTES * 8 / ((double)s->now_ns / 1e9 - cfg->from_s);

    for (unsigned i = 0; i < cfg->sessions; i++) {
        for (unsigned n = 0; n < cfg->receivers; n++) {
            struct receiver *r = &s->receivers[i][n];
            struct bn_receiver *out = &s->out->receivers[i][n];
            out->bps = (double)r->packets * each;
            out->variation = windows_variation(&r->windows);
            if (r->done_ns)
                measure_file(s, r, out);
            m2c_cc_get_stats(r->cc, &out->cc);
            m2c_cc_free(r->cc);
            got_free(&r->got);
        }
        m2c_feed_free(&s->feeds[i]);
    }
    for (unsigned i = 0; i < cfg->tcp; i++) {
        s->out->tcp[i].bps = (double)s->tcp_packets[i] * each;
        s->out->tcp[i].variation = windows_variation(&s->tcp_windows[i]);
        s->out->tcp_timeouts += s->tcp[i].timeouts;
    }
    tp_events_free(&s->events);
}

void bn_run(const struct bn_config *cfg, struct bn_result *out)
{
    struct sim *s = calloc(1, sizeof *s);

    if (!s)
        fail("no memory");
    *out = (struct bn_result){0};
    s->cfg = cfg;
    s->out = out;
    s->random = cfg->seed;
    begin(s);
    while (s->open && tp_events_next(&s->events) < ns_of(cfg->to_s)) {
        struct tp_event e = tp_events_pop(&s->events);
        s->now_ns = e.at_ns;
        handle(s, &e);
        tp_packet_done(e.packet);
    }
    end(s);
    free(s);
}

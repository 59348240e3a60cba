/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending core's repairs alone: bytes in, bytes out. Blocks of 100 bytes in groups of at most
 * 10; a datagram of a block counts 12+100+28 = 140 bytes, at 1.12 Mbit/s 1 ms. Making a symbol of
 * 10 blocks is reckoned as 250 ns, next to nothing. Round trips take 8 ms, so requests are merged
 * for 2 ms.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <malloc.h>
#include <string.h>

#include "fec.h"
#include "sender.h"
#include "timers.h"

#define MS UINT64_C(1000000)
enum { BLOCK = 100 };

static int nreleased;
static uint32_t latest;                     /* index of the product offered last */
static uint8_t product[30000];

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    (void)ctx;
    (void)index;
    (void)cookie;
    (void)why;
    nreleased++;
}

static const struct fmtp_sender_config common = {
    .layout = FMTP_LAYOUT_2021, .block_bytes = BLOCK, .overhead_bytes = 28, .fec_k = 10,
    .session_id = 77, .f_snd = 1e6, .r_mc_bps = 1120000, .max_products = 8, .max_peers = 4,
    .peer_queue_bytes = 4096, .released = released};

static struct fmtp_sender *make(const struct fmtp_sender_config *cfg)
{
    nreleased = 0;
    for (size_t i = 0; i < sizeof product; i++)
        product[i] = (uint8_t)(i * 2654435761u >> 13);
    return fmtp_sender_new(cfg);
}

static int peer(struct fmtp_sender *s, bool extended)
{
    int p = fmtp_sender_peer_add(s, extended, NULL);

    fmtp_sender_peer_rtt(s, p, 8 * MS);
    return p;
}

static void offer(struct fmtp_sender *s, size_t size)
{
    struct iovec parts[2] = {{product, size / 3}, {product + size / 3, size - size / 3}};
    struct fmtp_error err;

    assert_int_equal(fmtp_sender_offer(s, parts, 2, "m", 1, NULL, (struct timespec){0}, &latest,
                                       &err), 0);
}

/* Takes and sends one datagram; false: there is none. */
static bool next(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_header *h, uint8_t *payload)
{
    struct fmtp_datagram d;
    size_t len = 0;

    if (!fmtp_sender_has_output(s, now_ns)) {
        assert_int_equal(fmtp_sender_fill(s, &d, 1, now_ns), 0);
        return false;
    }
    assert_int_equal(fmtp_sender_fill(s, &d, 1, now_ns), 1);
    fmtp_header_get(d.head, h);
    for (int i = 1; i < d.niov; i++) {
        memcpy(payload + len, d.iov[i].iov_base, d.iov[i].iov_len);
        len += d.iov[i].iov_len;
    }
    assert_int_equal(len, h->payloadlen);
    fmtp_sender_sent(s, 1, now_ns);
    return true;
}

/* Sends all there is; returns how many datagrams, *extra of them PARITY or REPAIR. */
static unsigned drain(struct fmtp_sender *s, uint64_t now_ns, unsigned *extra)
{
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    unsigned n = 0;

    *extra = 0;
    for (; next(s, now_ns, &h, payload); n++)
        *extra += h.flags == FMTP_PARITY || h.flags == FMTP_REPAIR;
    return n;
}

static void expect(struct fmtp_sender *s, uint64_t now_ns, uint16_t flags, uint32_t seqnum)
{
    struct fmtp_header h;
    uint8_t payload[BLOCK];

    assert_true(next(s, now_ns, &h, payload));
    assert_int_equal(h.flags, flags);
    assert_int_equal(h.seqnum, seqnum);
    if (flags == FMTP_REPAIR)
        assert_memory_equal(payload, product + seqnum, h.payloadlen);
}

static void expect_none(struct fmtp_sender *s, uint64_t now_ns)
{
    assert_false(fmtp_sender_has_output(s, now_ns));
}

static int put(struct fmtp_sender *s, int p, uint16_t flags, uint32_t index, uint32_t seq,
               uint16_t len)
{
    struct fmtp_header h = {index, seq, len, flags};
    uint8_t bytes[FMTP_HEADER_LEN];

    fmtp_header_put(bytes, &h);
    return fmtp_sender_peer_input(s, p, bytes, sizeof bytes, 0);
}

static int ask_k(struct fmtp_sender *s, int p, uint32_t index, uint32_t group, unsigned k,
                 struct fmtp_repair_req req, const void *bits, uint64_t now_ns)
{
    uint8_t bytes[FMTP_HEADER_LEN + FMTP_REPAIR_REQ_MAX];
    struct fmtp_header h = {index, group, (uint16_t)fmtp_repair_req_len(k), FMTP_REPAIR_REQ};

    req.bitmap = bits;
    fmtp_header_put(bytes, &h);
    fmtp_repair_req_put(bytes + FMTP_HEADER_LEN, &req, k);
    return fmtp_sender_peer_input(s, p, bytes, FMTP_HEADER_LEN + h.payloadlen, now_ns);
}

/* A request for blocks of a group of 10 of the latest product, as bits. */
static int ask(struct fmtp_sender *s, int p, uint32_t group, uint8_t high, uint8_t round,
               uint16_t need, uint16_t lost, uint64_t now_ns)
{
    uint8_t bits[2] = {(uint8_t)lost, (uint8_t)(lost >> 8)};

    return ask_k(s, p, latest, group, 10, (struct fmtp_repair_req){high, round, need, NULL},
                 bits, now_ns);
}

/* Multicasts a product of 300 blocks of which nothing is lost: the sender learns that loss is rare,
 * so it reckons with none of its repairs. */
static void calm(struct fmtp_sender *s)
{
    unsigned extra;

    offer(s, 30000);
    assert_int_equal(drain(s, 0, &extra), 302);
    for (int p = 0; p < 4 && nreleased == 0; p++)
        put(s, p, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 1);
    nreleased = 0;
}

static uint32_t parity(unsigned group, unsigned number, unsigned end)
{
    return group << 16 | number << 8 | end;
}

/* Takes what goes to a peer now. */
static size_t stream(struct fmtp_sender *s, int p, uint8_t *bytes, size_t most, uint64_t now_ns)
{
    struct fmtp_stream_out out;
    size_t len = 0;

    if (!fmtp_sender_peer_pending(s, p))
        return 0;
    fmtp_sender_peer_peek(s, p, &out, now_ns);
    for (int i = 0; i < out.niov; i++)
        for (size_t b = 0; b < out.iov[i].iov_len && len < most; b++)
            bytes[len++] = ((uint8_t *)out.iov[i].iov_base)[b];
    fmtp_sender_peer_sent(s, p, len, now_ns);
    return len;
}

/* ------------------------------------------------------------------ */

static void test_session(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_sender *s = make(&cfg);
    struct fmtp_session session;
    unsigned extra;

    (void)state;
    offer(s, 1000);
    fmtp_sender_peer_add(s, true, &session);
    assert_true(session.extended);
    assert_int_equal(session.block_bytes, 100);
    assert_int_equal(session.fec_k, 10);
    assert_int_equal(session.next_index, 1);             /* product 0 does not wait for it */
    assert_int_equal(session.id, 77);
    fmtp_sender_peer_add(s, false, &session);
    assert_false(session.extended);
    assert_int_equal(session.block_bytes, 100);
    assert_int_equal(drain(s, 0, &extra), 12);
    fmtp_sender_free(s);
    cfg.fec_k = 0;
    s = make(&cfg);
    fmtp_sender_peer_add(s, true, &session);
    assert_false(session.extended);
    fmtp_sender_free(s);
}

/* One block lost by one: that block again, for all, when the hold-off is over. */
static void test_original(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    unsigned extra;

    (void)state;
    peer(s, true);
    calm(s);
    offer(s, 2000);                                      /* groups [0,10) and [10,20) */
    assert_int_equal(drain(s, 0, &extra), 22);
    assert_int_equal(extra, 0);
    assert_int_equal(ask(s, a, 1, 0, 0, 1, 1 << 3, 20 * MS), 0);
    expect_none(s, 22 * MS - 1);
    assert_int_equal(fmtp_sender_deadline(s), 22 * MS);
    fmtp_sender_timeout(s, 22 * MS);
    expect(s, 22 * MS, FMTP_REPAIR, 1300);
    expect_none(s, 22 * MS);
    /* Asked again before it can have arrived: it is on its way. */
    ask(s, a, 1, 0, 0, 1, 1 << 3, 25 * MS);
    ask(s, a, 1, 0, 1, 1, 1 << 3, 29 * MS);
    expect_none(s, 40 * MS);
    /* More is missing than was resent: the rest of it. */
    ask(s, a, 1, 0, 0, 2, 1 << 3 | 1 << 4, 29 * MS);
    expect(s, 40 * MS, FMTP_REPAIR, 1400);
    expect_none(s, 40 * MS);
    /* It was lost again: asked for after a round trip it comes again. */
    ask(s, a, 1, 0, 1, 1, 1 << 3, 60 * MS);
    expect(s, 62 * MS, FMTP_REPAIR, 1300);
    expect_none(s, 70 * MS);
    fmtp_sender_free(s);
}

/* A single receiver: nobody else's request is to be waited for. */
static void test_no_hold_off_for_one(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    unsigned extra;

    (void)state;
    offer(s, 2000);
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 1, 1, 20 * MS);
    expect(s, 20 * MS, FMTP_REPAIR, 0);
    fmtp_sender_free(s);
}

/* Two lost two each, of different blocks: two parity symbols for both. The second group ends with a
 * short block, and a border between the product's parts lies within block 6. */
static void test_parity(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    uint8_t padded[2000] = {0}, want[2][BLOCK], payload[BLOCK], *out[2] = {want[0], want[1]};
    const uint8_t *blocks[10];
    struct fmtp_header h;
    struct fmtp_server_stats stats;
    unsigned extra;

    (void)state;
    calm(s);
    offer(s, 1950);
    drain(s, 0, &extra);
    memcpy(padded, product, 1950);
    for (uint32_t group = 0; group < 2; group++) {
        for (unsigned i = 0; i < 10; i++)
            blocks[i] = padded + group * 1000 + i * BLOCK;
        fmtp_fec_encode(10, 0, 2, BLOCK, blocks, out);
        ask(s, a, group, 0, 0, 2, 0x003, 20 * MS);
        ask(s, b, group, 0, 0, 2, 0x300, 21 * MS);
        for (unsigned number = 0; number < 2; number++) {
            assert_true(next(s, 22 * MS, &h, payload));
            assert_int_equal(h.flags, FMTP_PARITY);
            assert_int_equal(h.seqnum, parity(group, number, 2));
            assert_int_equal(h.payloadlen, BLOCK);
            assert_memory_equal(payload, want[number], BLOCK);
        }
        expect_none(s, 30 * MS);
    }
    /* b saw both and lacks one still; a lacks three by now and has seen none: 3 = 2 + 1 */
    ask(s, b, 0, 2, 0, 1, 0x300, 40 * MS);
    ask(s, a, 0, 0, 0, 3, 0x007, 40 * MS);
    expect(s, 42 * MS, FMTP_PARITY, parity(0, 2, 3));
    expect_none(s, 50 * MS);
    /* Later rounds count from what was sent, together. */
    ask(s, a, 0, 0, 1, 2, 0x007, 60 * MS);
    ask(s, b, 0, 3, 1, 1, 0x300, 60 * MS);
    expect(s, 62 * MS, FMTP_PARITY, parity(0, 3, 5));
    expect(s, 62 * MS, FMTP_PARITY, parity(0, 4, 5));
    expect_none(s, 80 * MS);
    /* What is known to have been sent does not count. */
    ask(s, b, 1, 2, 0, 1, 0x300, 100 * MS);
    expect(s, 102 * MS, FMTP_PARITY, parity(1, 2, 3));
    expect_none(s, 110 * MS);
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.repair_requests, 9);
    assert_int_equal(stats.parity_sent, 8);
    assert_int_equal(stats.repairs_sent, 0);
    assert_int_equal(stats.bad_messages, 0);
    fmtp_sender_free(s);
}

/* A request that comes while the burst is being sent lengthens it. */
static void test_request_in_mid_burst(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    unsigned extra;

    (void)state;
    calm(s);
    offer(s, 2000);
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x00c, 20 * MS);
    fmtp_sender_timeout(s, 22 * MS);
    ask(s, b, 0, 0, 0, 4, 0x03c, 22 * MS);
    ask(s, b, 0, 0, 1, 9, 0x3fe, 22 * MS);               /* a later round waits for the burst */
    for (unsigned i = 0; i < 4; i++)
        expect(s, 22 * MS, FMTP_PARITY, parity(0, i, 4));
    expect_none(s, 30 * MS);
    fmtp_sender_free(s);
}

/* A group of 200 blocks has 55 parity numbers: for 60 lost blocks only they themselves will do. */
static void test_numbers_run_out(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_sender *s;
    uint8_t bits[25] = {0};
    unsigned extra;
    int a, b;

    (void)state;
    cfg.fec_k = 200;
    s = make(&cfg);
    a = peer(s, true);
    b = peer(s, true);
    calm(s);
    offer(s, 20000);
    drain(s, 0, &extra);
    memset(bits, 0xff, 5);                               /* 40 */
    ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){0, 0, 40, NULL}, bits, 20 * MS);
    memset(bits + 2, 0xff, 8);                           /* 16 + 24 + 40 */
    ask_k(s, b, latest, 0, 200, (struct fmtp_repair_req){0, 0, 80, NULL}, bits, 21 * MS);
    for (uint32_t i = 0; i < 80; i++)
        expect(s, 22 * MS, FMTP_REPAIR, i * BLOCK);
    expect_none(s, 40 * MS);
    /* Parity is left: two who lost different blocks. 55 symbols more than the 500 blocks so far were
     * needed, so 0.2 of these two will be lost again: one in reserve. */
    memset(bits, 0, sizeof bits);
    bits[0] = 3;
    ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){0, 0, 2, NULL}, bits, 60 * MS);
    bits[0] = 0;
    bits[24] = 0xc0;
    ask_k(s, b, latest, 0, 200, (struct fmtp_repair_req){0, 0, 2, NULL}, bits, 60 * MS);
    expect(s, 62 * MS, FMTP_PARITY, parity(0, 0, 3));
    fmtp_sender_free(s);
}

/* Repairs of an older product and new data in turn; alone, repairs go on at once. */
static void test_one_for_one(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    unsigned extra;
    uint32_t older;
    char order[64] = "";

    (void)state;
    peer(s, true);
    calm(s);
    offer(s, 2000);
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 3, 0x007, 20 * MS);
    older = latest;
    offer(s, 500);
    for (unsigned i = 0; next(s, 22 * MS, &h, payload); i++)
        order[i] = h.flags & (FMTP_REPAIR | FMTP_PARITY) ? 'r' : h.flags == FMTP_MEM_DATA ? 'd' : 'x';
    /* the burst was planned at once, so as much data follows it */
    assert_string_equal(order, "rrrxdddddx");
    latest = older;
    ask(s, a, 0, 0, 1, 3, 0x007, 40 * MS);
    ask(s, a, 1, 0, 0, 3, 0x007, 40 * MS);
    offer(s, 500);
    memset(order, 0, sizeof order);
    for (unsigned i = 0; next(s, 42 * MS, &h, payload); i++)
        order[i] = h.flags & (FMTP_REPAIR | FMTP_PARITY) ? 'r' : h.flags == FMTP_MEM_DATA ? 'd' : 'x';
    assert_string_equal(order, "rrrxdddrrrddx");
    fmtp_sender_free(s);
}

/* What is asked for teaches how much parity follows each group unasked; silence unteaches it. */
static void test_proactive_parity(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    unsigned extra, in_group[30] = {0}, left = 0;

    (void)state;
    offer(s, 1000);                                      /* one group */
    assert_int_equal(drain(s, 0, &extra), 12);
    assert_int_equal(extra, 0);
    ask(s, a, 0, 0, 0, 3, 0x007, 20 * MS);
    drain(s, 22 * MS, &extra);
    assert_int_equal(extra, 4);                          /* 0.9 of 3 will be lost: one in reserve */
    put(s, a, FMTP_RETX_END, 0, 0, 0);
    put(s, b, FMTP_RETX_END, 0, 0, 0);
    /* 3 of 10 are lost: 3 parity symbols after each group. The request came 20 ms after the group
     * had left; within that and a hold-off, 22 ms or 22 blocks, of the end: ceil(2.5 * sqrt(3)) = 5
     * more. */
    offer(s, 30000);
    while (next(s, 22 * MS, &h, payload))
        if (h.flags == FMTP_PARITY) {
            struct fmtp_parity p = fmtp_parity_get(h.seqnum);
            assert_int_equal(p.number, in_group[p.group]++);
            assert_int_equal(p.end, p.group < 27 ? 3 : 8);
        }
    for (unsigned g = 0; g < 30; g++)
        assert_int_equal(in_group[g], g < 27 ? 3 : 8);
    fmtp_sender_timeout(s, 1000 * MS);
    put(s, a, FMTP_RETX_END, 1, 0, 0);
    put(s, b, FMTP_RETX_END, 1, 0, 0);
    /* Nobody asks for more: in the end none is added. */
    for (unsigned i = 0; i < 60; i++) {
        offer(s, 30000);
        drain(s, (1 + i) * 1000 * MS, &left);
        fmtp_sender_timeout(s, (2 + i) * 1000 * MS);
        put(s, a, FMTP_RETX_END, latest, 0, 0);
        put(s, b, FMTP_RETX_END, latest, 0, 0);
    }
    assert_int_equal(left, 0);
    fmtp_sender_free(s);
}

/* With an ordinary receiver nothing of the extension is multicast. */
static void test_mixed(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true), c;
    static struct fmtp_datagram d[8];
    uint8_t bytes[2000];
    struct fmtp_header h;
    unsigned extra;

    (void)state;
    calm(s);
    offer(s, 2000);
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x00c, 20 * MS);
    ask(s, b, 1, 0, 0, 2, 0x00c, 21 * MS);
    assert_int_equal(fmtp_sender_fill(s, d, 1, 22 * MS), 1);
    c = peer(s, false);
    /* What the caller has stays as it is; what was planned and held is dropped. */
    assert_int_equal(fmtp_sender_fill(s, d, 8, 22 * MS), 1);
    fmtp_sender_sent(s, 1, 22 * MS);
    expect_none(s, 30 * MS);
    assert_int_equal(fmtp_sender_deadline(s) > 100 * MS, 1);
    /* A request is answered on the stream by the blocks: {1, 4, 5} */
    ask(s, a, 0, 0, 0, 3, 1 << 1 | 1 << 4 | 1 << 5, 40 * MS);
    expect_none(s, 60 * MS);
    ask(s, a, 0, 0, 1, 3, 1 << 1 | 1 << 4 | 1 << 5, 60 * MS);    /* still queued: not twice */
    assert_int_equal(stream(s, a, bytes, sizeof bytes, 60 * MS), 3 * 112);
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_DATA);
    assert_int_equal(h.seqnum, 100);
    assert_memory_equal(bytes + 12, product + 100, BLOCK);
    fmtp_header_get(bytes + 224, &h);
    assert_int_equal(h.seqnum, 500);
    ask(s, a, 0, 0, 2, 1, 1 << 4, 90 * MS);              /* it left: once more */
    assert_int_equal(stream(s, a, bytes, sizeof bytes, 90 * MS), 112);
    /* When it goes the multicast serves again. */
    fmtp_sender_peer_remove(s, c);
    ask(s, a, 1, 0, 0, 1, 1, 100 * MS);
    expect(s, 102 * MS, FMTP_REPAIR, 1000);
    fmtp_sender_free(s);
}

static void test_bad_requests(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    uint8_t bits[32] = {1}, bytes[100];
    struct fmtp_server_stats stats;
    struct fmtp_header h;
    unsigned extra;

    (void)state;
    offer(s, 2000);
    drain(s, 0, &extra);
    assert_int_equal(ask(s, a, 2, 0, 0, 1, 1, MS), 0);                /* no such group */
    assert_int_equal(ask(s, a, 0, 0, 0, 2, 1, MS), 0);                /* needs more than it lacks */
    assert_int_equal(ask(s, a, 0, 0, 0, 1, 1 << 10, MS), 0);          /* no such block */
    assert_int_equal(ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){0, 0, 1, NULL}, bits, MS), 0);
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.bad_messages, 4);
    expect_none(s, 10 * MS);
    /* unknown product */
    assert_int_equal(ask_k(s, a, 9, 0, 10, (struct fmtp_repair_req){0, 0, 1, NULL}, bits, MS), 0);
    assert_int_equal(stream(s, a, bytes, sizeof bytes, MS), 12);
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_REJ);
    assert_int_equal(h.index, 9);
    /* what no receiver may send: a longer body than any, a body at all from an ordinary one */
    assert_int_equal(put(s, a, FMTP_REPAIR_REQ, 0, 0, 37), -1);
    fmtp_sender_peer_remove(s, b);
    b = peer(s, false);
    assert_int_equal(ask(s, b, 0, 0, 0, 1, 1, MS), -1);
    fmtp_sender_free(s);
}

/* Byte by byte, and two messages in one piece. */
static void test_pieces(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    uint8_t bytes[2 * 18];
    struct fmtp_header h = {1, 0, 6, FMTP_REPAIR_REQ};
    unsigned extra;

    (void)state;
    calm(s);
    offer(s, 2000);
    drain(s, 0, &extra);
    fmtp_header_put(bytes, &h);
    memcpy(bytes + 12, "\0\0\0\1\2\0", 6);
    h.seqnum = 1;
    fmtp_header_put(bytes + 18, &h);
    memcpy(bytes + 30, "\0\0\0\1\4\0", 6);
    for (int i = 0; i < 18; i++)
        assert_int_equal(fmtp_sender_peer_input(s, a, bytes + i, 1, MS), 0);
    expect(s, MS, FMTP_REPAIR, 100);
    expect_none(s, 10 * MS);
    assert_int_equal(fmtp_sender_peer_input(s, a, bytes, 36, 20 * MS), 0);
    expect(s, 20 * MS, FMTP_REPAIR, 100);
    expect(s, 20 * MS, FMTP_REPAIR, 1200);
    expect_none(s, 30 * MS);
    fmtp_sender_free(s);
}

/* The caller has datagrams of a product that nobody needs any more: it stays until they left. */
static void test_release_waits_for_the_caller(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    static struct fmtp_datagram d[8];
    struct fmtp_header h;
    unsigned extra;

    (void)state;
    calm(s);
    offer(s, 2000);
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x00c, 20 * MS);
    ask(s, b, 1, 0, 0, 1, 0x001, 20 * MS);
    assert_int_equal(fmtp_sender_fill(s, d, 2, 22 * MS), 2);
    put(s, a, FMTP_RETX_END, latest, 0, 0);
    put(s, b, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 0);
    /* For the peers it is gone. */
    put(s, a, FMTP_EOP_REQ, latest, 0, 0);
    uint8_t bytes[12];
    assert_int_equal(stream(s, a, bytes, sizeof bytes, 22 * MS), 12);
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_REJ);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 22 * MS), 2);       /* the same, and no more */
    fmtp_header_get(d[1].head, &h);
    assert_int_equal(h.seqnum, parity(0, 1, 2));
    fmtp_sender_sent(s, 1, 22 * MS);
    assert_int_equal(nreleased, 1);
    expect_none(s, 22 * MS);
    /* EOP and a repair of the same product in one batch */
    offer(s, 2000);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 30 * MS), 8);
    fmtp_sender_free(s);
    assert_int_equal(nreleased, 2);
}

/* A request makes the product wait for who did not count (it reconnected), but not for who is done. */
static void test_request_counts_peer(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b;
    struct fmtp_server_stats stats;
    unsigned extra;

    (void)state;
    offer(s, 2000);
    drain(s, 0, &extra);
    b = peer(s, true);
    ask(s, b, 0, 0, 0, 1, 1, MS);
    put(s, a, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 0);
    put(s, a, FMTP_EOP_REQ, latest, 0, 0);                    /* late, as the originals do */
    put(s, b, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 1);
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.acks, 2);
    assert_int_equal(stats.unacknowledged, 0);
    /* A number that is given anew is not the old peer. */
    offer(s, 1000);
    drain(s, 0, &extra);
    put(s, a, FMTP_RETX_END, 1, 0, 0);
    fmtp_sender_peer_remove(s, a);
    assert_int_equal(peer(s, true), a);
    put(s, a, FMTP_BOP_REQ, 1, 0, 0);
    put(s, b, FMTP_RETX_END, 1, 0, 0);
    assert_int_equal(nreleased, 1);
    put(s, a, FMTP_RETX_END, 1, 0, 0);
    assert_int_equal(nreleased, 2);
    fmtp_sender_free(s);
}

/* Unfinished peers are told of the end: after max(2 RTT, 100 ms) + 256 KiB at the rate (1872.457 ms
 * at 1.12 Mbit/s), then after twice that, up to 5 s; but not while something is queued for them. */
static void test_nudges(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, false);
    const uint64_t first = 100 * MS + 1872457143;
    struct fmtp_server_stats stats;
    struct fmtp_header h;
    uint8_t bytes[200];
    unsigned extra;

    (void)state;
    offer(s, 2000);
    drain(s, 0, &extra);
    assert_int_equal(fmtp_sender_deadline(s), first);
    put(s, b, FMTP_BOP_REQ, 0, 0, 0);
    fmtp_sender_timeout(s, first - 1);
    assert_int_equal(fmtp_sender_next_ready(s, first), b);
    fmtp_sender_timeout(s, first);
    assert_int_equal(stream(s, a, bytes, sizeof bytes, first), 12);
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_EOP);
    assert_int_equal(stream(s, b, bytes, sizeof bytes, first), 12 + 19);
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_BOP);
    put(s, a, FMTP_RETX_END, 0, 0, 0);
    assert_int_equal(fmtp_sender_deadline(s), first + 2 * first);
    fmtp_sender_timeout(s, 3 * first);
    assert_int_equal(stream(s, a, bytes, sizeof bytes, 3 * first), 0);
    assert_int_equal(stream(s, b, bytes, sizeof bytes, 3 * first), 12);
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_EOP);
    assert_int_equal(fmtp_sender_deadline(s), 3 * first + 5000 * MS);
    put(s, b, FMTP_RETX_END, 0, 0, 0);
    assert_int_equal(fmtp_sender_deadline(s), FMTP_NEVER);
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.nudges, 2);
    fmtp_sender_free(s);
}

/* r_uc: 8 Mbit/s are 1000 bytes/ms for all streams together, shared fairly; a stuck one hoards
 * nothing. Idle time saves up 5 ms and a message of 112 bytes. */
static void test_paced_streams(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_sender *s;
    int p[3];
    size_t got[3] = {0}, total = 0;
    uint8_t bytes[8192];
    unsigned extra;

    (void)state;
    cfg.r_uc_bps = 8000000;
    s = make(&cfg);
    for (int i = 0; i < 3; i++)
        p[i] = peer(s, false);
    offer(s, 30000);
    drain(s, 0, &extra);
    for (int i = 0; i < 3; i++)
        put(s, p[i], FMTP_RETX_REQ, 0, 0, 30000);
    fmtp_sender_peer_blocked(s, p[2], true);
    uint64_t now_ns = 1000 * MS, end_ns = now_ns + 20 * MS;
    while (now_ns <= end_ns) {
        int ready;
        while ((ready = fmtp_sender_next_ready(s, now_ns)) >= 0) {
            assert_int_not_equal(ready, p[2]);
            got[ready] += stream(s, ready, bytes, sizeof bytes, now_ns);
        }
        assert_false(fmtp_sender_peer_pending(s, p[0]) && fmtp_sender_peer_pending(s, p[1]));
        uint64_t next_ns = fmtp_sender_deadline(s);
        assert_true(next_ns > now_ns);
        now_ns = next_ns;
        fmtp_sender_timeout(s, now_ns);
    }
    total = got[0] + got[1];
    /* 5112 at once, 1000 per ms after that, to a message for each */
    assert_in_range(total, 5112 + 20000 - 224, 5112 + 20000 + 224);
    assert_in_range(got[0], total / 2 - 224, total / 2 + 224);
    assert_int_equal(got[2], 0);
    fmtp_sender_peer_blocked(s, p[2], false);
    fmtp_sender_timeout(s, now_ns + MS);
    assert_int_equal(fmtp_sender_next_ready(s, now_ns + MS) >= 0, 1);
    fmtp_sender_free(s);
}

/* Of three who have something queued the caller serves one only: the others hold a message each. */
static void test_nobody_hoards(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_sender *s;
    uint8_t bytes[8192];
    size_t got = 0;
    unsigned extra;
    int p = -1;

    (void)state;
    cfg.r_uc_bps = 8000000;
    s = make(&cfg);
    for (int i = 0; i < 3; i++)
        p = peer(s, false);
    offer(s, 30000);
    drain(s, 0, &extra);
    for (int i = 0; i < 3; i++)
        put(s, i, FMTP_RETX_REQ, 0, 0, 30000);
    for (uint64_t now_ns = 1000 * MS; now_ns <= 1020 * MS; now_ns += MS / 10) {
        fmtp_sender_timeout(s, now_ns);
        for (size_t n; (n = stream(s, p, bytes, sizeof bytes, now_ns)); )
            got += n;
    }
    assert_in_range(got, 5112 + 20000 - 3 * 112, 5112 + 20000 + 112);
    fmtp_sender_free(s);
}

/* Whatever is asked for, however often: no more memory. */
static void test_memory_is_bounded(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    uint8_t bits[2];
    unsigned extra;
    size_t before = 0;
    uint32_t x = 1;

    (void)state;
    peer(s, true);
    for (int i = 0; i < 8; i++) {
        offer(s, 30000);
        drain(s, 0, &extra);
    }
    for (uint64_t i = 0; i < 200000; i++) {
        if (i == 100000)
            before = mallinfo2().uordblks;
        x = x * 1664525 + 1013904223;
        bits[0] = (uint8_t)(x >> 24);
        bits[1] = x >> 20 & 3;
        ask_k(s, a, x >> 8 & 15, x >> 12 & 31, 10,
              (struct fmtp_repair_req){(uint8_t)(x >> 4), (uint8_t)(i % 5), 1, NULL}, bits,
              i * MS / 100);
        if (i % 97 == 0)
            put(s, a, i % 2 ? FMTP_BOP_REQ : FMTP_EOP_REQ, x >> 8 & 15, 0, 0);
        if (i % 1000 == 0) {
            uint8_t out[4096];
            while (stream(s, a, out, sizeof out, i * MS / 100))
                ;
        }
        if (i % 5 == 0) {
            struct fmtp_header h;
            uint8_t payload[BLOCK];
            next(s, i * MS / 100, &h, payload);
        }
    }
    assert_true(mallinfo2().uordblks <= before);
    fmtp_sender_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session), cmocka_unit_test(test_original),
        cmocka_unit_test(test_no_hold_off_for_one), cmocka_unit_test(test_parity),
        cmocka_unit_test(test_request_in_mid_burst), cmocka_unit_test(test_numbers_run_out),
        cmocka_unit_test(test_one_for_one), cmocka_unit_test(test_proactive_parity),
        cmocka_unit_test(test_mixed), cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_release_waits_for_the_caller),
        cmocka_unit_test(test_request_counts_peer), cmocka_unit_test(test_nudges),
        cmocka_unit_test(test_paced_streams), cmocka_unit_test(test_nobody_hoards),
        cmocka_unit_test(test_memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

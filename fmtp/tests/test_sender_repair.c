/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending core's repairs by multicast (extension 1).
 */
#include <string.h>

#include "fec.h"
#include "sender_kit.h"

static void test_session(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_sender *s = make(&cfg);

    (void)state;
    offer(s, 1000);
    struct fmtp_session session;
    fmtp_sender_peer_add(s, true, &session);
    assert_true(session.extended);
    assert_int_equal(session.block_bytes, 100);
    assert_int_equal(session.fec_k, 10);
    assert_int_equal(session.next_index, 1); /* product 0 does not wait for it */
    assert_int_equal(session.id, 77);
    fmtp_sender_peer_add(s, false, &session);
    assert_false(session.extended);
    assert_int_equal(session.block_bytes, 100);
    unsigned extra;
    assert_int_equal(drain(s, 0, &extra), 12);
    fmtp_sender_free(s);
    cfg.fec_k = 0;
    s = make(&cfg);
    fmtp_sender_peer_add(s, true, &session);
    assert_false(session.extended);
    fmtp_sender_free(s);
}

/* One receiver lost one block: that block is multicast again when the hold-off is over. */
static void test_original(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);

    (void)state;
    peer(s, true);
    calm(s);
    offer(s, 2000); /* groups [0,10) and [10,20) */
    unsigned extra;
    assert_int_equal(drain(s, 0, &extra), 22);
    assert_int_equal(extra, 0);
    assert_int_equal(ask(s, a, 1, 0, 0, 1, 1 << 3, 20 * MS), 0);
    expect_none(s, 22 * MS - 1);
    assert_int_equal(fmtp_sender_deadline(s), 22 * MS);
    fmtp_sender_timeout(s, 22 * MS);
    expect(s, 22 * MS, FMTP_REPAIR, 1300);
    expect_none(s, 22 * MS);
    /* Requested again before it can have arrived: it is in flight. */
    ask(s, a, 1, 0, 0, 1, 1 << 3, 25 * MS);
    ask(s, a, 1, 0, 1, 1, 1 << 3, 29 * MS);
    expect_none(s, 40 * MS);
    /* More is missing than was resent: the rest is sent. */
    ask(s, a, 1, 0, 0, 2, 1 << 3 | 1 << 4, 29 * MS);
    expect(s, 40 * MS, FMTP_REPAIR, 1400);
    expect_none(s, 40 * MS);
    /* Lost again: requested after a round trip, so it is sent again. */
    ask(s, a, 1, 0, 1, 1, 1 << 3, 60 * MS);
    expect(s, 62 * MS, FMTP_REPAIR, 1300);
    expect_none(s, 70 * MS);
    fmtp_sender_free(s);
}

static struct told {
    int peer;
    uint32_t index, blocks;
} told[8];
static unsigned ntold, nfull, nexpired;

static void repaired(void *ctx, int p, uint32_t index, uint32_t blocks)
{
    (void)ctx;
    assert_true(ntold < 8);
    told[ntold++] = (struct told){p, index, blocks};
}

static void queue_full(void *ctx, int p, uint32_t index)
{
    (void)ctx;
    assert_int_equal(p, 1);
    assert_int_equal(index, latest);
    nfull++;
}

static void expired(void *ctx, uint32_t index)
{
    (void)ctx;
    assert_int_equal(index, latest);
    nexpired++;
}

/* Reports each run of repairs sent, and what expired or had no room. */
static void test_told(void **state)
{
    struct fmtp_sender_config cfg = common;
    static uint8_t bytes[1000];

    (void)state;
    ntold = nfull = nexpired = 0;
    cfg.repaired = repaired;
    cfg.queue_full = queue_full;
    cfg.expired = expired;
    cfg.peer_queue_bytes = (size_t)64 * 16; /* 64 entries */
    struct fmtp_sender *s = make(&cfg);
    int a = peer(s, true), b = peer(s, false);
    calm(s);
    offer(s, 20000);
    unsigned extra;
    drain(s, 0, &extra);
    assert_int_equal(ntold, 0);
    ask(s, a, 0, 0, 0, 3, 7, 20 * MS);
    fmtp_sender_timeout(s, 22 * MS);
    struct fmtp_datagram out[16];
    unsigned n = fmtp_sender_fill(s, out, 16, 22 * MS);
    assert_in_range(n, 3, 16);
    fmtp_sender_sent(s, 1, 22 * MS);
    fmtp_sender_fill(s, out, 16, 22 * MS);
    fmtp_sender_sent(s, n - 1, 22 * MS);
    assert_int_equal(ntold, 2);
    assert_int_equal(told[0].peer, -1);
    assert_int_equal(told[0].blocks, 1);
    assert_int_equal(told[1].index, latest);
    assert_int_equal(told[1].blocks, n - 1);
    put(s, b, FMTP_RETX_REQ, latest, 500, 300);
    assert_int_equal(stream(s, b, bytes, sizeof bytes, 30 * MS), 3 * (FMTP_HEADER_LEN + BLOCK));
    assert_int_equal(ntold, 3);
    assert_int_equal(told[2].peer, b);
    assert_int_equal(told[2].blocks, 3);
    for (uint32_t i = 0; i < 64; i++)
        put(s, b, FMTP_RETX_REQ, latest, 1000 + 2 * i * BLOCK, BLOCK);
    assert_int_equal(nfull, 0);
    put(s, b, FMTP_RETX_REQ, latest, 1000 + 128 * BLOCK, BLOCK);
    assert_int_equal(nfull, 1);
    assert_int_equal(nexpired, 0);
    fmtp_sender_timeout(s, UINT64_MAX / 2);
    assert_int_equal(nexpired, 1);
    fmtp_sender_free(s);
}

/* A single receiver: there is no other receiver's request to wait for. */
static void test_no_hold_off_for_one(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);

    (void)state;
    calm(s);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 1, 1, 20 * MS);
    expect(s, 20 * MS, FMTP_REPAIR, 0);
    fmtp_sender_free(s);
}

/* A lone repair at the end of a product of four groups or more is accompanied by another symbol,
 * unless loss is below 0.5 %: losing it would cost a round trip. */
static void test_company_for_a_lone_repair(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);

    (void)state;
    calm(s); /* 300 blocks, none lost */
    offer(s, 4000);
    unsigned extra;
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 1, 1, 20 * MS); /* 1 of 310 lost: 0.3 % */
    ask(s, a, 1, 0, 0, 1, 1, 20 * MS); /* 2 of 320 lost: 0.6 % */
    expect(s, 20 * MS, FMTP_REPAIR, 0);
    expect(s, 20 * MS, FMTP_PARITY, parity(1, 0, 2));
    expect(s, 20 * MS, FMTP_PARITY, parity(1, 1, 2));
    expect_none(s, 20 * MS);
    put(s, a, FMTP_RETX_END, latest, 0, 0);
    offer(s, 3000); /* three groups: one more symbol matters */
    drain(s, 30 * MS, &extra);
    ask(s, a, 0, 0, 0, 1, 1, 50 * MS);
    expect(s, 50 * MS, FMTP_REPAIR, 0);
    expect_none(s, 50 * MS);
    fmtp_sender_free(s);
}

/* Two receivers lost two blocks each, different ones: two parity symbols serve both. The second
 * group ends with a short block, and a boundary between the product's parts lies within block 6. */
static void test_parity(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    uint8_t padded[2000] = {0}, want[2][BLOCK], *out[2] = {want[0], want[1]};

    (void)state;
    calm(s);
    offer(s, 1950);
    unsigned extra;
    drain(s, 0, &extra);
    memcpy(padded, product, 1950);
    uint8_t payload[BLOCK];
    const uint8_t *blocks[10];
    struct fmtp_header h;
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
    /* b received both and still lacks one; a now lacks three and has received none: 3 = 2 + 1 */
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
    /* What the receiver knows to have been sent does not count. */
    ask(s, b, 1, 2, 0, 1, 0x300, 100 * MS);
    expect(s, 102 * MS, FMTP_PARITY, parity(1, 2, 3));
    expect_none(s, 110 * MS);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.repair_requests, 9);
    assert_int_equal(stats.parity_sent, 8);
    assert_int_equal(stats.repairs_sent, 0);
    assert_int_equal(stats.bad_messages, 0);
    fmtp_sender_free(s);
}

/* Without parity the lost blocks are sent again, each once for all receivers that lack it; none is
 * sent unasked. */
static void test_without_parity(void **state)
{
    struct fmtp_sender_config cfg = common;
    unsigned extra;

    (void)state;
    cfg.no_parity = true;
    struct fmtp_sender *s = make(&cfg);
    int a = peer(s, true), b = peer(s, true);
    offer(s, 2000);
    drain(s, 0, &extra);
    assert_int_equal(extra, 0);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x006, 20 * MS);
    for (uint32_t i = 0; i < 3; i++)
        expect(s, 22 * MS, FMTP_REPAIR, i * BLOCK);
    expect_none(s, 30 * MS);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.parity_sent, 0);
    assert_int_equal(stats.repairs_sent, 3);
    fmtp_sender_free(s);
}

/* A request during the burst extends it. */
static void test_request_in_mid_burst(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);

    (void)state;
    calm(s);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x00c, 20 * MS);
    fmtp_sender_timeout(s, 22 * MS);
    ask(s, b, 0, 0, 0, 4, 0x03c, 22 * MS);
    ask(s, b, 0, 0, 1, 9, 0x3fe, 22 * MS); /* a later round waits for the burst */
    for (unsigned i = 0; i < 4; i++)
        expect(s, 22 * MS, FMTP_PARITY, parity(0, i, 4));
    expect_none(s, 30 * MS);
    fmtp_sender_free(s);
}

/* A group of 200 blocks has 55 parity numbers: 60 lost blocks can only be sent themselves. */
static void test_numbers_run_out(void **state)
{
    struct fmtp_sender_config cfg = common;
    uint8_t bits[25] = {0};

    (void)state;
    cfg.fec_k = 200;
    struct fmtp_sender *s = make(&cfg);
    int a = peer(s, true);
    int b = peer(s, true);
    calm(s);
    offer(s, 20000);
    unsigned extra;
    drain(s, 0, &extra);
    memset(bits, 0xff, 5); /* 40 */
    ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){0, 0, 40, NULL}, bits, 20 * MS);
    memset(bits + 2, 0xff, 8); /* 16 + 24 + 40 */
    ask_k(s, b, latest, 0, 200, (struct fmtp_repair_req){0, 0, 80, NULL}, bits, 21 * MS);
    for (uint32_t i = 0; i < 80; i++)
        expect(s, 22 * MS, FMTP_REPAIR, i * BLOCK);
    expect_none(s, 40 * MS);
    /* Parity is left for two receivers that lost different blocks. 55 symbols more than the 500
     * blocks so far were needed, so 0.2 of these two will be lost again: one in reserve. */
    memset(bits, 0, sizeof bits);
    bits[0] = 3;
    ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){0, 0, 2, NULL}, bits, 60 * MS);
    bits[0] = 0;
    bits[24] = 0xc0;
    ask_k(s, b, latest, 0, 200, (struct fmtp_repair_req){0, 0, 2, NULL}, bits, 60 * MS);
    expect(s, 62 * MS, FMTP_PARITY, parity(0, 0, 3));
    drain(s, 62 * MS, &extra);
    /* All 55 are sent: after that, requested blocks are sent themselves. */
    memset(bits, 0xff, 7);
    ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){3, 0, 52, NULL}, bits, 100 * MS);
    drain(s, 102 * MS, &extra);
    assert_int_equal(extra, 52);
    memset(bits, 0, sizeof bits);
    bits[0] = 4;
    ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){55, 0, 1, NULL}, bits, 200 * MS);
    expect(s, 202 * MS, FMTP_REPAIR, 2 * BLOCK);
    fmtp_sender_free(s);
}

/* Repairs of an older product alternate with new data; alone, repairs are sent at once. */
static void test_one_for_one(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    char order[64] = "";

    (void)state;
    peer(s, true);
    calm(s);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 3, 0x007, 20 * MS);
    uint32_t older = latest;
    offer(s, 500);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    for (unsigned i = 0; next(s, 22 * MS, &h, payload); i++)
        order[i] = h.flags & (FMTP_REPAIR | FMTP_PARITY) ? 'r'
                   : h.flags == FMTP_MEM_DATA            ? 'd'
                                                         : 'x';
    /* the burst was planned at once, so the same amount of data follows it */
    assert_string_equal(order, "rrrxdddddx");
    latest = older;
    ask(s, a, 0, 0, 1, 3, 0x007, 40 * MS);
    ask(s, a, 1, 0, 0, 3, 0x007, 40 * MS);
    offer(s, 500);
    memset(order, 0, sizeof order);
    for (unsigned i = 0; next(s, 42 * MS, &h, payload); i++)
        order[i] = h.flags & (FMTP_REPAIR | FMTP_PARITY) ? 'r'
                   : h.flags == FMTP_MEM_DATA            ? 'd'
                                                         : 'x';
    assert_string_equal(order, "rrrxdddrrrddx");
    fmtp_sender_free(s);
}

/* Requests determine how much parity follows each group unasked; silence reduces it. */
static void test_proactive_parity(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    unsigned in_group[30] = {0}, left = 0;

    (void)state;
    offer(s, 1000); /* one group */
    unsigned extra;
    assert_int_equal(drain(s, 0, &extra), 12);
    assert_int_equal(extra, 0);
    ask(s, a, 0, 0, 0, 3, 0x007, 20 * MS);
    drain(s, 22 * MS, &extra);
    assert_int_equal(extra, 4); /* 0.9 of 3 will be lost: one in reserve */
    put(s, a, FMTP_RETX_END, 0, 0, 0);
    put(s, b, FMTP_RETX_END, 0, 0, 0);
    /* 3 of 10 are lost: 3 parity symbols after each group. The request came 20 ms after the group
     * was sent; within that time plus a hold-off (22 ms or 22 blocks) of the end: ceil(2.5 *
     * sqrt(3)) = 5 more. */
    offer(s, 30000);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
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
    /* No receiver requests more: eventually none is added. */
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

/* A request for a group whose blocks are not all multicast yet (its receiver considered it passed)
 * is not reduced to what is appended unasked. */
static void test_early_request(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    unsigned in_group[30] = {0};

    (void)state;
    offer(s, 1000);
    unsigned extra;
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 3, 0x007, 20 * MS);
    drain(s, 22 * MS, &extra);
    put(s, a, FMTP_RETX_END, 0, 0, 0);
    put(s, b, FMTP_RETX_END, 0, 0, 0);
    offer(s, 30000); /* 3 of 10 are lost: 3 after each group */
    ask(s, a, 5, 0, 0, 8, 0x0ff, 22 * MS);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    while (next(s, 22 * MS, &h, payload))
        if (h.flags == FMTP_PARITY) {
            struct fmtp_parity p = fmtp_parity_get(h.seqnum);
            assert_int_equal(p.number, in_group[p.group]++);
            assert_in_range(p.end, p.number + 1, 8);
        }
    assert_int_equal(in_group[4], 3);
    assert_int_equal(in_group[5], 8);
    assert_int_equal(in_group[6], 3);
    fmtp_sender_timeout(s, 30 * MS); /* the hold-off is over */
    expect_none(s, 30 * MS);
    fmtp_sender_free(s);
}

/* An ordinary receiver does not affect the others; it gets blocks on its stream, which is also all
 * that remains when the last extended peer leaves. */
static void test_mixed(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    static struct fmtp_datagram d[8];

    (void)state;
    calm(s);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    int c = peer(s, false);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x00c, 20 * MS);
    put(s, c, FMTP_RETX_REQ, latest, 100, 100);
    uint8_t bytes[2000];
    assert_int_equal(stream(s, c, bytes, sizeof bytes, 21 * MS), 112);
    expect(s, 22 * MS, FMTP_PARITY, parity(0, 0, 2));
    expect(s, 22 * MS, FMTP_PARITY, parity(0, 1, 2));
    expect_none(s, 30 * MS);
    /* What the caller has remains valid; what was planned or held is dropped. */
    ask(s, a, 1, 0, 0, 2, 0x003, 40 * MS);
    ask(s, b, 1, 0, 0, 2, 0x00c, 40 * MS);
    ask(s, b, 0, 2, 0, 2, 0x00c, 41 * MS);
    assert_int_equal(fmtp_sender_fill(s, d, 1, 42 * MS), 1);
    fmtp_sender_peer_remove(s, a);
    fmtp_sender_peer_remove(s, b);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 42 * MS), 1);
    fmtp_sender_sent(s, 1, 42 * MS);
    expect_none(s, 60 * MS);
    assert_true(fmtp_sender_deadline(s) > 100 * MS);
    /* When an extended peer connects, the multicast repairs again. */
    a = peer(s, true);
    ask(s, a, 1, 0, 1, 1, 1, 100 * MS);
    expect(s, 100 * MS, FMTP_REPAIR, 1000);
    fmtp_sender_free(s);
}

/* One that requests more than the others can bear gets the blocks on its stream, each at most
 * twice; it regains its share as data are multicast. */
static void test_alone(void **state)
{
    struct fmtp_sender_config cfg = common;
    static uint8_t bytes[20000];

    (void)state;
    cfg.max_products = 64;
    struct fmtp_sender *s = make(&cfg);
    int a = peer(s, true), b = peer(s, true);
    unsigned extra, total = 0;
    uint64_t now = 0;
    for (unsigned i = 0; i < 40; i++) {
        offer(s, 10000);
        drain(s, now, &extra);
        total += extra;
        for (uint32_t g = 0; g < 10; g++)
            ask(s, a, g, 0, 0, 10, 0x3ff, now + 20 * MS);
        now += 100 * MS;
        drain(s, now, &extra);
        total += extra;
    }
    /* It requested all 4,000 blocks: 1,024 and a quarter, and what was attributed to loss
     * meanwhile. */
    assert_in_range(total, 256, 800);
    assert_true(fmtp_sender_peer_alone(s, a));
    assert_false(fmtp_sender_peer_alone(s, b));
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.alone, 1);
    while (stream(s, a, bytes, sizeof bytes, now))
        ;
    offer(s, 1000);
    drain(s, now, &extra);
    ask(s, a, 0, 0, 0, 3, 1 << 1 | 1 << 4 | 1 << 5, now);
    expect_none(s, now + 60 * MS);
    ask(s, a, 0, 0, 1, 3, 1 << 1 | 1 << 4 | 1 << 5, now); /* still queued: not sent twice */
    assert_int_equal(stream(s, a, bytes, sizeof bytes, now), 3 * 112);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_DATA);
    assert_int_equal(h.seqnum, 100);
    assert_memory_equal(bytes + 12, product + 100, BLOCK);
    fmtp_header_get(bytes + 224, &h);
    assert_int_equal(h.seqnum, 500);
    ask(s, a, 0, 0, 2, 1, 1 << 4, now); /* it was sent: once more */
    assert_int_equal(stream(s, a, bytes, sizeof bytes, now), 112);
    ask(s, a, 0, 0, 2, 1, 1 << 4, now); /* and no more */
    put(s, a, FMTP_RETX_REQ, latest, 400, 100);
    assert_int_equal(stream(s, a, bytes, sizeof bytes, now), 0);
    put(s, a, FMTP_RETX_REQ, latest, 300, 400); /* 300, 500, 600 */
    assert_int_equal(stream(s, a, bytes, sizeof bytes, now), 3 * 112);
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.excess, 3);
    /* The others are served as before, and so is this one when enough was multicast. */
    ask(s, b, 0, 0, 0, 1, 1, now + 100 * MS);
    expect(s, now + 103 * MS, FMTP_REPAIR, 0);
    put(s, a, FMTP_RETX_END, latest, 0, 0);
    put(s, b, FMTP_RETX_END, latest, 0, 0);
    for (unsigned i = 0; i < 30; i++) {
        offer(s, 30000);
        drain(s, now, &extra);
        put(s, a, FMTP_RETX_END, latest, 0, 0);
        put(s, b, FMTP_RETX_END, latest, 0, 0);
    }
    assert_false(fmtp_sender_peer_alone(s, a));
    fmtp_sender_free(s);
}

/* A host keeps its account when it reconnects, and has one for all its receivers. */
static void test_account_of_a_host(void **state)
{
    struct fmtp_sender *s = make(&common);
    int other = fmtp_sender_peer_add_from(s, 1, true, NULL), a = -1;
    unsigned extra, total = 0;

    (void)state;
    for (unsigned i = 0; i < 400; i++) {
        a = fmtp_sender_peer_add_from(s, 2, true, NULL);
        if (i % 8 == 0) {
            offer(s, 10000);
            drain(s, i * 100 * MS, &extra);
        }
        for (uint32_t g = 0; g < 10; g++)
            ask(s, a, g, 0, 0, 10, 0x3ff, i * 100 * MS + 20 * MS);
        drain(s, i * 100 * MS + 90 * MS, &extra);
        total += extra;
        assert_false(fmtp_sender_peer_alone(s, other));
        if (i % 8 == 7)
            put(s, other, FMTP_RETX_END, latest, 0, 0);
        fmtp_sender_peer_remove(s, a);
    }
    /* 5,000 blocks */
    assert_true(total < 256 + 5000 / 4 + 300);
    fmtp_sender_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session),
        cmocka_unit_test(test_original),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_no_hold_off_for_one),
        cmocka_unit_test(test_company_for_a_lone_repair),
        cmocka_unit_test(test_parity),
        cmocka_unit_test(test_without_parity),
        cmocka_unit_test(test_request_in_mid_burst),
        cmocka_unit_test(test_numbers_run_out),
        cmocka_unit_test(test_one_for_one),
        cmocka_unit_test(test_proactive_parity),
        cmocka_unit_test(test_early_request),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_account_of_a_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

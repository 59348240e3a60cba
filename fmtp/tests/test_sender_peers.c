/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending core and its peers: requests in pieces and bad ones, which peers a product waits for,
 * reminders, what each gets on its stream.
 */
#include <malloc.h>
#include <string.h>

#include "sender_kit.h"

static void test_bad_requests(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    uint8_t bits[32] = {1};

    (void)state;
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    assert_int_equal(ask(s, a, 2, 0, 0, 1, 1, MS), 0);       /* no such group */
    assert_int_equal(ask(s, a, 0, 0, 0, 2, 1, MS), 0);       /* needs more than it lacks */
    assert_int_equal(ask(s, a, 0, 0, 0, 1, 1 << 10, MS), 0); /* no such block */
    assert_int_equal(ask_k(s, a, latest, 0, 200, (struct fmtp_repair_req){0, 0, 1, NULL}, bits, MS),
                     0);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.bad_messages, 4);
    expect_none(s, 10 * MS);
    /* a product not offered yet: no rejection, or it would be missed before it is sent */
    uint8_t bytes[100];
    assert_int_equal(ask_k(s, a, 9, 0, 10, (struct fmtp_repair_req){0, 0, 1, NULL}, bits, MS), 0);
    assert_int_equal(stream(s, a, bytes, sizeof bytes, MS), 0);
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.ahead, 1);
    /* one that was released */
    assert_int_equal(
        ask_k(s, a, UINT32_MAX - 9, 0, 10, (struct fmtp_repair_req){0, 0, 1, NULL}, bits, MS), 0);
    assert_int_equal(stream(s, a, bytes, sizeof bytes, MS), 12);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_REJ);
    assert_int_equal(h.index, UINT32_MAX - 9);
    /* what no receiver may send: a body longer than any, any body from an ordinary peer */
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
    struct fmtp_header h = {1, 0, 6, FMTP_REPAIR_REQ};

    (void)state;
    calm(s);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    uint8_t bytes[2 * 18];
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

/* The caller has datagrams of a product that no receiver needs any more: it stays until they are
 * sent. */
static void test_release_waits_for_the_caller(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    static struct fmtp_datagram d[8];

    (void)state;
    calm(s);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    ask(s, a, 0, 0, 0, 2, 0x003, 20 * MS);
    ask(s, b, 0, 0, 0, 2, 0x00c, 20 * MS);
    ask(s, b, 1, 0, 0, 1, 0x001, 20 * MS);
    assert_int_equal(fmtp_sender_fill(s, d, 2, 22 * MS), 2);
    put(s, a, FMTP_RETX_END, latest, 0, 0);
    put(s, b, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 0);
    /* For the peers it is released. */
    put(s, a, FMTP_EOP_REQ, latest, 0, 0);
    uint8_t bytes[12];
    assert_int_equal(stream(s, a, bytes, sizeof bytes, 22 * MS), 12);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, FMTP_RETX_REJ);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 22 * MS), 2); /* the same ones, and no more */
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

/* A request makes the product wait for a peer that did not count (it reconnected), but not for one
 * that has finished. */
static void test_request_counts_peer(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);

    (void)state;
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    int b = peer(s, true);
    ask(s, b, 0, 0, 0, 1, 1, MS);
    put(s, a, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 0);
    put(s, a, FMTP_EOP_REQ, latest, 0, 0); /* late, as the originals do */
    put(s, b, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 1);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.acks, 2);
    assert_int_equal(stats.unacknowledged, 0);
    /* A reused number is not the old peer. */
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

/* Unfinished peers are reminded of the end: after max(2 RTT, 100 ms) + 256 KiB at the rate
 * (1872.457 ms at 1.12 Mbit/s), then after twice that, up to 5 s; but not while something is queued
 * for them. */
static void test_nudges(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, false);
    const uint64_t first = 100 * MS + 1872457143;

    (void)state;
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    assert_int_equal(fmtp_sender_deadline(s), first);
    put(s, b, FMTP_BOP_REQ, 0, 0, 0);
    fmtp_sender_timeout(s, first - 1);
    assert_int_equal(fmtp_sender_next_ready(s, first), b);
    fmtp_sender_timeout(s, first);
    uint8_t bytes[200];
    assert_int_equal(stream(s, a, bytes, sizeof bytes, first), 12);
    struct fmtp_header h;
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
    assert_int_equal(fmtp_sender_deadline(s), TP_NEVER);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.nudges, 2);
    fmtp_sender_free(s);
}

/* If more may wait in the system, the reminder waits for that: 1.4 MB at 1.12 Mbit/s take 10 s. */
static void test_nudges_behind_a_queue(void **state)
{
    struct fmtp_sender_config cfg = common;

    (void)state;
    cfg.queued_bytes = 1400000;
    struct fmtp_sender *s = make(&cfg);
    peer(s, false);
    offer(s, 2000);
    unsigned extra;
    drain(s, 0, &extra);
    assert_int_equal(fmtp_sender_deadline(s), 10100 * MS);
    fmtp_sender_free(s);
}

/* A product times out while it may still wait in the system: no receiver is asked to request it.
 * tau_snd: 70 * 2000*8/1.12e6 = 1 s. */
static void test_timeout_behind_a_queue(void **state)
{
    struct fmtp_sender_config cfg = common;

    (void)state;
    cfg.f_snd = 70;
    uint8_t bytes[200];
    unsigned extra;
    for (int queued = 0; queued <= 1; queued++) {
        cfg.queued_bytes = queued ? 1400000 : 0;
        struct fmtp_sender *s = make(&cfg);
        int a = peer(s, false);
        offer(s, 2000);
        drain(s, 0, &extra);
        assert_int_equal(fmtp_sender_deadline(s), 1000 * MS);
        fmtp_sender_timeout(s, 1000 * MS);
        assert_int_equal(nreleased, 1);
        assert_int_equal(stream(s, a, bytes, sizeof bytes, 1000 * MS), queued ? 0 : 12);
        fmtp_sender_free(s);
    }
}

/* r_uc: 8 Mbit/s are 1000 bytes/ms for all streams together, shared fairly; a stuck one hoards
 * nothing. Idle time accumulates 5 ms plus a message of 112 bytes. */
static void test_paced_streams(void **state)
{
    struct fmtp_sender_config cfg = common;
    size_t got[3] = {0}, total = 0;

    (void)state;
    cfg.r_uc_bps = 8000000;
    struct fmtp_sender *s = make(&cfg);
    int p[3];
    for (int i = 0; i < 3; i++)
        p[i] = peer(s, false);
    offer(s, 30000);
    unsigned extra;
    drain(s, 0, &extra);
    for (int i = 0; i < 3; i++)
        put(s, p[i], FMTP_RETX_REQ, 0, 0, 30000);
    fmtp_sender_peer_blocked(s, p[2], true);
    uint64_t now_ns = 1000 * MS, end_ns = now_ns + 20 * MS;
    uint8_t bytes[8192];
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
    /* 5112 at once, then 1000 per ms, to within a message each */
    assert_in_range(total, 5112 + 20000 - 224, 5112 + 20000 + 224);
    assert_in_range(got[0], total / 2 - 224, total / 2 + 224);
    assert_int_equal(got[2], 0);
    fmtp_sender_peer_blocked(s, p[2], false);
    fmtp_sender_timeout(s, now_ns + MS);
    assert_int_equal(fmtp_sender_next_ready(s, now_ns + MS) >= 0, 1);
    fmtp_sender_free(s);
}

/* Three peers have something queued and the caller serves only one: each of the others keeps at
 * most one message's worth. */
static void test_no_peer_hoards(void **state)
{
    struct fmtp_sender_config cfg = common;
    size_t got = 0;
    int p = -1;

    (void)state;
    cfg.r_uc_bps = 8000000;
    struct fmtp_sender *s = make(&cfg);
    for (int i = 0; i < 3; i++)
        p = peer(s, false);
    offer(s, 30000);
    unsigned extra;
    drain(s, 0, &extra);
    for (int i = 0; i < 3; i++)
        put(s, i, FMTP_RETX_REQ, 0, 0, 30000);
    uint8_t bytes[8192];
    for (uint64_t now_ns = 1000 * MS; now_ns <= 1020 * MS; now_ns += MS / 10) {
        fmtp_sender_timeout(s, now_ns);
        for (size_t n; (n = stream(s, p, bytes, sizeof bytes, now_ns));)
            got += n;
    }
    assert_in_range(got, 5112 + 20000 - 3 * 112, 5112 + 20000 + 112);
    fmtp_sender_free(s);
}

/* Whatever is requested, however often: memory stays bounded. */
static void test_memory_is_bounded(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true);
    size_t before = 0;
    uint32_t x = 1;

    (void)state;
    peer(s, true);
    unsigned extra;
    for (int i = 0; i < 8; i++) {
        offer(s, 30000);
        drain(s, 0, &extra);
    }
    uint8_t bits[2];
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
            uint8_t payload[BLOCK];
            struct fmtp_header h;
            next(s, i * MS / 100, &h, payload);
        }
    }
    assert_true(mallinfo2().uordblks <= before);
    fmtp_sender_free(s);
}

/* ------------------------------------------------------------------ what a peer holds back */

static void multicast(struct fmtp_sender *s, size_t size, uint64_t now_ns)
{
    unsigned extra;

    offer(s, size);
    drain(s, now_ns, &extra);
}

static void acknowledge_with(struct fmtp_sender *s, int p, uint32_t index, uint32_t lost,
                             uint64_t now_ns)
{
    struct fmtp_header h = {index, lost, 0, FMTP_RETX_END};
    uint8_t bytes[FMTP_HEADER_LEN];

    fmtp_header_put(bytes, &h);
    assert_int_equal(fmtp_sender_peer_input(s, p, bytes, sizeof bytes, now_ns), 0);
}

static void acknowledge(struct fmtp_sender *s, int p, uint32_t index, uint64_t now_ns)
{
    acknowledge_with(s, p, index, 0, now_ns);
}

/* The third product that only the silent peer lacks is too many; without other peers there is no
 * bound. */
static void test_laggard_by_products(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_held held;

    (void)state;
    cfg.held.products = 2;
    struct fmtp_sender *s = make(&cfg);
    int silent = peer(s, true), honest = peer(s, true);
    for (int i = 0; i < 3; i++) {
        multicast(s, 1000, 1000 * MS);
        assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), -1);
        acknowledge(s, honest, latest, 1100 * MS);
    }
    assert_int_equal(fmtp_sender_laggard(s, 1100 * MS, &held), -1); /* it was sent just now */
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), silent);
    assert_int_equal(held.products, 3);
    assert_int_equal(held.bytes, 3000);
    assert_int_equal(held.behind_ns, 900 * MS);
    fmtp_sender_peer_remove(s, silent);
    assert_int_equal(nreleased, 3);
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), -1);
    fmtp_sender_free(s);
}

/* What a peer pins, and how much of that others have; what it requested and lost. */
static void test_counters_of_a_peer(void **state)
{
    struct fmtp_sender *s = make(&common);
    int quick = peer(s, true), silent = peer(s, true);
    struct fmtp_peer_counters c;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        multicast(s, 1000, i * 100 * MS);
    assert_int_equal(ask(s, quick, 0, 0, 0, 1, 1, 300 * MS), 0);
    acknowledge_with(s, quick, 0, 4, 350 * MS);
    fmtp_sender_count_held(s, 400 * MS);
    fmtp_sender_peer_counters(s, silent, &c);
    assert_int_equal(c.pinned_products, 3);
    assert_int_equal(c.pinned_bytes, 3000);
    assert_int_equal(c.pinned_seconds, 400 * MS);
    assert_int_equal(c.behind_products, 1);
    assert_int_equal(c.behind_bytes, 1000);
    assert_int_equal(c.behind_seconds, 50 * MS);
    assert_int_equal(c.acks + c.requests + c.lost_blocks, 0);
    assert_true(c.extended);
    fmtp_sender_peer_counters(s, quick, &c);
    assert_int_equal(c.pinned_products, 2);
    assert_int_equal(c.pinned_bytes, 2000);
    assert_int_equal(c.pinned_seconds, 300 * MS);
    assert_int_equal(c.behind_products, 0);
    assert_int_equal(c.acks, 1);
    assert_int_equal(c.requests, 1);
    assert_int_equal(c.lost_blocks, 4);
    fmtp_sender_free(s);
}

static void test_laggard_by_bytes_and_time(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_held held;

    (void)state;
    cfg.held.bytes = 2500;
    cfg.held.behind_ns = 60000 * MS;
    struct fmtp_sender *s = make(&cfg);
    int silent = peer(s, true), honest = peer(s, true);
    multicast(s, 2000, 1000 * MS);
    acknowledge(s, honest, latest, 1100 * MS);
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), -1);
    assert_int_equal(fmtp_sender_laggard(s, 61100 * MS, &held), -1);
    assert_int_equal(fmtp_sender_laggard(s, 62200 * MS, &held), silent);
    multicast(s, 600, 3000 * MS);
    acknowledge(s, honest, latest, 3100 * MS);
    assert_int_equal(fmtp_sender_laggard(s, 4000 * MS, &held), silent);
    assert_int_equal(held.bytes, 2600);
    fmtp_sender_free(s);
}

/* If no peer is ahead and all together hold too much, the one that holds the most is removed. */
static void test_laggard_in_total(void **state)
{
    struct fmtp_sender_config cfg = common;
    struct fmtp_held held;

    (void)state;
    cfg.held.total_bytes = 2500;
    struct fmtp_sender *s = make(&cfg);
    int more = peer(s, true);
    multicast(s, 1000, 1000 * MS);
    int less = peer(s, true);
    multicast(s, 1000, 1000 * MS);
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), -1);
    multicast(s, 1000, 1000 * MS);
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), more);
    assert_int_equal(held.bytes, 3000);
    fmtp_sender_peer_remove(s, more);
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), -1); /* the first one was removed */
    multicast(s, 1000, 1000 * MS);
    assert_int_equal(fmtp_sender_laggard(s, 2000 * MS, &held), less);
    fmtp_sender_peer_remove(s, less);
    assert_int_equal(nreleased, 4);
    fmtp_sender_free(s);
}

/* With the default configuration nothing is bounded. */
static void test_no_bounds(void **state)
{
    struct fmtp_sender *s = make(&common);
    struct fmtp_held held;

    (void)state;
    peer(s, true);
    int honest = peer(s, true);
    for (int i = 0; i < 8; i++) {
        multicast(s, 3000, 1000 * MS);
        acknowledge(s, honest, latest, 1100 * MS);
    }
    assert_int_equal(fmtp_sender_laggard(s, 1000000 * MS, &held), -1);
    fmtp_sender_free(s);
}

/* A peer that could not keep a product is done with it, whatever it requests later: it counts once
 * and cannot make the sender search its queue again and again. */
static void test_failed_once(void **state)
{
    struct fmtp_sender *s = make(&common);
    int a = peer(s, true), b = peer(s, true);
    unsigned extra;

    (void)state;
    offer(s, 2000);
    drain(s, 0, &extra);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(put(s, a, FMTP_EOP_REQ, latest, 0, 0), 0);
        assert_int_equal(put(s, a, FMTP_RETX_END, latest, FMTP_END_FAILED, 0), 0);
    }
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.failed, 1);
    assert_int_equal(stats.unacknowledged, 1);
    int before = nreleased;
    put(s, b, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, before + 1); /* it does not wait for a */
    fmtp_sender_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_release_waits_for_the_caller),
        cmocka_unit_test(test_request_counts_peer),
        cmocka_unit_test(test_nudges),
        cmocka_unit_test(test_nudges_behind_a_queue),
        cmocka_unit_test(test_timeout_behind_a_queue),
        cmocka_unit_test(test_paced_streams),
        cmocka_unit_test(test_no_peer_hoards),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_counters_of_a_peer),
        cmocka_unit_test(test_laggard_by_products),
        cmocka_unit_test(test_laggard_by_bytes_and_time),
        cmocka_unit_test(test_laggard_in_total),
        cmocka_unit_test(test_no_bounds),
        cmocka_unit_test(test_failed_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

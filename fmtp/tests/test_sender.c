/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending core alone: bytes in, bytes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "sender.h"

static int nreleased, nmulticasted;
static uint32_t last_index;
static enum fmtp_release last_why;

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    (void)ctx;
    (void)cookie;
    nreleased++;
    last_index = index;
    last_why = why;
}

static void multicasted(void *ctx, uint32_t index, void *cookie)
{
    (void)ctx;
    (void)index;
    (void)cookie;
    nmulticasted++;
}

static struct fmtp_sender *make(size_t max_products, size_t queue_bytes)
{
    struct fmtp_sender_config cfg = {.layout = FMTP_LAYOUT_2017,
                                     .f_snd = 2,
                                     .r_mc_bps = 8000000,
                                     .max_products = max_products,
                                     .max_peers = 3,
                                     .peer_queue_bytes = queue_bytes,
                                     .released = released,
                                     .multicasted = multicasted};

    nreleased = nmulticasted = 0;
    return fmtp_sender_new(&cfg);
}

static uint8_t product[200000];

static void offer(struct fmtp_sender *s, size_t size)
{
    struct iovec part = {product, size};
    struct tp_error err;

    assert_int_equal(
        fmtp_sender_offer(
            s, &(struct fmtp_offer){.parts = &part, .nparts = 1, .meta = "m", .meta_len = 1}, NULL,
            &err),
        0);
}

/* Multicasts what is pending; returns how many datagrams. */
static unsigned drain(struct fmtp_sender *s, uint64_t now_ns)
{
    static struct fmtp_datagram d[16];
    unsigned n, total = 0;

    while ((n = fmtp_sender_fill(s, d, 16, now_ns))) {
        total += n;
        fmtp_sender_sent(s, n, now_ns);
    }
    assert_false(fmtp_sender_has_output(s, now_ns));
    return total;
}

static int put(struct fmtp_sender *s, int peer, uint16_t flags, uint32_t index, uint32_t seq,
               uint16_t len)
{
    struct fmtp_header h = {index, seq, len, flags};

    uint8_t bytes[FMTP_HEADER_LEN];
    fmtp_header_put(bytes, &h);
    return fmtp_sender_peer_input(s, peer, bytes, sizeof bytes, 0);
}

/* Takes up to n bytes of a peer's stream. */
static size_t get(struct fmtp_sender *s, int peer, uint8_t *bytes, size_t n)
{
    size_t total = 0;

    struct fmtp_stream_out out;
    while (total < n) {
        size_t len = 0;
        fmtp_sender_peer_peek(s, peer, &out, 0);
        for (int i = 0; i < out.niov && total + len < n; i++) {
            size_t take = out.iov[i].iov_len;
            if (take > n - total - len)
                take = n - total - len;
            memcpy(bytes + total + len, out.iov[i].iov_base, take);
            len += take;
        }
        if (!len)
            break;
        fmtp_sender_peer_sent(s, peer, len, 0);
        total += len;
    }
    return total;
}

static void expect(const uint8_t *bytes, uint16_t flags, uint32_t index, uint32_t seq, uint16_t len)
{
    struct fmtp_header h;

    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, flags);
    assert_int_equal(h.index, index);
    assert_int_equal(h.seqnum, seq);
    assert_int_equal(h.payloadlen, len);
}

/* The datagrams of a product whose parts do not end at block boundaries, without a copy. */
static void test_datagrams(void **state)
{
    struct fmtp_sender *s = make(4, 4096);
    struct iovec parts[4] = {
        {product, 1000}, {product + 1000, 0}, {product + 1000, 100}, {product + 1100, 400}};
    uint32_t index = 9;

    (void)state;
    assert_false(fmtp_sender_has_output(s, 0));
    struct fmtp_datagram d[8];
    assert_int_equal(fmtp_sender_fill(s, d, 8, 0), 0);
    struct tp_error err;
    assert_int_equal(
        fmtp_sender_offer(s,
                          &(struct fmtp_offer){
                              .parts = parts, .nparts = 4, .meta = "test metadata", .meta_len = 14},
                          &index, &err),
        0);
    assert_int_equal(index, 0);
    assert_true(fmtp_sender_has_output(s, 0));
    assert_int_equal(fmtp_sender_fill(s, d, 1, 0), 1);
    expect(d[0].head, FMTP_BOP, 0, 0, 20);
    assert_int_equal(d[0].len, 32);
    assert_memory_equal(d[0].iov[1].iov_base, "\x00\x00\x05\xdc\x00\x0etest metadata", 20);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 0), 4); /* BOP again, 2 blocks, EOP */
    expect(d[0].head, FMTP_BOP, 0, 0, 20);
    expect(d[1].head, FMTP_MEM_DATA, 0, 0, 1448);
    assert_int_equal(d[1].niov, 4);
    assert_ptr_equal(d[1].iov[1].iov_base, product);
    assert_ptr_equal(d[1].iov[3].iov_base, product + 1100);
    assert_int_equal(d[1].iov[3].iov_len, 348);
    expect(d[2].head, FMTP_MEM_DATA, 0, 1448, 52);
    assert_ptr_equal(d[2].iov[1].iov_base, product + 1448);
    expect(d[3].head, FMTP_EOP, 0, 0, 0);
    assert_int_equal(fmtp_sender_deadline(s), TP_NEVER);
    fmtp_sender_sent(s, 2, 5);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 0), 2); /* the rest */
    expect(d[0].head, FMTP_MEM_DATA, 0, 1448, 52);
    fmtp_sender_sent(s, 0, 6);
    assert_int_equal(fmtp_sender_fill(s, d, 1, 0), 1);
    expect(d[0].head, FMTP_MEM_DATA, 0, 1448, 52);
    fmtp_sender_sent(s, 1, 7);
    assert_int_equal(nmulticasted, 0);
    assert_int_equal(fmtp_sender_fill(s, d, 8, 0), 1);
    assert_false(fmtp_sender_ready(s));
    fmtp_sender_sent(s, 1, 1000);
    assert_int_equal(nmulticasted, 1);
    assert_false(fmtp_sender_has_output(s, 1000));
    /* equation (1): 2 * 1500 * 8 / 8e6 = 3 ms after EOP */
    assert_int_equal(fmtp_sender_deadline(s), 1000 + 3000000);
    fmtp_sender_timeout(s, 1000 + 2999999);
    assert_int_equal(nreleased, 0);
    fmtp_sender_timeout(s, 1000 + 3000000);
    assert_int_equal(nreleased, 1);
    assert_int_equal(last_why, FMTP_RELEASE_TIMEOUT);
    fmtp_sender_free(s);
    assert_int_equal(nreleased, 1);
}

/* equation (1) uses the largest round-trip time of the peers connected now */
static void test_max_rtt(void **state)
{
    struct fmtp_sender *s = make(4, 4096);
    int a = fmtp_sender_peer_add(s, false, NULL), b = fmtp_sender_peer_add(s, false, NULL),
        c = fmtp_sender_peer_add(s, false, NULL);

    (void)state;
    assert_int_equal(fmtp_sender_peer_add(s, false, NULL), -1);
    fmtp_sender_peer_rtt(s, a, 36000000);
    fmtp_sender_peer_rtt(s, b, 90000000);
    fmtp_sender_peer_rtt(s, c, 500000000);
    fmtp_sender_peer_remove(s, c);
    offer(s, 1500);
    drain(s, 7);
    assert_int_equal(fmtp_sender_deadline(s), 7 + 90000000);
    fmtp_sender_free(s);
    assert_int_equal(last_why, FMTP_RELEASE_CLOSED);
}

static void test_offer_errors(void **state)
{
    struct fmtp_sender *s = make(1, 4096);
    struct iovec huge[2] = {{product, UINT32_MAX}, {product, 1}};
    struct timespec t = {0};

    (void)state;
    struct tp_error err;
    assert_int_equal(fmtp_sender_offer(s,
                                       &(struct fmtp_offer){.parts = huge, .nparts = 2, .start = t},
                                       NULL, &err),
                     -1);
    assert_non_null(strstr(err.text, "4294967295"));
    assert_int_equal(
        fmtp_sender_offer(
            s,
            &(struct fmtp_offer){
                .parts = huge, .nparts = 1, .meta = product, .meta_len = 1443, .start = t},
            NULL, &err),
        -1);
    assert_non_null(strstr(err.text, "1443"));
    assert_int_equal(fmtp_sender_offer(s,
                                       &(struct fmtp_offer){.parts = huge, .nparts = 5, .start = t},
                                       NULL, &err),
                     -1);
    offer(s, 10);
    assert_false(fmtp_sender_ready(s));
    assert_int_equal(fmtp_sender_offer(s,
                                       &(struct fmtp_offer){.parts = huge, .nparts = 0, .start = t},
                                       NULL, &err),
                     -1);
    drain(s, 0);
    assert_false(fmtp_sender_ready(s)); /* max_products retained */
    fmtp_sender_timeout(s, TP_NEVER);
    assert_true(fmtp_sender_ready(s));
    fmtp_sender_free(s);
}

/* RETX_REQ: rounded down to a block, clipped to the size, answered in pieces of at most a block. */
static void test_requests(void **state)
{
    struct fmtp_sender *s = make(4, 4096);
    int p = fmtp_sender_peer_add(s, false, NULL);
    static uint8_t out[100000];

    (void)state;
    for (size_t i = 0; i < sizeof product; i++)
        product[i] = (uint8_t)(i / 7 ^ i);
    offer(s, 5000); /* 4 blocks, the last of 656 */
    drain(s, 0);
    assert_false(fmtp_sender_peer_pending(s, p));
    put(s, p, FMTP_RETX_REQ, 0, 2000, 3000); /* [1448, 5000) */
    assert_true(fmtp_sender_peer_pending(s, p));
    assert_int_equal(get(s, p, out, sizeof out), 3 * 12 + 3552);
    expect(out, FMTP_RETX_DATA, 0, 1448, 1448);
    assert_memory_equal(out + 12, product + 1448, 1448);
    expect(out + 1460, FMTP_RETX_DATA, 0, 2896, 1448);
    expect(out + 2920, FMTP_RETX_DATA, 0, 4344, 656);
    assert_memory_equal(out + 2932, product + 4344, 656);
    put(s, p, FMTP_BOP_REQ, 0, 0, 0);
    put(s, p, FMTP_EOP_REQ, 0, 0, 0);
    put(s, p, FMTP_RETX_REQ, 1, 0, 1448); /* unknown: rejected */
    put(s, p, FMTP_BOP_REQ, 77, 0, 0);
    assert_int_equal(get(s, p, out, sizeof out), 12 + 7 + 12 + 12 + 12);
    expect(out, FMTP_RETX_BOP, 0, 0, 7);
    assert_memory_equal(out + 12, "\x00\x00\x13\x88\x00\x01m", 7);
    expect(out + 19, FMTP_RETX_EOP, 0, 0, 0);
    expect(out + 31, FMTP_RETX_REJ, 1, 0, 0);
    expect(out + 43, FMTP_RETX_REJ, 77, 0, 0);
    /* nonsense is counted and ignored; what no receiver may send ends the connection */
    assert_int_equal(put(s, p, FMTP_RETX_REQ, 0, 5000, 1448), 0);
    assert_int_equal(put(s, p, FMTP_RETX_REQ, 0, 0, 0), 0);
    assert_int_equal(put(s, p, FMTP_RETX_DATA, 0, 0, 10), -1);
    assert_int_equal(get(s, p, out, sizeof out), 0);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.bad_messages, 3);
    assert_int_equal(stats.rejects, 2);
    assert_int_equal(stats.retx_blocks, 3);
    assert_int_equal(stats.retx_bytes, 3552);
    fmtp_sender_free(s);
}

/* Released while a message is half sent: the other half is still sent, the rest is rejected. */
static void test_release_in_mid_message(void **state)
{
    struct fmtp_sender *s = make(4, 4096);
    int p = fmtp_sender_peer_add(s, false, NULL);
    static uint8_t out[100000];

    (void)state;
    for (size_t i = 0; i < 10000; i++)
        product[i] = (uint8_t)(i * 31 >> 3);
    offer(s, 10000);
    drain(s, 0);
    put(s, p, FMTP_RETX_REQ, 0, 0, 10000);
    assert_int_equal(get(s, p, out, 2000), 2000);
    fmtp_sender_timeout(s, TP_NEVER);
    assert_int_equal(nreleased, 1);
    memset(product, 0xee, sizeof product); /* the application reuses it */
    size_t n = 2000 + get(s, p, out + 2000, sizeof out - 2000);
    assert_int_equal(n, 2 * 1460 + 2 * 12);
    expect(out + 1460, FMTP_RETX_DATA, 0, 1448, 1448);
    for (size_t i = 0; i < 1448; i++)
        assert_int_equal(out[1472 + i], (uint8_t)((1448 + i) * 31 >> 3));
    expect(out + 2920, FMTP_RETX_REJ, 0, 0, 0);
    expect(out + 2932, FMTP_RETX_EOP, 0, 0, 0);
    fmtp_sender_free(s);
}

/* RETX_END counts once per receiver; the product is released when the last one has sent it. */
static void test_acknowledgements(void **state)
{
    struct fmtp_sender *s = make(4, 4096);
    int a = fmtp_sender_peer_add(s, false, NULL), b = fmtp_sender_peer_add(s, false, NULL);

    (void)state;
    offer(s, 5000);
    int late = fmtp_sender_peer_add(s, false, NULL); /* after BOP: not waited for */
    put(s, a, FMTP_RETX_END, 0, 0, 0);               /* before EOP was sent */
    put(s, b, FMTP_RETX_END, 0, 0, 0);
    assert_int_equal(nreleased, 0);
    drain(s, 0);
    assert_int_equal(nreleased, 1);
    assert_int_equal(last_why, FMTP_RELEASE_ALL_DONE);
    offer(s, 5000);
    drain(s, 0);
    put(s, a, FMTP_RETX_END, 1, 0, 0);
    put(s, a, FMTP_RETX_END, 1, 0, 0); /* twice from the same peer */
    put(s, b, FMTP_RETX_END, 1, 0, 0);
    assert_int_equal(nreleased, 1);
    fmtp_sender_peer_remove(s, late); /* the last one leaves */
    assert_int_equal(nreleased, 2);
    assert_int_equal(last_index, 1);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.acks, 4);
    assert_int_equal(stats.unacknowledged, 1);
    assert_int_equal(stats.timeouts, 0);
    fmtp_sender_free(s);
}

/* One peer's backlog is bounded; above the bound the product is rejected, others continue. */
static void test_queue_bound(void **state)
{
    struct fmtp_sender *s = make(4, 64 * 16); /* 64 entries */
    int p = fmtp_sender_peer_add(s, false, NULL), q = fmtp_sender_peer_add(s, false, NULL);
    static uint8_t out[200000];

    (void)state;
    offer(s, 200000); /* 139 blocks */
    drain(s, 0);
    /* Consecutive ranges are merged: they take one entry. */
    for (uint32_t b = 0; b < 138; b++)
        assert_int_equal(put(s, q, FMTP_RETX_REQ, 0, b * 1448, 1448), 0);
    assert_int_equal(get(s, q, out, sizeof out), sizeof out);
    for (uint32_t b = 0; b < 65; b++)
        assert_int_equal(put(s, p, FMTP_RETX_REQ, 0, 2 * b * 1448, 1448), 0);
    assert_int_equal(get(s, p, out, sizeof out), 12);
    expect(out, FMTP_RETX_REJ, 0, 0, 0);
    struct fmtp_server_stats stats;
    fmtp_sender_get_stats(s, &stats);
    assert_int_equal(stats.rejects, 1);
    /* Control messages alone fill it: that is abuse. */
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(put(s, p, FMTP_EOP_REQ, i % 2, 0, 0), 0);
    assert_int_equal(put(s, p, FMTP_EOP_REQ, 1, 0, 0),
                     0); /* equal to the previous one: once is enough */
    assert_int_equal(put(s, p, FMTP_EOP_REQ, 0, 0, 0), -1);
    assert_int_equal(put(s, p, FMTP_RETX_END, 0, 0, 0), -1);
    assert_int_equal(put(s, q, FMTP_EOP_REQ, 0, 0, 0), 0);
    fmtp_sender_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_datagrams),
        cmocka_unit_test(test_max_rtt),
        cmocka_unit_test(test_offer_errors),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_release_in_mid_message),
        cmocka_unit_test(test_acknowledgements),
        cmocka_unit_test(test_queue_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

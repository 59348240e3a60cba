/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving core alone: bytes in, bytes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "receiver.h"

enum { MAX_PRODUCTS = 16, BLOCK = 1448 };

static uint8_t buffer[8 * BLOCK], *big;
static uint32_t missed_index[200];
static int nbegun, nended, nmissed;
static uint32_t last_retx;

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    (void)ctx;
    (void)index;
    (void)meta;
    (void)meta_len;
    (void)start;
    nbegun++;
    return size <= sizeof buffer ? buffer : big;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    (void)ctx;
    (void)index;
    (void)start;
    last_retx = retx_blocks;
    nended++;
}

static void missed(void *ctx, uint32_t index)
{
    (void)ctx;
    if (nmissed < 200)
        missed_index[nmissed] = index;
    nmissed++;
}

static struct fmtp_receiver *make(void)
{
    struct fmtp_receiver_config cfg = {.layout = FMTP_LAYOUT_2017,
                                       .f_rcv = 2,
                                       .r_mc_bps = 8000000,
                                       .max_products = MAX_PRODUCTS,
                                       .begun = begun,
                                       .ended = ended,
                                       .missed = missed};

    nbegun = nended = nmissed = 0;
    memset(buffer, 0, sizeof buffer);
    return fmtp_receiver_new(&cfg);
}

static size_t message(uint8_t *out, uint16_t flags, uint32_t index, uint32_t seq, size_t len,
                      uint8_t fill)
{
    struct fmtp_header h = {index, seq, (uint16_t)len, flags};

    fmtp_header_put(out, &h);
    memset(out + FMTP_HEADER_LEN, fill, len);
    return FMTP_HEADER_LEN + len;
}

static void give(struct fmtp_receiver *r, const uint8_t *bytes, size_t len)
{
    fmtp_receiver_datagram(r, bytes, bytes + FMTP_HEADER_LEN, len - FMTP_HEADER_LEN, 1000);
}

static void datagram(struct fmtp_receiver *r, uint16_t flags, uint32_t index, uint32_t seq,
                     size_t len, uint8_t fill)
{
    uint8_t bytes[2048];

    give(r, bytes, message(bytes, flags, index, seq, len, fill));
}

static size_t bop_message(uint8_t *out, uint16_t flags, uint32_t index, uint32_t size)
{
    struct fmtp_bop bop = {.size_bytes = size};
    size_t n = message(out, flags, index, 0, 6, 0);

    fmtp_bop_put(FMTP_LAYOUT_2017, out + FMTP_HEADER_LEN, &bop);
    return n;
}

static void bop(struct fmtp_receiver *r, uint32_t index, uint32_t size)
{
    uint8_t bytes[64];

    give(r, bytes, bop_message(bytes, FMTP_BOP, index, size));
}

/* The next message to the sender must be this one. */
static void expect(struct fmtp_receiver *r, uint16_t flags, uint32_t index, uint32_t seq,
                   uint16_t len)
{
    const uint8_t *bytes;
    assert_true(fmtp_receiver_output(r, &bytes) >= FMTP_HEADER_LEN);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, flags);
    assert_int_equal(h.index, index);
    assert_int_equal(h.seqnum, seq);
    assert_int_equal(h.payloadlen, len);
    fmtp_receiver_sent(r, FMTP_HEADER_LEN);
}

static void expect_nothing(struct fmtp_receiver *r)
{
    const uint8_t *bytes;

    assert_int_equal(fmtp_receiver_output(r, &bytes), 0);
}

static uint64_t bad(struct fmtp_receiver *r)
{
    struct fmtp_client_stats s;

    fmtp_receiver_get_stats(r, &s);
    return s.bad_messages;
}

static void test_in_order(void **state)
{
    struct fmtp_receiver *r = make();

    (void)state;
    bop(r, 5, BLOCK + 10);
    assert_int_equal(nbegun, 1);
    /* equation (2): 2 * 1458 * 8 / 8e6 = 2.916 ms */
    assert_int_equal(fmtp_receiver_deadline(r), 1000 + 2916000);
    datagram(r, FMTP_MEM_DATA, 5, 0, BLOCK, 'a');
    datagram(r, FMTP_MEM_DATA, 5, BLOCK, 10, 'b');
    assert_int_equal(nended, 1);
    assert_int_equal(buffer[BLOCK - 1], 'a');
    assert_int_equal(buffer[BLOCK + 9], 'b');
    assert_int_equal(buffer[BLOCK + 10], 0);
    assert_int_equal(fmtp_receiver_deadline(r), TP_NEVER);
    expect(r, FMTP_RETX_END, 5, 0, 0);
    /* All of it again: nothing happens. */
    bop(r, 5, BLOCK + 10);
    datagram(r, FMTP_MEM_DATA, 5, 0, BLOCK, 'x');
    datagram(r, FMTP_EOP, 5, 0, 0, 0);
    expect_nothing(r);
    assert_int_equal(nbegun, 1);
    assert_int_equal(nended, 1);
    assert_int_equal(buffer[0], 'a');
    fmtp_receiver_free(r);
    assert_int_equal(nmissed, 0);
}

static void test_malformed(void **state)
{
    struct fmtp_receiver *r = make();

    (void)state;
    bop(r, 0, 3 * BLOCK);
    uint8_t bytes[2048];
    size_t n = message(bytes, FMTP_MEM_DATA, 0, 0, BLOCK, 'a');
    fmtp_receiver_bad_datagram(r); /* shorter than a header */
    give(r, bytes, n - 1);         /* length does not fit */
    give(r, bytes, n + 1);
    datagram(r, FMTP_MEM_DATA, 0, 1, BLOCK, 'a');      /* not a block border */
    datagram(r, FMTP_MEM_DATA, 0, 0, 100, 'a');        /* short, but not the last */
    datagram(r, FMTP_MEM_DATA, 0, 3 * BLOCK, 10, 'a'); /* beyond the end */
    datagram(r, FMTP_MEM_DATA, 0, 0, 0, 'a');
    datagram(r, FMTP_MEM_DATA, 0, 0xfffffd58, BLOCK, 'a');
    datagram(r, FMTP_RETX_DATA, 0, 0, BLOCK, 'a'); /* not on UDP */
    datagram(r, 0x0005, 0, 0, BLOCK, 'a');         /* two flags */
    datagram(r, FMTP_BOP, 1, 0, 5, 0);             /* short body */
    assert_int_equal(bad(r), 11);
    assert_int_equal(buffer[0], 0);
    expect_nothing(r);
    fmtp_receiver_free(r);
    assert_int_equal(nmissed, 1);
}

/* Gaps are asked for once, consecutive blocks in one request of at most 45 blocks. */
static void test_merging(void **state)
{
    struct fmtp_receiver *r = make();
    uint32_t size = 100 * BLOCK;

    (void)state;
    big = calloc(1, size);
    bop(r, 0, size);
    datagram(r, FMTP_MEM_DATA, 0, 2 * BLOCK, BLOCK, 'a');
    expect(r, FMTP_RETX_REQ, 0, 0, 2 * BLOCK);
    datagram(r, FMTP_MEM_DATA, 0, 95 * BLOCK, BLOCK, 'a');
    expect(r, FMTP_RETX_REQ, 0, 3 * BLOCK, 45 * BLOCK);
    expect(r, FMTP_RETX_REQ, 0, 48 * BLOCK, 45 * BLOCK);
    expect(r, FMTP_RETX_REQ, 0, 93 * BLOCK, 2 * BLOCK);
    datagram(r, FMTP_MEM_DATA, 0, 50 * BLOCK, BLOCK, 'a'); /* late, not lost */
    expect_nothing(r);
    datagram(r, FMTP_EOP, 0, 0, 0, 0);
    expect(r, FMTP_RETX_REQ, 0, 96 * BLOCK, 4 * BLOCK);
    datagram(r, FMTP_EOP, 0, 0, 0, 0);
    expect_nothing(r);
    fmtp_receiver_free(r);
    free(big);
    big = NULL;
}

/* Far more gaps than fit into the backlog of requests: all are asked for eventually. */
static void test_many_gaps(void **state)
{
    struct fmtp_receiver *r = make();
    uint32_t blocks = 30000, size = blocks * BLOCK, asked = 0;
    size_t most = 0;

    (void)state;
    big = malloc(size);
    bop(r, 0, size);
    for (uint32_t b = 1; b < blocks; b += 2)
        datagram(r, FMTP_MEM_DATA, 0, b * BLOCK, BLOCK, 'a');
    const uint8_t *bytes;
    size_t n;
    while ((n = fmtp_receiver_output(r, &bytes))) {
        most = n > most ? n : most;
        struct fmtp_header h;
        fmtp_header_get(bytes, &h);
        assert_int_equal(h.flags, FMTP_RETX_REQ);
        assert_int_equal(h.seqnum, 2 * asked * BLOCK);
        assert_int_equal(h.payloadlen, BLOCK);
        fmtp_receiver_sent(r, FMTP_HEADER_LEN);
        asked++;
    }
    assert_int_equal(asked, blocks / 2);
    assert_true(most < 65536 + FMTP_HEADER_LEN);
    assert_false(fmtp_receiver_stuck(r));
    fmtp_receiver_free(r);
    free(big);
    big = NULL;
}

/* RETX_DATA in pieces while the multicast brings the same block and ends the product. */
static void test_race(void **state)
{
    struct fmtp_receiver *r = make();
    uint8_t bytes[2048];
    size_t n = message(bytes, FMTP_RETX_DATA, 0, 0, BLOCK, 'r');

    (void)state;
    bop(r, 0, 2 * BLOCK);
    datagram(r, FMTP_MEM_DATA, 0, BLOCK, BLOCK, 'm');
    expect(r, FMTP_RETX_REQ, 0, 0, BLOCK);
    assert_int_equal(fmtp_receiver_stream(r, bytes, 700, 0), 0);
    datagram(r, FMTP_MEM_DATA, 0, 0, BLOCK, 'm'); /* was only late */
    assert_int_equal(nended, 1);
    memset(buffer, 'z', sizeof buffer); /* the application's again */
    assert_int_equal(fmtp_receiver_stream(r, bytes + 700, n - 700, 0), 0);
    for (size_t i = 0; i < sizeof buffer; i++)
        assert_int_equal(buffer[i], 'z');
    assert_int_equal(nended, 1);
    assert_int_equal(last_retx, 0);
    expect(r, FMTP_RETX_END, 0, 0, 0);
    expect_nothing(r);
    fmtp_receiver_free(r);
}

static void test_stream_garbage(void **state)
{
    static const uint16_t wrong[] = {FMTP_BOP,      FMTP_EOP,     FMTP_MEM_DATA, FMTP_RETX_REQ,
                                     FMTP_RETX_END, FMTP_BOP_REQ, FMTP_EOP_REQ,  0,
                                     0xffff};

    (void)state;
    uint8_t bytes[2048];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct fmtp_receiver *r = make();
        message(bytes, wrong[i], 0, 0, 0, 0);
        assert_int_equal(fmtp_receiver_stream(r, bytes, 12, 0), -1);
        assert_int_equal(bad(r), 1);
        fmtp_receiver_free(r);
    }
    struct fmtp_receiver *r = make();
    message(bytes, FMTP_RETX_DATA, 0, 0, 1449, 0);
    assert_int_equal(fmtp_receiver_stream(r, bytes, 12, 0), -1);
    fmtp_receiver_free(r);
    r = make();
    message(bytes, FMTP_RETX_REJ, 0, 0, 1, 0);
    assert_int_equal(fmtp_receiver_stream(r, bytes, 12, 0), -1);
    fmtp_receiver_free(r);
}

/* A gap of products is asked for; modulo 2^32; an older index is ignored. */
static void test_index_arithmetic(void **state)
{
    struct fmtp_receiver *r = make();

    (void)state;
    bop(r, UINT32_MAX - 1, 0);
    expect(r, FMTP_RETX_END, UINT32_MAX - 1, 0, 0);
    bop(r, 1, 0);
    expect(r, FMTP_BOP_REQ, UINT32_MAX, 0, 0);
    expect(r, FMTP_BOP_REQ, 0, 0, 0);
    expect(r, FMTP_RETX_END, 1, 0, 0);
    bop(r, UINT32_MAX - 7, 0); /* retrograde */
    datagram(r, FMTP_MEM_DATA, 0x80000010, 0, BLOCK, 'a');
    expect_nothing(r);
    assert_int_equal(nbegun, 2);
    fmtp_receiver_free(r);
    assert_int_equal(nmissed, 2);
    assert_int_equal(missed_index[0], UINT32_MAX); /* in order of index */
    assert_int_equal(missed_index[1], 0);
}

/* One stray index does not make us ask for thousands of products; a run of them makes us ask about
 * it, and the stream's answer moves us. */
static void test_far_jump(void **state)
{
    struct fmtp_receiver *r = make();

    (void)state;
    bop(r, 0, 0);
    expect(r, FMTP_RETX_END, 0, 0, 0);
    for (uint32_t i = 1; i < 100; i++)
        datagram(r, FMTP_MEM_DATA, i * 1000000, 0, BLOCK, 'a');
    expect_nothing(r);
    assert_int_equal(bad(r), 99);
    bop(r, 1, 0);
    expect(r, FMTP_RETX_END, 1, 0, 0);
    for (uint32_t i = 0; i < 32; i++)
        datagram(r, FMTP_MEM_DATA, 100, i * BLOCK, BLOCK, 'a');
    expect(r, FMTP_BOP_REQ, 100, 0, 0);
    expect_nothing(r);
    assert_int_equal(nmissed, 0); /* until the stream confirms it */
    uint8_t confirmed[64];
    size_t len = bop_message(confirmed, FMTP_RETX_BOP, 100, BLOCK);
    assert_int_equal(fmtp_receiver_stream(r, confirmed, len, 1000), 0);
    /* 2..99, of which nothing came: those that there may be room for are asked for */
    assert_int_equal(nmissed, 90);
    assert_int_equal(missed_index[0], 2);
    assert_int_equal(missed_index[89], 91);
    for (uint32_t i = 92; i < 100; i++)
        expect(r, FMTP_BOP_REQ, i, 0, 0);
    expect_nothing(r);
    fmtp_receiver_free(r);
    assert_int_equal(nmissed, 99);
}

/* No more than max_products in flight: the others are missed and given back to the sender. */
static void test_table_full(void **state)
{
    struct fmtp_receiver *r = make();

    (void)state;
    for (uint32_t i = 0; i < MAX_PRODUCTS; i++)
        bop(r, i, 2 * BLOCK);
    assert_int_equal(fmtp_receiver_in_flight(r), MAX_PRODUCTS);
    assert_int_equal(nmissed, 0);
    bop(r, MAX_PRODUCTS, 2 * BLOCK);
    assert_int_equal(nmissed, 1);
    assert_int_equal(missed_index[0], MAX_PRODUCTS);
    assert_int_equal(nbegun, MAX_PRODUCTS);
    assert_int_equal(fmtp_receiver_in_flight(r), MAX_PRODUCTS);
    fmtp_receiver_free(r);
    assert_int_equal(nmissed, 1 + MAX_PRODUCTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_many_gaps),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_stream_garbage),
        cmocka_unit_test(test_index_arithmetic),
        cmocka_unit_test(test_far_jump),
        cmocka_unit_test(test_table_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

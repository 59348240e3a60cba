/* SPDX-License-Identifier: Apache-2.0
 *
 * The vectors are captured messages of the published implementation (FMTPv3-2017, FMTPv3-2021).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loop/timers.h"
#include "wire.h"

static size_t unhex(const char *text, uint8_t *out)
{
    size_t n = 0;
    int half = -1;

    for (; *text; text++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, *text);
        if (*text == ' ')
            continue;
        assert_non_null(d);
        if (half < 0) {
            half = (int)(d - digits);
        } else {
            out[n++] = (uint8_t)(half << 4 | (int)(d - digits));
            half = -1;
        }
    }
    return n;
}

static void check_header(const char *hex, struct fmtp_header want)
{
    uint8_t bytes[64];
    assert_true(unhex(hex, bytes) >= FMTP_HEADER_LEN);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.index, want.index);
    assert_int_equal(h.seqnum, want.seqnum);
    assert_int_equal(h.payloadlen, want.payloadlen);
    assert_int_equal(h.flags, want.flags);
    uint8_t out[FMTP_HEADER_LEN];
    fmtp_header_put(out, &want);
    assert_memory_equal(out, bytes, FMTP_HEADER_LEN);
}

static void test_headers(void **state)
{
    (void)state;
    check_header("00000000 000005a8 003b 0004", (struct fmtp_header){0, 1448, 59, FMTP_MEM_DATA});
    check_header("00000001 00020860 05a8 0008",
                 (struct fmtp_header){1, 133216, 1448, FMTP_RETX_REQ});
    check_header("00000000 00000000 0000 0020", (struct fmtp_header){0, 0, 0, FMTP_RETX_END});
    check_header("00000001 00000000 0000 0400", (struct fmtp_header){1, 0, 0, FMTP_RETX_EOP});
    check_header("00000001 00000000 0000 0080", (struct fmtp_header){1, 0, 0, FMTP_BOP_REQ});
    check_header("00000001 00000000 0000 0010", (struct fmtp_header){1, 0, 0, FMTP_RETX_REJ});
}

static void test_bop_2017(void **state)
{
    uint8_t bytes[64];
    size_t n = unhex("000005e3 000e 74657374206d6574616461746100", bytes);

    (void)state;
    check_header("00000000 00000000 0014 0001", (struct fmtp_header){0, 0, 20, FMTP_BOP});
    assert_int_equal(n, 20);
    struct fmtp_bop bop;
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2017, bytes, n, &bop), 0);
    assert_int_equal(bop.size_bytes, 1507);
    assert_int_equal(bop.meta_len, 14);
    assert_memory_equal(bop.meta, "test metadata", 14);
    assert_int_equal(bop.start.tv_sec, 0);
    uint8_t out[64];
    assert_int_equal(fmtp_bop_put(FMTP_LAYOUT_2017, out, &bop), n);
    assert_memory_equal(out, bytes, n);
    /* exactly 6+metasize */
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2017, bytes, n - 1, &bop), -1);
    bytes[n] = 0;
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2017, bytes, n + 1, &bop), -1);
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2017, bytes, 5, &bop), -1);
}

static void test_bop_2021(void **state)
{
    uint8_t bytes[64];
    size_t n = unhex("00000000 6b00d4c7 1c3ef150 00004e60 0010"
                     "d6c5899b 00112233 44556677 8899 5c57",
                     bytes);

    (void)state;
    check_header("00000000 00000000 0022 0001", (struct fmtp_header){0, 0, 34, FMTP_BOP});
    assert_int_equal(n, 34);
    struct fmtp_bop bop;
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2021, bytes, n, &bop), 0);
    assert_int_equal(bop.size_bytes, 20064);
    assert_int_equal(bop.meta_len, 16);
    assert_int_equal(bop.start.tv_sec, 1795216583);
    assert_int_equal(bop.start.tv_nsec, 473887056);
    assert_memory_equal(bop.meta, bytes + 18, 16);
    uint8_t out[64];
    assert_int_equal(fmtp_bop_put(FMTP_LAYOUT_2021, out, &bop), n);
    assert_memory_equal(out, bytes, n);
    /* at least 18+metasize */
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2021, bytes, n - 1, &bop), -1);
    bytes[n] = 0;
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2021, bytes, n + 1, &bop), 0);
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2021, bytes, 17, &bop), -1);
    /* 10^9 nanoseconds are invalid */
    unhex("3b9aca00", bytes + 8);
    assert_int_equal(fmtp_bop_get(FMTP_LAYOUT_2021, bytes, n, &bop), -1);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(FMTP_MAX_PACKET, 1460);
    assert_int_equal(FMTP_REQ_BLOCKS, 45);
    assert_int_equal(fmtp_bop_fixed_len(FMTP_LAYOUT_2021) + FMTP_MAX_METADATA, FMTP_DATA_LEN);
    assert_int_equal(fmtp_blocks(0, FMTP_DATA_LEN), 0);
    assert_int_equal(fmtp_blocks(1448, FMTP_DATA_LEN), 1);
    assert_int_equal(fmtp_blocks(1449, FMTP_DATA_LEN), 2);
    assert_int_equal(fmtp_blocks(UINT32_MAX, FMTP_DATA_LEN), 2966138); /* 2966137.6 */
    assert_int_equal(fmtp_block_len(1507, 1448, FMTP_DATA_LEN), 59);
    /* 1 MB at 20 Mbit/s is 0.4 s; factor 20: 8 s */
    assert_int_equal(fmtp_scaled_tx_ns(20, 1000000, 20000000), 8000000000);
    assert_int_equal(fmtp_scaled_tx_ns(20, 1000000, 0), 0);
    assert_int_equal(fmtp_scaled_tx_ns(1e9, UINT32_MAX, 1), 9000000000000000000);
}

static void test_parity(void **state)
{
    struct fmtp_parity p = {0x1234, 7, 9};

    (void)state;
    assert_int_equal(fmtp_parity_seqnum(p), 0x12340709);
    struct fmtp_parity back = fmtp_parity_get(0xffff00fe);
    assert_int_equal(back.group, 65535);
    assert_int_equal(back.number, 0);
    assert_int_equal(back.end, 254);
}

static void test_repair_req(void **state)
{
    /* blocks 0 and 9 of 12, one symbol known to be in flight, two wanted */
    const uint8_t bitmap[] = {0x01, 0x02}, wire[] = {5, 1, 0, 2, 0x01, 0x02};
    struct fmtp_repair_req req = {5, 1, 2, bitmap};

    (void)state;
    assert_int_equal(fmtp_repair_req_len(12), 6);
    assert_int_equal(fmtp_repair_req_len(255), FMTP_REPAIR_REQ_MAX);
    uint8_t out[FMTP_REPAIR_REQ_MAX];
    assert_int_equal(fmtp_repair_req_put(out, &req, 12), 6);
    assert_memory_equal(out, wire, 6);
    struct fmtp_repair_req back;
    assert_int_equal(fmtp_repair_req_get(wire, 6, 12, &back), 0);
    assert_int_equal(back.high, 5);
    assert_int_equal(back.round, 1);
    assert_int_equal(back.need, 2);
    assert_ptr_equal(back.bitmap, wire + 4);
    assert_int_equal(fmtp_repair_req_get(wire, 5, 12, &back), -1);
    assert_int_equal(fmtp_repair_req_get(wire, 6, 17, &back), -1);
    assert_int_equal(fmtp_repair_req_get(wire, 6, 9, &back), -1); /* block 9 of 9 */
    assert_int_equal(fmtp_repair_req_get(wire, 6, 10, &back), 0);
    assert_int_equal(fmtp_repair_req_get(wire, 6, 16, &back), 0);
    memcpy(out, wire, 6);
    out[3] = 3; /* more than are missing */
    assert_int_equal(fmtp_repair_req_get(out, 6, 12, &back), -1);
    out[3] = 0;
    assert_int_equal(fmtp_repair_req_get(out, 6, 12, &back), -1);
}

static void test_timers(void **state)
{
    enum { N = 1000 };
    static struct tp_timer timer[N];
    uint32_t x = 1;
    uint64_t last = 0;
    int popped = 0;

    (void)state;
    struct tp_timers t;
    assert_int_equal(tp_timers_init(&t, N), 0);
    assert_int_equal(tp_timers_next(&t), TP_NEVER);
    for (int i = 0; i < N; i++)
        tp_timer_arm(&t, &timer[i], (x = x * 1664525 + 1013904223) >> 8);
    for (int i = 0; i < N; i += 3)
        tp_timer_arm(&t, &timer[i], (x = x * 1664525 + 1013904223) >> 8);
    for (int i = 0; i < N; i += 5)
        tp_timer_disarm(&t, &timer[i]);
    tp_timer_disarm(&t, &timer[0]);
    assert_null(tp_timers_pop(&t, tp_timers_next(&t) - 1));
    struct tp_timer *p;
    while ((p = tp_timers_pop(&t, TP_NEVER))) {
        assert_true(p->at_ns >= last);
        assert_true((p - timer) % 5 != 0);
        last = p->at_ns;
        popped++;
    }
    assert_int_equal(popped, N - N / 5);
    tp_timers_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),  cmocka_unit_test(test_bop_2017),
        cmocka_unit_test(test_bop_2021), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_parity),   cmocka_unit_test(test_repair_req),
        cmocka_unit_test(test_timers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

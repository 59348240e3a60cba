/* SPDX-License-Identifier: Apache-2.0
 *
 * FEC groups and the code, compared with a bitwise multiplication in GF(2^8) (x^8+x^4+x^3+x^2+1).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fec.h"

static uint32_t x = 1;

static uint32_t rnd(uint32_t below)
{
    x = x * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)x * below >> 32);
}

static void test_groups(void **state)
{
    (void)state;
    assert_int_equal(fmtp_fec_groups(0, 200), 0);
    assert_int_equal(fmtp_fec_groups(1, 200), 1);
    assert_int_equal(fmtp_fec_groups(200, 200), 1);
    assert_int_equal(fmtp_fec_groups(201, 200), 2);
    assert_int_equal(fmtp_fec_groups(UINT32_MAX, 1), UINT32_MAX);
    /* 500 blocks by 200: 166, 167, 167 */
    struct fmtp_fec_group g = fmtp_fec_group(500, 200, 0);
    assert_int_equal(g.first, 0);
    assert_int_equal(g.count, 166);
    g = fmtp_fec_group(500, 200, 1);
    assert_int_equal(g.first, 166);
    assert_int_equal(g.count, 167);
    g = fmtp_fec_group(500, 200, 2);
    assert_int_equal(g.first, 333);
    assert_int_equal(g.count, 167);
    assert_int_equal(fmtp_fec_group_of(500, 200, 165), 0);
    assert_int_equal(fmtp_fec_group_of(500, 200, 166), 1);
    assert_int_equal(fmtp_fec_group_of(500, 200, 499), 2);
    for (int i = 0; i < 300; i++) {
        uint32_t n = i < 10 ? UINT32_MAX - (uint32_t)i : 1 + rnd(100000), k = 1 + rnd(254);
        uint32_t groups = fmtp_fec_groups(n, k), at = rnd(groups), block = rnd(n);
        struct fmtp_fec_group a = fmtp_fec_group(n, k, at);
        assert_in_range(a.count, 1, k);
        assert_true(a.count + 1 >= fmtp_fec_group(n, k, 0).count);
        if (at + 1 < groups)
            assert_int_equal(fmtp_fec_group(n, k, at + 1).first, a.first + a.count);
        else
            assert_int_equal(a.first + a.count, n);
        struct fmtp_fec_group b = fmtp_fec_group(n, k, fmtp_fec_group_of(n, k, block));
        assert_true(b.first <= block && block - b.first < b.count);
    }
}

static uint8_t mul(uint8_t a, uint8_t b)
{
    unsigned r = 0;

    for (unsigned i = 0; i < 8; i++)
        if (b >> i & 1)
            r ^= (unsigned)a << i;
    for (unsigned i = 15; i > 7; i--)
        if (r >> i & 1)
            r ^= 0x11du << (i - 8);
    return (uint8_t)r;
}

static uint8_t inverse(uint8_t a)
{
    for (unsigned b = 1; b < 256; b++)
        if (mul(a, (uint8_t)b) == 1)
            return (uint8_t)b;
    fail_msg("no inverse of %u", a);
    return 0;
}

static void test_symbols(void **state)
{
    static uint8_t data[255][100], made[255][100];

    (void)state;
    const uint8_t *blocks[255];
    uint8_t *out[255];
    for (unsigned i = 0; i < 255; i++) {
        for (unsigned b = 0; b < 100; b++)
            data[i][b] = (uint8_t)rnd(256);
        blocks[i] = data[i];
        out[i] = made[i];
    }
    /* One block: rows 1/(1^0) = 1 and 1/(2^0) = 0x8e, since 2 * 0x8e = 0x11c = 1 mod 0x11d. */
    fmtp_fec_encode(1, 0, 2, 100, blocks, out);
    assert_memory_equal(made[0], data[0], 100);
    assert_int_equal(made[1][7], mul(0x8e, data[0][7]));
    for (unsigned k = 1; k <= 254; k += k < 10 ? 1 : 61) {
        unsigned n = 255 - k;
        memset(made, 0, sizeof made);
        fmtp_fec_encode(k, 0, n, 100, blocks, out);
        for (unsigned j = 0; j < n; j += 1 + n / 7) {
            uint8_t want = 0;
            for (unsigned i = 0; i < k; i++)
                want ^= mul(inverse((uint8_t)((k + j) ^ i)), data[i][99]);
            assert_int_equal(made[j][99], want);
        }
        uint8_t one[100], *alone[1] = {one};
        fmtp_fec_encode(k, n - 1, 1, 100, blocks, alone);
        assert_memory_equal(one, made[n - 1], 100);
    }
}

/* Picks m distinct numbers below n. */
static void pick(uint8_t *out, unsigned m, unsigned n)
{
    uint8_t all[256];

    for (unsigned i = 0; i < n; i++)
        all[i] = (uint8_t)i;
    for (unsigned i = 0; i < m; i++) {
        unsigned j = i + rnd(n - i);
        out[i] = all[j];
        all[j] = all[i];
    }
}

static void round_trip(unsigned k, unsigned m, size_t bytes)
{
    unsigned n = fmtp_fec_max_parity(k);
    uint8_t *data = malloc(k * bytes), *made = malloc(n * bytes), *got = malloc(m * bytes + 1);

    for (size_t i = 0; i < k * bytes; i++)
        data[i] = (uint8_t)rnd(256);
    const uint8_t *blocks[255];
    for (unsigned i = 0; i < k; i++)
        blocks[i] = data + i * bytes;
    uint8_t *out[255];
    for (unsigned i = 0; i < n; i++)
        out[i] = made + i * bytes;
    fmtp_fec_encode(k, 0, n, bytes, blocks, out);
    uint8_t missing[255];
    pick(missing, m, k);
    uint8_t numbers[255];
    pick(numbers, m, n);
    const uint8_t *parity[255];
    for (unsigned i = 0; i < m; i++) {
        blocks[missing[i]] = NULL;
        parity[i] = made + numbers[i] * bytes;
        out[i] = got + i * bytes;
    }
    assert_int_equal(fmtp_fec_decode(k, bytes, blocks, m, missing, numbers, parity, out), 0);
    for (unsigned i = 0; i < m; i++)
        assert_memory_equal(got + i * bytes, data + missing[i] * bytes, bytes);
    free(data);
    free(made);
    free(got);
}

static void test_decode(void **state)
{
    const size_t sizes[] = {1448, 1416, 1384, 1, 31, 33, 65, 536};

    (void)state;
    for (unsigned i = 0; i < 60; i++) {
        unsigned k = 1 + rnd(254), most = k < 255 - k ? k : 255 - k;
        round_trip(k, i % 10 ? rnd((most < 30 ? most : 30) + 1) : most, sizes[i % 8]);
    }
    round_trip(1, 1, 65492);
    round_trip(200, 55, 1448);
}

static void test_decode_refuses(void **state)
{
    uint8_t a[64] = {0}, b[64] = {0}, *out[2] = {a, b};
    const uint8_t *blocks[4] = {a, a, a, a}, *parity[2] = {b, b};
    const uint8_t good[2] = {0, 1}, twice[2] = {1, 1}, far[2] = {0, 4}, high[2] = {0, 251};

    (void)state;
    assert_int_equal(fmtp_fec_decode(4, 64, blocks, 2, twice, good, parity, out), -1);
    assert_int_equal(fmtp_fec_decode(4, 64, blocks, 2, good, twice, parity, out), -1);
    assert_int_equal(fmtp_fec_decode(4, 64, blocks, 2, far, good, parity, out), -1);
    assert_int_equal(fmtp_fec_decode(4, 64, blocks, 2, good, high, parity, out), -1);
    assert_int_equal(fmtp_fec_decode(4, 64, blocks, 5, good, good, parity, out), -1);
    assert_int_equal(fmtp_fec_decode(255, 64, blocks, 0, good, good, parity, out), -1);
    assert_int_equal(fmtp_fec_decode(4, 64, blocks, 0, good, good, parity, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_decode_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

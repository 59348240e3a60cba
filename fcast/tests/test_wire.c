/* SPDX-License-Identifier: Apache-2.0
 *
 * ALC packets: headers, extensions, OTI, payload IDs, partition, authentication.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "auth.h"
#include "fcast.h"
#include "lct.h"

static void test_a_header(void **state)
{
    (void)state;
    uint8_t bytes[LCT_HEADER_MAX];
    const struct lct_header h = {.cci = 7, .tsi = 0x1234, .toi = 0x56, .codepoint = 4};
    size_t len = lct_put(bytes, &h);
    /* Version 1, C 0, S 0, O 0, H 1; three words. */
    const uint8_t want[] = {0x10, 0x10, 3, 4, 0, 0, 0, 7, 0x12, 0x34, 0, 0x56};
    assert_int_equal(len, sizeof want);
    assert_memory_equal(bytes, want, sizeof want);
    struct lct_header got;
    assert_int_equal(lct_get(bytes, len, &got), LCT_OK);
    assert_int_equal(got.tsi, 0x1234);
    assert_int_equal(got.toi, 0x56);
    assert_int_equal(got.codepoint, 4);
    assert_int_equal(got.len, 12);
    assert_false(got.close_session);
}

static void test_wide_ids_and_flags(void **state)
{
    (void)state;
    uint8_t bytes[LCT_HEADER_MAX];
    const struct lct_header h = {.tsi = UINT64_C(0xabcdef012345), .toi = 65536, .close_session = 1};
    size_t len = lct_put(bytes, &h);
    struct lct_header got;
    assert_int_equal(lct_get(bytes, len, &got), LCT_OK);
    assert_true(got.tsi == h.tsi && got.toi == h.toi && got.close_session && !got.close_object);
    /* The largest possible on the wire: CCI 128 bits, TSI 48, TOI 112, with the upper bits zero. */
    uint8_t large[4 + 16 + 6 + 14] = {0x1c, 0xf0, 10};
    large[sizeof large - 1] = 9;
    assert_int_equal(lct_get(large, sizeof large, &got), LCT_OK);
    assert_int_equal(got.toi, 9);
    large[4 + 16 + 6] = 1;
    assert_int_equal(lct_get(large, sizeof large, &got), LCT_TOO_LARGE);
}

static void test_extensions(void **state)
{
    (void)state;
    uint8_t bytes[LCT_HEADER_MAX];
    const struct lct_header h = {.tsi = 1, .toi = 2};
    size_t len = lct_put(bytes, &h), n;
    const uint8_t fdt[3] = {0x20, 0, 5}, other[6] = {1, 2, 3, 4, 5, 6};
    len = lct_add(bytes, len, LCT_EXT_FDT, fdt, sizeof fdt);
    len = lct_add(bytes, len, 77, other, sizeof other);
    assert_int_equal(len, 12 + 4 + 8);
    struct lct_header got;
    assert_int_equal(lct_get(bytes, len, &got), LCT_OK);
    assert_memory_equal(lct_extension(&got, 77, &n), other, 6);
    assert_int_equal(n, 6);
    unsigned version;
    uint32_t instance;
    const uint8_t *content = lct_extension(&got, LCT_EXT_FDT, &n);
    assert_true(fcast_ext_fdt_get(content, n, &version, &instance));
    assert_int_equal(version, 2);
    assert_int_equal(instance, 5);
    assert_null(lct_extension(&got, LCT_EXT_FTI, &n));
    /* An extension of length 0, and one that is longer than the header. */
    bytes[12 + 4 + 1] = 0;
    assert_int_equal(lct_get(bytes, len, &got), LCT_BAD_LENGTH);
    bytes[12 + 4 + 1] = 3;
    assert_int_equal(lct_get(bytes, len, &got), LCT_BAD_LENGTH);
}

static void test_no_header(void **state)
{
    (void)state;
    uint8_t bytes[LCT_HEADER_MAX];
    const struct lct_header h = {.tsi = 1, .toi = 2};
    size_t len = lct_put(bytes, &h);
    struct lct_header got;
    for (size_t i = 0; i < len; i++)
        assert_int_equal(lct_get(bytes, i, &got), LCT_SHORT);
    bytes[2] = 2;
    assert_int_equal(lct_get(bytes, len, &got), LCT_BAD_LENGTH);
    bytes[0] = 0x20;
    assert_int_equal(lct_get(bytes, len, &got), LCT_BAD_VERSION);
}

static void test_oti(void **state)
{
    (void)state;
    static const struct {
        struct fcast_fti fti;
        uint8_t bytes[FCAST_FTI_MAX];
        size_t len;
    } vectors[] = {
        {{.fec = FCAST_NO_CODE, .length = 0x010203040506, .symbol_bytes = 1400, .block_max = 32768},
         {1, 2, 3, 4, 5, 6, 0, 0, 0x05, 0x78, 0, 0, 0x80, 0},
         14},
        {{.fec = FCAST_TRIANGLE,
          .length = 1000000,
          .symbol_bytes = 1000,
          .block_max = 1000,
          .n_max = 1500,
          .n1 = 3,
          .seed = 7},
         /* N1 - 3 = 0, G = 1, B 20 bits 003e8, max_n 20 bits 005dc */
         {0, 0, 0, 0x0f, 0x42, 0x40, 0x03, 0xe8, 0x01, 0x00, 0x3e, 0x80, 0x05, 0xdc, 0, 0, 0, 7},
         18},
        {{.fec = FCAST_RS, .length = 100, .symbol_bytes = 10, .block_max = 200, .n_max = 255},
         {0, 0, 0, 0, 0, 100, 0, 10, 200, 255},
         10},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint8_t bytes[FCAST_FTI_MAX];
        struct fcast_fti got;
        assert_int_equal(fcast_fti_put(bytes, &vectors[i].fti), vectors[i].len);
        assert_memory_equal(bytes, vectors[i].bytes, vectors[i].len);
        assert_true(fcast_fti_get(vectors[i].fti.fec, bytes, vectors[i].len, &got));
        assert_memory_equal(&got, &vectors[i].fti, sizeof got);
        assert_false(fcast_fti_get(vectors[i].fti.fec, bytes, vectors[i].len - 1, &got));
        assert_false(fcast_fti_get(6, bytes, vectors[i].len, &got));
    }
}

/* Content as long as Reed-Solomon's was read as LDPC's, which is longer: found by the fuzzer. */
static void test_oti_of_unknown_codes(void **state)
{
    (void)state;
    for (size_t len = 10; len <= 18; len += 4)
        for (unsigned fec = 1; fec < 256; fec += fec == 2 ? 4 : 1) { /* 3, 4, 5 are known codes */
            struct fcast_fti got;
            uint8_t *bytes = calloc(1, len); /* a sanitizer guards its end */
            assert_non_null(bytes);
            bytes[5] = bytes[7] = bytes[8] = 1;
            bytes[9] = 3;
            assert_false(fcast_fti_get((uint8_t)fec, bytes, len, &got));
            free(bytes);
        }
}

static void test_oti_that_cannot_be(void **state)
{
    (void)state;
    struct fcast_fti f = {
        .fec = FCAST_RS, .length = 100, .symbol_bytes = 10, .block_max = 200, .n_max = 255};
    assert_true(fcast_fti_is_good(&f));
    f.symbol_bytes = 0;
    assert_false(fcast_fti_is_good(&f));
    f.symbol_bytes = 10;
    f.n_max = 200;
    assert_false(fcast_fti_is_good(&f));
    f = (struct fcast_fti){.fec = FCAST_TRIANGLE,
                           .length = 1 << 20,
                           .symbol_bytes = 1,
                           .block_max = 100,
                           .n_max = 150,
                           .n1 = 3,
                           .seed = 1};
    assert_false(fcast_fti_is_good(&f)); /* 10,486 blocks, but only 4,096 can be numbered */
    f.length = 409600;
    assert_true(fcast_fti_is_good(&f));
    f.seed = 0;
    assert_false(fcast_fti_is_good(&f));
}

static void test_payload_ids(void **state)
{
    (void)state;
    static const struct {
        uint8_t fec;
        struct fcast_symbol s;
        uint8_t bytes[4];
    } vectors[] = {{FCAST_NO_CODE, {0x1234, 0x5678}, {0x12, 0x34, 0x56, 0x78}},
                   {FCAST_TRIANGLE, {0xabc, 0x12345}, {0xab, 0xc1, 0x23, 0x45}},
                   {FCAST_RS, {0x123456, 0xfe}, {0x12, 0x34, 0x56, 0xfe}}};
    for (size_t i = 0; i < 3; i++) {
        uint8_t bytes[4];
        fcast_payload_id_put(vectors[i].fec, vectors[i].s, bytes);
        assert_memory_equal(bytes, vectors[i].bytes, 4);
        struct fcast_symbol got = fcast_payload_id_get(vectors[i].fec, bytes);
        assert_memory_equal(&got, &vectors[i].s, sizeof got);
    }
}

/* RFC 5052 9.1: blocks differ by at most one symbol and together make up the object. */
static void test_partition(void **state)
{
    (void)state;
    struct fcast_fti f = {.fec = FCAST_RS, .symbol_bytes = 7, .n_max = 60};
    for (uint32_t b = 1; b < 40; b += 3)
        for (f.length = 0; f.length < 3000; f.length += 13) {
            f.block_max = b;
            const struct fcast_partition p = fcast_partition_of(&f);
            uint64_t sum = 0;
            for (uint32_t i = 0; i < p.blocks; i++) {
                assert_int_equal(fcast_block_first(&p, i), sum);
                assert_in_range(fcast_block_k(&p, i), 1, b);
                assert_true(p.large - fcast_block_k(&p, i) <= 1);
                sum += fcast_block_k(&p, i);
            }
            assert_int_equal(sum, (f.length + 6) / 7);
        }
}

/* The examples of MSR-TR-99-14, section 5. */
static void test_choice_of_k(void **state)
{
    (void)state;
    static const struct {
        uint64_t symbols;
        uint32_t k_max, k;
        uint64_t groups, padding;
    } vectors[] = {{17, 32, 17, 1, 0}, {33, 32, 17, 2, 1}, {65, 32, 22, 3, 1}, {9, 8, 5, 2, 1}};
    for (size_t i = 0; i < 4; i++) {
        uint64_t groups, padding;
        assert_int_equal(fcast_choose_k(vectors[i].symbols, vectors[i].k_max, &groups, &padding),
                         vectors[i].k);
        assert_int_equal(groups, vectors[i].groups);
        assert_int_equal(padding, vectors[i].padding);
    }
    for (uint64_t symbols = 33; symbols < 5000; symbols++)
        assert_in_range(fcast_choose_k(symbols, 32, NULL, NULL), 16, 32);
}

/* Five symbols in blocks of 3 and 2, each with as many repair symbols: the ring takes one of each
 * block in turn, then what the large block has more. */
static void test_ring(void **state)
{
    (void)state;
    static const struct fcast_symbol ring[] = {{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2},
                                               {1, 2}, {0, 3}, {1, 3}, {0, 4}, {0, 5}};
    const struct fcast_fti f = {
        .fec = FCAST_RS, .length = 5, .symbol_bytes = 1, .block_max = 3, .n_max = 6};
    const struct fcast_partition p = fcast_partition_of(&f);

    for (uint64_t i = 0; i < sizeof ring / sizeof *ring; i++) {
        const struct fcast_symbol s = fcast_object_symbol(&f, &p, i);
        assert_int_equal(s.block, ring[i].block);
        assert_int_equal(s.id, ring[i].id);
    }
}

/* Of ten repair symbols every third is next: 6 of 10 would be the golden ratio, 3 is the largest
 * step up to it that visits all. */
static void test_repair_symbols_are_spread(void **state)
{
    (void)state;
    static const uint32_t ids[] = {8, 9, 10, 13, 16, 19, 12, 15, 18, 11, 14, 17};

    for (uint32_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_int_equal(fcast_symbol_id(FCAST_TRIANGLE, 10, 20, 8 + i), ids[i]);
        assert_int_equal(fcast_symbol_id(FCAST_RS, 10, 20, 8 + i), 8 + i);
    }
}

static void test_orders(void **state)
{
    (void)state;
    enum { COUNT = 100, ROUNDS = 50 };
    uint64_t random = 5;
    unsigned firsts[3] = {0};
    for (int order = FCAST_SEQUENTIAL; order <= FCAST_SHUFFLE; order++)
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t out[COUNT], rises = 0;
            bool seen[COUNT] = {0};
            fcast_order_round((enum fcast_order)order, COUNT, &random, out);
            for (int i = 0; i < COUNT; i++) {
                assert_true(out[i] < COUNT && !seen[out[i]]);
                seen[out[i]] = true;
                rises += i && out[i] == (out[i - 1] + 1) % COUNT;
            }
            firsts[order] += out[0] == 0;
            assert_true(order == FCAST_SHUFFLE ? rises < 20 : rises == COUNT - 1);
        }
    assert_int_equal(firsts[FCAST_SEQUENTIAL], ROUNDS);
    assert_true(firsts[FCAST_ROTATE] < 10 && firsts[FCAST_SHUFFLE] < 10);
    uint64_t sum = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t one = fcast_jitter(1000000, &random);
        assert_in_range(one, 500000, 1500000);
        sum += one;
    }
    assert_in_range(sum / 10000, 990000, 1010000);
}

static void test_authentication(void **state)
{
    (void)state;
    uint8_t datagram[200];
    const uint8_t zeroes[FCAST_AUTH_CONTENT] = {0};
    const struct lct_header h = {.tsi = 1, .toi = 2};
    size_t head = lct_put(datagram, &h);
    uint8_t *mac = datagram + head + 4;
    head = lct_add(datagram, head, LCT_EXT_AUTH, zeroes, sizeof zeroes);
    memset(datagram + head, 'x', sizeof datagram - head);
    struct fcast_auth *a = fcast_auth_new((const uint8_t *)"secret", 6);
    struct fcast_auth *b = fcast_auth_new((const uint8_t *)"secres", 6);
    assert_true(fcast_auth_sign(a, datagram, sizeof datagram, mac));
    struct lct_header got;
    assert_int_equal(lct_get(datagram, sizeof datagram, &got), LCT_OK);
    assert_true(fcast_auth_verify(a, datagram, sizeof datagram, &got));
    assert_false(fcast_auth_verify(b, datagram, sizeof datagram, &got));
    for (size_t i = 0; i < sizeof datagram; i++) {
        datagram[i] ^= 1;
        if (lct_get(datagram, sizeof datagram, &got) == LCT_OK)
            assert_false(fcast_auth_verify(a, datagram, sizeof datagram, &got));
        datagram[i] ^= 1;
    }
    assert_false(fcast_auth_verify(a, datagram, sizeof datagram - 1, &got));
    head = lct_put(datagram, &h);
    assert_int_equal(lct_get(datagram, sizeof datagram, &got), LCT_OK);
    assert_false(fcast_auth_verify(a, datagram, sizeof datagram, &got)); /* it has no EXT_AUTH */
    fcast_auth_free(a);
    fcast_auth_free(b);
}

static void test_times(void **state)
{
    (void)state;
    uint8_t bytes[LCT_HEADER_MAX], content[FCAST_TIME_CONTENT];
    const struct lct_header h = {.tsi = 1, .toi = 2};
    const uint32_t before = UINT32_MAX - 9, after = 40; /* the NTP era ends between them */
    struct lct_header got;
    int64_t age_s;

    size_t len = lct_put(bytes, &h);
    assert_int_equal(lct_get(bytes, len, &got), LCT_OK);
    assert_false(fcast_time_age(&got, before, &age_s));
    fcast_time_put(content, before);
    len = lct_add(bytes, len, LCT_EXT_TIME, content, sizeof content);
    const uint8_t published[] = {2, 2, 0x80, 0, 0xff, 0xff, 0xff, 0xf6}; /* RFC 5651, 5.2.2 */
    assert_memory_equal(bytes + len - sizeof published, published, sizeof published);
    assert_int_equal(lct_get(bytes, len, &got), LCT_OK);
    assert_true(fcast_time_age(&got, before, &age_s) && age_s == 0);
    assert_true(fcast_time_age(&got, after, &age_s) && age_s == 50);
    assert_true(fcast_time_age(&got, before - 7, &age_s) && age_s == -7);
    bytes[len - 6] = 0; /* Use: no time follows */
    assert_false(fcast_time_age(&got, before, &age_s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_header),
                                       cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_wide_ids_and_flags),
                                       cmocka_unit_test(test_extensions),
                                       cmocka_unit_test(test_no_header),
                                       cmocka_unit_test(test_oti),
                                       cmocka_unit_test(test_oti_of_unknown_codes),
                                       cmocka_unit_test(test_oti_that_cannot_be),
                                       cmocka_unit_test(test_payload_ids),
                                       cmocka_unit_test(test_partition),
                                       cmocka_unit_test(test_choice_of_k),
                                       cmocka_unit_test(test_orders),
                                       cmocka_unit_test(test_ring),
                                       cmocka_unit_test(test_repair_symbols_are_spread),
                                       cmocka_unit_test(test_authentication)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The packet header of 1999.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "seed.h"

/* Figure 6 of the report, field by field, and a block of three bytes. */
static const uint8_t PACKET[] = {0, 0, 1, 2, 0xa0, 0, 0, 3, 0, 0, 0, 13, 0, 0, 0, 2, 5, 2, 9, 8, 7};

static void test_bytes(void **state)
{
    (void)state;
    struct fcast_seed_header h;
    const uint8_t *block;
    size_t block_bytes;
    assert_true(fcast_seed_get(PACKET, sizeof PACKET, &h, &block, &block_bytes));
    assert_int_equal(h.sequence, 258);
    assert_int_equal(h.file_id, 0xa0000003);
    assert_int_equal(h.file_bytes, 13);
    assert_int_equal(h.group, 2);
    assert_int_equal(h.index, 5);
    assert_int_equal(h.k, 2);
    assert_int_equal(block_bytes, 3);
    assert_memory_equal(block, PACKET + FCAST_SEED_HEADER_BYTES, 3);
    uint8_t out[FCAST_SEED_HEADER_BYTES];
    assert_int_equal(fcast_seed_put(out, &h), sizeof out);
    assert_memory_equal(out, PACKET, sizeof out);
}

static void test_all_fields_round_trip(void **state)
{
    (void)state;
    uint8_t bytes[FCAST_SEED_HEADER_BYTES + 1] = {0};
    for (unsigned bit = 0; bit < 32; bit++) {
        const struct fcast_seed_header h = {.sequence = 1u << bit,
                                            .file_id = UINT32_MAX >> bit,
                                            .file_bytes = UINT32_MAX,
                                            .group = (1u << bit) / 255,
                                            .index = (uint8_t)(bit * 8),
                                            .k = 255};
        fcast_seed_put(bytes, &h);
        struct fcast_seed_header got;
        const uint8_t *block;
        size_t block_bytes;
        assert_true(fcast_seed_get(bytes, sizeof bytes, &got, &block, &block_bytes));
        assert_memory_equal(&got, &h, offsetof(struct fcast_seed_header, k) + 1);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    struct fcast_seed_header h;
    const uint8_t *block;
    size_t block_bytes;
    for (size_t len = 0; len <= FCAST_SEED_HEADER_BYTES; len++)
        assert_false(fcast_seed_get(PACKET, len, &h, &block, &block_bytes));
    /* k is 0; the file is empty; a group after the last one (13 bytes are 3 groups of 6). */
    const struct {
        unsigned at;
        uint8_t value;
    } wrong[] = {{17, 0}, {11, 0}, {15, 3}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t bytes[sizeof PACKET];
        memcpy(bytes, PACKET, sizeof bytes);
        bytes[wrong[i].at] = wrong[i].value;
        assert_false(fcast_seed_get(bytes, sizeof bytes, &h, &block, &block_bytes));
    }
}

static void test_groups(void **state)
{
    (void)state;
    assert_int_equal(fcast_seed_groups(0, 1024, 32), 0);
    assert_int_equal(fcast_seed_groups(1, 1024, 32), 1);
    assert_int_equal(fcast_seed_groups(32 * 1024, 1024, 32), 1);
    assert_int_equal(fcast_seed_groups(32 * 1024 + 1, 1024, 32), 2);
    assert_int_equal(fcast_seed_groups(UINT32_MAX, 1, 1), UINT32_MAX);
    assert_int_equal(fcast_seed_groups(5, 0, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_all_fields_round_trip),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

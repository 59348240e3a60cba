/* SPDX-License-Identifier: Apache-2.0
 *
 * One object being received: what tries to decode it may cost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "reception_impl.h"

/* A block that anyone can announce: a code of rate 1/8. */
static const struct fcast_fti forged = {.fec = FCAST_STAIRCASE,
                                        .length = 160000,
                                        .symbol_bytes = 16,
                                        .block_max = 10000,
                                        .n_max = 80000,
                                        .n1 = 3,
                                        .seed = 1};

static int ignore(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    (void)ctx;
    (void)at;
    (void)bytes;
    (void)len;
    return 0;
}

/* The repair symbols of a code with rate 1/8, which anyone can forge: a try fails and costs 0.2 s.
 * Repeated at each 19 new symbols, 100 datagrams a second would keep the receiver busy. */
static void a_failed_try_waits_for_symbols_that_pay_for_it(void **state)
{
    const struct fcast_place place = {.data = {.write = ignore}, .repair = {.write = ignore}};
    struct fcast_reception r;
    uint64_t restored;
    uint8_t bytes[16] = {0};
    uint32_t id = 80000;

    (void)state;
    assert_int_equal(fcast_reception_init(&r, &forged, 0, &place, &restored), 0);
    while (!r.work)
        assert_int_equal(
            fcast_reception_take(&r, (struct fcast_symbol){.block = 0, .id = --id}, bytes),
            FCAST_TAKEN);
    uint64_t first = r.work;
    assert_true(first > 20 * 1000 * 1000);
    r.work = 0;
    for (uint64_t i = 0; i + 1 < first / 50000; i++)
        fcast_reception_take(&r, (struct fcast_symbol){.block = 0, .id = --id}, bytes);
    assert_int_equal(r.work, 0);
    for (int i = 0; i < 20; i++)
        fcast_reception_take(&r, (struct fcast_symbol){.block = 0, .id = --id}, bytes);
    assert_true(r.work > 0);
    fcast_reception_free(&r);
}

/* What decoding needs counts towards the limit of an object's memory, the code's matrix too: each
 * of its entries is listed by row and by symbol, 8 bytes in all. */
static void the_matrix_counts(void **state)
{
    struct fcast_fti fti = forged;

    (void)state;
    uint64_t three = fcast_reception_bytes(&fti);
    fti.n1 = 10;
    assert_int_equal(fcast_reception_bytes(&fti) - three, 10000 * 7 * 8);
    assert_true(three > (10000 * 3 + 2 * 70000) * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_try_waits_for_symbols_that_pay_for_it),
        cmocka_unit_test(the_matrix_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

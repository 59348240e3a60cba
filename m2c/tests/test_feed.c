/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sender's layers carry: order, sequence numbers, and what a receiver of some of the layers
 * gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "feed.h"

#define SECOND UINT64_C(1000000000)

static void open_feed(struct m2c_feed *f, unsigned layers, bool is_static, uint32_t blocks)
{
    const struct m2c_wave_config cfg = {.layers = layers, .is_static = is_static};
    struct m2c_wave w;

    assert_int_equal(m2c_wave_init(&w, &cfg), 0);
    assert_int_equal(m2c_feed_init(f, &w, blocks, 12345 * SECOND), 0);
}

/* Times ascend; each channel's numbers are consecutive; a wave's last is 65535, the base channel's
 * first of a slot a multiple of L; a channel's packets are sent in its layer's slots. */
static void check_order(unsigned layers, bool is_static)
{
    struct m2c_feed f;
    struct m2c_due due;
    uint64_t before = 12345 * SECOND, wave_ends = 0;
    int64_t psn[M2C_WAVE_CHANNELS_MAX + 1];

    for (size_t i = 0; i < sizeof psn / sizeof *psn; i++)
        psn[i] = -1;
    open_feed(&f, layers, is_static, 500);
    for (unsigned i = 0; i < 60000; i++) {
        assert_true(m2c_feed_next(&f, &due));
        assert_true(due.at_ns >= before);
        before = due.at_ns;
        assert_true(due.block < 500);
        const uint64_t slot = m2c_wave_slot(&f.wave, due.at_ns, NULL);
        assert_int_equal(due.cci.ctsi, m2c_wave_ctsi(&f.wave, slot));
        assert_int_equal(m2c_wave_layer(&f.wave, due.cci.channel, slot), due.layer);
        const uint32_t count = m2c_wave_psn_count(&f.wave, due.cci.channel);
        int64_t *last = &psn[due.cci.channel];
        const bool is_first = due.layer == layers && !is_static && *last == 65535;
        if (*last >= 0 && !is_first)
            assert_int_equal(due.cci.psn, (*last + 1) % count);
        wave_ends += is_first;
        *last = due.cci.psn;
    }
    assert_true(is_static || wave_ends > 0);
    m2c_feed_free(&f);
}

static void test_order(void **state)
{
    (void)state;

    check_order(3, false); /* 60,000 packets exceed one cycle */
    check_order(12, false);
    check_order(12, true);
}

/* A receiver of the layers up to a given one gets half of the blocks with hardly a duplicate. If
 * half of all blocks are repair symbols, that is enough for the file. */
static void check_duplicates(unsigned heard, bool is_static)
{
    enum { BLOCKS = 20000 };
    struct m2c_feed f;
    struct m2c_due due;
    uint8_t *has = calloc(BLOCKS, 1);
    unsigned blocks = 0, twice = 0;

    assert_non_null(has);
    open_feed(&f, 12, is_static, BLOCKS);
    while (blocks < BLOCKS / 2) {
        assert_true(m2c_feed_next(&f, &due));
        if (due.layer > heard)
            continue;
        twice += has[due.block];
        blocks += !has[due.block];
        has[due.block] = 1;
    }
    print_message("[   INFO   ] %s, layers 0 to %u: %.2f %% twice\n", is_static ? "static" : "wave",
                  heard, 100.0 * twice / blocks);
    assert_true(twice <= blocks * 0.005);
    m2c_feed_free(&f);
    free(has);
}

static void test_few_duplicates(void **state)
{
    (void)state;

    for (unsigned heard = 0; heard <= 12; heard += 3) {
        check_duplicates(heard, false);
        check_duplicates(heard, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_few_duplicates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

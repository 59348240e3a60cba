/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest symbol that an MTU permits: every datagram fits, and LDPC datagrams fill the packet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fti.h"
#include "outgoing.h"

enum { MTU = 1500, IPV4_UDP = 20 + 8, IPV6_UDP = 40 + 8, DATAGRAMS = 100, SYMBOLS = 40 };

static uint8_t repair[SYMBOLS * OUTGOING_SYMBOL_MAX];

static int read_zeroes(void *ctx, uint64_t at, void *bytes, size_t len)
{
    (void)ctx;
    (void)at;
    memset(bytes, 0, len);
    return 0;
}

static int read_repair(void *ctx, uint64_t at, void *bytes, size_t len)
{
    (void)ctx;
    memcpy(bytes, repair + at, len);
    return 0;
}

static int write_repair(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    (void)ctx;
    memcpy(repair + at, bytes, len);
    return 0;
}

/* Returns the longest of the first datagrams, which include descriptors and both kinds of
 * symbols. */
static size_t longest(enum fcast_protocol protocol, uint8_t fec, unsigned symbol_bytes,
                      bool has_key)
{
    static uint8_t bytes[FCAST_DATAGRAM_MAX];
    const struct fcast_store source = {NULL, read_zeroes, NULL};
    const struct fcast_sender_config cfg = {.tsi = 1,
                                            .protocol = protocol,
                                            .fec = fec,
                                            .symbol_bytes = (uint16_t)symbol_bytes,
                                            .overhead = fec == FCAST_NO_CODE ? 0 : 0.5,
                                            .expires = 1,
                                            .key = has_key ? (const uint8_t *)"key" : NULL,
                                            .key_len = has_key ? 3 : 0,
                                            .repair = {NULL, read_repair, write_repair}};
    struct fcast_meta meta = {0};
    struct fcast_sender_stats st;
    uint64_t toi;
    size_t most = 0;

    snprintf(meta.location, sizeof meta.location, "file");
    struct fcast_sender *s = fcast_sender_new(&cfg);
    assert_non_null(s);
    assert_int_equal(fcast_sender_add(s, &meta, SYMBOLS * symbol_bytes - 400, &source, &toi), 0);
    assert_int_equal(fcast_sender_commit(s), 0);
    for (unsigned i = 0; i < DATAGRAMS; i++) {
        size_t len = fcast_sender_next(s, bytes);
        assert_true(len > 0);
        most = len > most ? len : most;
    }
    fcast_sender_get_stats(s, &st);
    assert_true(st.source > 0 && st.control > 0 && (st.repair > 0) == (fec != FCAST_NO_CODE));
    fcast_sender_free(s);
    return most;
}

static void test_symbols_fill_the_packet(void **state)
{
    static const enum fcast_protocol protocols[] = {FCAST_PROTOCOL_FCAST, FCAST_PROTOCOL_FLUTE};
    static const uint8_t codes[] = {FCAST_TRIANGLE, FCAST_STAIRCASE, FCAST_RS, FCAST_NO_CODE};
    static const unsigned overheads[] = {IPV4_UDP, IPV6_UDP};
    struct outgoing *o = calloc(1, sizeof *o);

    (void)state;
    assert_non_null(o);
    o->mtu_bytes = MTU;
    for (unsigned i = 0; i < 32; i++) {
        const bool has_key = i & 16;
        const uint8_t fec = codes[i >> 2 & 3];
        o->batch.pace.overhead = overheads[i >> 1 & 1];
        const unsigned most = outgoing_symbol_most(o, has_key);
        const size_t len = longest(protocols[i & 1], fec, most, has_key);
        assert_true(len <= MTU - o->batch.pace.overhead);
        if (fec == FCAST_TRIANGLE || fec == FCAST_STAIRCASE)
            assert_int_equal(len, MTU - o->batch.pace.overhead);
    }
    /* LCT 12, EXT_FTI 20, payload id 4; EXT_TIME 8 and EXT_AUTH 20. */
    o->batch.pace.overhead = IPV4_UDP;
    assert_int_equal(outgoing_symbol_most(o, false), 1500 - 28 - 36);
    assert_int_equal(outgoing_symbol_most(o, true), 1500 - 28 - 36 - 28);
    o->mtu_bytes = 65536;
    assert_true(outgoing_symbol_most(o, true) + FCAST_OVERHEAD_MAX <= OUTGOING_DATAGRAM_MAX);
    assert_true(outgoing_symbol_most(o, false) + 36 <= OUTGOING_DATAGRAM_MAX);
    free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_symbols_fill_the_packet)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Attackers that use the sender's address, and carousels with more objects than a receiver takes at
 * a time: honest objects complete, and the bytes promised stay bounded.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lct.h"
#include "sim_kit.h"

enum { E = 64, PLACES = 8, STRANGERS = 1000, GIB_EACH = 3 };
#define GIB (UINT64_C(1) << 30)

static struct sim_config base(enum fcast_protocol protocol)
{
    return (struct sim_config){.sender = {.tsi = 99,
                                          .protocol = protocol,
                                          .fec = FCAST_RS,
                                          .k = 20,
                                          .symbol_bytes = E,
                                          .overhead = 0.5,
                                          .order = FCAST_SHUFFLE},
                               .receivers = 1,
                               .max_objects = PLACES,
                               .max_bytes = 2 * GIB_EACH * GIB,
                               .seed = 1};
}

/* Sends one symbol of an object that the session's sender does not have. */
static void forge(struct fcast_receiver *r, uint64_t toi, const struct fcast_fti *fti, uint64_t at)
{
    uint8_t bytes[LCT_HEADER_MAX + 4 + E] = {0}, content[FCAST_FTI_MAX];
    const struct lct_header h = {.tsi = 99, .toi = toi, .codepoint = fti->fec};
    size_t n = fcast_fti_put(content, fti), len = lct_put(bytes, &h);

    len = lct_add(bytes, len, LCT_EXT_FTI, content, n);
    fcast_receiver_datagram(r, 7, bytes, len + 4 + E, at * 100000);
}

static void flood_objects(struct fcast_receiver *r, uint64_t sent)
{
    const struct fcast_fti fti = {
        .fec = FCAST_RS, .length = 5000, .symbol_bytes = E, .block_max = 20, .n_max = 30};

    for (uint64_t i = 0; i < 4; i++)
        forge(r, STRANGERS + 4 * sent + i, &fti, sent);
}

/* Two objects that together fill max_bytes arrive again and again. */
static void flood_lengths(struct fcast_receiver *r, uint64_t sent)
{
    const struct fcast_fti fti = {.fec = FCAST_TRIANGLE,
                                  .length = GIB_EACH * GIB,
                                  .symbol_bytes = 1400,
                                  .block_max = 10000,
                                  .n_max = 15000,
                                  .n1 = 3,
                                  .seed = 1};

    forge(r, STRANGERS + sent % 2, &fti, sent);
}

/* Small objects are received in memory, as descriptors are. */
static void flood_small(struct fcast_receiver *r, uint64_t sent)
{
    const struct fcast_fti fti = {
        .fec = FCAST_NO_CODE, .length = 60000, .symbol_bytes = E, .block_max = 1000};

    for (uint64_t i = 0; i < 4; i++)
        forge(r, STRANGERS + 4 * sent + i, &fti, sent);
}

static void assert_completes(struct sim_config cfg, unsigned files, uint64_t within)
{
    struct fcast_receiver_stats st;
    struct sim *s = sim_new(&cfg);

    for (unsigned i = 0; i < files; i++)
        sim_file(s, 1000);
    sim_run(s, within);
    fcast_receiver_get_stats(s->receivers[0].core, &st);
    assert_int_equal(s->receivers[0].done, files);
    assert_int_equal(s->receivers[0].wrong, 0);
    assert_true(s->receivers[0].finished > 0);
    assert_true(s->receivers[0].promised_max <= cfg.max_bytes);
    assert_true(!cfg.between || st.refused + st.evicted > 0);
    sim_free(s);
}

/* 40 objects, 8 places: objects in progress are not dropped for others. A cycle completes at least
 * 8 of them, so five suffice; an object has 30 symbols, so the sender sends 1,200 per cycle. */
static void test_more_objects_than_places(void **state)
{
    (void)state;
    for (int protocol = 0; protocol < 2; protocol++)
        assert_completes(base((enum fcast_protocol)protocol), 40, 5 * 1300);
}

/* Four forged datagrams for each honest one. */
static void test_floods(void **state)
{
    void (*const floods[])(struct fcast_receiver *, uint64_t) = {flood_objects, flood_lengths,
                                                                 flood_small};

    (void)state;
    for (unsigned i = 0; i < sizeof floods / sizeof *floods; i++)
        for (int protocol = 0; protocol < 2; protocol++) {
            struct sim_config cfg = base((enum fcast_protocol)protocol);
            cfg.between = floods[i];
            assert_completes(cfg, 6, 3000);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_more_objects_than_places),
                                       cmocka_unit_test(test_floods)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

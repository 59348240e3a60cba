/* SPDX-License-Identifier: Apache-2.0
 *
 * An FDT protected by a code, as other senders send it: its repair symbols replace lost ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "encode.h"
#include "lct.h"

enum { E = 16, TEXT_MAX = 2000 };

static char text[TEXT_MAX];
static uint8_t repair[TEXT_MAX];

static int read_text(void *ctx, uint64_t at, void *bytes, size_t len)
{
    (void)ctx;
    memcpy(bytes, text + at, len);
    return 0;
}

static int write_repair(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    (void)ctx;
    assert_true(at + len <= sizeof repair);
    memcpy(repair + at, bytes, len);
    return 0;
}

static enum fcast_begin begin(void *ctx, uint64_t source, uint64_t tsi, uint64_t toi,
                              const struct fcast_fti *fti, struct fcast_place *out)
{
    (void)source;
    (void)tsi;
    (void)fti;
    *out = (struct fcast_place){.ctx = ctx};
    return toi == 5 ? FCAST_WANT : FCAST_REFUSE;
}

static enum fcast_done done(void *ctx, uint64_t toi, void *place, const struct fcast_meta *meta,
                            uint64_t at, uint64_t bytes)
{
    (void)ctx;
    (void)toi;
    (void)place;
    (void)at;
    (void)bytes;
    return strcmp(meta->location, "empty") == 0 ? FCAST_STORED : FCAST_WRONG;
}

static void give(struct fcast_receiver *r, const struct fcast_fti *fti, uint32_t id)
{
    uint8_t bytes[LCT_HEADER_MAX + 4 + E], content[FCAST_FTI_MAX], fdt[3];
    const struct lct_header h = {.tsi = 9, .codepoint = fti->fec};
    uint32_t k = fti->block_max;
    size_t n = fcast_fti_put(content, fti), len = lct_put(bytes, &h);

    fcast_ext_fdt_put(fdt, 3);
    len = lct_add(bytes, len, LCT_EXT_FDT, fdt, sizeof fdt);
    len = lct_add(bytes, len, LCT_EXT_FTI, content, n);
    fcast_payload_id_put(fti->fec, (struct fcast_symbol){0, id}, bytes + len);
    memcpy(bytes + len + 4, id < k ? (uint8_t *)text + (size_t)id * E : repair + (id - k) * E, E);
    fcast_receiver_datagram(r, 1, bytes, len + 4 + E, 1);
}

static void test_repair_symbols_of_an_fdt(void **state)
{
    static const uint8_t codes[] = {FCAST_RS, FCAST_TRIANGLE};
    struct fcast_fdt_file file = {.toi = 5, .has_transfer_length = true};
    const struct fcast_fdt fdt = {.expires = 1, .complete = true, .count = 1, .files = &file};

    (void)state;
    snprintf(file.meta.location, sizeof file.meta.location, "empty");
    for (size_t i = 0; i < sizeof codes; i++) {
        size_t len = fcast_fdt_put(text, sizeof text, &fdt);
        assert_true(len > 10 * E);
        memset(text + len, 0, sizeof text - len);
        uint32_t k = (uint32_t)(len + E - 1) / E;
        const struct fcast_fti fti = {.fec = codes[i],
                                      .length = len,
                                      .symbol_bytes = E,
                                      .block_max = k,
                                      .n_max = 2 * k,
                                      .n1 = codes[i] == FCAST_RS ? 0 : 3,
                                      .seed = codes[i] != FCAST_RS};
        const struct fcast_store store = {NULL, NULL, write_repair};
        uint64_t at = 0;
        assert_int_equal(fcast_encode(&fti, 0, read_text, NULL, &store, &at), 0);
        const struct fcast_receiver_config cfg = {
            .protocol = FCAST_PROTOCOL_FLUTE, .begin = begin, .done = done};
        struct fcast_receiver *r = fcast_receiver_new(&cfg);
        for (uint32_t id = 0; id < 2 * k; id++)
            if (id % 3) /* every third is lost */
                give(r, &fti, id);
        struct fcast_receiver_stats st;
        fcast_receiver_get_stats(r, &st);
        assert_int_equal(st.store_errors + st.malformed, 0);
        assert_int_equal(st.decoded, 1);
        assert_int_equal(st.objects_done, 1);
        assert_true(fcast_receiver_has_all(r));
        fcast_receiver_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_repair_symbols_of_an_fdt)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * FCAST headers, descriptors and FLUTE's FDT.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fcast.h"

static void test_a_header(void **state)
{
    (void)state;
    struct fcast_meta meta = {.has_length = true, .length = 5, .has_digest = true};
    uint8_t bytes[600];
    strcpy(meta.location, "dir/a b.txt");
    strcpy(meta.type, "text/plain");
    memset(meta.digest, 0xab, sizeof meta.digest);
    size_t len = fcast_object_header_put(bytes, sizeof bytes, &meta, false);
    assert_true(len > 0 && len % 4 == 0);
    assert_int_equal(bytes[0], 0);
    assert_non_null(memmem(bytes, len, "Content-Location: dir/a b.txt\r\n", 31));
    struct fcast_object_header h;
    assert_null(fcast_object_header_get(bytes, len, len + 5, &h));
    assert_int_equal(h.len, len);
    assert_string_equal(h.meta.location, "dir/a b.txt");
    assert_true(h.meta.has_length && h.meta.length == 5 && h.meta.has_digest && !h.is_cid);
    assert_memory_equal(h.meta.digest, meta.digest, sizeof meta.digest);
    bytes[20] ^= 1;
    assert_string_equal(fcast_object_header_get(bytes, len, len + 5, &h), "checksum of the header");
    assert_int_equal(fcast_object_header_put(bytes, 30, &meta, false), 0);
    assert_int_equal(fcast_object_header_len(bytes, len - 4), 0); /* longer than the object */
}

/* Without data there is no padding. */
static void test_an_empty_object(void **state)
{
    (void)state;
    struct fcast_meta meta = {.has_length = true, .location = "empty1"};
    uint8_t bytes[200];
    size_t len = fcast_object_header_put(bytes, sizeof bytes, &meta, true);
    assert_int_equal(len % 4, 1);
    struct fcast_object_header h;
    assert_null(fcast_object_header_get(bytes, len, len, &h));
    assert_int_equal(h.len, len);
}

/* Refuses numbers that exceed an item's range, by one digit or by many, and missing numbers. */
static void test_numbers(void **state)
{
    static const struct {
        const char *item, *wrong;
    } items[] = {{"Fcast-CID-Complete: 0", NULL},
                 {"Fcast-CID-Complete: 1", NULL},
                 {"Fcast-CID-Complete: 2", "Fcast-CID-Complete"},
                 {"Fcast-CID-Complete: 9", "Fcast-CID-Complete"},
                 {"Fcast-CID-Complete: 10", "Fcast-CID-Complete"},
                 {"Fcast-CID-Complete: ", "Fcast-CID-Complete"},
                 {"Fcast-CID-ID: 4294967295", NULL},
                 {"Fcast-CID-ID: 4294967296", "Fcast-CID-ID"},
                 {"Content-Length: 18446744073709551615", NULL},
                 {"Content-Length: 18446744073709551616", "Content-Length"}};

    (void)state;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        uint8_t bytes[128] = {3}; /* a descriptor whose checksum covers the data */
        struct fcast_object_header h;
        size_t len = FCAST_OBJECT_FIXED + strlen(items[i].item);
        bytes[7] = (uint8_t)len;
        memcpy(bytes + FCAST_OBJECT_FIXED, items[i].item, strlen(items[i].item));
        const char *wrong = fcast_object_header_get(bytes, sizeof bytes, sizeof bytes, &h);
        if ((wrong != NULL) != (items[i].wrong != NULL) ||
            (wrong && strcmp(wrong, items[i].wrong) != 0))
            fail_msg("\"%s\": %s", items[i].item, wrong ? wrong : "was taken");
    }
}

static void test_lists(void **state)
{
    (void)state;
    struct fcast_cid cid;
    const char *good = "1,2,4-6,(100=10/2)";
    assert_true(fcast_cid_get((const uint8_t *)good, strlen(good), &cid));
    assert_int_equal(cid.count, 4);
    for (uint64_t toi = 0; toi < 120; toi++)
        assert_int_equal(fcast_cid_has(&cid, toi),
                         toi == 1 || toi == 2 || (toi >= 4 && toi <= 6) || toi == 100);
    assert_true(fcast_cid_get((const uint8_t *)"", 0, &cid)); /* a heartbeat */
    assert_int_equal(cid.count, 0);
    static const char *const bad[] = {",",   "1,", "1,,2",  "a",      "6-4",
                                      "4-4", "1-", "(1=2)", "(1=2/3", "18446744073709551616",
                                      "1 2", "-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(fcast_cid_get((const uint8_t *)bad[i], strlen(bad[i]), &cid));
    cid.count = 0;
    for (uint64_t toi = 1; toi < 20; toi++)
        if (toi != 7)
            assert_true(fcast_cid_add(&cid, toi));
    uint8_t text[32];
    assert_int_equal(fcast_cid_put(text, sizeof text, &cid), 8);
    assert_memory_equal(text, "1-6,8-19", 8);
    assert_int_equal(fcast_cid_put(text, 5, &cid), 0);
}

static void test_fdt(void **state)
{
    (void)state;
    struct fcast_fdt_file files[2] = {
        {.toi = 1,
         .has_transfer_length = true,
         .transfer_length = 1000000,
         .has_fti = true,
         .fti = {.fec = FCAST_TRIANGLE,
                 .length = 1000000,
                 .symbol_bytes = 1400,
                 .block_max = 715,
                 .n_max = 1072,
                 .n1 = 3,
                 .seed = 77},
         .meta = {.location = "a<b>&\"c'.bin", .has_length = true, .length = 1000000}},
        {.toi = 9,
         .has_transfer_length = true,
         .transfer_length = 5,
         .has_fti = true,
         .fti = {.length = 5, .symbol_bytes = 1400, .block_max = 1},
         .meta = {.location = "b", .type = "text/plain"}}};
    const struct fcast_fdt fdt = {.expires = 12345, .complete = true, .count = 2, .files = files};
    char text[4096], why[128];
    size_t len = fcast_fdt_put(text, sizeof text, &fdt);
    assert_true(len > 0);
    struct fcast_fdt got;
    assert_null(fcast_fdt_get((const uint8_t *)text, len, &got, why));
    assert_int_equal(got.count, 2);
    assert_true(got.complete && got.expires == 12345);
    for (unsigned i = 0; i < 2; i++) {
        assert_string_equal(got.files[i].meta.location, files[i].meta.location);
        assert_true(got.files[i].has_fti);
        assert_memory_equal(&got.files[i].fti, &files[i].fti, sizeof files[i].fti);
    }
    fcast_fdt_free(&got);
    assert_int_equal(fcast_fdt_put(text, 300, &fdt), 0);
}

/* Attributes of FDT-Instance apply to files without their own; names may have other namespaces. */
static void test_fdt_of_others(void **state)
{
    (void)state;
    const char *text =
        "<?xml version=\"1.0\"?><x:FDT-Instance xmlns:x=\"urn:ietf:params:xml:ns:fdt\" "
        "Expires=\"4000000000\" FEC-OTI-FEC-Encoding-ID=\"0\" "
        "FEC-OTI-Maximum-Source-Block-Length=\"64\" FEC-OTI-Encoding-Symbol-Length=\"1316\">"
        "<x:File TOI=\"3\" Content-Location=\"file:///x.bin\" Content-Length=\"100\"/>"
        "<x:File TOI=\"4\" Content-Location=\"y\" Content-Length=\"9\" "
        "FEC-OTI-FEC-Encoding-ID=\"5\" FEC-OTI-Max-Number-of-Encoding-Symbols=\"70\"/>"
        "<other/></x:FDT-Instance>";
    struct fcast_fdt got;
    char why[128];
    assert_null(fcast_fdt_get((const uint8_t *)text, strlen(text), &got, why));
    assert_int_equal(got.count, 2);
    assert_true(got.files[0].has_fti && got.files[1].has_fti && !got.complete);
    assert_int_equal(got.files[0].fti.length, 100);
    assert_int_equal(got.files[1].fti.fec, FCAST_RS);
    assert_int_equal(got.files[1].fti.n_max, 70);
    fcast_fdt_free(&got);
}

static void test_fdt_that_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "<FDT-Instance>",
        "<other/>",
        "<!DOCTYPE FDT-Instance [<!ENTITY a \"b\">]><FDT-Instance Expires=\"1\"/>",
        "<FDT-Instance Expires=\"x\"/>",
        "<FDT-Instance Expires=\"1\"><File TOI=\"1\"/></FDT-Instance>",
        "<FDT-Instance Expires=\"1\"><File Content-Location=\"a\"/></FDT-Instance>",
        "<FDT-Instance Expires=\"1\"><File TOI=\"0\" Content-Location=\"a\"/></FDT-Instance>",
        "<FDT-Instance Expires=\"1\"><File TOI=\"-1\" Content-Location=\"a\"/></FDT-Instance>"};
    struct fcast_fdt got;
    char why[128];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_non_null(fcast_fdt_get((const uint8_t *)bad[i], strlen(bad[i]), &got, why));
        assert_true(strncmp(why, "line ", 5) == 0);
        assert_null(got.files);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_header),
                                       cmocka_unit_test(test_an_empty_object),
                                       cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_lists),
                                       cmocka_unit_test(test_fdt),
                                       cmocka_unit_test(test_fdt_of_others),
                                       cmocka_unit_test(test_fdt_that_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

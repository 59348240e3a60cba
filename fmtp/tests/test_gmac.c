/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "gmac.h"

/* Runs with both engines; skips the test if the engine is not available here. */
static struct gmac *engine(void **state, const uint8_t *key)
{
    enum gmac_engine which = *(enum gmac_engine *)*state;
    struct gmac *g = gmac_new(which, key);

    if (!g && which == GMAC_IPSEC_MB) {
        puts("built without libIPSec_MB, or this processor has no AES");
        skip();
    }
    assert_non_null(g);
    assert_int_equal(gmac_engine_of(g), which);
    return g;
}

static void assert_tag(struct gmac *g, const uint8_t *nonce, const void *data, size_t len,
                       const uint8_t want[GMAC_TAG_LEN])
{
    struct iovec part = {(void *)(uintptr_t)data, len};
    uint8_t tag[GMAC_TAG_LEN];

    assert_true(gmac_tag(g, &part, 1, nonce, tag));
    assert_memory_equal(tag, want, sizeof tag);
}

/* McGrew and Viega, "The Galois/Counter Mode of Operation", test case 13; NIST CAVP,
 * gcmEncryptExtIV256.rsp, [PTlen = 0] [AADlen = 128] [Taglen = 128], count 0. */
static void test_published_vectors(void **state)
{
    static const uint8_t zeros[GMAC_KEY_LEN];
    static const uint8_t of_nothing[] = {0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9,
                                         0xa9, 0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b};
    static const uint8_t key[] = {0x78, 0xdc, 0x4e, 0x0a, 0xaf, 0x52, 0xd9, 0x35, 0xc3, 0xc0, 0x1e,
                                  0xea, 0x57, 0x42, 0x8f, 0x00, 0xca, 0x1f, 0xd4, 0x75, 0xf5, 0xda,
                                  0x86, 0xa4, 0x9c, 0x8d, 0xd7, 0x3d, 0x68, 0xc8, 0xe2, 0x23};
    static const uint8_t nonce[] = {0xd7, 0x9c, 0xf2, 0x2d, 0x50, 0x4c,
                                    0xc7, 0x93, 0xc3, 0xfb, 0x6c, 0x8a};
    static const uint8_t data[] = {0xb9, 0x6b, 0xaa, 0x8c, 0x1c, 0x75, 0xa6, 0x71,
                                   0xbf, 0xb2, 0xd0, 0x8d, 0x06, 0xbe, 0x5f, 0x36};
    static const uint8_t tag[] = {0x3e, 0x5d, 0x48, 0x6a, 0xa2, 0xe3, 0x0b, 0x22,
                                  0xe0, 0x40, 0xb8, 0x57, 0x23, 0xa0, 0x6e, 0x76};

    struct gmac *g = engine(state, zeros);
    assert_tag(g, zeros, "", 0, of_nothing);
    gmac_free(g);
    g = engine(state, key);
    assert_tag(g, nonce, data, sizeof data, tag);
    assert_tag(g, nonce, data, sizeof data, tag); /* nothing remains of the previous one */
    gmac_free(g);
}

/* For every length, in parts that are cut anywhere: the result is OpenSSL's for one piece, and no
 * byte before or after the parts is read (the pages around them are inaccessible). */
static void test_any_parts_and_nothing_around_them(void **state)
{
    uint8_t key[GMAC_KEY_LEN], nonce[GMAC_NONCE_LEN] = {0}, one[GMAC_TAG_LEN], two[GMAC_TAG_LEN];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *room = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(room, MAP_FAILED);
    uint8_t *data = room + page;
    assert_int_equal(mprotect(data, page, PROT_READ | PROT_WRITE), 0);
    srand(20);
    for (size_t i = 0; i < page; i++)
        data[i] = (uint8_t)rand();
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)rand();
    struct gmac *g = engine(state, key), *openssl = gmac_new(GMAC_OPENSSL, key);
    assert_non_null(openssl);
    for (size_t len = 0; len <= 1500; len++) {
        size_t a = len ? (size_t)rand() % (len + 1) : 0;
        size_t b = len - a ? (size_t)rand() % (len - a + 1) : 0;
        uint8_t *start = len % 2 ? data : data + page - len;
        struct iovec parts[] = {{start, a}, {start + a, b}, {start + a + b, len - a - b}};
        struct iovec whole = {start, len};
        nonce[11] = (uint8_t)len;
        nonce[10] = (uint8_t)(len >> 8);
        assert_true(gmac_tag(openssl, &whole, 1, nonce, one));
        assert_true(gmac_tag(g, parts, 3, nonce, two));
        assert_memory_equal(one, two, sizeof one);
        assert_true(gmac_tag(g, &whole, 1, nonce, two));
        assert_memory_equal(one, two, sizeof one);
    }
    gmac_free(g);
    gmac_free(openssl);
    munmap(room, 3 * page);
}

int main(void)
{
    static enum gmac_engine engines[] = {GMAC_OPENSSL, GMAC_IPSEC_MB};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_published_vectors, &engines[0]),
        cmocka_unit_test_prestate(test_published_vectors, &engines[1]),
        cmocka_unit_test_prestate(test_any_parts_and_nothing_around_them, &engines[0]),
        cmocka_unit_test_prestate(test_any_parts_and_nothing_around_them, &engines[1]),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

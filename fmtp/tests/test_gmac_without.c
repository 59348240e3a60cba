/* SPDX-License-Identifier: Apache-2.0
 *
 * GMAC if Intel's library is missing or cannot work on this processor: OpenSSL computes it, and a
 * caller that requires the library gets none. If built with the library, its functions are
 * interposed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gmac.h"

/* NIST CAVP, gcmEncryptExtIV256.rsp, [PTlen = 0] [AADlen = 128] [Taglen = 128], count 0. */
static const uint8_t key[] = {0x78, 0xdc, 0x4e, 0x0a, 0xaf, 0x52, 0xd9, 0x35, 0xc3, 0xc0, 0x1e,
                              0xea, 0x57, 0x42, 0x8f, 0x00, 0xca, 0x1f, 0xd4, 0x75, 0xf5, 0xda,
                              0x86, 0xa4, 0x9c, 0x8d, 0xd7, 0x3d, 0x68, 0xc8, 0xe2, 0x23};
static const uint8_t nonce[] = {0xd7, 0x9c, 0xf2, 0x2d, 0x50, 0x4c,
                                0xc7, 0x93, 0xc3, 0xfb, 0x6c, 0x8a};
static const uint8_t data[] = {0xb9, 0x6b, 0xaa, 0x8c, 0x1c, 0x75, 0xa6, 0x71,
                               0xbf, 0xb2, 0xd0, 0x8d, 0x06, 0xbe, 0x5f, 0x36};
static const uint8_t tag[] = {0x3e, 0x5d, 0x48, 0x6a, 0xa2, 0xe3, 0x0b, 0x22,
                              0xe0, 0x40, 0xb8, 0x57, 0x23, 0xa0, 0x6e, 0x76};

static void assert_openssl_does_it(void)
{
    struct iovec part = {(void *)(uintptr_t)data, sizeof data};
    struct gmac *g = gmac_new(GMAC_FASTEST, key);
    uint8_t got[GMAC_TAG_LEN];

    assert_non_null(g);
    assert_int_equal(gmac_engine_of(g), GMAC_OPENSSL);
    assert_true(gmac_tag(g, &part, 1, nonce, got));
    assert_memory_equal(got, tag, sizeof tag);
    gmac_free(g);
    assert_null(gmac_new(GMAC_IPSEC_MB, key));
}

#ifdef HAVE_IPSEC_MB
#include <intel-ipsec-mb.h>

static enum { WORKS, NO_MANAGER, NO_ARCHITECTURE, NO_AES, NO_MULTIPLICATION } fault;

IMB_MGR *__real_alloc_mb_mgr(uint64_t flags);
IMB_MGR *__wrap_alloc_mb_mgr(uint64_t flags);
void __real_init_mb_mgr_auto(IMB_MGR *manager, IMB_ARCH *architecture);
void __wrap_init_mb_mgr_auto(IMB_MGR *manager, IMB_ARCH *architecture);

IMB_MGR *__wrap_alloc_mb_mgr(uint64_t flags)
{
    return fault == NO_MANAGER ? NULL : __real_alloc_mb_mgr(flags);
}

void __wrap_init_mb_mgr_auto(IMB_MGR *manager, IMB_ARCH *architecture)
{
    if (fault == NO_ARCHITECTURE) {
        manager->imb_errno =
            IMB_ERR_MISSING_CPUFLAGS_INIT_MGR; /* what the library reports in this case */
        return;
    }
    __real_init_mb_mgr_auto(manager, architecture);
    if (fault == NO_AES)
        manager->features &= ~(uint64_t)IMB_FEATURE_AESNI;
    if (fault == NO_MULTIPLICATION)
        manager->features &= ~(uint64_t)IMB_FEATURE_PCLMULQDQ;
}

static void test_faults(void **state)
{
    (void)state;
    for (fault = NO_MANAGER; fault <= NO_MULTIPLICATION; fault++)
        assert_openssl_does_it();
    fault = WORKS; /* unless this processor lacks the instructions */
    struct gmac *g = gmac_new(GMAC_IPSEC_MB, key);
    struct gmac *fastest = gmac_new(GMAC_FASTEST, key);
    assert_int_equal(gmac_engine_of(fastest), g ? GMAC_IPSEC_MB : GMAC_OPENSSL);
    gmac_free(g);
    gmac_free(fastest);
}
#else
static void test_faults(void **state)
{
    (void)state;
    assert_openssl_does_it();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mac.h"

/* EOP of product 7, as on the wire: index 7, seqnum 0, payloadlen 0, flags 0x0002. */
static uint8_t eop[12] = {0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2};

/* Key 00 01 … 3f. The MAC was computed with Python's hmac module:
 * hmac.new(bytes(range(64)), bytes.fromhex("000000070000000000000002"), "sha256") */
static const uint8_t hmac_of_eop[32] = {
    0x11, 0x65, 0xe2, 0xac, 0x41, 0x52, 0x18, 0x6f, 0x61, 0xc8, 0x92, 0xd2, 0x39, 0x7e, 0x67, 0x00,
    0xb2, 0x85, 0xeb, 0x7f, 0x9e, 0x52, 0xc4, 0xde, 0x2b, 0x66, 0xa9, 0x44, 0x65, 0x58, 0xbe, 0x34};

/* The private key of RFC 8032, 7.1, TEST 2 is
 * 4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb; its public key in PEM, and its
 * signature of the EOP above (made with the commands `openssl pkey -pubout` and `openssl pkeyutl
 * -sign -rawin`). */
static const char public_key[] = "-----BEGIN PUBLIC KEY-----\n"
                                 "MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=\n"
                                 "-----END PUBLIC KEY-----\n";
static const uint8_t signature_of_eop[64] = {
    0xc8, 0x7c, 0x9a, 0x33, 0xc8, 0x2c, 0x63, 0x4d, 0x43, 0xb7, 0xd1, 0xa3, 0x64, 0x61, 0x18, 0x3d,
    0x13, 0x5e, 0xc7, 0x9c, 0x1e, 0xa2, 0xaf, 0xee, 0x04, 0x71, 0x43, 0xa9, 0x2a, 0xc3, 0x91, 0x64,
    0xbf, 0x61, 0x3f, 0xf7, 0x29, 0x84, 0x7d, 0x27, 0x71, 0xa0, 0xd4, 0xb0, 0x9b, 0xac, 0x0f, 0xdb,
    0xbf, 0x42, 0x4d, 0x57, 0x13, 0xd6, 0x13, 0x33, 0xbc, 0xac, 0xd3, 0x1b, 0x46, 0xa4, 0x9c, 0x03};

static bool verifies(struct fmtp_mac *m, uint8_t *message, size_t len, const uint8_t *mac)
{
    struct iovec parts[3] = {
        {message, len / 2}, {message + len / 2, 0}, {message + len / 2, len - len / 2}};

    return fmtp_mac_verify(m, parts, 3, mac);
}

static void test_hmac_bytes(void **state)
{
    (void)state;
    uint8_t key[64];
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)i;
    struct fmtp_mac *m = fmtp_mac_new_verifier(key, sizeof key);
    assert_non_null(m);
    assert_int_equal(fmtp_mac_level(m), 1);
    assert_int_equal(fmtp_mac_len(m), 32);
    /* twice: the context is used again */
    assert_true(verifies(m, eop, sizeof eop, hmac_of_eop));
    assert_true(verifies(m, eop, sizeof eop, hmac_of_eop));
    uint8_t bad[32];
    memcpy(bad, hmac_of_eop, sizeof bad);
    bad[31] ^= 1;
    assert_false(verifies(m, eop, sizeof eop, bad));
    assert_false(verifies(m, eop, sizeof eop - 1, hmac_of_eop));
    fmtp_mac_free(m);
}

static void test_signature_bytes(void **state)
{
    struct fmtp_mac *m = fmtp_mac_new_verifier((const uint8_t *)public_key, strlen(public_key));

    (void)state;
    assert_int_equal(strlen(public_key), 113);
    assert_non_null(m);
    assert_int_equal(fmtp_mac_level(m), 2);
    assert_int_equal(fmtp_mac_len(m), 64);
    assert_true(verifies(m, eop, sizeof eop, signature_of_eop));
    assert_true(verifies(m, eop, sizeof eop, signature_of_eop));
    uint8_t bad[64];
    memcpy(bad, signature_of_eop, sizeof bad);
    bad[0] ^= 0x80;
    assert_false(verifies(m, eop, sizeof eop, bad));
    fmtp_mac_free(m);
}

/* What a signer makes, a verifier with its key takes; one with another signer's key does not. */
static void test_round_trips(void **state)
{
    static const size_t key_lens[3] = {0, 64, 113}, mac_lens[3] = {0, 32, 64};
    uint8_t message[1500] = "some bytes", mac[FMTP_MAC_MAX] = {0};
    struct iovec parts[2] = {{message, 12}, {message + 12, sizeof message - 12}};

    (void)state;
    for (unsigned level = 0; level <= 2; level++) {
        struct fmtp_mac *s = fmtp_mac_new_signer(level), *other = fmtp_mac_new_signer(level);
        assert_non_null(s);
        assert_non_null(other);
        size_t n;
        const uint8_t *key = fmtp_mac_key(s, &n);
        assert_int_equal(n, key_lens[level]);
        assert_int_equal(fmtp_mac_len(s), mac_lens[level]);
        struct fmtp_mac *v = fmtp_mac_new_verifier(key, n);
        key = fmtp_mac_key(other, &n);
        struct fmtp_mac *w = fmtp_mac_new_verifier(key, n);
        assert_non_null(v);
        assert_non_null(w);
        for (int i = 0; i < 3; i++) {
            message[20] = (uint8_t)i;
            assert_int_equal(fmtp_mac_sign(s, parts, 2, mac), 0);
            assert_true(verifies(v, message, sizeof message, mac));
            if (level)
                assert_false(verifies(w, message, sizeof message, mac));
        }
        message[20] = 99;
        if (level)
            assert_false(verifies(v, message, sizeof message, mac));
        fmtp_mac_free(s);
        fmtp_mac_free(other);
        fmtp_mac_free(v);
        fmtp_mac_free(w);
    }
}

static void test_bad_keys(void **state)
{
    uint8_t garbage[113] = "-----BEGIN PUBLIC KEY-----\nnot base 64";

    (void)state;
    assert_null(fmtp_mac_new_signer(3));
    assert_null(fmtp_mac_new_verifier(garbage, sizeof garbage));
    assert_null(fmtp_mac_new_verifier(garbage, 63));
    assert_null(fmtp_mac_new_verifier(garbage, 1));
    struct fmtp_mac *m = fmtp_mac_new_verifier(NULL, 0);
    assert_non_null(m);
    assert_int_equal(fmtp_mac_level(m), 0);
    assert_true(verifies(m, garbage, 10, NULL));
    fmtp_mac_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hmac_bytes),
        cmocka_unit_test(test_signature_bytes),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_bad_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mac.h"

/* EOP of product 7 on the wire: index 7, seqnum 0, payloadlen 0, flags 0x0002. */
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
    /* twice: the context is reused */
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

/* A MAC of AES-256-GMAC is {nonce, tag}: the nonce is {4 zeros, u64 counter}, the additional data
 * is the datagram on the wire, the plaintext is empty. */
struct gmac {
    uint8_t nonce[12], tag[16];
};

static bool gmac_verifies(const uint8_t key[32], const uint8_t *message, size_t len,
                          const struct gmac *mac)
{
    uint8_t copy[1500];
    struct fmtp_mac *m = fmtp_mac_new_verifier_of(FMTP_MAC_GMAC, key, 32);

    assert_non_null(m);
    assert_int_equal(sizeof *mac, fmtp_mac_len(m));
    if (len)
        memcpy(copy, message, len);
    bool ok = verifies(m, copy, len, (const uint8_t *)mac);
    fmtp_mac_free(m);
    return ok;
}

/* Vectors of NIST: test case 13 of the specification that SP 800-38D cites (McGrew and Viega), and
 * the first of CAVP's gcmEncryptExtIV256.rsp with an empty plaintext and 128 bits of additional
 * data. */
static void test_gmac_of_nist(void **state)
{
    static const uint8_t zeros[32];
    static const uint8_t key[32] = {0x78, 0xdc, 0x4e, 0x0a, 0xaf, 0x52, 0xd9, 0x35,
                                    0xc3, 0xc0, 0x1e, 0xea, 0x57, 0x42, 0x8f, 0x00,
                                    0xca, 0x1f, 0xd4, 0x75, 0xf5, 0xda, 0x86, 0xa4,
                                    0x9c, 0x8d, 0xd7, 0x3d, 0x68, 0xc8, 0xe2, 0x23};
    static const uint8_t data[16] = {0xb9, 0x6b, 0xaa, 0x8c, 0x1c, 0x75, 0xa6, 0x71,
                                     0xbf, 0xb2, 0xd0, 0x8d, 0x06, 0xbe, 0x5f, 0x36};
    static const struct gmac of_nothing = {{0},
                                           {0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45, 0x36, 0xb9, 0xa9,
                                            0x63, 0xb4, 0xf1, 0xc4, 0xcb, 0x73, 0x8b}},
                             of_data = {{0xd7, 0x9c, 0xf2, 0x2d, 0x50, 0x4c, 0xc7, 0x93, 0xc3, 0xfb,
                                         0x6c, 0x8a},
                                        {0x3e, 0x5d, 0x48, 0x6a, 0xa2, 0xe3, 0x0b, 0x22, 0xe0, 0x40,
                                         0xb8, 0x57, 0x23, 0xa0, 0x6e, 0x76}};

    (void)state;
    assert_true(gmac_verifies(zeros, NULL, 0, &of_nothing));
    assert_true(gmac_verifies(key, data, sizeof data, &of_data));
    assert_false(gmac_verifies(zeros, data, sizeof data, &of_data));
    assert_false(gmac_verifies(key, data, sizeof data - 1, &of_data));
}

/* Our datagrams, key 00 01 ... 1f. Computed in Python without GCM: the tag is the GHASH of the
 * datagram, padded to 16 bytes, and of {u64 8 * its length, u64 0}, with H = AES(key, 0), xor
 * AES(key, nonce || 00000001), AES being ECB of the package cryptography. */
static void test_gmac_bytes(void **state)
{
    static const struct gmac of_eop[] = {{{0},
                                          {0xd2, 0xbf, 0x3e, 0xa6, 0xfc, 0xe0, 0x33, 0x77, 0x57,
                                           0x1a, 0xdb, 0xd9, 0x72, 0x40, 0x4e, 0x95}},
                                         {{[11] = 1},
                                          {0x14, 0x9c, 0xb0, 0x20, 0x3e, 0x68, 0xf9, 0xe6, 0xf9,
                                           0x0d, 0x42, 0x7d, 0x30, 0x94, 0x9a, 0xc2}},
                                         {{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
                                          {0x6d, 0xcc, 0xa9, 0xc3, 0x3f, 0x97, 0x5c, 0x3a, 0x68,
                                           0x40, 0x4c, 0x8a, 0xe0, 0x26, 0xac, 0xeb}}},
                             of_block = {{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8},
                                         {0x4c, 0x19, 0xac, 0x21, 0x35, 0xad, 0xa1, 0xe5, 0x29,
                                          0x65, 0xf0, 0x4c, 0xd5, 0x23, 0x1f, 0x06}};
    /* MEM_DATA: index 7, seqnum 1448, payloadlen 1448. */
    uint8_t key[32], block[12 + 1448] = {0, 0, 0, 7, 0, 0, 0x05, 0xa8, 0x05, 0xa8, 0, 4};

    (void)state;
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (uint8_t)i;
    for (size_t i = 0; i < 1448; i++)
        block[12 + i] = (uint8_t)(i % 251);
    for (size_t i = 0; i < 3; i++)
        assert_true(gmac_verifies(key, eop, sizeof eop, &of_eop[i]));
    assert_true(gmac_verifies(key, block, sizeof block, &of_block));
    struct gmac bad = of_eop[0];
    bad.nonce[0] = 1; /* every byte of the nonce counts, even those that we leave 0 */
    assert_false(gmac_verifies(key, eop, sizeof eop, &bad));
    bad = of_block;
    bad.tag[15] ^= 1;
    assert_false(gmac_verifies(key, block, sizeof block, &bad));
}

/* A signer starts with nonce 0 and its own key, and never uses a nonce twice. */
static void test_gmac_nonces(void **state)
{
    struct fmtp_mac *one = fmtp_mac_new_signer_of(FMTP_MAC_GMAC);
    struct fmtp_mac *two = fmtp_mac_new_signer_of(FMTP_MAC_GMAC);
    struct iovec parts[2] = {{eop, 5}, {eop + 5, sizeof eop - 5}};

    (void)state;
    size_t n;
    const uint8_t *key = fmtp_mac_key(one, &n);
    assert_int_equal(n, 32);
    assert_memory_not_equal(key, fmtp_mac_key(two, &n), 32);
    for (unsigned i = 0; i < 600; i++) {
        uint8_t nonce[12] = {0};
        struct gmac mac;
        nonce[10] = (uint8_t)(i >> 8);
        nonce[11] = (uint8_t)i;
        assert_int_equal(fmtp_mac_sign(one, parts, 2, (uint8_t *)&mac), 0);
        assert_memory_equal(mac.nonce, nonce, sizeof nonce);
        assert_true(gmac_verifies(key, eop, sizeof eop, &mac));
    }
    fmtp_mac_free(one);
    fmtp_mac_free(two);
}

/* A verifier accepts what a signer with the same key makes, and rejects another signer's. */
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
        cmocka_unit_test(test_hmac_bytes),   cmocka_unit_test(test_signature_bytes),
        cmocka_unit_test(test_gmac_of_nist), cmocka_unit_test(test_gmac_bytes),
        cmocka_unit_test(test_gmac_nonces),  cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_bad_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <openssl/encoder.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include "keyx.h"

/* Feeds bytes in pieces of `piece`; returns the last status. *left: bytes that were not used. */
static enum fmtp_keyx_status feed(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                  size_t piece, size_t *left)
{
    enum fmtp_keyx_status st = FMTP_KEYX_MORE;

    while (len && st == FMTP_KEYX_MORE) {
        size_t n = piece < len ? piece : len, used;
        st = fmtp_keyx_input(k, bytes, n, &used);
        assert_true(used <= n);
        bytes += used;
        len -= used;
    }
    *left = len;
    return st;
}

static void exchange(size_t piece)
{
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(), *s = fmtp_keyx_new_sender();
    uint8_t bytes[2048];
    size_t n, left;
    const uint8_t *out;

    assert_non_null(r);
    assert_non_null(s);
    out = fmtp_keyx_output(r, &n);
    /* As captured: length 0x000001aa and PKCS#1 PEM with a trailing newline, no NUL. */
    assert_int_equal(n, 4 + 426);
    assert_memory_equal(out, "\x00\x00\x01\xaa-----BEGIN RSA PUBLIC KEY-----\n", 35);
    assert_memory_equal(out + n - 30, "\n-----END RSA PUBLIC KEY-----\n", 30);
    memcpy(bytes, out, n);
    memcpy(bytes + n, "FMTP", 4);               /* what follows belongs to the messages */
    fmtp_keyx_output(s, &left);
    assert_int_equal(left, 0);
    assert_int_equal(feed(s, bytes, n + 4, piece, &left), FMTP_KEYX_DONE);
    assert_int_equal(left, 4);
    out = fmtp_keyx_output(s, &n);
    assert_int_equal(n, 4 + 256);
    assert_memory_equal(out, "\x00\x00\x01\x00", 4);
    memcpy(bytes, out, n);
    assert_int_equal(feed(r, bytes, n, piece, &left), FMTP_KEYX_DONE);
    assert_int_equal(left, 0);
    fmtp_keyx_free(r);
    fmtp_keyx_free(s);
}

static void test_round_trip(void **state)
{
    (void)state;
    exchange(SIZE_MAX);
    exchange(1);
    exchange(7);
}

static void test_damaged(void **state)
{
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(), *s = fmtp_keyx_new_sender();
    uint8_t bytes[2048];
    size_t n, left;
    const uint8_t *out;

    (void)state;
    out = fmtp_keyx_output(r, &n);
    memcpy(bytes, out, n);
    assert_int_equal(feed(s, bytes, n, n, &left), FMTP_KEYX_DONE);
    out = fmtp_keyx_output(s, &n);
    memcpy(bytes, out, n);
    bytes[100] ^= 1;
    assert_int_equal(feed(r, bytes, n, n, &left), FMTP_KEYX_BAD);
    fmtp_keyx_free(r);
    fmtp_keyx_free(s);
}

/* A key written and an answer opened by OpenSSL alone, as another implementation would. */
static void test_independent_receiver(void **state)
{
    EVP_PKEY *key = EVP_RSA_gen(2048);
    OSSL_ENCODER_CTX *encoder = OSSL_ENCODER_CTX_new_for_pkey(
        key, OSSL_KEYMGMT_SELECT_PUBLIC_KEY, "PEM", "type-specific", NULL);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    struct fmtp_keyx *s = fmtp_keyx_new_sender();
    unsigned char *pem = NULL;
    size_t n = 0, left;
    uint8_t bytes[2048] = {0}, plain[256];
    const uint8_t *out;

    (void)state;
    assert_int_equal(OSSL_ENCODER_to_data(encoder, &pem, &n), 1);
    assert_int_equal(n, 426);
    bytes[2] = 1;
    bytes[3] = 0xaa;
    memcpy(bytes + 4, pem, n);
    assert_int_equal(feed(s, bytes, 4 + n, 100, &left), FMTP_KEYX_DONE);
    out = fmtp_keyx_output(s, &n);
    assert_int_equal(n, 260);
    assert_int_equal(EVP_PKEY_decrypt_init(ctx), 1);
    assert_int_equal(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING), 1);
    n = sizeof plain;
    assert_int_equal(EVP_PKEY_decrypt(ctx, plain, &n, out + 4, 256), 1);
    assert_int_equal(n, 0);                     /* MAC level 0: no key */
    OPENSSL_free(pem);
    OSSL_ENCODER_CTX_free(encoder);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    fmtp_keyx_free(s);
}

static enum fmtp_keyx_status sender_takes(const char *text, size_t len)
{
    struct fmtp_keyx *s = fmtp_keyx_new_sender();
    size_t left;
    enum fmtp_keyx_status st = feed(s, (const uint8_t *)text, len, len, &left);

    fmtp_keyx_free(s);
    return st;
}

static void test_hostile(void **state)
{
    static const char spki[] = "\x00\x00\x00\x40-----BEGIN PUBLIC KEY-----\nAAAA\n"
                               "-----END PUBLIC KEY-----\n       ";

    (void)state;
    assert_int_equal(sender_takes("\xff\xff\xff\xff", 4), FMTP_KEYX_BAD);
    assert_int_equal(sender_takes("\x00\x00\x00\x00", 4), FMTP_KEYX_BAD);
    assert_int_equal(sender_takes("\x00\x00\x20\x01", 4), FMTP_KEYX_BAD);       /* 8193 */
    assert_int_equal(sender_takes("\x00\x00\x20\x00", 4), FMTP_KEYX_MORE);
    assert_int_equal(sender_takes("\x00\x00\x00\x05hello", 9), FMTP_KEYX_BAD);
    assert_int_equal(sender_takes(spki, 4 + 0x40), FMTP_KEYX_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_independent_receiver),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/decoder.h>
#include <openssl/encoder.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "keyx.h"

/* Feeds bytes in pieces of `piece`; returns the last status. *left: how many bytes were not
 * used. */
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
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(false), *s = fmtp_keyx_new_sender();
    struct fmtp_session session = {.extended = true};

    assert_non_null(r);
    assert_non_null(s);
    size_t n;
    const uint8_t *out = fmtp_keyx_output(r, &n);
    /* As captured: length 0x000001aa and a PKCS#1 PEM with a trailing newline, no NUL. */
    assert_int_equal(n, 4 + 426);
    assert_memory_equal(out, "\x00\x00\x01\xaa-----BEGIN RSA PUBLIC KEY-----\n", 35);
    assert_memory_equal(out + n - 30, "\n-----END RSA PUBLIC KEY-----\n", 30);
    uint8_t bytes[2048];
    memcpy(bytes, out, n);
    memcpy(bytes + n, "FMTP", 4); /* the rest belongs to the messages */
    size_t left;
    fmtp_keyx_output(s, &left);
    assert_int_equal(left, 0);
    assert_int_equal(feed(s, bytes, n + 4, piece, &left), FMTP_KEYX_DONE);
    assert_int_equal(left, 4);
    assert_false(fmtp_keyx_offered(s));
    assert_int_equal(fmtp_keyx_answer(s, NULL, (const uint8_t *)"", 0), 0);
    out = fmtp_keyx_output(s, &n);
    assert_int_equal(n, 4 + 256);
    assert_memory_equal(out, "\x00\x00\x01\x00", 4);
    memcpy(bytes, out, n);
    assert_int_equal(feed(r, bytes, n, piece, &left), FMTP_KEYX_DONE);
    assert_int_equal(left, 0);
    assert_false(fmtp_keyx_session(r, &session));
    assert_false(session.extended);
    fmtp_keyx_mac_key(r, &n);
    assert_int_equal(n, 0);
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
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(false), *s = fmtp_keyx_new_sender();

    (void)state;
    size_t n;
    const uint8_t *out = fmtp_keyx_output(r, &n);
    uint8_t bytes[2048];
    memcpy(bytes, out, n);
    size_t left;
    assert_int_equal(feed(s, bytes, n, n, &left), FMTP_KEYX_DONE);
    assert_int_equal(fmtp_keyx_answer(s, NULL, (const uint8_t *)"", 0), 0);
    out = fmtp_keyx_output(s, &n);
    memcpy(bytes, out, n);
    bytes[100] ^= 1;
    assert_int_equal(feed(r, bytes, n, n, &left), FMTP_KEYX_BAD);
    fmtp_keyx_free(r);
    fmtp_keyx_free(s);
}

/* Distinguishes the MAC keys of levels 1 and 2 by their lengths, with and without extension 1. */
static void agree(bool offer, size_t key_len)
{
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(offer), *s = fmtp_keyx_new_sender();
    const struct fmtp_session given = {.extended = true,
                                       .block_bytes = 1416,
                                       .fec_k = 200,
                                       .next_index = 0xfffffff0,
                                       .id = 0x0123456789abcdef};

    uint8_t key[113];
    memset(key, 0xa5, sizeof key);
    struct fmtp_session got;
    size_t n, left;
    for (int round = 0; round < 2; round++) { /* and again, as after a reconnect */
        const uint8_t *out = fmtp_keyx_output(r, &n);
        assert_int_equal(n, 4 + 426 + (offer ? 19 : 0));
        assert_int_equal(feed(s, out, n, 50, &left), FMTP_KEYX_DONE);
        assert_int_equal(fmtp_keyx_offered(s), offer);
        assert_int_equal(fmtp_keyx_answer(s, offer ? &given : NULL, key, key_len), 0);
        out = fmtp_keyx_output(s, &n);
        assert_int_equal(n, 260);
        assert_int_equal(feed(r, out, n, 50, &left), FMTP_KEYX_DONE);
        assert_int_equal(fmtp_keyx_session(r, &got), offer);
        if (offer) {
            assert_int_equal(got.block_bytes, 1416);
            assert_int_equal(got.fec_k, 200);
            assert_int_equal(got.next_index, 0xfffffff0);
            assert_true(got.id == 0x0123456789abcdef);
        }
        out = fmtp_keyx_mac_key(r, &n);
        assert_int_equal(n, key_len);
        assert_memory_equal(out, key, key_len);
        fmtp_keyx_rewind(r);
        fmtp_keyx_rewind(s);
    }
    fmtp_keyx_free(r);
    fmtp_keyx_free(s);
}

static void test_keys_and_extension(void **state)
{
    static const size_t lens[3] = {0, 64, 113};

    (void)state;
    for (int i = 0; i < 3; i++) {
        agree(false, lens[i]);
        agree(true, lens[i]);
    }
}

/* Returns the public key in what a receiver sends, as OpenSSL reads it. */
static EVP_PKEY *key_of(struct fmtp_keyx *r)
{
    EVP_PKEY *key = NULL;
    size_t n;
    const uint8_t *out = fmtp_keyx_output(r, &n), *text = out + 4;

    n -= 4;
    OSSL_DECODER_CTX *decoder = OSSL_DECODER_CTX_new_for_pkey(&key, "PEM", "type-specific", "RSA",
                                                              EVP_PKEY_PUBLIC_KEY, NULL, NULL);
    assert_int_equal(OSSL_DECODER_from_data(decoder, &text, &n), 1);
    OSSL_DECODER_CTX_free(decoder);
    return key;
}

/* Encrypts with OpenSSL alone and feeds the result to a receiver, as another implementation
 * would. */
static enum fmtp_keyx_status receiver_takes(struct fmtp_keyx *r, const void *plain, size_t len)
{
    EVP_PKEY *key = key_of(r);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    uint8_t bytes[260] = {0, 0, 1, 0};
    size_t n = 256;

    fmtp_keyx_rewind(r);
    assert_int_equal(EVP_PKEY_encrypt_init(ctx), 1);
    assert_int_equal(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING), 1);
    assert_int_equal(EVP_PKEY_encrypt(ctx, bytes + 4, &n, plain, len), 1);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    size_t left;
    return feed(r, bytes, 4 + n, 4 + n, &left);
}

/* What the sender may say, with the bytes of the agreement worked out by hand, and invalid
 * answers. */
static void test_plaintexts(void **state)
{
    static const uint8_t agreed[20] = {'D', 'P', 'X', '1', 0x05, 0xa8, 0, 200, 0, 0,
                                       1,   2,   1,   2,   3,    4,    5, 6,   7, 8};
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(true), *plain = fmtp_keyx_new_receiver(false);
    uint8_t text[113] = {0};

    (void)state;
    assert_int_equal(receiver_takes(r, agreed, sizeof agreed), FMTP_KEYX_DONE);
    struct fmtp_session s;
    assert_true(fmtp_keyx_session(r, &s));
    assert_int_equal(s.block_bytes, 1448);
    assert_int_equal(s.fec_k, 200);
    assert_int_equal(s.next_index, 0x102);
    assert_true(s.id == 0x0102030405060708);
    size_t n;
    fmtp_keyx_mac_key(r, &n);
    assert_int_equal(n, 0);
    /* not offered: 20 bytes are not a MAC key */
    assert_int_equal(receiver_takes(plain, agreed, sizeof agreed), FMTP_KEYX_BAD);
    /* an original of any level, answering an offer */
    assert_int_equal(receiver_takes(r, "", 0), FMTP_KEYX_DONE);
    assert_false(fmtp_keyx_session(r, &s));
    memcpy(text, agreed, sizeof agreed); /* a key that begins like an agreement */
    assert_int_equal(receiver_takes(r, text, 64), FMTP_KEYX_DONE);
    assert_false(fmtp_keyx_session(r, &s));
    assert_int_equal(receiver_takes(r, text, 113), FMTP_KEYX_DONE);
    assert_int_equal(receiver_takes(r, text, 63), FMTP_KEYX_BAD);
    /* sizes that no session has */
    text[4] = text[5] = 0;
    assert_int_equal(receiver_takes(r, text, 20), FMTP_KEYX_BAD);
    text[4] = text[5] = 0xff;
    assert_int_equal(receiver_takes(r, text, 20), FMTP_KEYX_BAD);
    memcpy(text, agreed, sizeof agreed);
    text[6] = 1;
    assert_int_equal(receiver_takes(r, text, 20), FMTP_KEYX_BAD);
    text[6] = text[7] = 0;
    assert_int_equal(receiver_takes(r, text, 20), FMTP_KEYX_BAD);
    fmtp_keyx_free(r);
    fmtp_keyx_free(plain);
}

/* Removes the line, as if an earlier program had sent the bytes. */
static size_t without_line(uint8_t *bytes, size_t n, const char *line)
{
    size_t len = strlen(line);
    uint8_t *at = memmem(bytes, n, line, len);

    assert_non_null(at);
    memmove(at, at + len, n - (size_t)(at - bytes) - len);
    n -= len;
    bytes[2] = (uint8_t)((n - 4) >> 8);
    bytes[3] = (uint8_t)(n - 4);
    return n;
}

static void agree_on_progress(bool receiver, bool sender)
{
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(true), *s = fmtp_keyx_new_sender();
    const struct fmtp_session given = {
        .extended = true, .block_bytes = 1448, .fec_k = 200, .progress = receiver && sender};
    struct fmtp_session got;
    uint8_t bytes[2048];
    size_t n, left;

    fmtp_keyx_speak(r, NULL);
    fmtp_keyx_speak(s, NULL);
    memcpy(bytes, fmtp_keyx_output(r, &n), sizeof bytes);
    if (!receiver)
        n = without_line(bytes, n, "FMTP-Progress: 1\n");
    assert_int_equal(feed(s, bytes, n, n, &left), FMTP_KEYX_DONE);
    assert_true(fmtp_keyx_is_ours(s));
    assert_int_equal(fmtp_keyx_reports(s), receiver);
    assert_int_equal(fmtp_keyx_answer(s, &given, (const uint8_t *)"", 0), 0);
    const uint8_t *out = fmtp_keyx_output(s, &n);
    assert_int_equal(feed(r, out, n, n, &left), FMTP_KEYX_DONE);
    fmtp_keyx_agreed(r, &got);
    assert_true(got.ours);
    assert_true(got.extended);
    assert_int_equal(got.progress, receiver && sender);
    fmtp_keyx_free(r);
    fmtp_keyx_free(s);
}

/* Programs older than PROGRESS neither send nor get it. */
static void test_progress(void **state)
{
    static const uint8_t said[22] = {'D', 'P', 'X', '2', 0x05, 0xa8, 0, 200, 0, 0, 1,
                                     2,   1,   2,   3,   4,    5,    6, 7,   8, 0, 1};
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(true);
    struct fmtp_session got;
    uint8_t text[sizeof said];

    (void)state;
    agree_on_progress(true, true);
    agree_on_progress(true, false);
    agree_on_progress(false, true);
    fmtp_keyx_speak(r, NULL);
    memcpy(text, said, sizeof said);
    for (uint8_t byte = 0; byte < 5; byte++) { /* bit 0: extension 1; bit 1: progress */
        text[21] = byte;
        assert_int_equal(receiver_takes(r, text, sizeof text),
                         byte < 4 ? FMTP_KEYX_DONE : FMTP_KEYX_BAD);
        fmtp_keyx_agreed(r, &got);
        assert_int_equal(got.extended, byte < 4 && byte & 1);
        assert_int_equal(got.progress, byte < 4 && byte & 2);
    }
    fmtp_keyx_free(r);
}

/* A key written and an answer decrypted by OpenSSL alone, as another implementation would. */
static void test_independent_receiver(void **state)
{
    EVP_PKEY *key = EVP_RSA_gen(2048);
    OSSL_ENCODER_CTX *encoder = OSSL_ENCODER_CTX_new_for_pkey(key, OSSL_KEYMGMT_SELECT_PUBLIC_KEY,
                                                              "PEM", "type-specific", NULL);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    struct fmtp_keyx *s = fmtp_keyx_new_sender();
    unsigned char *pem = NULL;
    size_t n = 0;
    uint8_t bytes[2048] = {0};

    (void)state;
    assert_int_equal(OSSL_ENCODER_to_data(encoder, &pem, &n), 1);
    assert_int_equal(n, 426);
    bytes[2] = 1;
    bytes[3] = 0xaa;
    memcpy(bytes + 4, pem, n);
    size_t left;
    assert_int_equal(feed(s, bytes, 4 + n, 100, &left), FMTP_KEYX_DONE);
    assert_int_equal(fmtp_keyx_answer(s, NULL, (const uint8_t *)"", 0), 0);
    const uint8_t *out = fmtp_keyx_output(s, &n);
    assert_int_equal(n, 260);
    assert_int_equal(EVP_PKEY_decrypt_init(ctx), 1);
    assert_int_equal(EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING), 1);
    uint8_t plain[256];
    n = sizeof plain;
    assert_int_equal(EVP_PKEY_decrypt(ctx, plain, &n, out + 4, 256), 1);
    assert_int_equal(n, 0); /* MAC level 0: no key */
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
    assert_int_equal(sender_takes("\x00\x00\x20\x01", 4), FMTP_KEYX_BAD); /* 8193 */
    assert_int_equal(sender_takes("\x00\x00\x20\x00", 4), FMTP_KEYX_MORE);
    assert_int_equal(sender_takes("\x00\x00\x00\x05hello", 9), FMTP_KEYX_BAD);
    assert_int_equal(sender_takes(spki, 4 + 0x40), FMTP_KEYX_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_independent_receiver),
        cmocka_unit_test(test_keys_and_extension),
        cmocka_unit_test(test_plaintexts),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

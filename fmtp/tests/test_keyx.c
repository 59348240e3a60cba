/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

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

/* The sender's answer for a key made here, opened with OpenSSL alone. */
static void test_oaep(void **state)
{
    struct fmtp_keyx *r = fmtp_keyx_new_receiver(), *s = fmtp_keyx_new_sender();
    uint8_t bytes[2048];
    size_t n, left;

    (void)state;
    memcpy(bytes, fmtp_keyx_output(r, &n), n);
    assert_int_equal(feed(s, bytes, n, n, &left), FMTP_KEYX_DONE);
    memcpy(bytes, fmtp_keyx_output(s, &n), n);
    bytes[100] ^= 1;                            /* damaged on the way */
    assert_int_equal(feed(r, bytes, n, n, &left), FMTP_KEYX_BAD);
    fmtp_keyx_free(r);
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
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_oaep),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

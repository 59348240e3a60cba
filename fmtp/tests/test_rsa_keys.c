/* SPDX-License-Identifier: Apache-2.0
 *
 * Public keys that an attacker may send to make the sender work, crash, or encrypt badly: each is
 * refused with one line, in less time than an honest key takes. The test writes the DER by hand.
 */
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "keyx.h"

enum { MOST = 8192, HONEST_BYTES = 256 };

struct number { /* content of an ASN.1 INTEGER, unchanged */
    uint8_t bytes[MOST];
    size_t len;
};

static uint8_t modulus[HONEST_BYTES]; /* of an honest key */

static int make_modulus(void **state)
{
    EVP_PKEY *key = EVP_RSA_gen(2048);
    BIGNUM *n = NULL;

    (void)state;
    int rc = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) == 1 &&
                     BN_bn2binpad(n, modulus, sizeof modulus) == (int)sizeof modulus
                 ? 0
                 : -1;
    BN_free(n);
    EVP_PKEY_free(key);
    return rc;
}

static struct number number_of(const void *bytes, size_t len)
{
    struct number n = {.len = len};

    memcpy(n.bytes, bytes, len);
    return n;
}

/* Returns the modulus of an honest key: with a leading zero, because the first bit is set. */
static struct number honest(void)
{
    struct number n = {.len = 1 + sizeof modulus};

    memcpy(n.bytes + 1, modulus, sizeof modulus);
    return n;
}

/* Returns an odd number of that many bits. */
static struct number of_bits(size_t bits)
{
    struct number n = {.len = bits / 8 + 1};

    memset(n.bytes + 1, 0xa5, bits / 8);
    n.bytes[0] = bits % 8 ? (uint8_t)(1 << (bits % 8 - 1)) : 0;
    n.bytes[1] |= 0x80;
    n.bytes[n.len - 1] |= 1;
    return n;
}

static size_t put_head(uint8_t *out, uint8_t tag, size_t len)
{
    out[0] = tag;
    if (len < 128) {
        out[1] = (uint8_t)len;
        return 2;
    }
    out[1] = len < 256 ? 0x81 : 0x82;
    if (len < 256) {
        out[2] = (uint8_t)len;
        return 3;
    }
    out[2] = (uint8_t)(len >> 8);
    out[3] = (uint8_t)len;
    return 4;
}

/* Writes SEQUENCE { INTEGER n, INTEGER e } with `inside` more bytes in it and `behind` after it. */
static size_t der_of(uint8_t *out, const struct number *n, const struct number *e, size_t inside,
                     size_t behind)
{
    static uint8_t body[4 * MOST];
    size_t len = put_head(body, 2, n->len);

    memcpy(body + len, n->bytes, n->len);
    len += n->len;
    len += put_head(body + len, 2, e->len);
    memcpy(body + len, e->bytes, e->len);
    len += e->len;
    memset(body + len, 0, inside);
    len += inside;
    size_t head = put_head(out, 0x30, len);
    memcpy(out + head, body, len);
    memset(out + head + len, 0, behind);
    return head + len + behind;
}

/* Writes what a receiver would send: length, PEM with that name. */
static size_t string_of(uint8_t *out, const char *name, const char *header, const uint8_t *der,
                        size_t len)
{
    char *text = (char *)out + 4;
    size_t at = (size_t)sprintf(text, "-----BEGIN %s-----\n%s", name, header);

    for (size_t i = 0; i < len; i += 48) {
        size_t n = len - i < 48 ? len - i : 48;
        at += (size_t)EVP_EncodeBlock((uint8_t *)text + at, der + i, (int)n);
        text[at++] = '\n';
    }
    at += (size_t)sprintf(text + at, "-----END %s-----\n", name);
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(at >> (24 - 8 * i));
    return 4 + at;
}

/* Returns the sender's verdict. Its reason is one line; processor time is bounded. */
static enum fmtp_keyx_status verdict(const uint8_t *bytes, size_t len)
{
    struct fmtp_keyx *s = fmtp_keyx_new_sender();
    size_t used;

    clock_t began = clock();
    enum fmtp_keyx_status st = fmtp_keyx_input(s, bytes, len, &used);
    double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    if (st == FMTP_KEYX_BAD) {
        const char *why = fmtp_keyx_why(s);
        assert_true(*why && !strchr(why, '\n'));
        assert_int_equal(fmtp_keyx_distrust(s), FMTP_KEYX_TRUSTED); /* it is counted as bad */
    } else {
        assert_int_equal(st, FMTP_KEYX_DONE);
        assert_int_equal(fmtp_keyx_answer(s, NULL, (const uint8_t *)"", 0), 0);
    }
    fmtp_keyx_free(s);
    assert_true(seconds < 0.2);
    return st;
}

static enum fmtp_keyx_status verdict_on(const struct number *n, const struct number *e,
                                        size_t inside, size_t behind)
{
    static uint8_t der[4 * MOST], bytes[8 * MOST];

    return verdict(bytes,
                   string_of(bytes, "RSA PUBLIC KEY", "", der, der_of(der, n, e, inside, behind)));
}

static const uint8_t f4[] = {1, 0, 1}; /* 65537 */

static void test_honest(void **state)
{
    struct number n = honest(), e = number_of(f4, 3);

    (void)state;
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_DONE);
    n = of_bits(3072);
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_DONE);
}

static void test_exponents(void **state)
{
    static const struct {
        uint8_t bytes[9];
        size_t len;
    } bad[] = {
        {{0}, 1},                         /* zero */
        {{1}, 1},                         /* one: the key would be sent in the clear */
        {{3}, 1},                         /* small */
        {{2}, 1},                         /* even */
        {{1, 0, 0}, 3},                   /* 65536 */
        {{1, 0, 2}, 3},                   /* 65538 */
        {{1, 0, 0, 0, 1}, 5},             /* 2^32 + 1 */
        {{1, 0, 0, 0, 0, 0, 0, 0, 1}, 9}, /* 2^64 + 1 */
        {{1, 0, 0, 0, 0, 0, 1, 0, 1}, 9}, /* 2^64 + 65537 */
        {{0xff}, 1},                      /* -1 */
        {{0xfe, 0xff, 0xff}, 3},          /* -65537 */
        {{0, 1, 0, 1}, 4},                /* 65537, not in DER's minimal form */
        {{0}, 0},                         /* no bytes */
    };
    struct number n = honest(), e;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = number_of(bad[i].bytes, bad[i].len);
        if (verdict_on(&n, &e, 0, 0) != FMTP_KEYX_BAD)
            fail_msg("exponent %zu was accepted", i);
    }
    e = honest(); /* as long as the modulus */
    e.bytes[e.len - 1] ^= 2;
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_BAD);
}

static void test_moduli(void **state)
{
    static const size_t bits[] = {8,    64,   512,  1024,  2040,  2047,  3073,
                                  3080, 4096, 8192, 16384, 16392, 32768, 48000};
    struct number n, e = number_of(f4, 3);

    (void)state;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        n = of_bits(bits[i]);
        if (verdict_on(&n, &e, 0, 0) != FMTP_KEYX_BAD)
            fail_msg("a modulus of %zu bits was accepted", bits[i]);
    }
    n = number_of("", 1); /* zero */
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_BAD);
    n = honest();
    n.bytes[n.len - 1] &= 0xfe; /* even */
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_BAD);
    n = number_of(modulus, sizeof modulus); /* negative: its first bit is set */
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_BAD);
    n = honest();
    memmove(n.bytes + 1, n.bytes, n.len++); /* two zeros in front */
    assert_int_equal(verdict_on(&n, &e, 0, 0), FMTP_KEYX_BAD);
}

static void test_der(void **state)
{
    struct number n = honest(), e = number_of(f4, 3);
    static uint8_t der[4 * MOST], bytes[8 * MOST];

    (void)state;
    static const size_t trailing[] = {1, 2, 100, 3000};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(verdict_on(&n, &e, 0, trailing[i]), FMTP_KEYX_BAD);
        assert_int_equal(verdict_on(&n, &e, trailing[i], 0), FMTP_KEYX_BAD);
    }
    size_t len = der_of(der, &n, &e, 0, 0);
    for (size_t cut = 0; cut < len; cut += 7)
        assert_int_equal(verdict(bytes, string_of(bytes, "RSA PUBLIC KEY", "", der, cut)),
                         FMTP_KEYX_BAD);
    for (size_t at = 0; at < 8; at++) /* the headers of the sequence and of the modulus */
        for (unsigned bit = 0; bit < 8; bit++) {
            der[at] ^= (uint8_t)(1u << bit);
            assert_int_equal(verdict(bytes, string_of(bytes, "RSA PUBLIC KEY", "", der, len)),
                             FMTP_KEYX_BAD);
            der[at] ^= (uint8_t)(1u << bit);
        }
    assert_int_equal(verdict(bytes, string_of(bytes, "RSA PUBLIC KEY", "", der, len)),
                     FMTP_KEYX_DONE);
}

/* Keys of other kinds, and an RSA key under other names. */
static void test_algorithms(void **state)
{
    static const char *const names[] = {"PUBLIC KEY",  "RSA PRIVATE KEY", "PRIVATE KEY",
                                        "CERTIFICATE", "EC PUBLIC KEY",   "RSA PUBLIC KEY "};
    static const char encrypted[] = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
    static uint8_t der[4 * MOST], bytes[8 * MOST];
    struct number n = honest(), e = number_of(f4, 3);
    size_t len = der_of(der, &n, &e, 0, 0);

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (verdict(bytes, string_of(bytes, names[i], "", der, len)) != FMTP_KEYX_BAD)
            fail_msg("\"%s\" was accepted", names[i]);
    assert_int_equal(verdict(bytes, string_of(bytes, "RSA PUBLIC KEY", encrypted, der, len)),
                     FMTP_KEYX_BAD);
    EVP_PKEY *others[] = {EVP_EC_gen("P-256"), EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"),
                          EVP_PKEY_Q_keygen(NULL, NULL, "X25519"), EVP_RSA_gen(2048)};
    for (size_t i = 0; i < 4; i++) {
        unsigned char *spki = NULL;
        int spki_len = i2d_PUBKEY(others[i], &spki);
        assert_true(spki_len > 0);
        assert_int_equal(
            verdict(bytes, string_of(bytes, "RSA PUBLIC KEY", "", spki, (size_t)spki_len)),
            FMTP_KEYX_BAD);
        assert_int_equal(verdict(bytes, string_of(bytes, "PUBLIC KEY", "", spki, (size_t)spki_len)),
                         FMTP_KEYX_BAD);
        OPENSSL_free(spki);
        EVP_PKEY_free(others[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest),     cmocka_unit_test(test_exponents),
        cmocka_unit_test(test_moduli),     cmocka_unit_test(test_der),
        cmocka_unit_test(test_algorithms),
    };
    return cmocka_run_group_tests(tests, make_modulus, NULL);
}

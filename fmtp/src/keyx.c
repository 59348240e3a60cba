/* SPDX-License-Identifier: Apache-2.0 */
#include "keyx.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

enum { LENGTH_BYTES = 4, MIN_BITS = 1024, MAX_BITS = 4096 };

struct fmtp_keyx {
    EVP_PKEY *own;                    /* receiver only */
    size_t in_len;
    size_t out_len;
    uint8_t out[LENGTH_BYTES + 1024];
    uint8_t in[LENGTH_BYTES + FMTP_KEYX_MAX];
};

static void put_length(uint8_t *p, size_t n)
{
    p[0] = (uint8_t)(n >> 24);
    p[1] = (uint8_t)(n >> 16);
    p[2] = (uint8_t)(n >> 8);
    p[3] = (uint8_t)n;
}

static size_t get_length(const uint8_t *p)
{
    return (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
}

struct fmtp_keyx *fmtp_keyx_new_sender(void)
{
    return calloc(1, sizeof(struct fmtp_keyx));
}

struct fmtp_keyx *fmtp_keyx_new_receiver(void)
{
    struct fmtp_keyx *k = calloc(1, sizeof *k);
    unsigned char *der = NULL;
    BIO *pem = NULL;
    char *text;
    int der_len;
    long n;

    if (!k)
        return NULL;
    k->own = EVP_RSA_gen(2048);
    if (!k->own)
        goto fail;
    der_len = i2d_PublicKey(k->own, &der);
    pem = BIO_new(BIO_s_mem());
    if (der_len <= 0 || !pem || PEM_write_bio(pem, PEM_STRING_RSA_PUBLIC, "", der, der_len) <= 0)
        goto fail;
    n = BIO_get_mem_data(pem, &text);
    if (n <= 0 || (size_t)n > sizeof k->out - LENGTH_BYTES)
        goto fail;
    put_length(k->out, (size_t)n);
    memcpy(k->out + LENGTH_BYTES, text, (size_t)n);
    k->out_len = LENGTH_BYTES + (size_t)n;
    OPENSSL_free(der);
    BIO_free(pem);
    return k;
fail:
    OPENSSL_free(der);
    BIO_free(pem);
    ERR_clear_error();
    fmtp_keyx_free(k);
    return NULL;
}

void fmtp_keyx_free(struct fmtp_keyx *k)
{
    if (!k)
        return;
    EVP_PKEY_free(k->own);
    free(k);
}

void fmtp_keyx_rewind(struct fmtp_keyx *k)
{
    k->in_len = 0;
    if (!k->own)
        k->out_len = 0;
}

static EVP_PKEY *read_public_key(const uint8_t *text, size_t len)
{
    BIO *pem = BIO_new_mem_buf(text, (int)len);
    char *name = NULL, *header = NULL;
    unsigned char *der = NULL;
    long der_len = 0;
    EVP_PKEY *key = NULL;

    if (pem && PEM_read_bio(pem, &name, &header, &der, &der_len) == 1 &&
        strcmp(name, PEM_STRING_RSA_PUBLIC) == 0) {
        const unsigned char *p = der;
        key = d2i_PublicKey(EVP_PKEY_RSA, NULL, &p, der_len);
        if (key && (EVP_PKEY_get_bits(key) < MIN_BITS || EVP_PKEY_get_bits(key) > MAX_BITS)) {
            EVP_PKEY_free(key);
            key = NULL;
        }
    }
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(der);
    BIO_free(pem);
    return key;
}

/* RSA-OAEP with SHA-1 and MGF1-SHA-1 (OpenSSL's defaults, named all the same). */
static EVP_PKEY_CTX *oaep(EVP_PKEY *key, int (*init)(EVP_PKEY_CTX *))
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);

    if (ctx && (init(ctx) <= 0 || EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) <= 0 ||
                EVP_PKEY_CTX_set_rsa_oaep_md(ctx, EVP_sha1()) <= 0 ||
                EVP_PKEY_CTX_set_rsa_mgf1_md(ctx, EVP_sha1()) <= 0)) {
        EVP_PKEY_CTX_free(ctx);
        ctx = NULL;
    }
    return ctx;
}

static bool answer(struct fmtp_keyx *k, const uint8_t *text, size_t len)
{
    EVP_PKEY *key = read_public_key(text, len);
    EVP_PKEY_CTX *ctx = key ? oaep(key, EVP_PKEY_encrypt_init) : NULL;
    size_t n = sizeof k->out - LENGTH_BYTES;
    bool ok = ctx && EVP_PKEY_encrypt(ctx, k->out + LENGTH_BYTES, &n, (const uint8_t *)"", 0) > 0;

    if (ok) {
        put_length(k->out, n);
        k->out_len = LENGTH_BYTES + n;
    }
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(key);
    return ok;
}

/* Level 0: only the empty key is understood, a longer one means MACs that we do not speak. */
static bool accept_key(const struct fmtp_keyx *k, const uint8_t *cipher, size_t len)
{
    EVP_PKEY_CTX *ctx = oaep(k->own, EVP_PKEY_decrypt_init);
    uint8_t plain[MAX_BITS / 8];
    size_t n = sizeof plain;
    bool ok = ctx && EVP_PKEY_decrypt(ctx, plain, &n, cipher, len) > 0 && n == 0;

    EVP_PKEY_CTX_free(ctx);
    return ok;
}

enum fmtp_keyx_status fmtp_keyx_input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                      size_t *used)
{
    *used = 0;
    for (;;) {
        size_t want = LENGTH_BYTES, take;
        if (k->in_len >= LENGTH_BYTES) {
            size_t n = get_length(k->in);
            if (n == 0 || n > FMTP_KEYX_MAX)
                return FMTP_KEYX_BAD;
            want += n;
        }
        take = want - k->in_len;
        if (take > len - *used)
            take = len - *used;
        memcpy(k->in + k->in_len, bytes + *used, take);
        k->in_len += take;
        *used += take;
        if (k->in_len < want)
            return FMTP_KEYX_MORE;
        if (want > LENGTH_BYTES)
            break;
    }
    const uint8_t *text = k->in + LENGTH_BYTES;
    size_t n = k->in_len - LENGTH_BYTES;
    bool ok = k->own ? accept_key(k, text, n) : answer(k, text, n);
    ERR_clear_error();
    return ok ? FMTP_KEYX_DONE : FMTP_KEYX_BAD;
}

const uint8_t *fmtp_keyx_output(const struct fmtp_keyx *k, size_t *len)
{
    *len = k->out_len;
    return k->out;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "keyx.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#include "mac.h"

enum {
    LENGTH_BYTES = 4,
    MIN_BITS = 1024,
    MAX_BITS = 4096,
    AGREED_LEN = 4 + 2 + 2 + 4 + 8, /* of the plaintext before the MAC key, extension 1 */
    FEC_MAX = 255                   /* blocks and parity symbols of a group */
};

static const char offer_line[] = "FMTP-Extensions: 1\n";
#define OFFER_BYTES (sizeof offer_line - 1)
static const char end_line[] = "-----END RSA PUBLIC KEY-----\n";
static const char magic[4] = {'D', 'P', 'X', '1'};

struct fmtp_keyx {
    EVP_PKEY *own;               /* receiver only */
    EVP_PKEY *peer;              /* sender only: the receiver's public key */
    bool offered;                /* by us (receiver) or by the peer (sender) */
    struct fmtp_session session; /* receiver only */
    uint8_t mac_key[FMTP_MAC_KEY_MAX];
    size_t mac_key_len;
    size_t in_len;
    size_t out_len;
    uint8_t out[LENGTH_BYTES + 1024];
    uint8_t in[LENGTH_BYTES + FMTP_KEYX_MAX];
};

static void put(uint8_t *p, uint64_t n, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(n >> 8 * (bytes - 1 - i));
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < bytes; i++)
        n = n << 8 | p[i];
    return n;
}

struct fmtp_keyx *fmtp_keyx_new_sender(void)
{
    return calloc(1, sizeof(struct fmtp_keyx));
}

struct fmtp_keyx *fmtp_keyx_new_receiver(bool offer)
{
    struct fmtp_keyx *k = calloc(1, sizeof *k);
    unsigned char *der = NULL;
    BIO *pem = NULL;

    if (!k)
        return NULL;
    k->own = EVP_RSA_gen(2048);
    if (!k->own)
        goto fail;
    int der_len = i2d_PublicKey(k->own, &der);
    pem = BIO_new(BIO_s_mem());
    if (der_len <= 0 || !pem || PEM_write_bio(pem, PEM_STRING_RSA_PUBLIC, "", der, der_len) <= 0)
        goto fail;
    char *text;
    long n = BIO_get_mem_data(pem, &text);
    if (n <= 0 || (size_t)n > sizeof k->out - LENGTH_BYTES - OFFER_BYTES)
        goto fail;
    memcpy(k->out + LENGTH_BYTES, text, (size_t)n);
    k->out_len = LENGTH_BYTES + (size_t)n;
    k->offered = offer;
    if (offer) {
        memcpy(k->out + k->out_len, offer_line, OFFER_BYTES);
        k->out_len += OFFER_BYTES;
    }
    put(k->out, k->out_len - LENGTH_BYTES, LENGTH_BYTES);
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
    EVP_PKEY_free(k->peer);
    OPENSSL_cleanse(k->mac_key, sizeof k->mac_key);
    free(k);
}

void fmtp_keyx_rewind(struct fmtp_keyx *k)
{
    k->in_len = 0;
    k->session = (struct fmtp_session){0};
    k->mac_key_len = 0;
    if (k->own)
        return;
    EVP_PKEY_free(k->peer);
    k->peer = NULL;
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

/* RSA-OAEP with SHA-1 and MGF1-SHA-1 (OpenSSL's defaults, named anyway). */
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

/* Does the line that offers extension 1 follow the PEM? */
static bool has_offer(const uint8_t *text, size_t len)
{
    const size_t end = strlen(end_line), offer = strlen(offer_line);

    return len >= end + offer && memcmp(text + len - offer, offer_line, offer) == 0 &&
           memcmp(text + len - offer - end, end_line, end) == 0;
}

static bool accept_offer(struct fmtp_keyx *k, const uint8_t *text, size_t len)
{
    k->peer = read_public_key(text, len);
    k->offered = has_offer(text, len);
    return k->peer;
}

int fmtp_keyx_answer(struct fmtp_keyx *k, const struct fmtp_session *session,
                     const uint8_t *mac_key, size_t mac_key_len)
{
    EVP_PKEY_CTX *ctx = k->peer ? oaep(k->peer, EVP_PKEY_encrypt_init) : NULL;
    size_t n = sizeof k->out - LENGTH_BYTES, len = 0;

    uint8_t plain[AGREED_LEN + FMTP_MAC_KEY_MAX];
    if (session && session->extended) {
        memcpy(plain, magic, sizeof magic);
        put(plain + 4, session->block_bytes, 2);
        put(plain + 6, session->fec_k, 2);
        put(plain + 8, session->next_index, 4);
        put(plain + 12, session->id, 8);
        len = AGREED_LEN;
    }
    memcpy(plain + len, mac_key, mac_key_len);
    len += mac_key_len;
    if (ctx && EVP_PKEY_encrypt(ctx, k->out + LENGTH_BYTES, &n, plain, len) > 0) {
        put(k->out, n, LENGTH_BYTES);
        k->out_len = LENGTH_BYTES + n;
    }
    EVP_PKEY_CTX_free(ctx);
    OPENSSL_cleanse(plain, sizeof plain);
    ERR_clear_error();
    return k->out_len ? 0 : -1;
}

/* What the sender says, decrypted: a MAC key of one of the levels, after what was agreed if it took
 * up our offer. */
static bool accept_plain(struct fmtp_keyx *k, const uint8_t *plain, size_t len)
{
    if (k->offered && len >= AGREED_LEN && memcmp(plain, magic, sizeof magic) == 0 &&
        fmtp_mac_is_key_len(len - AGREED_LEN)) {
        k->session = (struct fmtp_session){.extended = true,
                                           .block_bytes = (uint16_t)get(plain + 4, 2),
                                           .fec_k = (uint16_t)get(plain + 6, 2),
                                           .next_index = (uint32_t)get(plain + 8, 4),
                                           .id = get(plain + 12, 8)};
        if (!k->session.block_bytes || k->session.block_bytes > FMTP_MAX_BLOCK ||
            !k->session.fec_k || k->session.fec_k > FEC_MAX - 1)
            return false;
        plain += AGREED_LEN;
        len -= AGREED_LEN;
    }
    if (!fmtp_mac_is_key_len(len))
        return false;
    memcpy(k->mac_key, plain, len);
    k->mac_key_len = len;
    return true;
}

static bool accept_key(struct fmtp_keyx *k, const uint8_t *cipher, size_t len)
{
    EVP_PKEY_CTX *ctx = oaep(k->own, EVP_PKEY_decrypt_init);
    uint8_t plain[MAX_BITS / 8];
    size_t n = sizeof plain;
    bool ok = ctx && EVP_PKEY_decrypt(ctx, plain, &n, cipher, len) > 0 && accept_plain(k, plain, n);

    EVP_PKEY_CTX_free(ctx);
    OPENSSL_cleanse(plain, sizeof plain);
    return ok;
}

bool fmtp_keyx_offered(const struct fmtp_keyx *k)
{
    return k->offered;
}

bool fmtp_keyx_session(const struct fmtp_keyx *k, struct fmtp_session *session)
{
    *session = k->session;
    return k->session.extended;
}

const uint8_t *fmtp_keyx_mac_key(const struct fmtp_keyx *k, size_t *len)
{
    *len = k->mac_key_len;
    return k->mac_key;
}

enum fmtp_keyx_status fmtp_keyx_input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                      size_t *used)
{
    *used = 0;
    for (;;) {
        size_t want = LENGTH_BYTES;
        if (k->in_len >= LENGTH_BYTES) {
            size_t n = (size_t)get(k->in, LENGTH_BYTES);
            if (n == 0 || n > FMTP_KEYX_MAX)
                return FMTP_KEYX_BAD;
            want += n;
        }
        size_t take = want - k->in_len;
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
    bool ok = k->own ? accept_key(k, text, n) : accept_offer(k, text, n);
    ERR_clear_error();
    return ok ? FMTP_KEYX_DONE : FMTP_KEYX_BAD;
}

const uint8_t *fmtp_keyx_output(const struct fmtp_keyx *k, size_t *len)
{
    *len = k->out_len;
    return k->out;
}

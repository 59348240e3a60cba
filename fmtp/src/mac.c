/* SPDX-License-Identifier: Apache-2.0 */
#include "mac.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "gmac.h"

enum {
    HMAC_LEN = 32,
    HMAC_KEY_LEN = 64,
    SIGNATURE_LEN = 64,
    PUBLIC_KEY_LEN = 113, /* PEM SubjectPublicKeyInfo of an Ed25519 key */
    MAX_MESSAGE = 65504
};

struct fmtp_mac {
    enum fmtp_mac_kind kind;
    EVP_MAC_CTX *hmac; /* keyed */
    struct gmac *gmac;
    uint64_t nonce; /* GMAC: for the next datagram, never used twice with a key */
    EVP_PKEY *pkey; /* Ed25519 */
    EVP_MD_CTX *md; /* Ed25519 */
    size_t key_len;
    uint8_t key[FMTP_MAC_KEY_MAX];
    uint8_t *message; /* Ed25519 needs the message in one piece */
};

static const struct {
    unsigned level;
    size_t key_len, mac_len;
} kinds[FMTP_MAC_KINDS] = {{0, 0, 0},
                           {1, HMAC_KEY_LEN, HMAC_LEN},
                           {2, PUBLIC_KEY_LEN, SIGNATURE_LEN},
                           {1, GMAC_KEY_LEN, GMAC_NONCE_LEN + GMAC_TAG_LEN}};

size_t fmtp_mac_key_len_of(enum fmtp_mac_kind kind)
{
    return kinds[kind].key_len;
}

bool fmtp_mac_is_key_len(size_t len)
{
    return len == 0 || len == HMAC_KEY_LEN || len == PUBLIC_KEY_LEN;
}

static bool set_hmac(struct fmtp_mac *m)
{
    char name[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", name, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);

    m->hmac = mac ? EVP_MAC_CTX_new(mac) : NULL;
    EVP_MAC_free(mac);
    return m->hmac && EVP_MAC_init(m->hmac, m->key, m->key_len, params) == 1;
}

static bool set_gmac(struct fmtp_mac *m)
{
    m->gmac = gmac_new(GMAC_FASTEST, m->key);
    return m->gmac != NULL;
}

static bool new_pair(struct fmtp_mac *m)
{
    BIO *pem = BIO_new(BIO_s_mem());
    long n = 0;

    m->pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    char *text;
    if (m->pkey && pem && PEM_write_bio_PUBKEY(pem, m->pkey) == 1)
        n = BIO_get_mem_data(pem, &text);
    if (n == PUBLIC_KEY_LEN) {
        memcpy(m->key, text, PUBLIC_KEY_LEN);
        m->key_len = PUBLIC_KEY_LEN;
    }
    BIO_free(pem);
    return n == PUBLIC_KEY_LEN;
}

static bool set_public(struct fmtp_mac *m)
{
    BIO *pem = BIO_new_mem_buf(m->key, (int)m->key_len);

    m->pkey = pem ? PEM_read_bio_PUBKEY(pem, NULL, NULL, NULL) : NULL;
    BIO_free(pem);
    return m->pkey && EVP_PKEY_is_a(m->pkey, "ED25519");
}

static bool set_signature(struct fmtp_mac *m)
{
    m->md = EVP_MD_CTX_new();
    m->message = malloc(MAX_MESSAGE);
    return m->md && m->message;
}

static struct fmtp_mac *checked(struct fmtp_mac *m, bool ok)
{
    ERR_clear_error();
    if (ok)
        return m;
    fmtp_mac_free(m);
    return NULL;
}

struct fmtp_mac *fmtp_mac_new_signer_of(enum fmtp_mac_kind kind)
{
    struct fmtp_mac *m = calloc(1, sizeof *m);
    bool ok = true;

    if (!m)
        return NULL;
    m->kind = kind;
    if (kind == FMTP_MAC_ED25519) {
        ok = new_pair(m) && set_signature(m);
    } else if (kind != FMTP_MAC_NONE) {
        m->key_len = kinds[kind].key_len;
        ok = RAND_bytes(m->key, (int)m->key_len) == 1 &&
             (kind == FMTP_MAC_HMAC ? set_hmac(m) : set_gmac(m));
    }
    return checked(m, ok);
}

struct fmtp_mac *fmtp_mac_new_signer(unsigned level)
{
    static const enum fmtp_mac_kind of_level[] = {FMTP_MAC_NONE, FMTP_MAC_HMAC, FMTP_MAC_ED25519};

    return level <= 2 ? fmtp_mac_new_signer_of(of_level[level]) : NULL;
}

struct fmtp_mac *fmtp_mac_new_verifier_of(enum fmtp_mac_kind kind, const uint8_t *key, size_t len)
{
    struct fmtp_mac *m = len == kinds[kind].key_len ? calloc(1, sizeof *m) : NULL;
    bool ok = true;

    if (!m)
        return NULL;
    if (len)
        memcpy(m->key, key, len);
    m->key_len = len;
    m->kind = kind;
    if (kind == FMTP_MAC_HMAC)
        ok = set_hmac(m);
    else if (kind == FMTP_MAC_GMAC)
        ok = set_gmac(m);
    else if (kind == FMTP_MAC_ED25519)
        ok = set_public(m) && set_signature(m);
    return checked(m, ok);
}

struct fmtp_mac *fmtp_mac_new_verifier(const uint8_t *key, size_t len)
{
    enum fmtp_mac_kind kind = len == HMAC_KEY_LEN     ? FMTP_MAC_HMAC
                              : len == PUBLIC_KEY_LEN ? FMTP_MAC_ED25519
                                                      : FMTP_MAC_NONE;

    return fmtp_mac_new_verifier_of(kind, key, len);
}

void fmtp_mac_free(struct fmtp_mac *m)
{
    if (!m)
        return;
    EVP_MAC_CTX_free(m->hmac);
    gmac_free(m->gmac);
    EVP_MD_CTX_free(m->md);
    EVP_PKEY_free(m->pkey);
    free(m->message);
    OPENSSL_cleanse(m->key, sizeof m->key);
    free(m);
}

unsigned fmtp_mac_level(const struct fmtp_mac *m)
{
    return kinds[m->kind].level;
}

enum fmtp_mac_kind fmtp_mac_kind(const struct fmtp_mac *m)
{
    return m->kind;
}

size_t fmtp_mac_len(const struct fmtp_mac *m)
{
    return kinds[m->kind].mac_len;
}

const uint8_t *fmtp_mac_key(const struct fmtp_mac *m, size_t *len)
{
    *len = m->key_len;
    return m->key;
}

static bool compute_hmac(struct fmtp_mac *m, const struct iovec *parts, int nparts, uint8_t *out)
{
    bool ok = EVP_MAC_init(m->hmac, NULL, 0, NULL) == 1;
    size_t n = 0;

    for (int i = 0; ok && i < nparts; i++)
        ok = EVP_MAC_update(m->hmac, parts[i].iov_base, parts[i].iov_len) == 1;
    return ok && EVP_MAC_final(m->hmac, out, &n, HMAC_LEN) == 1 && n == HMAC_LEN;
}

static bool sign_gmac(struct fmtp_mac *m, const struct iovec *parts, int nparts, uint8_t *out)
{
    uint64_t nonce = m->nonce++;

    memset(out, 0, GMAC_NONCE_LEN);
    for (int i = 0; i < 8; i++)
        out[GMAC_NONCE_LEN - 1 - i] = (uint8_t)(nonce >> 8 * i);
    return gmac_tag(m->gmac, parts, nparts, out, out + GMAC_NONCE_LEN);
}

/* Joins the message into one piece. Returns NULL if it is too long. */
static const uint8_t *joined(struct fmtp_mac *m, const struct iovec *parts, int nparts, size_t *len)
{
    size_t n = 0;

    for (int i = 0; i < nparts; i++) {
        if (parts[i].iov_len > MAX_MESSAGE - n)
            return NULL;
        if (parts[i].iov_len)
            memcpy(m->message + n, parts[i].iov_base, parts[i].iov_len);
        n += parts[i].iov_len;
    }
    *len = n;
    return m->message;
}

int fmtp_mac_sign(struct fmtp_mac *m, const struct iovec *parts, int nparts, uint8_t *out)
{
    size_t len = 0, n = SIGNATURE_LEN;

    if (m->kind == FMTP_MAC_NONE)
        return 0;
    if (m->kind == FMTP_MAC_HMAC)
        return compute_hmac(m, parts, nparts, out) ? 0 : -1;
    if (m->kind == FMTP_MAC_GMAC)
        return sign_gmac(m, parts, nparts, out) ? 0 : -1;
    const uint8_t *message = joined(m, parts, nparts, &len);
    if (!message || EVP_DigestSignInit(m->md, NULL, NULL, NULL, m->pkey) != 1 ||
        EVP_DigestSign(m->md, out, &n, message, len) != 1) {
        ERR_clear_error();
        return -1;
    }
    return 0;
}

bool fmtp_mac_verify(struct fmtp_mac *m, const struct iovec *parts, int nparts, const uint8_t *mac)
{
    size_t len = 0;

    if (m->kind == FMTP_MAC_NONE)
        return true;
    uint8_t want[HMAC_LEN];
    if (m->kind == FMTP_MAC_GMAC)
        return gmac_tag(m->gmac, parts, nparts, mac, want) &&
               CRYPTO_memcmp(want, mac + GMAC_NONCE_LEN, GMAC_TAG_LEN) == 0;
    if (m->kind == FMTP_MAC_HMAC)
        return compute_hmac(m, parts, nparts, want) && CRYPTO_memcmp(want, mac, HMAC_LEN) == 0;
    const uint8_t *message = joined(m, parts, nparts, &len);
    bool ok = message && EVP_DigestVerifyInit(m->md, NULL, NULL, NULL, m->pkey) == 1 &&
              EVP_DigestVerify(m->md, mac, SIGNATURE_LEN, message, len) == 1;
    if (!ok)
        ERR_clear_error();
    return ok;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "keyx.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#include "mac.h"

enum {
    LENGTH_BYTES = 4,
    MIN_BITS = 2048, /* the wire format specifies 2048; longer keys cost the sender time */
    MAX_BITS = 3072,
    PRIMES = 3,                     /* of our own keys */
    AGREED_LEN = 4 + 2 + 2 + 4 + 8, /* part of the plaintext before the MAC key, extension 1 */
    OURS_LEN = AGREED_LEN + 2,      /* between programs of Downpour */
    PROGRESS_BIT = 2,               /* of the byte whose bit 0 says that extension 1 is agreed */
    TAG_LEN = 32,
    NONCE_LEN = 32,
    CHALLENGE_LEN = 4 + NONCE_LEN + TAG_LEN,
    RSA_EXPONENT = 65537,
    DER_MAX = MAX_BITS / 8 + 32, /* of a key of MAX_BITS */
    FEC_MAX = 255                /* blocks and parity symbols of a group */
};

static const char offer_line[] = "FMTP-Extensions: 1\n";
#define OFFER_BYTES (sizeof offer_line - 1)
static const char end_line[] = "-----END RSA PUBLIC KEY-----\n";
static const char magic[4] = {'D', 'P', 'X', '1'};
static const char ours_line[] = "FMTP-Session: 2\n";
static const char ours_magic[4] = {'D', 'P', 'X', '2'};
static const char progress_line[] = "FMTP-Progress: 1\n";
static const char auth_line[] = "FMTP-Auth: 1\n";
static const char challenge_magic[4] = {'D', 'P', 'C', '1'};

struct fmtp_keyx {
    EVP_PKEY *own;        /* receiver only */
    EVP_PKEY *peer;       /* sender only: the receiver's public key */
    bool offered;         /* by us (receiver) or by the peer (sender) */
    bool speaks;          /* we can speak like programs of Downpour */
    bool ours;            /* so can the peer */
    bool reports;         /* sender only: the peer can report its progress */
    bool has_key, proven; /* proven: the challenge was sent, or answered */
    uint8_t key[FMTP_KEY_BYTES];
    uint8_t hello[TAG_LEN]; /* SHA-256 of the receiver's string */
    uint8_t nonce[NONCE_LEN];
    const char *why;
    struct fmtp_session session; /* receiver only */
    uint8_t mac_key[FMTP_MAC_KEY_MAX];
    size_t mac_key_len;
    size_t in_len;
    size_t out_len, hello_len; /* hello_len: receiver only */
    uint8_t out[2048];
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

/* Makes a key pair. Three primes instead of two take a third of the time, as shorter ones are
 * easier to find; the public key is of the same kind. */
static EVP_PKEY *new_pair(void)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    EVP_PKEY *pair = NULL;

    if (!ctx || EVP_PKEY_keygen_init(ctx) <= 0 ||
        EVP_PKEY_CTX_set_rsa_keygen_bits(ctx, MIN_BITS) <= 0 ||
        EVP_PKEY_CTX_set_rsa_keygen_primes(ctx, PRIMES) <= 0 || EVP_PKEY_keygen(ctx, &pair) <= 0)
        pair = NULL;
    EVP_PKEY_CTX_free(ctx);
    return pair;
}

struct fmtp_keyx *fmtp_keyx_new_receiver(bool offer)
{
    struct fmtp_keyx *k = calloc(1, sizeof *k);
    unsigned char *der = NULL;
    BIO *pem = NULL;

    if (!k)
        return NULL;
    k->own = new_pair();
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
    k->hello_len = k->out_len;
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
    OPENSSL_cleanse(k->key, sizeof k->key);
    free(k);
}

static void add_line(struct fmtp_keyx *k, const char *line)
{
    memcpy(k->out + k->out_len, line, strlen(line));
    k->out_len += strlen(line);
}

void fmtp_keyx_speak(struct fmtp_keyx *k, const uint8_t key[FMTP_KEY_BYTES])
{
    k->speaks = true;
    if (key) {
        k->has_key = true;
        memcpy(k->key, key, sizeof k->key);
    }
    if (!k->own)
        return;
    add_line(k, ours_line);
    add_line(k, progress_line);
    if (key)
        add_line(k, auth_line);
    k->hello_len = k->out_len;
    put(k->out, k->out_len - LENGTH_BYTES, LENGTH_BYTES);
    EVP_Digest(k->out + LENGTH_BYTES, k->out_len - LENGTH_BYTES, k->hello, NULL, EVP_sha256(),
               NULL);
}

void fmtp_keyx_rewind(struct fmtp_keyx *k)
{
    k->in_len = 0;
    k->session = (struct fmtp_session){0};
    k->mac_key_len = 0;
    k->proven = k->ours = k->reports = false;
    k->why = NULL;
    k->out_len = k->hello_len;
    if (k->own)
        return;
    EVP_PKEY_free(k->peer);
    k->peer = NULL;
}

static bool is_acceptable(const EVP_PKEY *key)
{
    BIGNUM *e = NULL, *n = NULL;
    int bits = EVP_PKEY_get_bits(key);

    bool ok = bits >= MIN_BITS && bits <= MAX_BITS &&
              EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) == 1 &&
              BN_is_word(e, RSA_EXPONENT) &&
              EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) == 1 && BN_is_odd(n);
    BN_free(e);
    BN_free(n);
    return ok;
}

/* Parses a usable key of which these bytes are the only encoding: no trailing bytes, and no
 * negative numbers, which OpenSSL would read as others. */
static EVP_PKEY *key_of_der(const unsigned char *der, long len)
{
    const unsigned char *p = der;
    unsigned char *again = NULL;
    EVP_PKEY *key = len <= DER_MAX ? d2i_PublicKey(EVP_PKEY_RSA, NULL, &p, len) : NULL;
    bool ok = key && is_acceptable(key) && i2d_PublicKey(key, &again) == len &&
              memcmp(der, again, (size_t)len) == 0;

    OPENSSL_free(again);
    if (ok)
        return key;
    EVP_PKEY_free(key);
    return NULL;
}

static EVP_PKEY *read_public_key(const uint8_t *text, size_t len)
{
    BIO *pem = BIO_new_mem_buf(text, (int)len);
    char *name = NULL, *header = NULL;
    unsigned char *der = NULL;
    long der_len = 0;
    EVP_PKEY *key = NULL;

    if (pem && PEM_read_bio(pem, &name, &header, &der, &der_len) == 1 &&
        strcmp(name, PEM_STRING_RSA_PUBLIC) == 0 && !*header)
        key = key_of_der(der, der_len);
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(der);
    BIO_free(pem);
    return key;
}

/* Sets up RSA-OAEP with SHA-1 and MGF1-SHA-1 (OpenSSL's defaults, set explicitly). */
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

/* Returns whether this line is among those after the PEM. */
static bool has_line(const uint8_t *text, size_t len, const char *line)
{
    const size_t end = strlen(end_line), n = strlen(line);
    const uint8_t *at = memmem(text, len, end_line, end);

    for (at = at ? at + end : NULL; at;) {
        size_t left = len - (size_t)(at - text);
        if (left >= n && memcmp(at, line, n) == 0)
            return true;
        at = memchr(at, '\n', left);
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* Computes HMAC-SHA256 of {word, SHA-256 of the receiver's string, the random bytes, more}. */
static bool make_tag(const struct fmtp_keyx *k, const char *word, const uint8_t *more, size_t len,
                     uint8_t tag[TAG_LEN])
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0),
                           OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
    size_t n = 0;

    bool ok = ctx && EVP_MAC_init(ctx, k->key, sizeof k->key, params) == 1 &&
              EVP_MAC_update(ctx, (const uint8_t *)word, strlen(word)) == 1 &&
              EVP_MAC_update(ctx, k->hello, sizeof k->hello) == 1 &&
              EVP_MAC_update(ctx, k->nonce, sizeof k->nonce) == 1 &&
              (!len || EVP_MAC_update(ctx, more, len) == 1) &&
              EVP_MAC_final(ctx, tag, &n, TAG_LEN) == 1 && n == TAG_LEN;
    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
    return ok;
}

static bool is_tag(const struct fmtp_keyx *k, const char *word, const uint8_t *more, size_t len,
                   const uint8_t tag[TAG_LEN])
{
    uint8_t want[TAG_LEN];

    return make_tag(k, word, more, len, want) && CRYPTO_memcmp(want, tag, TAG_LEN) == 0;
}

static enum fmtp_keyx_status bad(struct fmtp_keyx *k, const char *why)
{
    k->why = why;
    return FMTP_KEYX_BAD;
}

static const char no_key[] = "it has no key";
static const char other_key[] = "its key differs, or the connection is intercepted";

/* Sender: challenges the receiver to prove that it has the key. */
static enum fmtp_keyx_status challenge(struct fmtp_keyx *k, const uint8_t *text, size_t len)
{
    uint8_t *out = k->out + k->out_len;

    if (!has_line(text, len, auth_line))
        return bad(k, no_key);
    put(out, CHALLENGE_LEN, LENGTH_BYTES);
    memcpy(out + LENGTH_BYTES, challenge_magic, sizeof challenge_magic);
    if (RAND_bytes(k->nonce, sizeof k->nonce) != 1 ||
        EVP_Digest(text, len, k->hello, NULL, EVP_sha256(), NULL) != 1 ||
        !make_tag(k, "challenge", NULL, 0, out + LENGTH_BYTES + 4 + NONCE_LEN))
        return bad(k, "no random bytes, or no memory");
    memcpy(out + LENGTH_BYTES + 4, k->nonce, sizeof k->nonce);
    k->out_len += LENGTH_BYTES + CHALLENGE_LEN;
    k->proven = true;
    return FMTP_KEYX_MORE;
}

/* Receiver: verifies that the sender has the key, and proves that we have it. */
static enum fmtp_keyx_status prove(struct fmtp_keyx *k, const uint8_t *text, size_t len)
{
    uint8_t *out = k->out + k->out_len;

    if (len != CHALLENGE_LEN || memcmp(text, challenge_magic, sizeof challenge_magic) != 0)
        return bad(k, no_key);
    memcpy(k->nonce, text + 4, sizeof k->nonce);
    if (!is_tag(k, "challenge", NULL, 0, text + 4 + NONCE_LEN))
        return bad(k, other_key);
    put(out, TAG_LEN, LENGTH_BYTES);
    if (!make_tag(k, "receiver", NULL, 0, out + LENGTH_BYTES))
        return bad(k, "no memory");
    k->out_len += LENGTH_BYTES + TAG_LEN;
    k->proven = true;
    return FMTP_KEYX_MORE;
}

/* Sender: handles a complete string of the receiver. */
static enum fmtp_keyx_status accept_receiver(struct fmtp_keyx *k, const uint8_t *text, size_t len)
{
    if (k->proven)
        return len == TAG_LEN && is_tag(k, "receiver", NULL, 0, text) ? FMTP_KEYX_DONE
                                                                      : bad(k, other_key);
    k->peer = read_public_key(text, len);
    k->offered = has_line(text, len, offer_line);
    k->ours = k->speaks && has_line(text, len, ours_line);
    k->reports = k->ours && has_line(text, len, progress_line);
    if (!k->peer)
        return bad(k, "no RSA public key of 2048 to 3072 bits with the exponent 65537");
    return k->has_key ? challenge(k, text, len) : FMTP_KEYX_DONE;
}

int fmtp_keyx_answer(struct fmtp_keyx *k, const struct fmtp_session *session,
                     const uint8_t *mac_key, size_t mac_key_len)
{
    EVP_PKEY_CTX *ctx = k->peer ? oaep(k->peer, EVP_PKEY_encrypt_init) : NULL;
    uint8_t *out = k->out + k->out_len + LENGTH_BYTES;
    size_t n = sizeof k->out - k->out_len - LENGTH_BYTES - TAG_LEN, len = 0;

    uint8_t plain[OURS_LEN + FMTP_MAC_KEY_MAX];
    if (session && (session->extended || k->ours)) {
        memcpy(plain, k->ours ? ours_magic : magic, sizeof magic);
        put(plain + 4, session->block_bytes, 2);
        put(plain + 6, session->fec_k, 2);
        put(plain + 8, session->next_index, 4);
        put(plain + 12, session->id, 8);
        plain[AGREED_LEN] = session->mac;
        plain[AGREED_LEN + 1] =
            (uint8_t)(session->extended | (session->progress ? PROGRESS_BIT : 0));
        len = k->ours ? OURS_LEN : AGREED_LEN;
    }
    memcpy(plain + len, mac_key, mac_key_len);
    len += mac_key_len;
    bool ok = ctx && EVP_PKEY_encrypt(ctx, out, &n, plain, len) > 0;
    if (ok && k->has_key) {
        ok = make_tag(k, "answer", out, n, out + n);
        n += TAG_LEN;
    }
    if (ok) {
        put(out - LENGTH_BYTES, n, LENGTH_BYTES);
        k->out_len += LENGTH_BYTES + n;
    }
    EVP_PKEY_CTX_free(ctx);
    OPENSSL_cleanse(plain, sizeof plain);
    ERR_clear_error();
    return ok ? 0 : -1;
}

/* Parses {"DPX2", ...}. Returns false if it is invalid. */
static bool accept_ours(struct fmtp_keyx *k, const uint8_t *plain, size_t len)
{
    const uint8_t *end = plain + AGREED_LEN;

    if (len < OURS_LEN || end[0] >= FMTP_MAC_KINDS || end[1] > (1 | PROGRESS_BIT) ||
        len - OURS_LEN != fmtp_mac_key_len_of(end[0]))
        return false;
    struct fmtp_session s = {.extended = end[1] & 1,
                             .block_bytes = (uint16_t)get(plain + 4, 2),
                             .fec_k = (uint16_t)get(plain + 6, 2),
                             .next_index = (uint32_t)get(plain + 8, 4),
                             .id = get(plain + 12, 8),
                             .ours = true,
                             .mac = end[0],
                             .progress = end[1] & PROGRESS_BIT};
    if (!s.block_bytes || s.block_bytes > FMTP_MAX_BLOCK || s.fec_k > FEC_MAX - 1 ||
        (s.extended && (!s.fec_k || !k->offered)))
        return false;
    k->session = s;
    memcpy(k->mac_key, plain + OURS_LEN, len - OURS_LEN);
    k->mac_key_len = len - OURS_LEN;
    return true;
}

/* Parses the sender's decrypted answer: a MAC key of one of the levels, preceded by what was agreed
 * on if the sender accepted our offer. */
static bool accept_plain(struct fmtp_keyx *k, const uint8_t *plain, size_t len)
{
    if (k->speaks && len >= OURS_LEN && memcmp(plain, ours_magic, sizeof ours_magic) == 0 &&
        accept_ours(k, plain, len))
        return true;
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
    if (!fmtp_mac_is_key_len(len) || k->has_key)
        return false;
    memcpy(k->mac_key, plain, len);
    k->mac_key_len = len;
    k->session.mac = len == fmtp_mac_key_len_of(FMTP_MAC_HMAC)      ? FMTP_MAC_HMAC
                     : len == fmtp_mac_key_len_of(FMTP_MAC_ED25519) ? FMTP_MAC_ED25519
                                                                    : FMTP_MAC_NONE;
    return true;
}

static enum fmtp_keyx_status accept_sender(struct fmtp_keyx *k, const uint8_t *cipher, size_t len)
{
    if (k->has_key && !k->proven)
        return prove(k, cipher, len);
    if (k->has_key) {
        if (len <= TAG_LEN || !is_tag(k, "answer", cipher, len - TAG_LEN, cipher + len - TAG_LEN))
            return bad(k, other_key);
        len -= TAG_LEN;
    }
    EVP_PKEY_CTX *ctx = oaep(k->own, EVP_PKEY_decrypt_init);
    uint8_t plain[MAX_BITS / 8];
    size_t n = sizeof plain;
    bool ok = ctx && EVP_PKEY_decrypt(ctx, plain, &n, cipher, len) > 0 && accept_plain(k, plain, n);

    EVP_PKEY_CTX_free(ctx);
    OPENSSL_cleanse(plain, sizeof plain);
    return ok ? FMTP_KEYX_DONE : bad(k, "its answer is not that of a sender of layout 2021");
}

const char *fmtp_keyx_why(const struct fmtp_keyx *k)
{
    return k->why ? k->why : "its message is not a key exchange of layout 2021";
}

enum fmtp_keyx_distrust fmtp_keyx_distrust(const struct fmtp_keyx *k)
{
    return k->why == no_key      ? FMTP_KEYX_NO_KEY
           : k->why == other_key ? FMTP_KEYX_OTHER_KEY
                                 : FMTP_KEYX_TRUSTED;
}

bool fmtp_keyx_is_challenged(const struct fmtp_keyx *k)
{
    return k->proven && !k->own;
}

bool fmtp_keyx_reports(const struct fmtp_keyx *k)
{
    return k->reports;
}

bool fmtp_keyx_is_ours(const struct fmtp_keyx *k)
{
    return k->ours;
}

void fmtp_keyx_agreed(const struct fmtp_keyx *k, struct fmtp_session *session)
{
    *session = k->session;
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

/* Handles the next string, of *used bytes. */
static enum fmtp_keyx_status input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                   size_t *used)
{
    for (;;) {
        size_t want = LENGTH_BYTES;
        if (k->in_len >= LENGTH_BYTES) {
            size_t n = (size_t)get(k->in, LENGTH_BYTES);
            if (n == 0 || n > FMTP_KEYX_MAX)
                return bad(k, NULL);
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
    enum fmtp_keyx_status st = k->own ? accept_sender(k, text, n) : accept_receiver(k, text, n);
    ERR_clear_error();
    if (st == FMTP_KEYX_MORE)
        k->in_len = 0;
    return st;
}

enum fmtp_keyx_status fmtp_keyx_input(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                      size_t *used)
{
    enum fmtp_keyx_status st;

    *used = 0;
    do
        st = input(k, bytes, len, used);
    while (st == FMTP_KEYX_MORE && *used < len);
    return st;
}

const uint8_t *fmtp_keyx_output(const struct fmtp_keyx *k, size_t *len)
{
    *len = k->out_len;
    return k->out;
}

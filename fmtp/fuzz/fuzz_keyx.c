/* SPDX-License-Identifier: Apache-2.0
 *
 * Both sides of the key exchange. Input: a byte of options (bit 0: we are the sender; bit 1: the
 * receiver offers extension 1; bit 2: the rest is encrypted like a sender would, to reach the code
 * after decryption; bits 3-4: size of the pieces; bit 5: we speak like programs of Downpour; bit 6:
 * with a key), then the peer's bytes.
 */
#include <openssl/decoder.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "keyx.h"
#include "mac.h"

static enum fmtp_keyx_status feed(struct fmtp_keyx *k, const uint8_t *bytes, size_t len,
                                  size_t piece)
{
    enum fmtp_keyx_status st = FMTP_KEYX_MORE;

    while (len && st == FMTP_KEYX_MORE) {
        size_t n = piece < len ? piece : len, used = 0;
        st = fmtp_keyx_input(k, bytes, n, &used);
        if (used > n || (st == FMTP_KEYX_MORE && used != n))
            abort();
        bytes += used;
        len -= used;
    }
    return st;
}

static const uint8_t secret[FMTP_KEY_BYTES] = {1, 2, 3};

static void as_sender(unsigned options, const uint8_t *bytes, size_t len, size_t piece)
{
    static const struct fmtp_session session = {
        .extended = true, .block_bytes = 1448, .fec_k = 200, .mac = FMTP_MAC_ED25519};
    static const uint8_t key[113];
    struct fmtp_keyx *k = fmtp_keyx_new_sender();
    size_t n = 0;

    if (k && options & 32)
        fmtp_keyx_speak(k, options & 64 ? secret : NULL);

    if (k && feed(k, bytes, len, piece) == FMTP_KEYX_DONE &&
        fmtp_keyx_answer(k, fmtp_keyx_offered(k) || fmtp_keyx_is_ours(k) ? &session : NULL, key,
                         sizeof key) == 0) {
        fmtp_keyx_output(k, &n);
        if (n < 4 + 128)
            abort();
    }
    fmtp_keyx_free(k);
}

/* The receiver's public key as OpenSSL reads it. */
static EVP_PKEY *key_of(const struct fmtp_keyx *k)
{
    size_t n;
    const uint8_t *text = fmtp_keyx_output(k, &n) + 4;
    EVP_PKEY *key = NULL;
    OSSL_DECODER_CTX *decoder = OSSL_DECODER_CTX_new_for_pkey(&key, "PEM", "type-specific", "RSA",
                                                              EVP_PKEY_PUBLIC_KEY, NULL, NULL);

    n -= 4;
    if (!OSSL_DECODER_from_data(decoder, &text, &n))
        abort();
    OSSL_DECODER_CTX_free(decoder);
    return key;
}

static size_t encrypted(EVP_PKEY *key, const uint8_t *bytes, size_t len, uint8_t out[4 + 256])
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
    size_t n = 256;

    if (!ctx || EVP_PKEY_encrypt_init(ctx) <= 0 ||
        EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_OAEP_PADDING) <= 0 ||
        EVP_PKEY_encrypt(ctx, out + 4, &n, bytes, len < 214 ? len : 214) <= 0)
        abort();
    EVP_PKEY_CTX_free(ctx);
    memcpy(out, "\x00\x00\x01\x00", 4);
    return 4 + n;
}

static void as_receiver(unsigned options, const uint8_t *bytes, size_t len, size_t piece)
{
    static struct fmtp_keyx *shared[8]; /* making a key pair for every input would take too long */
    static EVP_PKEY *keys[8];
    bool speaks = options & 32, has_key = speaks && options & 64;
    unsigned offered = options >> 1 & 1, offer = offered + 2u * speaks + 4u * has_key;

    if (!shared[offer]) {
        shared[offer] = fmtp_keyx_new_receiver(offered);
        if (!shared[offer])
            return;
        keys[offer] = key_of(shared[offer]);
        if (speaks)
            fmtp_keyx_speak(shared[offer], has_key ? secret : NULL);
    }
    fmtp_keyx_rewind(shared[offer]);
    uint8_t cipher[4 + 256];
    if (options & 4) {
        len = encrypted(keys[offer], bytes, len, cipher);
        bytes = cipher;
    }
    if (feed(shared[offer], bytes, len, piece) != FMTP_KEYX_DONE)
        return;
    bytes = fmtp_keyx_mac_key(shared[offer], &len);
    struct fmtp_session s;
    if (fmtp_keyx_session(shared[offer], &s) && (!offered || !s.block_bytes || !s.fec_k))
        abort();
    if (has_key || s.mac >= FMTP_MAC_KINDS || len != fmtp_mac_key_len_of(s.mac) ||
        (s.ours && !speaks))
        abort(); /* the input cannot contain a proof of the key */
    fmtp_mac_free(fmtp_mac_new_verifier_of(s.mac, bytes, len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 13, 200};

    if (size < 1)
        return 0;
    if (*data & 1)
        as_sender(*data, data + 1, size - 1, pieces[*data >> 3 & 3]);
    else
        as_receiver(*data, data + 1, size - 1, pieces[*data >> 3 & 3]);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gmac.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_IPSEC_MB
#include <intel-ipsec-mb.h>

struct mb {
    struct gcm_key_data key; /* aligned as its type requires */
    struct gcm_context_data context;
    IMB_MGR *manager;
};

static void mb_free(struct mb *mb)
{
    if (!mb)
        return;
    if (mb->manager)
        free_mb_mgr(mb->manager);
    OPENSSL_cleanse(mb, sizeof *mb);
    free(mb);
}

static struct mb *mb_new(const uint8_t key[GMAC_KEY_LEN])
{
    const uint64_t needed = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    size_t size = (sizeof(struct mb) + 63) / 64 * 64;
    struct mb *mb = aligned_alloc(64, size);

    if (!mb)
        return NULL;
    memset(mb, 0, size);
    mb->manager = alloc_mb_mgr(0);
    if (mb->manager)
        init_mb_mgr_auto(mb->manager, NULL);
    if (!mb->manager || imb_get_errno(mb->manager) || (mb->manager->features & needed) != needed) {
        mb_free(mb);
        return NULL;
    }
    IMB_AES256_GCM_PRE(mb->manager, key, &mb->key);
    return mb;
}

static void mb_tag(struct mb *mb, const struct iovec *parts, int nparts, const uint8_t *nonce,
                   uint8_t *tag)
{
    IMB_AES256_GMAC_INIT(mb->manager, &mb->key, &mb->context, nonce, GMAC_NONCE_LEN);
    for (int i = 0; i < nparts; i++)
        if (parts[i].iov_len)
            IMB_AES256_GMAC_UPDATE(mb->manager, &mb->key, &mb->context, parts[i].iov_base,
                                   parts[i].iov_len);
    IMB_AES256_GMAC_FINALIZE(mb->manager, &mb->key, &mb->context, tag, GMAC_TAG_LEN);
}
#else
struct mb;

static void mb_free(struct mb *mb)
{
    (void)mb;
}

static struct mb *mb_new(const uint8_t key[GMAC_KEY_LEN])
{
    (void)key;
    return NULL;
}

static void mb_tag(struct mb *mb, const struct iovec *parts, int nparts, const uint8_t *nonce,
                   uint8_t *tag)
{
    (void)mb, (void)parts, (void)nparts, (void)nonce, (void)tag;
    abort();
}
#endif

/* Exactly one of the two is set. */
struct gmac {
    struct mb *mb;
    EVP_CIPHER_CTX *openssl;
};

struct gmac *gmac_new(enum gmac_engine engine, const uint8_t key[GMAC_KEY_LEN])
{
    struct gmac *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    if (engine != GMAC_OPENSSL && (g->mb = mb_new(key)) != NULL)
        return g;
    if (engine != GMAC_IPSEC_MB) {
        EVP_CIPHER *cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
        g->openssl = cipher ? EVP_CIPHER_CTX_new() : NULL;
        bool ok = g->openssl && EVP_EncryptInit_ex2(g->openssl, cipher, key, NULL, NULL) == 1;
        EVP_CIPHER_free(cipher);
        if (ok)
            return g;
        ERR_clear_error();
    }
    gmac_free(g);
    return NULL;
}

void gmac_free(struct gmac *g)
{
    if (!g)
        return;
    mb_free(g->mb);
    EVP_CIPHER_CTX_free(g->openssl);
    free(g);
}

enum gmac_engine gmac_engine_of(const struct gmac *g)
{
    return g->mb ? GMAC_IPSEC_MB : GMAC_OPENSSL;
}

bool gmac_tag(struct gmac *g, const struct iovec *parts, int nparts,
              const uint8_t nonce[GMAC_NONCE_LEN], uint8_t tag[GMAC_TAG_LEN])
{
    int n;

    if (g->mb) {
        mb_tag(g->mb, parts, nparts, nonce, tag);
        return true;
    }
    bool ok = EVP_EncryptInit_ex2(g->openssl, NULL, NULL, nonce, NULL) == 1;
    for (int i = 0; ok && i < nparts; i++)
        ok = !parts[i].iov_len ||
             EVP_EncryptUpdate(g->openssl, NULL, &n, parts[i].iov_base, (int)parts[i].iov_len) == 1;
    return ok && EVP_EncryptFinal_ex(g->openssl, tag, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(g->openssl, EVP_CTRL_AEAD_GET_TAG, GMAC_TAG_LEN, tag) == 1;
}

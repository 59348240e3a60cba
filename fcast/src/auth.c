/* SPDX-License-Identifier: Apache-2.0 */
#include "auth.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

enum { SCT_HIGH = 0x80 }; /* the first bit of Use: only SCT-High follows */

struct fcast_auth {
    EVP_MAC_CTX *keyed; /* copied for each datagram */
};

struct fcast_auth *fcast_auth_new(const uint8_t *key, size_t len)
{
    struct fcast_auth *a = calloc(1, sizeof *a);
    EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};

    if (a && hmac)
        a->keyed = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    if (a && a->keyed && EVP_MAC_init(a->keyed, key, len, params) == 1)
        return a;
    fcast_auth_free(a);
    return NULL;
}

void fcast_auth_free(struct fcast_auth *a)
{
    if (!a)
        return;
    EVP_MAC_CTX_free(a->keyed);
    free(a);
}

/* Computes the MAC of a datagram, treating the bytes at `mac` as zero. */
static bool compute(struct fcast_auth *a, const uint8_t *datagram, size_t len, const uint8_t *mac,
                    uint8_t out[FCAST_MAC])
{
    static const uint8_t zeroes[FCAST_MAC];
    uint8_t whole[EVP_MAX_MD_SIZE];
    size_t n = 0;
    const uint8_t *after = mac + FCAST_MAC;

    bool good = EVP_MAC_init(a->keyed, NULL, 0, NULL) == 1 &&
                EVP_MAC_update(a->keyed, datagram, (size_t)(mac - datagram)) == 1 &&
                EVP_MAC_update(a->keyed, zeroes, FCAST_MAC) == 1 &&
                EVP_MAC_update(a->keyed, after, len - (size_t)(after - datagram)) == 1 &&
                EVP_MAC_final(a->keyed, whole, &n, sizeof whole) == 1 && n >= FCAST_MAC;
    if (good)
        memcpy(out, whole, FCAST_MAC);
    return good;
}

bool fcast_auth_sign(struct fcast_auth *a, uint8_t *datagram, size_t len, uint8_t *mac)
{
    return compute(a, datagram, len, mac, mac);
}

bool fcast_auth_verify(struct fcast_auth *a, const uint8_t *datagram, size_t len,
                       const struct lct_header *h)
{
    size_t content_len;
    const uint8_t *content = lct_extension(h, LCT_EXT_AUTH, &content_len);
    uint8_t want[FCAST_MAC];

    return content && content_len == FCAST_AUTH_CONTENT &&
           compute(a, datagram, len, content + 2, want) &&
           CRYPTO_memcmp(want, content + 2, FCAST_MAC) == 0;
}

void fcast_time_put(uint8_t out[FCAST_TIME_CONTENT], uint32_t ntp_s)
{
    out[0] = SCT_HIGH;
    out[1] = 0;
    put_be(out + 2, ntp_s, 4);
}

bool fcast_time_age(const struct lct_header *h, uint32_t ntp_s, int64_t *age_s)
{
    size_t len;
    const uint8_t *content = lct_extension(h, LCT_EXT_TIME, &len);

    if (!content || len < FCAST_TIME_CONTENT || !(content[0] & SCT_HIGH))
        return false;
    *age_s = (int32_t)(ntp_s - (uint32_t)get_be(content + 2, 4)); /* the NTP era ends in 2036 */
    return true;
}

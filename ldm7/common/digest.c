/* SPDX-License-Identifier: Apache-2.0 */
#include "digest.h"

#include <openssl/evp.h>
#include <stdlib.h>

struct digest {
    EVP_MD_CTX *ctx;
};

bool digest_of(const void *data, size_t bytes, struct pq_signature *out)
{
    return EVP_Digest(data, bytes, out->bytes, NULL, EVP_md5(), NULL) == 1;
}

struct digest *digest_new(void)
{
    struct digest *d = malloc(sizeof *d);
    if (d && !(d->ctx = EVP_MD_CTX_new())) {
        free(d);
        d = NULL;
    }
    return d;
}

bool digest_begin(struct digest *d)
{
    return EVP_DigestInit_ex(d->ctx, EVP_md5(), NULL) == 1;
}

bool digest_add(struct digest *d, const void *data, size_t bytes)
{
    return EVP_DigestUpdate(d->ctx, data, bytes) == 1;
}

bool digest_end(struct digest *d, struct pq_signature *out)
{
    return EVP_DigestFinal_ex(d->ctx, out->bytes, NULL) == 1;
}

void digest_free(struct digest *d)
{
    if (!d)
        return;
    EVP_MD_CTX_free(d->ctx);
    free(d);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "content.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gzip.h"

enum { PIECE = 1 << 18 };

struct copy {
    struct content_job *job;
    EVP_MD_CTX *digest;
    struct gunzip *gunzip; /* NULL: not packed */
};

bool content_is_packed(const struct fcast_meta *meta)
{
    return strcmp(meta->encoding, "gzip") == 0;
}

/* Writes bytes of the file. */
static bool put(void *ctx, const uint8_t *bytes, size_t len)
{
    const struct copy *c = ctx;

    if (c->job->meta->has_digest && EVP_DigestUpdate(c->digest, bytes, len) != 1) {
        errno = ENOMEM;
        return false;
    }
    for (size_t done = 0; c->job->fd >= 0 && done < len;) {
        ssize_t n = write(c->job->fd, bytes + done, len - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    c->job->written += len;
    return true;
}

/* Takes bytes of the object. */
static enum content take(struct copy *c, const uint8_t *bytes, size_t len)
{
    struct content_job *j = c->job;

    if (!c->gunzip)
        return put(c, bytes, len) ? CONTENT_GOOD : CONTENT_FAILED;
    switch (gunzip_take(c->gunzip, bytes, len)) {
    case GUNZIP_GOOD: return CONTENT_GOOD;
    case GUNZIP_SINK: return CONTENT_FAILED;
    case GUNZIP_BAD: snprintf(j->why, sizeof j->why, "its data is not gzip"); break;
    case GUNZIP_TOO_MUCH:
        snprintf(j->why, sizeof j->why, "unpacked, more than the %llu bytes of %s",
                 (unsigned long long)(j->meta->has_length && j->meta->length < j->most_bytes
                                          ? j->meta->length
                                          : j->most_bytes),
                 j->meta->has_length && j->meta->length < j->most_bytes ? "Content-Length"
                                                                        : "--max-unpacked");
        break;
    }
    return CONTENT_REFUSED;
}

/* Checks that everything has arrived. */
static enum content finish(struct copy *c)
{
    struct content_job *j = c->job;
    uint8_t found[EVP_MAX_MD_SIZE];

    if (c->gunzip && !gunzip_is_whole(c->gunzip)) {
        snprintf(j->why, sizeof j->why, "its data ends within gzip");
        return CONTENT_REFUSED;
    }
    if (c->gunzip && j->meta->has_length && j->written != j->meta->length) {
        snprintf(j->why, sizeof j->why, "unpacked, %llu bytes; Content-Length is %llu",
                 (unsigned long long)j->written, (unsigned long long)j->meta->length);
        return CONTENT_REFUSED;
    }
    if (EVP_DigestFinal_ex(c->digest, found, NULL) != 1) {
        errno = ENOMEM;
        return CONTENT_FAILED;
    }
    /* The digest covers the data before encoding, so it can only be checked if we can decode
     * them. */
    bool is_known = j->meta->has_digest && (c->gunzip || !j->meta->encoding[0]);
    if (is_known && memcmp(found, j->meta->digest, FCAST_DIGEST) != 0) {
        snprintf(j->why, sizeof j->why, "SHA-256 differs");
        return CONTENT_WRONG;
    }
    return CONTENT_GOOD;
}

enum content content_copy(struct content_job *j)
{
    static uint8_t buffer[PIECE];
    struct copy c = {.job = j, .digest = EVP_MD_CTX_new()};
    bool is_packed = content_is_packed(j->meta);
    uint64_t most = j->most_bytes;
    enum content result = CONTENT_GOOD;

    j->written = 0;
    if (is_packed && j->meta->has_length && j->meta->length < most)
        most = j->meta->length;
    if (is_packed && j->meta->has_length && j->meta->length > most) {
        snprintf(j->why, sizeof j->why, "unpacked, %llu bytes; --max-unpacked is %llu",
                 (unsigned long long)j->meta->length, (unsigned long long)most);
        result = CONTENT_REFUSED;
    }
    if (is_packed)
        c.gunzip = gunzip_new(most, put, &c);
    if (!c.digest || EVP_DigestInit_ex(c.digest, EVP_sha256(), NULL) != 1 ||
        (is_packed && !c.gunzip)) {
        errno = ENOMEM;
        result = CONTENT_FAILED;
    }
    for (uint64_t done = 0; result == CONTENT_GOOD && done < j->bytes;) {
        size_t n = j->bytes - done < PIECE ? (size_t)(j->bytes - done) : PIECE;
        result =
            j->read(j->ctx, j->at + done, buffer, n) < 0 ? CONTENT_FAILED : take(&c, buffer, n);
        done += n;
    }
    if (result == CONTENT_GOOD)
        result = finish(&c);
    int error = errno;
    EVP_MD_CTX_free(c.digest);
    gunzip_free(c.gunzip);
    errno = error;
    return result;
}

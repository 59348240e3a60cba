/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_at.h"
#include "location.h"

int source_open(struct source_file *f, const char *path, struct tp_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not block. */
    *f = (struct source_file){open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), path};
    return f->fd < 0 ? tp_fail(err, "'%s': %s", path, strerror(errno)) : 0;
}

static int read_file(void *ctx, uint64_t at, void *bytes, size_t len)
{
    return file_read_at(((const struct source_file *)ctx)->fd, at, bytes, len);
}

struct fcast_store source_store(struct source_file *f)
{
    return (struct fcast_store){f, read_file, NULL};
}

static int digest(const struct source_file *f, uint64_t bytes, uint8_t out[FCAST_DIGEST],
                  struct tp_error *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    uint8_t buffer[1 << 15];
    bool good = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1;
    int result = 0;

    for (uint64_t at = 0; good && !result && at < bytes;) {
        size_t n = bytes - at < sizeof buffer ? (size_t)(bytes - at) : sizeof buffer;
        if (file_read_at(f->fd, at, buffer, n) < 0)
            result = tp_fail(err, "'%s': %s", f->path, strerror(errno));
        else
            good = EVP_DigestUpdate(ctx, buffer, n) == 1;
        at += n;
    }
    if (!result && (!good || EVP_DigestFinal_ex(ctx, out, NULL) != 1))
        result = tp_fail(err, "SHA-256 failed");
    EVP_MD_CTX_free(ctx);
    return result;
}

int source_describe(const struct source_file *f, bool has_digest, struct fcast_meta *out,
                    struct tp_error *err)
{
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    struct stat st;

    *out = (struct fcast_meta){.has_digest = has_digest, .has_length = true};
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return tp_fail(err, "'%s': not a regular file", f->path);
    if (!fcast_location_put(name, out->location, sizeof out->location))
        return tp_fail(err, "'%s': the name is too long", f->path);
    out->length = (uint64_t)st.st_size;
    return has_digest ? digest(f, out->length, out->digest, err) : 0;
}

int cache_file(const char *folder, struct tp_error *err)
{
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    return fd < 0 ? tp_fail(err, "--cache '%s': %s", folder, strerror(errno)) : fd;
}

static int read_cache(void *ctx, uint64_t at, void *bytes, size_t len)
{
    return file_read_at(((const struct cache *)ctx)->fd, at, bytes, len);
}

static int write_cache(void *ctx, uint64_t at, const void *bytes, size_t len)
{
    struct cache *c = ctx;
    const int result = file_write_at(c->fd, at, bytes, len);

    if (result < 0)
        c->error = errno;
    return result;
}

struct fcast_store cache_store(struct cache *c)
{
    return (struct fcast_store){c, read_cache, write_cache};
}

int cache_reserve(const struct cache *c, uint64_t bytes, struct tp_error *err)
{
    if (bytes && fallocate(c->fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP)
        return tp_fail(err, "--cache '%s', %llu bytes of repair symbols: %s", c->folder,
                       (unsigned long long)bytes, strerror(errno));
    return 0;
}

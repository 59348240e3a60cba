/* SPDX-License-Identifier: Apache-2.0 */
#include "gzip.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "file_at.h"

enum { PIECE = 1 << 16, GZIP_WINDOW = 15 + 16 /* zlib: 32 KiB, gzip header */, MEMORY_LEVEL = 8 };

struct packer {
    z_stream z;
    int out;
    uint64_t written;
    uint8_t in_bytes[PIECE], out_bytes[PIECE];
};

/* Packs the input at z.next_in. Returns -1 with errno. */
static int pack_piece(struct packer *p, int flush)
{
    do {
        p->z.next_out = p->out_bytes;
        p->z.avail_out = sizeof p->out_bytes;
        if (deflate(&p->z, flush) == Z_STREAM_ERROR) {
            errno = EINVAL;
            return -1;
        }
        size_t n = sizeof p->out_bytes - p->z.avail_out;
        if (file_write_at(p->out, p->written, p->out_bytes, n) < 0)
            return -1;
        p->written += n;
    } while (p->z.avail_out == 0);
    return 0;
}

int gzip_pack(int in, uint64_t bytes, int out, uint64_t *packed_bytes)
{
    struct packer *p = calloc(1, sizeof *p);
    int result = 0;

    if (!p || deflateInit2(&p->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, MEMORY_LEVEL,
                           Z_DEFAULT_STRATEGY) != Z_OK) {
        free(p);
        errno = ENOMEM;
        return -1;
    }
    p->out = out;
    for (uint64_t at = 0; result == 0 && at < bytes;) {
        size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        result = file_read_at(in, at, p->in_bytes, n);
        p->z.next_in = p->in_bytes;
        p->z.avail_in = (uInt)n;
        at += n;
        if (result == 0)
            result = pack_piece(p, Z_NO_FLUSH);
    }
    if (result == 0)
        result = pack_piece(p, Z_FINISH);
    int error = errno;
    deflateEnd(&p->z);
    *packed_bytes = p->written;
    free(p);
    errno = error;
    return result;
}

struct gunzip {
    z_stream z;
    uint64_t most, bytes;
    gunzip_sink *sink;
    void *ctx;
    bool is_within, has_member, has_failed; /* in a member */
    uint8_t out[PIECE];
};

struct gunzip *gunzip_new(uint64_t most_bytes, gunzip_sink *sink, void *ctx)
{
    struct gunzip *g = calloc(1, sizeof *g);

    if (!g || inflateInit2(&g->z, GZIP_WINDOW) != Z_OK) {
        free(g);
        return NULL;
    }
    g->most = most_bytes;
    g->sink = sink;
    g->ctx = ctx;
    return g;
}

void gunzip_free(struct gunzip *g)
{
    if (g)
        inflateEnd(&g->z);
    free(g);
}

/* Unpacks as much as fits into one piece. */
static enum gunzip_result step(struct gunzip *g)
{
    g->is_within = true;
    g->z.next_out = g->out;
    g->z.avail_out = sizeof g->out;
    int result = inflate(&g->z, Z_NO_FLUSH);
    size_t n = sizeof g->out - g->z.avail_out;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return GUNZIP_BAD;
    if (n > g->most - g->bytes)
        return GUNZIP_TOO_MUCH;
    g->bytes += n;
    if (n && !g->sink(g->ctx, g->out, n))
        return GUNZIP_SINK;
    if (result == Z_STREAM_END) {
        g->is_within = false;
        g->has_member = true;
        inflateReset(&g->z); /* another member may follow */
    }
    return GUNZIP_GOOD;
}

enum gunzip_result gunzip_take(struct gunzip *g, const uint8_t *bytes, size_t len)
{
    enum gunzip_result result = g->has_failed ? GUNZIP_BAD : GUNZIP_GOOD;

    g->z.next_in = (Bytef *)(uintptr_t)bytes; /* zlib does not write there */
    g->z.avail_in = (uInt)len;
    do {
        if (result == GUNZIP_GOOD && (g->z.avail_in || g->is_within))
            result = step(g);
    } while (result == GUNZIP_GOOD && (g->z.avail_in || (g->is_within && g->z.avail_out == 0)));
    g->has_failed = result != GUNZIP_GOOD;
    return result;
}

bool gunzip_is_whole(const struct gunzip *g)
{
    return g->has_member && !g->is_within && !g->has_failed;
}

uint64_t gunzip_bytes(const struct gunzip *g)
{
    return g->bytes;
}

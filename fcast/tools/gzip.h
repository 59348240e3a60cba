/* SPDX-License-Identifier: Apache-2.0
 *
 * Content encoding gzip, a piece at a time and never more than a bound.
 */
#ifndef FCAST_TOOLS_GZIP_H
#define FCAST_TOOLS_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the file's first `bytes` bytes to `out`, packed. -1 with errno. */
int gzip_pack(int in, uint64_t bytes, int out, uint64_t *packed_bytes);

/* Takes what was unpacked. false: it cannot, with errno. */
typedef bool gunzip_sink(void *ctx, const uint8_t *bytes, size_t len);

struct gunzip;

/* most_bytes: what comes out at most. NULL: no memory. */
struct gunzip *gunzip_new(uint64_t most_bytes, gunzip_sink *sink, void *ctx);
void gunzip_free(struct gunzip *g);
enum gunzip_result {
    GUNZIP_GOOD,
    GUNZIP_BAD,      /* no gzip */
    GUNZIP_TOO_MUCH, /* more than most_bytes */
    GUNZIP_SINK      /* errno */
};
/* The next packed bytes. After anything but GUNZIP_GOOD it takes no more. */
enum gunzip_result gunzip_take(struct gunzip *g, const uint8_t *bytes, size_t len);
/* True if what came is a whole number of gzip members, at least one. */
bool gunzip_is_whole(const struct gunzip *g);
uint64_t gunzip_bytes(const struct gunzip *g);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Content encoding gzip, in pieces and never beyond a bound.
 */
#ifndef FCAST_TOOLS_GZIP_H
#define FCAST_TOOLS_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Packs the first `bytes` bytes of the file and writes them to `out`. Returns -1 with errno. */
int gzip_pack(int in, uint64_t bytes, int out, uint64_t *packed_bytes);

/* Takes unpacked bytes. Returns false with errno on failure. */
typedef bool gunzip_sink(void *ctx, const uint8_t *bytes, size_t len);

struct gunzip;

/* most_bytes: limit of the output. Returns NULL if out of memory. */
struct gunzip *gunzip_new(uint64_t most_bytes, gunzip_sink *sink, void *ctx);
void gunzip_free(struct gunzip *g);
enum gunzip_result {
    GUNZIP_GOOD,
    GUNZIP_BAD,      /* not gzip */
    GUNZIP_TOO_MUCH, /* more than most_bytes */
    GUNZIP_SINK      /* see errno */
};
/* Takes the next packed bytes. After any result but GUNZIP_GOOD it accepts no more. */
enum gunzip_result gunzip_take(struct gunzip *g, const uint8_t *bytes, size_t len);
/* Returns whether the input so far is a whole number of gzip members, at least one. */
bool gunzip_is_whole(const struct gunzip *g);
uint64_t gunzip_bytes(const struct gunzip *g);

#endif

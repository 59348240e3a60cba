/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted gzip data, in pieces whose length the first byte sets: the output never exceeds the
 * bound. */
#include <stdlib.h>

#include "../tools/gzip.h"
#include "fuzz.h"

enum { MOST = 100000 };

static bool take(void *ctx, const uint8_t *bytes, size_t len)
{
    uint64_t *all = ctx;

    (void)bytes;
    *all += len;
    if (*all > MOST)
        abort();
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint64_t all = 0;
    struct gunzip *g = gunzip_new(MOST, take, &all);
    size_t piece = count ? 1 + bytes[0] : 1;

    for (size_t at = 1; g && at < count; at += piece)
        if (gunzip_take(g, bytes + at, piece < count - at ? piece : count - at) != GUNZIP_GOOD)
            break;
    if (g && gunzip_bytes(g) != all)
        abort();
    gunzip_free(g);
    return 0;
}

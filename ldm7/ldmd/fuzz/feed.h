/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds an RPC stream as a socket does: in pieces, directly into the stream's buffer or not.
 */
#ifndef LDMD_FUZZ_FEED_H
#define LDMD_FUZZ_FEED_H

#include <string.h>

#include "ldmd/ldmrpc.h"

/* Returns -1 if the stream found an error; then the rest was not fed. */
static inline int feed(struct rpc_stream *stream, const uint8_t *data, size_t size, size_t piece,
                       bool direct)
{
    for (size_t i = 0, k; i < size; i += k) {
        size_t max;
        uint8_t *to = rpc_stream_direct(stream, &max);
        int rc;

        k = size - i < piece ? size - i : piece;
        if (to && direct) {
            k = k < max ? k : max;
            memcpy(to, data + i, k);
            rc = rpc_stream_direct_done(stream, k);
        } else {
            rc = rpc_stream_feed(stream, data + i, k);
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

#endif

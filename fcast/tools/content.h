/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the data of an object to a file: unpacks them if necessary, and checks their digest.
 */
#ifndef FCAST_TOOLS_CONTENT_H
#define FCAST_TOOLS_CONTENT_H

#include "fcast.h"

enum content {
    CONTENT_GOOD,
    CONTENT_WRONG,   /* contradicts the digest */
    CONTENT_REFUSED, /* unpacked too large or of another length, or not gzip */
    CONTENT_FAILED   /* see errno */
};

/* Reads bytes of the object. Returns -1 with errno. */
typedef int content_read(void *ctx, uint64_t at, void *bytes, size_t len);

struct content_job {
    content_read *read;
    void *ctx;
    uint64_t at, bytes; /* position of the data in the object */
    const struct fcast_meta *meta;
    uint64_t most_bytes; /* of the unpacked data */
    int fd;              /* where to write; -1: only compare the digest */
    uint64_t written;    /* set by content_copy() */
    char why[160];       /* for CONTENT_REFUSED and CONTENT_WRONG */
};

/* Returns whether content_copy() can undo this encoding. */
bool content_is_packed(const struct fcast_meta *meta);
enum content content_copy(struct content_job *job);

#endif

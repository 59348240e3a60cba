/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of an object as a file: unpacked if they were packed, and what their digest says.
 */
#ifndef FCAST_TOOLS_CONTENT_H
#define FCAST_TOOLS_CONTENT_H

#include "fcast.h"

enum content {
    CONTENT_GOOD,
    CONTENT_WRONG,   /* not what the digest says */
    CONTENT_REFUSED, /* unpacked, they are too large or of another length, or no gzip */
    CONTENT_FAILED   /* errno */
};

/* The object's bytes. -1 with errno. */
typedef int content_read(void *ctx, uint64_t at, void *bytes, size_t len);

struct content_job {
    content_read *read;
    void *ctx;
    uint64_t at, bytes; /* of the data in the object */
    const struct fcast_meta *meta;
    uint64_t most_bytes; /* unpacked */
    int fd;              /* where they go; -1: only the digest is compared */
    uint64_t written;    /* set by content_copy */
    char why[160];       /* CONTENT_REFUSED, CONTENT_WRONG */
};

/* True if content_copy can undo this encoding. */
bool content_is_packed(const struct fcast_meta *meta);
enum content content_copy(struct content_job *job);

#endif

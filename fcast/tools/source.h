/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs that send files share: the files, and the cache of their repair symbols. Prints
 * nothing.
 */
#ifndef FCAST_TOOLS_SOURCE_H
#define FCAST_TOOLS_SOURCE_H

#include "fcast.h"
#include "net/error.h"

struct source_file {
    int fd;
    const char *path;
};

/* Opens the file. Returns -1 with *err. */
int source_open(struct source_file *f, const char *path, struct tp_error *err);
/* Fills in location, length and, if wanted, digest. Returns -1 with *err if it is not a regular
 * file, its name is too long, or it cannot be read. */
int source_describe(const struct source_file *f, bool has_digest, struct fcast_meta *out,
                    struct tp_error *err);
struct fcast_store source_store(struct source_file *f);

struct cache {
    const char *folder;
    int fd;
    int error; /* errno of the last failed write; 0: none */
};

/* Makes an unnamed file in the folder. Returns -1 with *err. */
int cache_file(const char *folder, struct tp_error *err);
struct fcast_store cache_store(struct cache *c);
/* Reserves disk space for the repair symbols before they are computed. Returns -1 with *err. */
int cache_reserve(const struct cache *c, uint64_t bytes, struct tp_error *err);

#endif

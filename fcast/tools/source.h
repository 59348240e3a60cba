/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs that send files share: the files, and the cache of their repair symbols.
 */
#ifndef FCAST_TOOLS_SOURCE_H
#define FCAST_TOOLS_SOURCE_H

#include "fcast.h"

struct source_file {
    int fd;
    const char *path;
};

/* Opens it. Ends the program if it cannot. */
struct source_file source_open(const char *path);
/* Location, length and, if wanted, digest. Ends the program if it is no regular file, or its name
 * is too long. */
void source_describe(const struct source_file *f, bool has_digest, struct fcast_meta *out);
struct fcast_store source_store(struct source_file *f);

struct cache {
    const char *folder;
    int fd;
};

/* A file without name in the folder. Ends the program if there can be none. */
int cache_file(const char *folder);
struct fcast_store cache_store(struct cache *c);
/* Takes the disk's room for repair symbols before they are computed. Ends the program if there is
 * not enough. */
void cache_reserve(const struct cache *c, uint64_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes a file through the page cache or past it, and counts what that costs.
 */
#ifndef FCAST_TOOLS_DISK_H
#define FCAST_TOOLS_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_UNIT = 512 }; /* places and lengths that direct I/O takes are multiples of it */

/* A seek: an access that does not begin where the one before it on the file ended. */
struct disk_counts {
    uint64_t reads, writes, seeks, read_bytes, written_bytes;
    uint64_t write_ns; /* in writes */
};

struct disk_file {
    int fd, direct_fd; /* direct_fd -1: all goes through the page cache */
    uint64_t end;      /* of the last access */
};

/* Opens (creates) it. -1 with errno: EINVAL if the file system has no direct I/O. */
int disk_open(struct disk_file *f, int dir_fd, const char *path, bool direct);
void disk_close(struct disk_file *f);
/* All of it. The rest beyond a multiple of DISK_UNIT goes through the page cache. counts: NULL: not
 * counted. -1 with errno. */
int disk_read(struct disk_file *f, uint64_t at, void *bytes, size_t len,
              struct disk_counts *counts);
int disk_write(struct disk_file *f, uint64_t at, const void *bytes, size_t len,
               struct disk_counts *counts);

#endif

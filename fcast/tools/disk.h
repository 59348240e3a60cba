/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes a file through the page cache or around it, and counts the accesses.
 */
#ifndef FCAST_TOOLS_DISK_H
#define FCAST_TOOLS_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_UNIT = 512 }; /* direct I/O requires offsets and lengths that are multiples of this */

/* A seek is an access that does not begin where the previous one on the file ended. */
struct disk_counts {
    uint64_t reads, writes, seeks, read_bytes, written_bytes;
    uint64_t write_ns; /* time spent in writes */
};

struct disk_file {
    int fd, direct_fd; /* -1: everything goes through the page cache */
    uint64_t end;      /* of the last access */
};

/* Opens the file and creates it if necessary. Returns -1 with errno: EINVAL if the file system has
 * no direct I/O. */
int disk_open(struct disk_file *f, int dir_fd, const char *path, bool direct);
void disk_close(struct disk_file *f);
/* Reads all of it. A remainder beyond a multiple of DISK_UNIT goes through the page cache. counts:
 * NULL: not counted. Returns -1 with errno. */
int disk_read(struct disk_file *f, uint64_t at, void *bytes, size_t len,
              struct disk_counts *counts);
int disk_write(struct disk_file *f, uint64_t at, const void *bytes, size_t len,
               struct disk_counts *counts);

#endif

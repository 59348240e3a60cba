/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads or writes a range of a file completely.
 */
#ifndef COMMON_FILE_AT_H
#define COMMON_FILE_AT_H

#include <stddef.h>
#include <stdint.h>

/* Reads len bytes at offset `at`. Returns -1 with errno; EIO if the file is shorter. */
int file_read_at(int fd, uint64_t at, void *bytes, size_t len);
/* Writes len bytes at offset `at`. Returns -1 with errno; part of them may have been written. */
int file_write_at(int fd, uint64_t at, const void *bytes, size_t len);

#endif

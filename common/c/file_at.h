/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes at a place of a file, all of them.
 */
#ifndef COMMON_FILE_AT_H
#define COMMON_FILE_AT_H

#include <stddef.h>
#include <stdint.h>

/* len bytes from `at` on. -1 with errno: EIO if the file is shorter. */
int file_read_at(int fd, uint64_t at, void *bytes, size_t len);
/* len bytes to `at` and on. -1 with errno: some of them may be there. */
int file_write_at(int fd, uint64_t at, const void *bytes, size_t len);

#endif

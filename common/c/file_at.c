/* SPDX-License-Identifier: Apache-2.0 */
#include "file_at.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

int file_read_at(int fd, uint64_t at, void *bytes, size_t len)
{
    char *out = bytes;

    while (len) {
        ssize_t n = pread(fd, out, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : EIO;
            return -1;
        }
        out += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int file_write_at(int fd, uint64_t at, const void *bytes, size_t len)
{
    const char *from = bytes;

    while (len) {
        ssize_t n = pwrite(fd, from, len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : EIO;
            return -1;
        }
        from += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

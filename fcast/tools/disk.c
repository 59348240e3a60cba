/* SPDX-License-Identifier: Apache-2.0 */
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "file_at.h"
#include "loop/loop.h"

enum { BOUNCE_BYTES = 1 << 18, ALIGNMENT = 4096 };

/* For offsets that direct I/O does not accept. */
static _Alignas(ALIGNMENT) uint8_t bounce[BOUNCE_BYTES];

int disk_open(struct disk_file *f, int dir_fd, const char *path, bool direct)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;

    /* It may become the final file, so it gets that mode; only the owner can enter the folder. */
    *f = (struct disk_file){.fd = openat(dir_fd, path, flags, 0666), .direct_fd = -1};
    if (f->fd < 0)
        return -1;
    if (direct)
        f->direct_fd = openat(dir_fd, path, flags | O_DIRECT, 0666);
    return direct && f->direct_fd < 0 ? -1 : 0;
}

void disk_close(struct disk_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->direct_fd >= 0)
        close(f->direct_fd);
}

static bool is_direct(const struct disk_file *f, uint64_t at, size_t len)
{
    return f->direct_fd >= 0 && at % DISK_UNIT == 0 && len % DISK_UNIT == 0;
}

static bool is_aligned(const void *bytes)
{
    return (uintptr_t)bytes % ALIGNMENT == 0;
}

static void count_seek(struct disk_file *f, uint64_t at, size_t len, struct disk_counts *counts)
{
    if (counts)
        counts->seeks += at != f->end;
    f->end = at + len;
}

int disk_read(struct disk_file *f, uint64_t at, void *bytes, size_t len, struct disk_counts *counts)
{
    uint8_t *out = bytes;

    count_seek(f, at, len, counts);
    if (counts) {
        counts->reads++;
        counts->read_bytes += len;
    }
    if (!is_direct(f, at, len))
        return file_read_at(f->fd, at, bytes, len);
    if (is_aligned(bytes))
        return file_read_at(f->direct_fd, at, bytes, len);
    for (size_t n; len; len -= n, at += n, out += n) {
        n = len < sizeof bounce ? len : sizeof bounce;
        if (file_read_at(f->direct_fd, at, bounce, n) < 0)
            return -1;
        memcpy(out, bounce, n);
    }
    return 0;
}

static int write_all(struct disk_file *f, uint64_t at, const void *bytes, size_t len)
{
    const uint8_t *in = bytes;

    if (!is_direct(f, at, len))
        return file_write_at(f->fd, at, bytes, len);
    if (is_aligned(bytes))
        return file_write_at(f->direct_fd, at, bytes, len);
    for (size_t n; len; len -= n, at += n, in += n) {
        n = len < sizeof bounce ? len : sizeof bounce;
        memcpy(bounce, in, n);
        if (file_write_at(f->direct_fd, at, bounce, n) < 0)
            return -1;
    }
    return 0;
}

int disk_write(struct disk_file *f, uint64_t at, const void *bytes, size_t len,
               struct disk_counts *counts)
{
    count_seek(f, at, len, counts);
    if (!counts)
        return write_all(f, at, bytes, len);
    const uint64_t begin_ns = tp_now_ns();
    int result = write_all(f, at, bytes, len);
    counts->writes++;
    counts->written_bytes += len;
    counts->write_ns += tp_now_ns() - begin_ns;
    return result;
}

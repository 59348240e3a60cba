/* SPDX-License-Identifier: Apache-2.0 */
#include "stored.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char empty; /* where the bytes of an empty file are */

struct stored *stored_find(struct stored *list, uint32_t index)
{
    while (list && list->index != index)
        list = list->next;
    return list;
}

struct stored *stored_take(struct stored **list, uint32_t index)
{
    for (struct stored **link = list; *link; link = &(*link)->next)
        if ((*link)->index == index) {
            struct stored *f = *link;
            *link = f->next;
            return f;
        }
    return NULL;
}

static void complain(const struct stored *f, int error)
{
    progress("%s", "");
    fprintf(stderr, "%s: '%s', %zu bytes: %s\n", program, f->name, f->size, strerror(error));
}

/* Returns 0, or why not all was written. */
static int write_all(int fd, off_t at, const struct iovec *parts, int nparts)
{
    size_t skip = 0; /* of the first part */

    while (nparts) {
        struct iovec rest = {(uint8_t *)parts->iov_base + skip, parts->iov_len - skip};
        ssize_t n = skip ? pwrite(fd, rest.iov_base, rest.iov_len, at)
                         : pwritev(fd, parts, nparts < IOV_MAX ? nparts : IOV_MAX, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? errno : EIO;
        at += n;
        skip += (size_t)n;
        for (; nparts && skip >= parts->iov_len; nparts--)
            skip -= parts++->iov_len;
    }
    return 0;
}

bool stored_write(struct store *store, struct stored *f, uint32_t at, const struct iovec *parts,
                  int nparts)
{
    size_t bytes = 0;

    if (f->failed)
        return false;
    for (int i = 0; i < nparts; i++)
        bytes += parts[i].iov_len;
    int error = write_all(f->fd, (off_t)at, parts, nparts);
    if (error) {
        complain(f, error);
        f->failed = true;
        return false;
    }
    bytes = bytes < f->size - f->written ? bytes : f->size - f->written;
    f->written += bytes;
    store->promised -= bytes;
    return true;
}

/* Makes a new file under a name that no other program uses or has used. */
static int open_temporary(struct store *store, int feed, struct stored *f)
{
    enum { TRIES = 100 };
    int fd = -1;

    errno = EEXIST;
    for (int i = 0; fd < 0 && errno == EEXIST && i < TRIES; i++) {
        if ((!store->token || i > 0) && getrandom(&store->token, sizeof store->token, 0) < 0)
            return -1;
        snprintf(f->temporary, sizeof f->temporary, ".fmtp-%016llx-%d-%u",
                 (unsigned long long)store->token, feed, f->index);
        fd = openat(store->dir, f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return fd;
}

/* Returns 0, or why the file cannot be kept. Space promised to earlier files is not available. */
static int check_place(const struct store *store, const struct stored *f, int fd)
{
    struct statvfs space;
    struct stat st;

    if (fstatat(store->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return EISDIR;
    if (fstatvfs(fd, &space) < 0)
        return 0;
    return (store->promised + f->size) / space.f_frsize >= space.f_bavail ? ENOSPC : 0;
}

/* Sets its size and maps it. Returns 0, or why that failed. A full disk is reported now; the space
 * itself is taken as data arrive. */
static int lay_out(struct store *store, struct stored *f)
{
    int error = check_place(store, f, f->fd);

    if (!error && ftruncate(f->fd, (off_t)f->size) < 0)
        error = errno;
    if (error || !f->size)
        return error;
    void *data = mmap(NULL, f->size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (data == MAP_FAILED)
        return errno;
    f->data = data;
    return 0;
}

static void release(struct stored *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->data != &empty)
        munmap((void *)f->data, f->size);
    free(f);
}

struct stored *stored_begin(struct store *store, int feed, uint32_t index, uint32_t size,
                            const void *meta, uint16_t meta_len)
{
    struct stored *f = xcalloc(1, sizeof *f);

    f->index = index;
    f->size = size;
    f->begun_s = now_s();
    f->data = &empty;
    safe_name(meta, meta_len, index, f->name);
    f->fd = open_temporary(store, feed, f);
    int error = f->fd < 0 ? errno : lay_out(store, f);
    if (!error) {
        store->promised += size;
        return f;
    }
    complain(f, error);
    if (f->fd >= 0)
        unlinkat(store->dir, f->temporary, 0);
    release(f);
    return NULL;
}

bool stored_name(struct store *store, const struct stored *f)
{
    if (renameat(store->dir, f->temporary, store->dir, f->name) == 0)
        return true;
    progress("%s", "");
    fprintf(stderr, "%s: '%s': %s\n", program, f->name, strerror(errno));
    return false;
}

void stored_close(struct store *store, struct stored *f)
{
    store->promised -= f->size - f->written;
    release(f);
}

void stored_discard(struct store *store, struct stored *f)
{
    unlinkat(store->dir, f->temporary, 0);
    stored_close(store, f);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "stored.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { RESERVE_BYTES = 4 << 20 };

static char empty; /* where the bytes of an empty file go */

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

bool stored_reserve(struct store *store, struct stored *f)
{
    size_t left = f->size - f->reserved, bytes = left < RESERVE_BYTES ? left : RESERVE_BYTES;
    int error = bytes ? posix_fallocate(f->fd, (off_t)f->reserved, (off_t)bytes) : 0;

    if (error) {
        complain(f, error);
        return false;
    }
    f->reserved += bytes;
    store->promised -= bytes;
    if (f->reserved == f->size) {
        close(f->fd);
        f->fd = -1;
    }
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

/* Allocates its memory and disk space. Returns 0, or why that failed. */
static int lay_out(struct store *store, struct stored *f)
{
    /* Report a full disk now. The space itself is reserved bit by bit while data arrive: reserving
     * a large file in memory at once takes so long that datagrams get lost. */
    int error = check_place(store, f, f->fd);

    if (!error && ftruncate(f->fd, (off_t)f->size) < 0)
        error = errno;
    if (error || !f->size)
        return error;
    void *data = mmap(NULL, f->size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
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
        munmap(f->data, f->size);
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
        if (stored_reserve(store, f))
            return f;
        stored_discard(store, f);
        return NULL;
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
    store->promised -= f->size - f->reserved;
    release(f);
}

void stored_discard(struct store *store, struct stored *f)
{
    unlinkat(store->dir, f->temporary, 0);
    stored_close(store, f);
}

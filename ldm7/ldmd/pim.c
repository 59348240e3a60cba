/* SPDX-License-Identifier: Apache-2.0 */
#include "pim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIG_BYTES 16u
#define HEAD_BYTES 20u

struct head {
    uint64_t count, oldest_pos;
    uint32_t oldest_index;
};

struct pim {
    int fd;
    uint64_t capacity;
    bool writable;
};

bool pim_path(char *out, size_t out_bytes, const char *queue, const char *feed)
{
    const char *slash = strrchr(queue, '/');
    int dir = !slash ? 1 : (int)(slash - queue);
    int n = snprintf(out, out_bytes, "%.*s/%s.pim", dir, !slash ? "." : queue, feed);

    return n > 0 && (size_t)n < out_bytes;
}

static int lock(const struct pim *p, short type)
{
    struct flock l = {.l_type = type, .l_whence = SEEK_SET};
    int rc;

    do
        rc = fcntl(p->fd, F_OFD_SETLKW, &l);
    while (rc < 0 && errno == EINTR);
    return rc;
}

static bool read_head(const struct pim *p, struct head *h)
{
    uint8_t b[HEAD_BYTES];

    if (pread(p->fd, b, sizeof b, 0) != (ssize_t)sizeof b)
        return false;
    memcpy(&h->count, b, 8);
    memcpy(&h->oldest_pos, b + 8, 8);
    memcpy(&h->oldest_index, b + 16, 4);
    return p->capacity > 0 && h->count <= p->capacity && h->oldest_pos < p->capacity;
}

static int write_head(const struct pim *p, const struct head *h)
{
    uint8_t b[HEAD_BYTES];

    memcpy(b, &h->count, 8);
    memcpy(b + 8, &h->oldest_pos, 8);
    memcpy(b + 16, &h->oldest_index, 4);
    /* One write of 20 bytes within a page: a killed writer leaves the old or the new head. */
    return pwrite(p->fd, b, sizeof b, 0) == (ssize_t)sizeof b ? 0 : -1;
}

static off_t slot_at(const struct pim *p, const struct head *h, uint64_t i)
{
    return (off_t)(HEAD_BYTES + SIG_BYTES * ((h->oldest_pos + i) % p->capacity));
}

/* Rewrites the map with another capacity and keeps the newest entries. */
static int resize(struct pim *p, uint64_t capacity)
{
    struct head out = {0};
    int rc = -1;

    struct head h;
    if (!read_head(p, &h))
        return -1;
    uint64_t keep = h.count < capacity ? h.count : capacity;
    uint8_t *ring = calloc(capacity, SIG_BYTES);
    if (!ring)
        return -1;
    for (uint64_t i = 0; i < keep; i++)
        if (pread(p->fd, ring + SIG_BYTES * i, SIG_BYTES, slot_at(p, &h, h.count - keep + i)) !=
            (ssize_t)SIG_BYTES)
            goto done;
    out.count = keep;
    out.oldest_index = h.oldest_index + (uint32_t)(h.count - keep);
    /* If this process is killed now, the map is empty, not wrong. */
    if (write_head(p, &(struct head){0}) < 0 ||
        ftruncate(p->fd, (off_t)(HEAD_BYTES + SIG_BYTES * capacity)) < 0)
        goto done;
    if (pwrite(p->fd, ring, SIG_BYTES * capacity, HEAD_BYTES) != (ssize_t)(SIG_BYTES * capacity))
        goto done;
    p->capacity = capacity;
    rc = write_head(p, &out);
done:
    free(ring);
    return rc;
}

static int make_usable(struct pim *p, uint32_t capacity, bool *reset)
{
    struct head empty = {0};

    *reset = false;
    struct head h;
    if (read_head(p, &h) && (p->capacity == capacity || resize(p, capacity) == 0))
        return 0;
    *reset = true;
    p->capacity = capacity;
    if (ftruncate(p->fd, 0) < 0 ||
        ftruncate(p->fd, (off_t)(HEAD_BYTES + SIG_BYTES * (uint64_t)capacity)) < 0)
        return -1;
    return write_head(p, &empty);
}

struct pim *pim_open(const char *path, bool writable, uint32_t capacity, bool *reset)
{
    struct pim *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->writable = writable;
    p->fd = open(path, (writable ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0644);
    if (p->fd < 0)
        goto fail;
    struct stat st;
    if (lock(p, writable ? F_WRLCK : F_RDLCK) < 0 || fstat(p->fd, &st) < 0)
        goto fail;
    p->capacity =
        st.st_size > (off_t)HEAD_BYTES ? ((uint64_t)st.st_size - HEAD_BYTES) / SIG_BYTES : 0;
    bool ignored;
    if (writable && make_usable(p, capacity, reset ? reset : &ignored) < 0)
        goto fail;
    lock(p, F_UNLCK);
    return p;
    int keep;
fail:
    keep = errno;
    if (p->fd >= 0)
        close(p->fd);
    free(p);
    errno = keep;
    return NULL;
}

void pim_close(struct pim *p)
{
    if (!p)
        return;
    close(p->fd);
    free(p);
}

uint32_t pim_next_index(struct pim *p)
{
    struct head h = {0};

    lock(p, F_RDLCK);
    if (!read_head(p, &h))
        memset(&h, 0, sizeof h);
    lock(p, F_UNLCK);
    return h.oldest_index + (uint32_t)h.count;
}

int pim_put(struct pim *p, uint32_t index, const struct pq_signature *sig)
{
    int rc = -1;

    if (lock(p, F_WRLCK) < 0)
        return -1;
    if (p->capacity == 0) {
        errno = EINVAL; /* opened for reading before it was written */
        goto done;
    }
    struct head h;
    if (!read_head(p, &h) || h.oldest_index + (uint32_t)h.count != index)
        h = (struct head){.oldest_index = index};
    if (h.count == p->capacity) {
        /* The oldest entry is removed before its slot is reused: a reader never sees a wrong
         * signature. */
        h.oldest_pos = (h.oldest_pos + 1) % p->capacity;
        h.oldest_index++;
        h.count--;
        if (write_head(p, &h) < 0)
            goto done;
    }
    if (pwrite(p->fd, sig->bytes, SIG_BYTES, slot_at(p, &h, h.count)) != (ssize_t)SIG_BYTES)
        goto done;
    h.count++;
    rc = write_head(p, &h);
done:
    lock(p, F_UNLCK);
    return rc;
}

void pim_take_back(struct pim *p, uint32_t index)
{
    if (lock(p, F_WRLCK) < 0)
        return;
    struct head h;
    if (read_head(p, &h) && h.count > 0 && h.oldest_index + (uint32_t)h.count - 1 == index) {
        h.count--;
        write_head(p, &h);
    }
    lock(p, F_UNLCK);
}

bool pim_get(struct pim *p, uint32_t index, struct pq_signature *sig)
{
    bool found = false;

    if (lock(p, F_RDLCK) < 0)
        return false;
    struct stat st;
    if (fstat(p->fd, &st) == 0 && st.st_size > (off_t)HEAD_BYTES)
        p->capacity = ((uint64_t)st.st_size - HEAD_BYTES) / SIG_BYTES;
    struct head h;
    if (read_head(p, &h) && index - h.oldest_index < h.count)
        found = pread(p->fd, sig->bytes, SIG_BYTES, slot_at(p, &h, index - h.oldest_index)) ==
                (ssize_t)SIG_BYTES;
    lock(p, F_UNLCK);
    return found;
}

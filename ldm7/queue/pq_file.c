/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue's file: creation, opening with all its checks, closing, the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "own_pid.h"
#include "pq_impl.h"

static const char magic[8] = {'D', 'W', 'N', 'P', 'O', 'U', 'R', 'Q'};
enum {
    BYTE_ORDER_MARK = 0x01020304,
    LEAVE_TRIES = 3,
    PATIENCE_MS = 2000, /* longer than the 1000 for which a stalled connection keeps its room */
    PQ_MODE = 0640      /* reduced by the umask */
};

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t p = 8;
    while (p < at_least)
        p *= 2;
    return p;
}

/* Computes the layout; returns false if no such queue is possible. */
bool pq_layout_of(uint64_t data_bytes, uint32_t slots, struct pq_layout *out)
{
    const uint64_t page = 4096; /* of the layout, independent of the machine */
    if (!data_bytes || data_bytes > PQ_DATA_MAX || data_bytes > PTRDIFF_MAX || !slots ||
        slots > PQ_SLOTS_MAX)
        return false;
    struct pq_layout l = {
        .data_bytes = (data_bytes + page - 1) / page * page,
        .node_count = 2 * slots + 3,
        .hash_cells = power_of_two(2 * slots),
        .order_cells = power_of_two(4 * slots),
        .bitmap_words = (slots + 63) / 64,
    };
    for (uint32_t words = (l.order_cells + 63) / 64;; words = (words + 63) / 64) {
        l.mark_words += words;
        l.mark_levels++;
        if (words == 1)
            break;
    }
    uint64_t at = 0;
#define PLACE(member, bytes) \
    l.member = at;           \
    at += ((uint64_t)(bytes) + 63) / 64 * 64
    at = (sizeof(struct pq_header) + 63) / 64 * 64;
    PLACE(locks, PQ_RUN_LOCKS * sizeof(struct pq_run_lock));
    PLACE(clients, PQ_CLIENTS * sizeof(struct pq_client));
    PLACE(bitmaps, PQ_CLIENTS * l.bitmap_words * 8);
    PLACE(slots, slots * sizeof(struct pq_slot));
    PLACE(nodes, l.node_count * sizeof(struct pq_node));
    PLACE(hash, l.hash_cells * 4ull);
    PLACE(order, l.order_cells * 4ull);
    PLACE(marks, l.mark_words * 8ull);
    PLACE(scratch, slots * 4ull);
    at = (at + page - 1) / page * page;
    PLACE(data, l.data_bytes);
#undef PLACE
    l.file_bytes = at;
    *out = l;
    return true;
}

uint64_t pq_file_bytes(uint64_t data_bytes, uint32_t slots)
{
    struct pq_layout l;
    return pq_layout_of(data_bytes, slots, &l) ? l.file_bytes : 0;
}

static void place(struct pq *q, const struct pq_layout *l)
{
    q->h = (struct pq_header *)q->map;
    q->locks = (struct pq_run_lock *)(q->map + l->locks);
    q->clients = (struct pq_client *)(q->map + l->clients);
    q->bitmaps = (uint64_t *)(q->map + l->bitmaps);
    q->bitmap_words = l->bitmap_words;
    q->slots = (struct pq_slot *)(q->map + l->slots);
    q->nodes = (struct pq_node *)(q->map + l->nodes);
    q->hash = (uint32_t *)(q->map + l->hash);
    q->order = (uint32_t *)(q->map + l->order);
    q->mark_levels = l->mark_levels;
    uint64_t *marks = (uint64_t *)(q->map + l->marks);
    for (uint32_t level = 0, words = l->order_cells; level < l->mark_levels; level++) {
        words = (words + 63) / 64;
        q->marks[level] = marks;
        q->mark_words[level] = words;
        marks += words;
    }
    q->scratch = (uint32_t *)(q->map + l->scratch);
    q->data = q->map + l->data;
}

static void fill_geometry(struct pq_header *h, const struct pq_layout *l, uint32_t slots)
{
    memcpy(h->magic, magic, sizeof magic);
    h->version = PQ_VERSION;
    h->byte_order = BYTE_ORDER_MARK;
    h->header_bytes = sizeof *h;
    h->slot_bytes = sizeof(struct pq_slot);
    h->node_bytes = sizeof(struct pq_node);
    h->client_bytes = sizeof(struct pq_client);
    h->clients = PQ_CLIENTS;
    h->slots = slots;
    h->nodes = l->node_count;
    h->hash_cells = l->hash_cells;
    h->order_cells = l->order_cells;
    h->mark_words = l->mark_words;
    h->data_bytes = l->data_bytes;
    h->file_bytes = l->file_bytes;
}

/* Resets the clients: for a new file, a copy, or after a reboot. Under the lock; if the process is
 * killed meanwhile, this is done again. */
static int start_afresh(struct pq *q)
{
    for (uint32_t c = 0; c < PQ_CLIENTS; c++) {
        /* What a writer wrote may not have reached the disk, or the copy. */
        if (q->clients[c].used && q->clients[c].writes)
            q->h->unclean = 1;
        pq_barrier();
        q->clients[c].used = 0;
    }
    int e = pq_shared_mutexes_init(&q->clients[0].alive, PQ_CLIENTS, sizeof *q->clients);
    if (e)
        return e;
    memset(q->bitmaps, 0, PQ_CLIENTS * q->bitmap_words * sizeof *q->bitmaps);
    pq_rebuild(q);
    pq_barrier();
    q->h->ready_run = q->run;
    return 0;
}

static int initialise(int fd, const struct pq_layout *l, uint32_t slots)
{
    struct pq q = {.fd = fd, .map_bytes = l->data};
    /* Only the tables; creation does not need the data. */
    q.map = mmap(NULL, q.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (q.map == MAP_FAILED)
        return errno;
    place(&q, l);
    fill_geometry(q.h, l, slots);
    q.h->min_residence_us = -1;
    int e = 0;
    if (getrandom(q.h->hash_key, sizeof q.h->hash_key, 0) != sizeof q.h->hash_key)
        e = errno;
    if (!e)
        e = pq_run_begin(&q);
    if (!e)
        e = start_afresh(&q);
    if (!e)
        pq_leave_clean(&q);
    munmap(q.map, q.map_bytes);
    return e;
}

enum pq_status pq_create(const char *path, uint64_t data_bytes, uint32_t slots, bool replace)
{
    struct pq_layout l;
    if (!pq_layout_of(data_bytes, slots, &l))
        return PQ_INVAL;
    struct stat st;
    if (!replace && lstat(path, &st) == 0) {
        errno = EEXIST;
        return PQ_SYSTEM;
    }
    char tmp[4096];
    if (snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, (long)getpid()) >= (int)sizeof tmp) {
        errno = ENAMETOOLONG;
        return PQ_SYSTEM;
    }
    int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, PQ_MODE);
    if (fd < 0)
        return PQ_SYSTEM;
    /* Ask first: an allocation that fails halfway fills the disk for others meanwhile. */
    int e = 0;
    struct statvfs vfs;
    if (fstatvfs(fd, &vfs) == 0 && vfs.f_blocks && l.file_bytes / vfs.f_frsize >= vfs.f_bavail)
        e = ENOSPC;
    if (!e)
        e = posix_fallocate(fd, 0, (off_t)l.file_bytes);
    if (!e)
        e = initialise(fd, &l, slots);
    close(fd);
    if (!e) {
        /* link() does not replace, rename() does; both are atomic. */
        if (replace ? rename(tmp, path) : link(tmp, path))
            e = errno;
    }
    if (e || !replace)
        unlink(tmp);
    errno = e;
    return e ? PQ_SYSTEM : PQ_OK;
}

/* A robust mutex loses a wake-up if the process to be woken is killed, or checks by itself, before
 * it takes the lock, and a third one has taken it meanwhile without noticing other waiters.
 * Therefore no process waits long without checking: at first only briefly, because the lock is
 * never held for long except while the tables are being rebuilt. */
static int lock_mutex(pthread_mutex_t *m)
{
#ifdef __SANITIZE_THREAD__ /* which does not support pthread_mutex_clocklock */
    return pthread_mutex_lock(m);
#else
    enum { FIRST_LOOK_NS = 500000, LOOK_NS = 10000000, NS_PER_S = 1000000000 };
    int e = pthread_mutex_trylock(m);
    for (long look_ns = FIRST_LOOK_NS; e == EBUSY || e == ETIMEDOUT;) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += look_ns;
        until.tv_sec += until.tv_nsec / NS_PER_S;
        until.tv_nsec %= NS_PER_S;
        e = pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until);
        look_ns = 2 * look_ns < LOOK_NS ? 2 * look_ns : LOOK_NS;
    }
    return e;
#endif
}

enum pq_status pq_lock(struct pq *q)
{
    if (q->pid != own_pid())
        return PQ_INVAL; /* a handle inherited by fork() */
    int e = lock_mutex(q->mutex);
    if (e == EOWNERDEAD) {
        bool ready =
            q->h->ready_run == q->run; /* if not, its holder died while preparing the tables */
        if (ready) {
            q->h->recoveries++;
            pq_rebuild(q);
        }
        e = pthread_mutex_consistent(q->mutex);
        if (!e && ready) {
            pq_client_reclaim(q);
            pq_wake(q); /* the dead process may have been about to */
        }
    }
    errno = e;
    return e ? PQ_SYSTEM : PQ_OK;
}

void pq_unlock(struct pq *q)
{
    pthread_mutex_unlock(q->mutex);
}

/* Reads and checks the header before anything is mapped. */
static enum pq_status check_file(int fd, struct pq_layout *l)
{
    struct pq_header wanted = {0};
    struct stat st;
    if (fstat(fd, &st) != 0)
        return PQ_SYSTEM;
    if (!S_ISREG(st.st_mode))
        return PQ_CORRUPT;
    struct pq_header found;
    ssize_t n = pread(fd, &found, sizeof found, 0);
    if (n < 0)
        return PQ_SYSTEM;
    if ((size_t)n < sizeof found || memcmp(found.magic, magic, sizeof magic) != 0 ||
        !pq_layout_of(found.data_bytes, found.slots, l))
        return PQ_CORRUPT;
    fill_geometry(&wanted, l, found.slots);
    if (memcmp(&found, &wanted, offsetof(struct pq_header, hash_key)) != 0 ||
        (uint64_t)st.st_size != l->file_bytes)
        return PQ_CORRUPT;
    return PQ_OK;
}

static void drop(struct pq *q)
{
    if (q->map)
        munmap(q->map, q->map_bytes);
    if (q->fd >= 0)
        close(q->fd);
    if (q->my_pins)
        munmap(q->my_pins, q->my_pins_bytes);
    free(q->mapped);
    free(q);
}

/* For a handle that only reads, write-protects the products: a stray write ends that process and
 * does not affect the queue. They are mapped by a read-only descriptor, so mprotect() cannot undo
 * it. */
static int protect_data(struct pq *q, const char *path)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t at = ((size_t)(q->data - q->map) + page - 1) / page * page;
    if (at >= q->map_bytes)
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st, now;
    bool same = fd >= 0 && fstat(fd, &now) == 0 && fstat(q->fd, &st) == 0 &&
                now.st_dev == st.st_dev && now.st_ino == st.st_ino;
    int rc = 0;
    if (!same) /* replaced since: the old file stays in use */
        rc = mprotect(q->map + at, q->map_bytes - at, PROT_READ);
    else if (mmap(q->map + at, q->map_bytes - at, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
                  (off_t)at) == MAP_FAILED)
        rc = -1;
    if (fd >= 0)
        close(fd);
    return rc;
}

static enum pq_status enter(struct pq *q)
{
    int64_t left_ns = pq_arrive(q);
    errno = pq_run_join(q);
    if (errno)
        return PQ_SYSTEM;
    enum pq_status s = pq_lock(q);
    if (s)
        return s;
    if (q->h->ready_run != q->run) {
        errno = start_afresh(q);
        s = errno ? PQ_SYSTEM : PQ_OK;
    } else if (!pq_trusted(q, left_ns)) {
        q->h->looks++;
        s = pq_verify(q) ? PQ_OK : PQ_CORRUPT;
    }
    if (!s) {
        atomic_store(&q->h->left_ns, 0);
        q->asks_seen = atomic_load(&q->h->asks);
        /* A process that was killed is likely to be the one that returns. */
        pq_client_reclaim(q);
        s = pq_client_enter(q);
    }
    int e = errno;
    pq_unlock(q);
    errno = e;
    return s;
}

enum pq_status pq_open(const char *path, bool writable, struct pq **out)
{
    enum pq_status s = PQ_SYSTEM;
    struct pq *q = calloc(1, sizeof *q);
    if (!q)
        return PQ_SYSTEM;
    q->event_fd = -1;
    q->writable = writable;
    q->patience_ms = PATIENCE_MS;
    q->pid = getpid();
    /* Readers also write: their pins. O_NONBLOCK: a FIFO is refused instead of waited for. */
    q->fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (q->fd < 0)
        goto out;
    struct pq_layout l;
    s = check_file(q->fd, &l);
    if (s)
        goto out;
    s = PQ_SYSTEM;
    q->map_bytes = l.file_bytes;
    void *map = mmap(NULL, q->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, q->fd, 0);
    if (map == MAP_FAILED)
        goto out;
    q->map = map;
    place(q, &l);
    if (!writable && protect_data(q, path) < 0)
        goto out;
    /* Not calloc(): in a used heap it would clear all of them, though few are ever read. */
    q->my_pins_bytes = q->h->slots * sizeof *q->my_pins;
    map = mmap(NULL, q->my_pins_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        goto out;
    q->my_pins = map;
    q->mapped = calloc(q->h->data_bytes / PQ_CHUNK / 64 + 1, sizeof *q->mapped);
    if (!q->mapped)
        goto out;
    s = enter(q);
out:
    if (s) {
        int e = errno;
        drop(q);
        errno = e;
        return s;
    }
    *out = q;
    return PQ_OK;
}

void pq_close(struct pq *q)
{
    if (!q)
        return;
    pq_notify_stop(q);
    if (pq_lock(q) == PQ_OK) {
        pq_client_leave(q);
        pq_unlock(q);
    }
    /* Unlocking changes the file's time if its page has been written to disk since. */
    for (int tries = 0; tries < LEAVE_TRIES && pq_left_touched(q) && pq_lock(q) == PQ_OK; tries++) {
        if (!pq_client_lives(q))
            pq_leave_clean(q);
        pq_unlock(q);
    }
    while (q->reservations) {
        struct pq_reservation *next = q->reservations->next;
        free(q->reservations);
        q->reservations = next;
    }
    drop(q);
}

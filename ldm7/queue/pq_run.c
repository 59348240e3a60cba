/* SPDX-License-Identifier: Apache-2.0
 *
 * When a queue's lock and tables can be trusted without a check.
 *
 * A run is one boot of the machine with one file: robust mutexes mean nothing after a reboot or in
 * a copy. No file lock is used to begin a run, because each process that may read the file could
 * take one and stop the writers. Instead each process that finds no lock of its run claims a cell,
 * makes a mutex there and publishes it by compare-and-swap of header.run. The first one wins; all
 * use the winner's mutex. Everything else that a run needs is done under that lock.
 *
 * The tables are checked, O(slots), only if they may disagree: no living process has the queue
 * open, and the last one did not close it or something has changed the file since then.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pq_impl.h"

enum { TAG_BITS = 56, CLAIM_TRIES = 5000, CLAIM_WAIT_NS = 1000000 };
#define TAG_MASK ((UINT64_C(1) << TAG_BITS) - 1)
#define NS_PER_S INT64_C(1000000000)

static uint64_t fnv(uint64_t hash, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Returns a number for this boot and this file, not 0. */
static int run_tag(int fd, uint64_t *tag)
{
    char boot_id[40] = "";
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (boot < 0)
        return errno;
    ssize_t n = read(boot, boot_id, sizeof boot_id - 1);
    int e = n < 0 ? errno : n == 0 ? EIO : 0;
    close(boot);
    uint64_t inode = st.st_ino;
    uint64_t hash = fnv(UINT64_C(0xcbf29ce484222325), boot_id, sizeof boot_id);
    *tag = fnv(hash, &inode, sizeof inode) & TAG_MASK;
    *tag += !*tag;
    return e;
}

static void use(struct pq *q, uint64_t run)
{
    q->mutex = &q->locks[run >> TAG_BITS].mutex;
}

/* Claims a cell that no other process of this run uses. EBUSY: none is left. */
static int claim(struct pq *q, uint64_t *cell)
{
    uint64_t claims = atomic_load(&q->h->claims);
    do {
        *cell = (claims & TAG_MASK) == q->run ? claims >> TAG_BITS : 0;
        if (*cell >= PQ_RUN_LOCKS)
            return EBUSY;
    } while (
        !atomic_compare_exchange_weak(&q->h->claims, &claims, q->run | (*cell + 1) << TAG_BITS));
    return 0;
}

static bool has_begun(const struct pq *q, uint64_t run)
{
    return (run & TAG_MASK) == q->run && run >> TAG_BITS < PQ_RUN_LOCKS;
}

int pq_run_join(struct pq *q)
{
    int e = run_tag(q->fd, &q->run);
    if (e)
        return e;
    uint64_t run = atomic_load(&q->h->run);
    for (int tries = 0; !has_begun(q, run); tries++) {
        uint64_t cell;
        e = claim(q, &cell);
        if (e &&
            tries <
                CLAIM_TRIES) { /* the processes that claimed the others are about to publish one */
            nanosleep(&(struct timespec){.tv_nsec = CLAIM_WAIT_NS}, NULL);
            run = atomic_load(&q->h->run);
            continue;
        }
        if (!e)
            e = pq_shared_mutexes_init(&q->locks[cell], 1, 0);
        if (e)
            return e;
        uint64_t mine = q->run | cell << TAG_BITS;
        if (atomic_compare_exchange_strong(&q->h->run, &run, mine))
            run = mine;
    }
    use(q, run);
    return 0;
}

int pq_run_begin(struct pq *q)
{
    int e = run_tag(q->fd, &q->run);
    if (!e)
        e = pq_shared_mutexes_init(q->locks, 1, 0);
    atomic_store(&q->h->claims, q->run | UINT64_C(1) << TAG_BITS);
    atomic_store(&q->h->run, q->run);
    use(q, q->run);
    return e;
}

static int64_t modified_ns(const struct pq *q)
{
    struct stat st;
    return fstat(q->fd, &st) == 0 ? st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec : 0;
}

/* Writing to the map moves the modification time; trying the lock does the same. The first of
 * several simultaneous arrivals finds it as it was left, and tells the others. */
int64_t pq_arrive(struct pq *q)
{
    int64_t left_ns = atomic_load(&q->h->left_ns);
    if (left_ns && modified_ns(q) == left_ns)
        atomic_store(&q->h->seen_ns, left_ns);
    return left_ns;
}

bool pq_trusted(struct pq *q, int64_t left_ns)
{
    int64_t now_left_ns = atomic_load(&q->h->left_ns);
    if (pq_client_lives(q))
        return true;
    /* Another value than before: meanwhile a handle opened the queue, found it sound and left. */
    return now_left_ns && (now_left_ns != left_ns || now_left_ns == atomic_load(&q->h->seen_ns));
}

/* left_ns is also written before: then the page is already writable, and writing the value no
 * longer moves the time. If the system sets no time, or a coarser one, the next handle checks. */
void pq_leave_clean(struct pq *q)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    atomic_store(&q->h->left_ns, 0);
    if (q->h->suspect)
        return;
    clock_gettime(CLOCK_REALTIME, &times[1]);
    int e = errno;
    if (futimens(q->fd, times) == 0)
        atomic_store(&q->h->left_ns, times[1].tv_sec * NS_PER_S + times[1].tv_nsec);
    errno = e;
}

bool pq_left_touched(const struct pq *q)
{
    int64_t left_ns = atomic_load(&q->h->left_ns);
    return left_ns && modified_ns(q) != left_ns;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "feeds.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

struct feed {
    pid_t pid; /* 0: free */
    struct in_addr addr;
    uint32_t n;
    struct ldm_spec specs[LDM_MAX_SPECS];
};

struct feeds {
    pthread_mutex_t lock; /* robust: a child may die while holding it */
    size_t n, bytes;
    struct feed list[];
};

struct feeds *feeds_new(size_t n)
{
    size_t bytes = sizeof(struct feeds) + n * sizeof(struct feed);
    struct feeds *f = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (f == MAP_FAILED)
        return NULL;
    f->n = n;
    f->bytes = bytes;
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&f->lock, &a);
    pthread_mutexattr_destroy(&a);
    return f;
}

void feeds_free(struct feeds *f)
{
    if (f)
        munmap(f, f->bytes);
}

/* An entry becomes valid by its pid, which is written last: a crash leaves no half-made entry. */
static void lock(struct feeds *f)
{
    if (pthread_mutex_lock(&f->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&f->lock);
}

/* Returns the feeds of spec that the n specs of `by` do not cover. */
static uint32_t uncovered(const struct ldm_spec *spec, const struct ldm_spec *by, uint32_t n)
{
    uint32_t left = spec->feedtype;

    for (uint32_t i = 0; i < n; i++)
        if (strcmp(by[i].pattern, ".*") == 0 || strcmp(by[i].pattern, spec->pattern) == 0)
            left &= ~by[i].feedtype;
    return left;
}

static bool covers(const struct ldm_class *cls, const struct feed *old)
{
    for (uint32_t i = 0; i < old->n; i++)
        if (uncovered(&old->specs[i], cls->specs, cls->n) != 0)
            return false;
    return true;
}

static bool reduce(struct ldm_class *cls, const struct feed *old)
{
    uint32_t n = 0;
    bool changed = false;

    for (uint32_t i = 0; i < cls->n; i++) {
        uint32_t left = uncovered(&cls->specs[i], old->specs, old->n);

        changed = changed || left != cls->specs[i].feedtype;
        if (left == 0)
            continue;
        cls->specs[n] = cls->specs[i];
        cls->specs[n++].feedtype = left;
    }
    cls->n = n;
    return changed;
}

static void enter(struct feed *at, struct in_addr addr, const struct ldm_class *cls)
{
    at->addr = addr;
    at->n = cls->n;
    memcpy(at->specs, cls->specs, cls->n * sizeof cls->specs[0]);
    __atomic_store_n(&at->pid, getpid(), __ATOMIC_RELEASE);
}

static bool of_address(struct feed *e, struct in_addr addr)
{
    if (e->pid != 0 && kill(e->pid, 0) < 0 && errno == ESRCH)
        e->pid = 0;
    return e->pid != 0 && e->pid != getpid() && e->addr.s_addr == addr.s_addr;
}

bool feeds_enter(struct feeds *f, struct in_addr addr, struct ldm_class *cls, unsigned *ended)
{
    struct feed *room = NULL;
    bool reduced = false;

    *ended = 0;
    lock(f);
    for (size_t i = 0; i < f->n; i++)
        if (of_address(&f->list[i], addr) && !covers(cls, &f->list[i]))
            reduced = reduce(cls, &f->list[i]) || reduced;
    for (size_t i = 0; i < f->n && !reduced; i++) {
        struct feed *e = &f->list[i];

        if (of_address(e, addr) && covers(cls, e)) {
            kill(e->pid, SIGTERM);
            e->pid = 0;
            ++*ended;
        }
        if (e->pid == 0 && !room)
            room = e;
    }
    if (room)
        enter(room, addr, cls);
    pthread_mutex_unlock(&f->lock);
    return !reduced;
}

void feeds_leave(struct feeds *f, pid_t pid)
{
    lock(f);
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i].pid == pid)
            f->list[i].pid = 0;
    pthread_mutex_unlock(&f->lock);
}

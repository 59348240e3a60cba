/* SPDX-License-Identifier: Apache-2.0 */
#include "visitors.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

struct memory {
    uint32_t addr;
    uint64_t until_s; /* 0: free */
};

struct visitors {
    pthread_mutex_t lock; /* for `remembered`; robust: a child may die while holding it */
    size_t n, bytes;
    struct memory remembered[VISITORS_REMEMBERED];
    bool is_in[];
};

struct visitors *visitors_new(size_t places)
{
    size_t bytes = sizeof(struct visitors) + places * sizeof(bool);
    struct visitors *v =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (v == MAP_FAILED)
        return NULL;
    v->n = places;
    v->bytes = bytes;
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&v->lock, &a);
    pthread_mutexattr_destroy(&a);
    return v;
}

void visitors_free(struct visitors *v)
{
    if (v)
        munmap(v, v->bytes);
}

static void lock(struct visitors *v)
{
    if (pthread_mutex_lock(&v->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&v->lock);
}

void visitors_arrive(struct visitors *v, size_t place)
{
    __atomic_store_n(&v->is_in[place], false, __ATOMIC_RELEASE);
}

bool visitors_is_in(const struct visitors *v, size_t place)
{
    return __atomic_load_n(&v->is_in[place], __ATOMIC_ACQUIRE);
}

/* Returns the address's own entry, or the one that expires first. */
static struct memory *memory_of(struct visitors *v, uint32_t addr)
{
    struct memory *found = &v->remembered[0];

    for (size_t i = 0; i < VISITORS_REMEMBERED; i++) {
        struct memory *m = &v->remembered[i];
        if (m->until_s && m->addr == addr)
            return m;
        if (m->until_s < found->until_s)
            found = m;
    }
    return found;
}

void visitors_let_in(struct visitors *v, size_t place, bool remember, struct in_addr addr,
                     uint64_t now_s)
{
    __atomic_store_n(&v->is_in[place], true, __ATOMIC_RELEASE);
    if (!remember)
        return;
    lock(v);
    *memory_of(v, addr.s_addr) = (struct memory){addr.s_addr, now_s + VISITORS_REMEMBER_S};
    pthread_mutex_unlock(&v->lock);
}

bool visitors_knows(struct visitors *v, struct in_addr addr, uint64_t now_s)
{
    lock(v);
    const struct memory *m = memory_of(v, addr.s_addr);
    bool knows = m->addr == addr.s_addr && m->until_s > now_s;
    pthread_mutex_unlock(&v->lock);
    return knows;
}

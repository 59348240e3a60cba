/* SPDX-License-Identifier: Apache-2.0 */
#include "log_limit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct entry {
    uint64_t key; /* 0: free */
    uint64_t began_ns, unwritten;
    unsigned written;
    char peer[LOG_LIMIT_PEER], kind[LOG_LIMIT_KIND];
};

struct log_limit {
    pthread_mutex_t lock; /* robust: a process may die while it holds it */
    size_t n, bytes;
    uint64_t window_ns;
    struct entry entries[]; /* n, and one shared by all other peers */
};

struct log_limit *log_limit_new(size_t entries, uint64_t window_ns)
{
    size_t bytes = sizeof(struct log_limit) + (entries + 1) * sizeof(struct entry);
    struct log_limit *l =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (l == MAP_FAILED)
        return NULL;
    l->n = entries;
    l->bytes = bytes;
    l->window_ns = window_ns;
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&l->lock, &a);
    pthread_mutexattr_destroy(&a);
    return l;
}

void log_limit_free(struct log_limit *l)
{
    if (l)
        munmap(l, l->bytes);
}

static void lock(struct log_limit *l)
{
    if (pthread_mutex_lock(&l->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&l->lock);
}

/* FNV-1a over both texts; never 0. */
static uint64_t key_of(const char *peer, const char *kind)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (const char *c = peer; *c; c++)
        h = (h ^ (uint8_t)*c) * UINT64_C(1099511628211);
    h *= UINT64_C(1099511628211);
    for (const char *c = kind; *c; c++)
        h = (h ^ (uint8_t)*c) * UINT64_C(1099511628211);
    return h ? h : 1;
}

static bool is_over(const struct log_limit *l, const struct entry *e, uint64_t now_ns)
{
    return now_ns >= e->began_ns + l->window_ns;
}

static void begin(struct entry *e, uint64_t key, const char *peer, const char *kind,
                  uint64_t now_ns)
{
    *e = (struct entry){.key = key, .began_ns = now_ns};
    snprintf(e->peer, sizeof e->peer, "%s", peer);
    snprintf(e->kind, sizeof e->kind, "%s", kind);
}

/* Returns this peer's entry; else a free one, or one whose window is over with nothing left to
 * report; else the shared entry. */
static struct entry *find(struct log_limit *l, const char *peer, const char *kind, uint64_t now_ns)
{
    uint64_t key = key_of(peer, kind);
    struct entry *room = NULL;

    for (size_t i = 0; i < l->n; i++) {
        struct entry *e = &l->entries[i];
        if (e->key == key)
            return e;
        if (!room && (!e->key || (!e->unwritten && is_over(l, e, now_ns))))
            room = e;
    }
    if (room) {
        begin(room, key, peer, kind, now_ns);
        return room;
    }
    struct entry *others = &l->entries[l->n];
    if (!others->key)
        begin(others, 1, LOG_LIMIT_OTHERS, "any", now_ns);
    return others;
}

bool log_limit_take(struct log_limit *l, const char *peer, const char *kind, unsigned lines,
                    uint64_t now_ns, uint64_t *before)
{
    *before = 0;
    lock(l);
    struct entry *e = find(l, peer, kind, now_ns);
    if (is_over(l, e, now_ns)) {
        *before = e->unwritten;
        e->began_ns = now_ns;
        e->unwritten = 0;
        e->written = 0;
    }
    bool may = e->written < lines;
    if (may)
        e->written++;
    else
        e->unwritten++;
    pthread_mutex_unlock(&l->lock);
    return may;
}

bool log_limit_rest(struct log_limit *l, uint64_t now_ns, bool all, struct log_limit_rest *out)
{
    bool found = false;

    lock(l);
    for (size_t i = 0; i <= l->n && !found; i++) {
        struct entry *e = &l->entries[i];
        if (!e->key || !e->unwritten || (!all && !is_over(l, e, now_ns)))
            continue;
        out->lines = e->unwritten;
        memcpy(out->peer, e->peer, sizeof out->peer);
        memcpy(out->kind, e->kind, sizeof out->kind);
        out->peer[sizeof out->peer - 1] = out->kind[sizeof out->kind - 1] = '\0';
        e->unwritten = 0;
        found = true;
    }
    pthread_mutex_unlock(&l->lock);
    return found;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * kill -9 at random moments under load: test_pq_kill [KILLS [SEED]].
 *
 * Writers (with pq_insert; with reservations, some discarded or abandoned), readers (that follow;
 * that look up and pin), an expirer and a process that opens and closes work on one small queue. In
 * each round one or several of them are killed at any point; then the workers that change the queue
 * pause and the queue is checked. A writer notes each product that was reported as committed in
 * shared memory, which survives the writer.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/splitmix.h"
#include "queue/pq_impl.h"

enum {
    DATA_BYTES = 320 * 1024,
    SLOTS = 96,
    SIZE_MAX_BYTES = 9000,
    NOTES = 1024,
    HANG_S = 30,
    DEFAULT_KILLS = 150
};
enum kind { INSERTER, RECEIVER, FOLLOWER, SEEKER, EXPIRER, OPENER };
static const enum kind kinds[] = {INSERTER, INSERTER, RECEIVER, RECEIVER, FOLLOWER,
                                  FOLLOWER, SEEKER,   EXPIRER,  OPENER};
enum { WORKERS = sizeof kinds / sizeof *kinds };

struct note {
    uint64_t seq, id;
};

struct worker {
    pid_t pid;
    _Atomic uint32_t paused;
    _Atomic uint64_t position; /* of a follower */
    _Atomic uint64_t noted;    /* notes[i % NOTES] is valid for noted - NOTES < i < noted */
    struct note notes[NOTES];
};

static struct shared {
    /* 0: none, else the number of this pause, repeated by workers that pause. */
    _Atomic uint32_t pause;
    _Atomic uint32_t expiring;
    _Atomic uint64_t expired_to; /* products up to this position may have been removed */
    _Atomic uint64_t next_id;    /* of products: each is made once */
    _Atomic uint64_t read, looked_up, removed, opened, discarded;
    _Atomic uint32_t failed;
    char failure[300];
    struct worker workers[WORKERS];
} * shared;

static char path[64];

static bool pauses(unsigned i)
{
    return kinds[i] != FOLLOWER;
}

static void fail(const char *fmt, ...)
{
    if (atomic_fetch_add(&shared->failed, 1))
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(shared->failure, sizeof shared->failure, fmt, ap);
    va_end(ap);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Never so small that two products could be equal. */
static uint32_t size_of(uint64_t id)
{
    return 16 + (uint32_t)(splitmix_key(1, id) % (SIZE_MAX_BYTES - 16));
}

static void describe(struct pq_info *info, uint64_t id, const void *data)
{
    memset(info, 0, sizeof *info);
    info->size = size_of(id);
    info->seqno = (uint32_t)id;
    if (!digest_of(data, info->size, &info->signature))
        fail("no MD5");
    snprintf(info->ident, sizeof info->ident, "%llu", (unsigned long long)id);
    gettimeofday(&info->creation, NULL);
}

static bool is_whole(const struct pq_view *v)
{
    struct pq_signature found;
    return v->info.size == size_of(strtoull(v->info.ident, NULL, 10)) &&
           digest_of(v->data, v->info.size, &found) && memcmp(&found, &v->info.signature, 16) == 0;
}

static void note(struct worker *w, struct pq *q, uint64_t id)
{
    uint64_t i = atomic_load(&w->noted);
    w->notes[i % NOTES] = (struct note){.seq = pq_committed_seq(q), .id = id};
    atomic_store(&w->noted, i + 1);
}

/* Call this between two operations. */
static void pause_if_told(struct worker *w)
{
    for (uint32_t nth; (nth = atomic_load(&shared->pause)); usleep(50))
        atomic_store(&w->paused, nth);
}

static void expect(enum pq_status s, const char *what)
{
    if (s != PQ_OK && s != PQ_FULL)
        fail("%s: %s", what, pq_strerror(s));
}

static void insert(struct worker *w, struct pq *q, uint8_t *buffer)
{
    uint64_t id = atomic_fetch_add(&shared->next_id, 1);
    splitmix_fill(splitmix_key(2, id), 0, buffer, size_of(id));
    struct pq_info info;
    describe(&info, id, buffer);
    enum pq_status s = pq_insert(q, &info, buffer);
    if (s == PQ_OK)
        note(w, q, id);
    expect(s, "pq_insert");
}

static void receive(struct worker *w, struct pq *q, unsigned turn)
{
    struct pq_reservation *r;
    void *region;
    uint64_t id = atomic_fetch_add(&shared->next_id, 1);
    uint32_t offset = turn % 100;
    enum pq_status s = pq_reserve(q, NULL, size_of(id) + offset, &region, &r);
    expect(s, "pq_reserve");
    if (s)
        return;
    splitmix_fill(splitmix_key(2, id), 0, (uint8_t *)region + offset, size_of(id));
    if (turn % 5 == 0) {
        pq_discard(q, r);
        atomic_fetch_add(&shared->discarded, 1);
        return;
    }
    struct pq_info info;
    describe(&info, id, (uint8_t *)region + offset);
    s = pq_commit(q, r, &info, offset);
    if (s == PQ_OK)
        note(w, q, id);
    else if (s != PQ_DUP)
        pq_discard(q, r);
    expect(s, "pq_commit");
}

static void follow(struct worker *w, struct pq *q)
{
    struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
    uint64_t after = 0;
    for (;;) {
        if (poll(&p, 1, -1) < 0)
            fail("poll");
        pq_notify_clear(q);
        struct pq_view v;
        while (pq_next(q, after, &v) == PQ_OK) {
            if (v.seq <= after)
                fail("position %llu after %llu", (unsigned long long)v.seq,
                     (unsigned long long)after);
            if (!is_whole(&v))
                fail("torn: position %llu, read in order", (unsigned long long)v.seq);
            after = v.seq;
            pq_release(q, &v);
            atomic_store(&w->position, after);
            atomic_fetch_add(&shared->read, 1);
        }
    }
}

static void seek(struct pq *q, unsigned turn)
{
    enum { HELD = 4 };
    static struct pq_view held[HELD];
    struct pq_view *v = &held[turn % HELD];
    pq_release(q, v);
    struct timeval from;
    gettimeofday(&from, NULL);
    from.tv_usec -= (suseconds_t)(splitmix_key(3, turn) % 20000);
    if (from.tv_usec < 0) {
        from.tv_usec += 1000000;
        from.tv_sec--;
    }
    uint64_t after;
    expect(pq_seek(q, &from, &after), "pq_seek");
    if (pq_next(q, after, v) != PQ_OK)
        return;
    /* It is pinned: neither moved nor overwritten, and found by its signature unless removed. */
    for (int i = 0; i < HELD; i++)
        if (held[i].data && !is_whole(&held[i]))
            fail("torn: position %llu, pinned", (unsigned long long)held[i].seq);
    struct pq_view again;
    if (pq_find(q, &v->info.signature, &again) == PQ_OK) {
        if (again.seq != v->seq || again.data != v->data)
            fail("found twice: %llu, %llu", (unsigned long long)v->seq,
                 (unsigned long long)again.seq);
        pq_release(q, &again);
    }
    atomic_fetch_add(&shared->looked_up, 1);
}

/* Keeps the 40 newest products. */
static void expire(struct pq *q)
{
    uint64_t last = pq_last_seq(q);
    struct pq_view v;
    if (!atomic_load(&shared->expiring) || pq_next(q, 0, &v) != PQ_OK)
        return;
    bool old = v.seq + 40 < last;
    if (old && v.seq > atomic_load(&shared->expired_to))
        atomic_store(&shared->expired_to, v.seq);
    uint64_t seq = v.seq;
    if (splitmix_key(4, seq) & 1) /* freed either by its own reader's release or immediately */
        pq_release(q, &v);
    if (old && pq_remove(q, seq) == PQ_OK)
        atomic_fetch_add(&shared->removed, 1);
    pq_release(q, &v);
}

static _Noreturn void work(unsigned i)
{
    struct worker *w = &shared->workers[i];
    static uint8_t buffer[SIZE_MAX_BYTES];
    struct pq *q = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned turn = 1;; turn++) {
        if (pauses(i))
            pause_if_told(w);
        if (!q && pq_open(path, kinds[i] != FOLLOWER && kinds[i] != SEEKER, &q)) {
            fail("pq_open: %s", strerror(errno));
            _exit(1);
        }
        switch (kinds[i]) {
        case INSERTER: insert(w, q, buffer); break;
        case RECEIVER: receive(w, q, turn); break;
        case FOLLOWER: follow(w, q); break;
        case SEEKER: seek(q, turn); break;
        case EXPIRER:
            expire(q);
            usleep(100);
            break;
        case OPENER:
            insert(w, q, buffer);
            pq_close(q);
            q = NULL;
            atomic_fetch_add(&shared->opened, 1);
            break;
        }
    }
}

static void spawn(unsigned i)
{
    struct worker *w = &shared->workers[i];
    atomic_store(&w->paused, 0);
    atomic_store(&w->position, 0);
    /* Not directly into shared memory, since the child would write its 0 there. */
    pid_t pid = fork();
    if (pid == 0)
        work(i);
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    w->pid = pid;
}

/* Waits until all that change the queue pause; false if one of them hangs. */
static bool pause_all(const bool *dead)
{
    double began = now_s();
    static uint32_t nth;
    atomic_store(&shared->pause, ++nth);
    for (unsigned i = 0; i < WORKERS; i++)
        while (pauses(i) && !dead[i] && atomic_load(&shared->workers[i].paused) != nth) {
            if (now_s() - began > HANG_S) {
                fail("worker %u (kind %d) hangs", i, kinds[i]);
                return false;
            }
            usleep(20);
        }
    return true;
}

/* Waits until those that follow have been woken for the newest product and have read it. */
static bool all_follow(const bool *dead, uint64_t newest)
{
    double began = now_s();
    for (unsigned i = 0; i < WORKERS; i++)
        while (kinds[i] == FOLLOWER && !dead[i] &&
               atomic_load(&shared->workers[i].position) < newest) {
            if (now_s() - began > HANG_S) {
                fail("reader %u is not woken: it is at %llu of %llu", i,
                     (unsigned long long)atomic_load(&shared->workers[i].position),
                     (unsigned long long)newest);
                return false;
            }
            usleep(20);
        }
    return true;
}

/* Everything in the queue is whole; whatever was noted and cannot have been evicted is there.
 * Returns the number of notes checked. */
static unsigned look_through(struct pq *q, uint64_t *newest)
{
    static struct note there[SLOTS];
    unsigned count = 0, checked = 0;
    uint64_t after = 0;
    if (pq_check(q) != PQ_OK)
        fail("the tables do not agree");
    struct pq_view v;
    for (; pq_next(q, after, &v) == PQ_OK; pq_release(q, &v)) {
        if (v.seq <= after || count == SLOTS)
            fail("order: %llu after %llu", (unsigned long long)v.seq, (unsigned long long)after);
        if (!is_whole(&v))
            fail("torn: position %llu", (unsigned long long)v.seq);
        after = v.seq;
        there[count++] = (struct note){.seq = v.seq, .id = strtoull(v.info.ident, NULL, 10)};
    }
    *newest = after;
    /* The younger half stays when room is made; there may have been fewer products then. */
    uint64_t must = pq_last_seq(q) - count / 4, expired = atomic_load(&shared->expired_to);
    if (must < expired)
        must = expired;
    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &shared->workers[i];
        uint64_t noted = atomic_load(&w->noted);
        /* The oldest note may be half overwritten, if its writer was killed while writing the next
         * one. */
        for (uint64_t k = noted >= NOTES ? noted - NOTES + 1 : 0; k < noted; k++) {
            struct note *n = &w->notes[k % NOTES];
            bool found = false;
            if (n->seq <= must)
                continue;
            for (unsigned t = 0; t < count && !found; t++)
                found = there[t].seq == n->seq && there[t].id == n->id;
            if (!found)
                fail("lost: position %llu of worker %u, last %llu", (unsigned long long)n->seq, i,
                     (unsigned long long)pq_last_seq(q));
            checked++;
        }
    }
    return checked;
}

/* No process is left: all room and all slots must be free again. */
static void take_stock(struct pq *q)
{
    static uint8_t all[DATA_BYTES];
    struct pq_info info = {.size = DATA_BYTES};
    if (pq_insert(q, &info, all) != PQ_OK)
        fail("room is lost");
    for (unsigned n = 0; n < SLOTS; n++) {
        info = (struct pq_info){.size = 1, .signature = {{1}}};
        memcpy(info.signature.bytes + 1, &n, sizeof n);
        if (pq_insert(q, &info, all) != PQ_OK)
            fail("insertion after the end");
    }
    struct pq_stats s;
    pq_get_stats(q, &s);
    if (s.used_slots != SLOTS || s.reserved_slots || s.used_bytes != SLOTS * PQ_UNIT)
        fail("slots are lost: %u of %u, %u reserved, %llu bytes", s.used_slots, SLOTS,
             s.reserved_slots, (unsigned long long)s.used_bytes);
    struct pq *another; /* opening releases what the dead processes held */
    struct pq_client_info clients[PQ_CLIENTS];
    if (pq_open(path, false, &another) || pq_clients(q, clients, PQ_CLIENTS) != 2)
        fail("places of dead clients are lost");
    else
        pq_close(another);
}

static void report(struct pq *q, unsigned kills, uint64_t checked, double took)
{
    uint64_t noted = 0;
    struct pq_stats s;
    pq_get_stats(q, &s);
    for (unsigned i = 0; i < WORKERS; i++)
        noted += atomic_load(&shared->workers[i].noted);
    printf(
        "%u kills in %.1f s, %llu of them inside the lock; %llu products committed, %llu notes compared, "
        "%llu evicted, %llu expired, %llu discarded; %llu read in order, %llu looked up, %llu times opened\n",
        kills, took, (unsigned long long)s.recoveries, (unsigned long long)noted,
        (unsigned long long)checked, (unsigned long long)s.evicted,
        (unsigned long long)atomic_load(&shared->removed),
        (unsigned long long)atomic_load(&shared->discarded),
        (unsigned long long)atomic_load(&shared->read),
        (unsigned long long)atomic_load(&shared->looked_up),
        (unsigned long long)atomic_load(&shared->opened));
    if (!noted || !checked || !s.evicted || !atomic_load(&shared->read))
        fail("nothing happened");
}

static void kill_worker(unsigned i)
{
    kill(shared->workers[i].pid, SIGKILL);
    waitpid(shared->workers[i].pid, NULL, 0);
}

/* Kills some workers, or all; stores which are dead and returns their number. */
static unsigned kill_some(uint64_t *rng, bool dead[WORKERS])
{
    unsigned killed = 0;

    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    usleep((useconds_t)(*rng >> 40) % 2000);
    unsigned at_once = *rng >> 60 ? 1 + (unsigned)(*rng >> 56) % 4 : WORKERS;
    for (unsigned k = 0; k < at_once; k++) {
        *rng = *rng * 6364136223846793005u + 1442695040888963407u;
        unsigned i = (unsigned)(*rng >> 33) % WORKERS;
        if (dead[i])
            continue;
        kill_worker(i);
        dead[i] = true;
        killed++;
    }
    return killed;
}

int main(int argc, char **argv)
{
    unsigned kills = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : DEFAULT_KILLS, killed = 0;
    uint64_t rng = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)getpid(), checked = 0;
    if (!kills) {
        fprintf(stderr, "test_pq_kill: found \"%s\"; valid: how many processes to kill, from 1\n",
                argv[1]);
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(path, sizeof path, "%s/test-pq-kill-%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    struct pq *q;
    if (shared == MAP_FAILED || pq_create(path, DATA_BYTES, SLOTS, false) ||
        pq_open(path, true, &q)) {
        perror(path);
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)rng);
    fflush(stdout);
    double began = now_s();
    for (unsigned i = 0; i < WORKERS; i++)
        spawn(i);
    uint64_t newest;
    while (killed < kills && !atomic_load(&shared->failed)) {
        bool dead[WORKERS] = {false};
        killed += kill_some(&rng, dead);
        if (!pause_all(dead))
            break;
        checked += look_through(q, &newest);
        if (!all_follow(dead, newest))
            break;
        atomic_store(&shared->expiring, killed / 64 % 2);
        atomic_store(&shared->pause, 0);
        for (unsigned i = 0; i < WORKERS; i++)
            if (dead[i])
                spawn(i);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        kill_worker(i);
    killed += WORKERS;
    checked += look_through(q, &newest);
    report(q, killed, checked, now_s() - began);
    take_stock(q);
    pq_close(q);
    unlink(path);
    if (atomic_load(&shared->failed))
        printf("FAILED: %s (%u failures)\n", shared->failure, atomic_load(&shared->failed));
    return atomic_load(&shared->failed) != 0;
}

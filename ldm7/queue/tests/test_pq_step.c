/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes killed at each instruction: test_pq_step [EVERY]. A child does one operation,
 * single-stepped by ptrace, and is killed after n instructions; for each n that is a multiple of
 * EVERY (1: all of them; default: six for each operation, with DOWNPOUR_TEST_LONG 36, fewer for
 * long ones, different ones every time). Then the queue is checked with another handle: the tables
 * agree, what was committed is there and whole unless it had to make room, what was being inserted
 * is there whole or not at all, readers have been woken for it, nothing is lost.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "queue/pq_impl.h"

/* 4 slots have 16 order cells. 64 units of room. */
enum {
    DATA_BYTES = 4096,
    SLOTS = 4,
    OLD = 16,
    SIZE = 700,
    NEW = 100,
    NEW_SIZE = 1500,
    SKIPPED = 77,
    POINTS = 6,
    MANY_POINTS = 36
};

static char path[64], copy[70];
static _Atomic uint32_t *returned; /* by the child's operation */
static unsigned failures;
static struct pq_view held; /* by a scenario's parent */

static uint8_t byte_of(unsigned n, uint32_t at)
{
    return (uint8_t)(n * 7 + at * 31 + (at >> 8));
}

static struct pq_info info_of(unsigned n, uint32_t size)
{
    struct pq_info i = {.seqno = n, .size = size, .creation = {1000, 0}};
    memcpy(i.signature.bytes, &n, sizeof n);
    return i;
}

static void fill(uint8_t *data, unsigned n, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        data[i] = byte_of(n, i);
}

static enum pq_status put(struct pq *q, unsigned n, uint32_t size)
{
    static uint8_t data[DATA_BYTES];
    struct pq_info info = info_of(n, size);
    fill(data, n, size);
    return pq_insert(q, &info, data);
}

static bool is_whole(const struct pq_view *v)
{
    struct pq_info want = info_of(v->info.seqno, v->info.size);
    bool whole = memcmp(&want.signature, &v->info.signature, 16) == 0;
    for (uint32_t i = 0; whole && i < v->info.size; i++)
        whole = v->data[i] == byte_of(v->info.seqno, i);
    return whole && v->info.size == (v->info.seqno == NEW ? NEW_SIZE : SIZE);
}

static bool fail(const char *name, unsigned long at, const char *fmt, ...)
{
    failures++;
    printf("FAILED: %s, killed after %lu instructions: ", name, at);
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    return false;
}

static struct pq_reservation *reserved;
static void *region;

static uint8_t new_data[NEW_SIZE];

static void op_reserve(struct pq *q)
{
    if (pq_reserve(q, NULL, NEW_SIZE + 3, &region, &reserved))
        _exit(2);
}

static void reserve_new(struct pq *q)
{
    op_reserve(q);
    memcpy((uint8_t *)region + 3, new_data, NEW_SIZE);
}

static void op_insert(struct pq *q)
{
    struct pq_info info = info_of(NEW, NEW_SIZE);
    pq_insert(q, &info, new_data);
}

static void op_commit(struct pq *q)
{
    struct pq_info info = info_of(NEW, NEW_SIZE);
    pq_commit(q, reserved, &info, 3);
}

static void op_discard(struct pq *q)
{
    pq_discard(q, reserved);
}

static void op_read(struct pq *q)
{
    struct pq_view a, b;
    if (pq_next(q, 0, &a) == PQ_OK && pq_next(q, a.seq, &b) == PQ_OK) {
        pq_release(q, &a);
        pq_release(q, &b);
    }
}

static void pin_oldest(struct pq *q)
{
    if (pq_next(q, 0, &held))
        _exit(2);
}

static void remove_held(struct pq *q)
{
    pq_remove(q, held.seq);
}

static void pin_and_remove(struct pq *q)
{
    pin_oldest(q);
    remove_held(q);
}

static void op_release(struct pq *q)
{
    pq_release(q, &held);
}

static void op_remove(struct pq *q)
{
    struct pq_view v;
    if (pq_next(q, 0, &v) == PQ_OK) {
        uint64_t seq = v.seq;
        pq_release(q, &v);
        pq_remove(q, seq);
    }
}

static void hold_and_reserve(struct pq *q)
{
    reserve_new(q);
    pin_oldest(q);
}

static void op_close(struct pq *q)
{
    pq_close(q);
}

static void op_open(struct pq *q)
{
    (void)q;
    struct pq *another;
    if (pq_open(path, true, &another))
        _exit(2);
}

/* Another process was killed with the lock held and the tables half written: now the recovery is
 * killed as well. */
static void leave_a_mess(struct pq *q)
{
    (void)q;
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *m;
        if (pq_open(path, true, &m) || pq_lock(m))
            _exit(2);
        memset(m->hash, 0x55, m->h->hash_cells * 4);
        memset(m->order, 0x55, m->h->order_cells * 4);
        memset(m->nodes, 0x55, m->h->nodes * sizeof *m->nodes);
        m->h->first_node = m->h->cursor = m->h->oldest = m->h->newest = 7;
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
}

/* A copy of the file is of another run, as any file is after a reboot. */
static void copy_queue(struct pq *q)
{
    FILE *f = fopen(copy, "wb");
    if (!f || fwrite(q->map, q->map_bytes, 1, f) != 1 || fclose(f) != 0)
        _exit(2);
}

/* The process that had the copy open was killed. */
static void copy_and_leave_dirty(struct pq *q)
{
    struct pq *c;
    copy_queue(q);
    pid_t pid = fork();
    if (pid == 0) {
        if (pq_open(copy, true, &c))
            _exit(2);
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
}

static void op_open_copy(struct pq *q)
{
    (void)q;
    struct pq *c;
    if (pq_open(copy, true, &c))
        _exit(2);
}

struct scenario {
    const char *name;
    void (*parent)(struct pq *); /* with the handle that observes */
    void (*before)(struct pq *); /* in the child */
    void (*op)(struct pq *);
    bool inserts;     /* NEW; older products may make room */
    bool removes;     /* the oldest */
    unsigned coarser; /* long ones: only every nth point */
};
static const struct scenario scenarios[] = {
    {"insertion that evicts", NULL, NULL, op_insert, true, false, 1},
    {"insertion beside a pinned product", pin_oldest, NULL, op_insert, true, false, 1},
    {"reservation", NULL, NULL, op_reserve, true, false, 1},
    {"commit", NULL, reserve_new, op_commit, true, false, 1},
    {"discarding", NULL, reserve_new, op_discard, true, false, 1},
    {"reading", NULL, NULL, op_read, false, false, 1},
    {"removal", NULL, NULL, op_remove, false, true, 1},
    {"removal of what another has pinned", pin_oldest, NULL, op_remove, false, true, 1},
    {"release of a removed product", NULL, pin_and_remove, op_release, false, true, 1},
    {"closing", NULL, hold_and_reserve, op_close, true, false, 7},
    {"opening", NULL, NULL, op_open, false, false, 41},
    {"opening a copy", copy_queue, NULL, op_open_copy, false, false, 41},
    {"opening what was left dirty", copy_and_leave_dirty, NULL, op_open_copy, false, false, 41},
    {"recovery", leave_a_mess, NULL, op_read, false, false, 41},
};

/* Steps the child by at most `most` instructions; returns how many it had executed when its
 * operation returned. */
static unsigned long step(pid_t pid, unsigned long most)
{
    unsigned long n = 0;
    int status;
    while (n < most && !atomic_load(returned)) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid ||
            !WIFSTOPPED(status))
            return 0;
        n++;
    }
    return n;
}

/* True if the product is in the slots, whatever the tables say. Takes no lock. */
static bool is_committed(const struct pq *q, unsigned seqno)
{
    for (uint32_t s = 0; s < SLOTS; s++)
        if (pq_state(&q->slots[s]) == SLOT_COMMITTED && q->slots[s].info.seqno == seqno)
            return true;
    return false;
}

/* The copy has all four products, and accepts others. */
static bool look_at_copy(const struct scenario *s, unsigned long at)
{
    struct pq *c;
    struct pq_view v;
    if (pq_open(copy, true, &c))
        return fail(s->name, at, "the copy cannot be opened");
    unsigned count = 0;
    for (uint64_t after = 0; pq_next(c, after, &v) == PQ_OK; after = v.seq, pq_release(c, &v))
        count += is_whole(&v) && v.info.seqno == OLD - SLOTS + 1 + count;
    if (count != SLOTS || pq_check(c) || put(c, 300, DATA_BYTES) || pq_clients(c, NULL, 0) != 1)
        fail(s->name, at, "%u products are in the copy, or it takes no other", count);
    pq_close(c);
    return true;
}

static bool look(const struct scenario *s, struct pq *q, unsigned long at)
{
    if (s->op == op_open_copy && !look_at_copy(s, at))
        return false;
    bool pinned = held.data, found = is_committed(q, NEW);
    unsigned first = 0, last = 0, count = 0;
    struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
    if (found && poll(&p, 1, 5000) != 1)
        return fail(s->name, at, "committed, but the readers sleep");
    if (pq_check(q))
        return fail(s->name, at, "the tables do not agree");
    bool inserted = false;
    struct pq_view v;
    for (uint64_t after = 0; pq_next(q, after, &v) == PQ_OK; after = v.seq, pq_release(q, &v)) {
        if (v.seq <= after || !is_whole(&v))
            return fail(s->name, at, "product %u is torn or out of order", v.info.seqno);
        if (v.info.seqno == NEW) {
            inserted = true;
            continue;
        }
        if (pinned && v.seq == held.seq)
            continue;
        if (last && v.info.seqno != last + 1)
            return fail(s->name, at, "%u is missing between others", last + 1);
        first = first ? first : v.info.seqno;
        last = v.info.seqno;
        count++;
    }
    /* Up to three of the oldest may make room for NEW; the oldest may be removed. */
    unsigned full = SLOTS - (pinned ? 1 : 0), least = s->inserts              ? 1
                                                      : s->removes && !pinned ? full - 1
                                                                              : full;
    if (last != OLD || count < least || count > full)
        return fail(s->name, at, "%u products from %u to %u are left", count, first, last);
    if (inserted != found ||
        (s->op == op_insert || s->op == op_commit ? atomic_load(returned) && !found : found))
        return fail(s->name, at, "the product is %sthere, committed %d", inserted ? "" : "not ",
                    found);
    if (pinned && (!is_whole(&held)))
        return fail(s->name, at, "a pinned product was overwritten");
    pq_release(q, &held);
    struct pq *another; /* opening releases what the killed child held */
    if (pq_open(path, true, &another))
        return fail(s->name, at, "it cannot be opened");
    pq_close(another);
    struct pq_stats st;
    pq_get_stats(q, &st);
    if (st.reserved_slots)
        return fail(s->name, at, "%u slots are lost", st.reserved_slots);
    pq_notify_clear(q);
    if (put(q, 199, SIZE) || poll(&p, 1, 5000) != 1)
        return fail(s->name, at, "the readers are not woken any more");
    for (unsigned n = 0; n < SLOTS; n++)
        if (put(q, 200 + n, SIZE))
            return fail(s->name, at, "no further insertion is possible");
    if (put(q, 300, DATA_BYTES) || pq_check(q))
        return fail(s->name, at, "room is lost");
    return true;
}

/* Makes the queue with 13 to 16 in it, and a child about to begin; returns -1 if ptrace is not
 * permitted. */
static pid_t begin(const struct scenario *s, struct pq **q)
{
    memset(&held, 0, sizeof held);
    if (pq_create(path, DATA_BYTES, SLOTS, true) || pq_open(path, true, q))
        return 0;
    for (unsigned n = 1; n <= OLD; n++)
        put(*q, n, SIZE);
    if (pq_notify_fd(*q) < 0)
        return 0;
    /* Existing products are announced too: after that the listener waits. */
    struct pollfd p = {.fd = pq_notify_fd(*q), .events = POLLIN};
    if (poll(&p, 1, 5000) != 1)
        return 0;
    pq_notify_clear(*q);
    while (!(atomic_load(&(*q)->h->wake) & 1))
        usleep(10);
    atomic_store(returned, 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        memset(&held, 0, sizeof held);
        struct pq *mine;
        if (pq_open(path, true, &mine))
            _exit(2);
        if (s->before)
            s->before(mine);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
            _exit(SKIPPED);
        raise(SIGSTOP);
        s->op(mine);
        atomic_store(returned, 1);
        pause();
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 0;
    if (WIFEXITED(status))
        return WEXITSTATUS(status) == SKIPPED ? -1 : 0;
    if (s->parent)
        s->parent(*q);
    return pid;
}

/* Kills after `at` instructions and checks; returns false if the operation had ended by then. */
static bool kill_at(const struct scenario *s, unsigned long at, unsigned long *done)
{
    struct pq *q = NULL;
    pid_t pid = begin(s, &q);
    if (pid == -1) {
        printf("skipped: ptrace is not permitted\n");
        exit(SKIPPED);
    }
    if (pid == 0) {
        printf("FAILED: %s cannot begin\n", s->name);
        exit(1);
    }
    *done = step(pid, at);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    bool over = atomic_load(returned);
    look(s, q, *done);
    pq_close(q);
    return !over;
}

/* Parent and child alternate, one instruction each: on one core a turn costs a fraction of the time
 * to wake another core. Which core is least busy cannot be known. */
static void stay_on_one_core(void)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return;
    int chosen = (int)(getpid() % CPU_COUNT(&allowed)), cpu = 0;
    while (!CPU_ISSET(cpu, &allowed) || chosen-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void remove_queue(void)
{
    unlink(path);
    unlink(copy);
}

int main(int argc, char **argv)
{
    unsigned long every = argc > 1 ? strtoul(argv[1], NULL, 10) : 0, points = 0, all = 0;
    if (argc > 1 && !every) {
        fprintf(stderr,
                "test_pq_step: found \"%s\"; valid: kill at every Nth instruction, N from 1\n",
                argv[1]);
        return 2;
    }
    snprintf(path, sizeof path, "%s/test-pq-step-%ld",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    snprintf(copy, sizeof copy, "%s.copy", path);
    atexit(remove_queue);
    stay_on_one_core();
    fill(new_data, NEW, NEW_SIZE);
    returned =
        mmap(NULL, sizeof *returned, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (returned == MAP_FAILED)
        return 2;
    unsigned wanted = getenv("DOWNPOUR_TEST_LONG") ? MANY_POINTS : POINTS;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios && !failures; i++) {
        const struct scenario *s = &scenarios[i];
        unsigned long length, n = 0;
        kill_at(s, ULONG_MAX, &length);
        unsigned long stride =
            every ? every * s->coarser : length / (s->coarser > 1 ? wanted / 3 - 1 : wanted) + 1;
        unsigned long done;
        for (unsigned long at = (unsigned long)getpid() % stride; !failures && at < length;
             at += stride, n++)
            if (!kill_at(s, at, &done))
                break;
        printf("%-36s %7lu instructions, killed at %lu of them\n", s->name, length, n);
        points += n;
        all += length;
    }
    printf("killed at %lu of %lu instructions\n", points, all);
    return failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The product queue shared by processes: readers and writers at once, processes that are killed at
 * any moment, waking up, fork.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/digest.h"
#include "common/splitmix.h"
#include "pq_place.h"
#include "queue/pq_impl.h"

static uint8_t buffer[1 << 20];

static void make_queue(uint64_t bytes, uint32_t slots)
{
    assert_int_equal(pq_create(path, bytes, slots, true), PQ_OK);
}

static struct pq *open_queue(void)
{
    struct pq *q;
    return pq_open(path, true, &q) == PQ_OK ? q : NULL;
}

/* A product whose data follow from (writer, n) and whose signature is the MD5 of its data. */
static enum pq_status put(struct pq *q, unsigned writer, unsigned n, uint32_t size)
{
    struct pq_info info = {.size = size, .seqno = n, .feedtype = writer};
    splitmix_fill(splitmix_key(writer, n), 0, buffer, size);
    if (!digest_of(buffer, size, &info.signature))
        return PQ_INVAL;
    snprintf(info.ident, sizeof info.ident, "%u.%u", writer, n);
    return pq_insert(q, &info, buffer);
}

static bool is_whole(const struct pq_view *v)
{
    struct pq_signature found;
    return digest_of(v->data, v->info.size, &found) && memcmp(&found, &v->info.signature, 16) == 0;
}

static uint32_t size_of(unsigned n)
{
    return 500 + n * 7919 % 9000;
}

/* Children report by exit status: 0 or the line that failed, modulo 255. */
#define CHECK(c)                       \
    do {                               \
        if (!(c))                      \
            _exit(__LINE__ % 254 + 1); \
    } while (0)

static void join_all(pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void write_products(unsigned writer, unsigned count)
{
    struct pq *q = open_queue();
    CHECK(q);
    for (unsigned n = 0; n < count;) {
        enum pq_status s = put(q, writer, n, size_of(n));
        CHECK(s == PQ_OK || s == PQ_FULL);
        if (s == PQ_OK)
            n++;
        else
            usleep(1000);
    }
    pq_close(q);
    _exit(0);
}

/* Reads up to the very last product, which is not evicted; at least min_seen products. */
static void read_products(unsigned writers, unsigned count, unsigned min_seen)
{
    struct pq *q = open_queue();
    CHECK(q);
    struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
    unsigned seen = 0, next[8] = {0};
    uint64_t after = 0;
    while (after < (uint64_t)writers * count) {
        CHECK(poll(&p, 1, 10000) == 1);
        pq_notify_clear(q);
        struct pq_view v;
        while (pq_next(q, after, &v) == PQ_OK) {
            CHECK(v.seq > after);
            CHECK(is_whole(&v));
            CHECK(v.info.size == size_of(v.info.seqno));
            CHECK(v.info.seqno >= next[v.info.feedtype]); /* each writer's products are in order */
            next[v.info.feedtype] = v.info.seqno + 1;
            after = v.seq;
            seen++;
            pq_release(q, &v);
        }
    }
    CHECK(seen >= min_seen && seen <= writers * count);
    pq_close(q);
    _exit(0);
}

static void run_together(uint64_t bytes, uint32_t slots, unsigned writers, unsigned readers,
                         unsigned count, unsigned min_seen)
{
    size_t n = 0;
    make_queue(bytes, slots);
    pid_t pids[16];
    for (unsigned i = 0; i < readers + writers; i++) {
        pids[n] = fork();
        assert_true(pids[n] >= 0);
        if (pids[n++] == 0) {
            alarm(60);
            if (i < readers)
                read_products(writers, count, min_seen);
            write_products(i - readers, count);
        }
    }
    join_all(pids, n);
    struct pq *q = open_queue();
    assert_non_null(q);
    struct pq_stats s;
    pq_get_stats(q, &s);
    assert_int_equal(s.inserted, writers * count);
    assert_int_equal(s.inserted - s.evicted, s.used_slots);
    assert_int_equal(s.reserved_slots, 0);
    assert_int_equal(pq_last_seq(q), writers * count);
    assert_int_equal(pq_check(q), PQ_OK);
    pq_close(q);
}

static void test_everybody_gets_everything(void **state)
{
    (void)state;
    run_together(40 << 20, 10000, 2, 3, 1500, 2 * 1500);
}

/* Room for about 30 products: constant eviction between products that readers have pinned. */
static void test_small_queue(void **state)
{
    (void)state;
    run_together(160 * 1024, 64, 2, 2, 2000, 100);
}

/* 64 kB, filled by eight products. */
static struct pq *full_queue(void)
{
    make_queue(64 * 1024, 20);
    struct pq *q = open_queue();
    for (unsigned n = 0; n < 8; n++)
        assert_int_equal(put(q, 0, n, 8192), PQ_OK);
    return q;
}

static pid_t reader_that_pins_all(int *said)
{
    int pipefd[2];
    assert_int_equal(pipe(pipefd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        struct pq *q = open_queue();
        CHECK(q);
        uint64_t after = 0;
        struct pq_view v;
        while (pq_next(q, after, &v) == PQ_OK)
            after = v.seq;
        CHECK(write(pipefd[1], "p", 1) == 1);
        pause();
        _exit(99);
    }
    close(pipefd[1]);
    *said = pipefd[0];
    char c;
    assert_int_equal(read(pipefd[0], &c, 1), 1);
    return pid;
}

static void kill_and_wait(pid_t pid)
{
    kill(pid, SIGKILL);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* Pins all products, and releases those that are requested. */
static pid_t reader_that_lets_go(int *said)
{
    int pipefd[2];
    assert_int_equal(pipe(pipefd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct pq_view views[8];
        unsigned n = 0;
        alarm(60);
        struct pq *q = open_queue();
        CHECK(q);
        struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
        for (uint64_t after = 0; n < 8 && pq_next(q, after, &views[n]) == PQ_OK; n++)
            after = views[n].seq;
        CHECK(n == 8 && write(pipefd[1], "p", 1) == 1);
        for (;;) {
            uint64_t up_to;
            CHECK(poll(&p, 1, 20000) == 1);
            pq_notify_clear(q);
            if (!pq_room_asked(q, &up_to))
                continue;
            CHECK(!pq_room_asked(q, &up_to)); /* once per request */
            for (unsigned i = 0; i < n; i++)
                if (views[i].data && views[i].seq <= up_to)
                    pq_release(q, &views[i]);
        }
    }
    close(pipefd[1]);
    *said = pipefd[0];
    char c;
    assert_int_equal(read(pipefd[0], &c, 1), 1);
    return pid;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Waits until the other process has this many pins: there may be room before it has released
 * all. */
static void await_pins(struct pq *q, unsigned pins)
{
    struct pq_client_info clients[4];
    unsigned found;
    const double end_s = now_s() + 20;

    do {
        assert_int_equal(pq_clients(q, clients, 4), 2);
        found = clients[0].self ? clients[1].pins : clients[0].pins;
    } while (found != pins && now_s() < end_s);
    assert_int_equal(found, pins);
}

/* The process that has pinned is asked: first for the older half, and for all if that is not
 * enough. */
static void test_room_is_asked_for(void **state)
{
    (void)state;
    struct pq *q = full_queue();
    int said;
    pid_t pid = reader_that_lets_go(&said);
    assert_int_equal(put(q, 0, 100, 8192), PQ_OK);
    await_pins(q, 4);
    assert_int_equal(put(q, 0, 101, 64 * 1024), PQ_OK);
    await_pins(q, 0);
    kill_and_wait(pid);
    close(said);
    pq_close(q);
}

/* A process that was not running while its waiting time passed still asks, and waits for an answer,
 * once. */
static void test_room_is_asked_for_late(void **state)
{
    (void)state;
    struct pq *q = full_queue();
    int said;
    pid_t pid = reader_that_pins_all(&said);
    struct pq_wait w = {.began_ms = 1};
    uint32_t asks = atomic_load(&q->h->asks);
    assert_int_equal(pq_lock(q), PQ_OK);
    assert_true(pq_room_ask(q, &w));
    assert_int_equal(atomic_load(&q->h->asks), asks + 1);
    assert_int_equal(atomic_load(&q->h->asked_up_to), atomic_load(&q->h->last_seq));
    w.began_ms = 1;
    assert_false(pq_room_ask(q, &w));
    assert_int_equal(atomic_load(&q->h->asks), asks + 1);
    pq_unlock(q);
    kill_and_wait(pid);
    close(said);
    pq_close(q);
}

/* The process that was asked does not answer: the wait is bounded, and is not repeated for each
 * product. */
static void test_room_is_asked_for_in_vain(void **state)
{
    (void)state;
    struct pq *q = full_queue();
    int said;
    pid_t pid = reader_that_lets_go(&said);
    kill(pid, SIGSTOP);
    double began = now_s();
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    assert_int_equal(put(q, 0, 100, 8192), PQ_FULL);
    double took = now_s() - began;
    assert_true(took > 0.9 && took < 10);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_nvcsw - before.ru_nvcsw < 50); /* it sleeps rather than polling */
    began = now_s();
    assert_int_equal(put(q, 0, 101, 8192), PQ_FULL);
    assert_true(now_s() - began < 0.9);
    kill(pid, SIGCONT); /* it was asked meanwhile */
    for (int i = 0; i < 200 && put(q, 0, 102, 8192) != PQ_OK; i++)
        usleep(50000);
    assert_int_equal(put(q, 0, 103, 8192), PQ_OK);
    kill_and_wait(pid);
    close(said);
    pq_close(q);
}

/* A connection that receives nothing keeps its room for a second: a writer waits longer than
 * that. */
static void test_room_comes_after_a_second(void **state)
{
    (void)state;
    struct pq *q = full_queue();
    int said;
    pid_t pid = reader_that_pins_all(&said), killer = fork();
    if (killer == 0) {
        usleep(1200000);
        _exit(kill(pid, SIGKILL));
    }
    assert_int_equal(put(q, 0, 100, 8192), PQ_OK);
    kill_and_wait(pid);
    assert_int_equal(waitpid(killer, NULL, 0), killer);
    close(said);
    pq_close(q);
}

static void test_killed_reader(void **state)
{
    (void)state;
    struct pq *q = full_queue();
    int said;
    pid_t pid = reader_that_pins_all(&said);
    assert_int_equal(put(q, 0, 100, 1), PQ_FULL);
    kill_and_wait(pid);
    close(said);
    assert_int_equal(put(q, 0, 100, 64 * 1024), PQ_OK);
    assert_int_equal(pq_check(q), PQ_OK);
    pq_close(q);
}

static void test_killed_receiver_of_a_reservation(void **state)
{
    (void)state;
    make_queue(64 * 1024, 20);
    struct pq *q = open_queue();
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *mine = open_queue();
        void *region;
        struct pq_reservation *r;
        CHECK(mine && pq_reserve(mine, NULL, 40 * 1024, &region, &r) == PQ_OK);
        memset(region, 1, 1000);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct pq_stats s;
    pq_get_stats(q, &s);
    assert_int_equal(s.reserved_slots, 1);
    assert_int_equal(put(q, 0, 1, 60 * 1024), PQ_OK); /* takes the room back */
    pq_get_stats(q, &s);
    assert_int_equal(s.reserved_slots, 0);
    pq_close(q);
}

/* Processes killed at any instruction, some dozens of times: everything in the queue is whole and
 * in order. */
static void test_killed_writers(void **state)
{
    (void)state;
    enum { ROUNDS = 48 };
    make_queue(300 * 1024, 50);
    struct pq *q = open_queue();
    uint64_t rng = (uint64_t)getpid(), products = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60); /* nothing outlives a test that fails */
            struct pq *mine = open_queue();
            CHECK(mine);
            for (unsigned n = 0;; n++)
                put(mine, 1000 + round, n, size_of(n));
        }
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        usleep(10000 + (useconds_t)(rng >> 40) % 20000);
        kill_and_wait(pid);
        uint64_t after = 0;
        struct pq_view v;
        while (pq_next(q, after, &v) == PQ_OK) {
            assert_true(is_whole(&v));
            assert_true(v.seq > after);
            after = v.seq;
            products++;
            pq_release(q, &v);
        }
        assert_int_equal(pq_check(q), PQ_OK);
        enum pq_status s = put(q, 1, round, 200 * 1024);
        assert_int_equal(s, PQ_OK);
    }
    assert_true(products > ROUNDS); /* the children have indeed inserted */
    pq_close(q);
}

/* The worst moment, deliberately: the lock is held and the derived tables are half written. */
static void test_killed_inside_the_lock(void **state)
{
    (void)state;
    make_queue(64 * 1024, 20);
    struct pq *q = open_queue();
    for (unsigned n = 0; n < 12; n++)
        assert_int_equal(put(q, 0, n, 8000), PQ_OK); /* eight fit: 4 to 11 remain */
    struct pq_view pinned;
    assert_int_equal(pq_next(q, 0, &pinned), PQ_OK);
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *mine = open_queue();
        CHECK(mine && pq_lock(mine) == PQ_OK);
        memset(mine->hash, 0x55, mine->h->hash_cells * 4);
        memset(mine->order, 0x55, mine->h->order_cells * 4);
        memset(mine->nodes, 0x55, mine->h->nodes * sizeof *mine->nodes);
        mine->h->first_node = mine->h->cursor = mine->h->oldest = mine->h->newest = 7;
        mine->h->products = mine->h->used_slots = 1;
        for (uint32_t s = 0; s < mine->h->slots; s++)
            mine->slots[s].pins = mine->slots[s].older = mine->slots[s].newer = 99;
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    uint64_t after = 0;
    struct pq_view v;
    for (unsigned n = 4; n < 12; n++) {
        assert_int_equal(pq_next(q, after, &v), PQ_OK);
        assert_int_equal(v.info.seqno, n);
        assert_true(is_whole(&v));
        after = v.seq;
        pq_release(q, &v);
    }
    assert_int_equal(pq_next(q, after, &v), PQ_END);
    assert_int_equal(pq_check(q), PQ_OK);
    /* 8 to 11 lie at 0 to 32000, the pinned 4 after them. */
    assert_int_equal(put(q, 0, 50, 32001), PQ_FULL);
    assert_int_equal(put(q, 0, 50, 32000), PQ_OK);
    assert_true(is_whole(&pinned));
    assert_int_equal(put(q, 0, 51, 64 * 1024), PQ_FULL);
    pq_release(q, &pinned);
    assert_int_equal(put(q, 0, 51, 64 * 1024), PQ_OK);
    pq_close(q);
}

static void test_notify_wakes_another_process(void **state)
{
    (void)state;
    make_queue(64 * 1024, 20);
    struct pq *q = open_queue();
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *mine = open_queue();
        CHECK(mine);
        struct pollfd p = {.fd = pq_notify_fd(mine), .events = POLLIN};
        CHECK(poll(&p, 1, 100) == 0); /* nothing yet */
        for (uint64_t n = 1; n <= 100; n++) {
            CHECK(write(ready[1], "r", 1) == 1);
            CHECK(poll(&p, 1, 10000) == 1);
            pq_notify_clear(mine);
            CHECK(pq_last_seq(mine) == n);
        }
        pq_close(mine);
        _exit(0);
    }
    char c;
    for (unsigned n = 0; n < 100; n++) {
        assert_int_equal(read(ready[0], &c, 1), 1);
        assert_int_equal(put(q, 0, n, 100), PQ_OK);
    }
    join_all(&pid, 1);
    close(ready[0]);
    close(ready[1]);
    pq_close(q);
}

static void test_fork(void **state)
{
    (void)state;
    make_queue(64 * 1024, 20);
    struct pq *q = open_queue();
    assert_int_equal(put(q, 0, 1, 1000), PQ_OK);
    struct pq_view held;
    assert_int_equal(pq_next(q, 0, &held), PQ_OK);
    struct pq_reservation *r;
    void *region;
    assert_int_equal(pq_reserve(q, NULL, 500, &region, &r), PQ_OK);
    assert_true(pq_notify_fd(q) >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct pq_view v;
        CHECK(pq_next(q, 0, &v) == PQ_INVAL);
        CHECK(put(q, 0, 2, 10) == PQ_INVAL);
        CHECK(pq_notify_fd(q) == -1);
        pq_close(q);
        struct pq *mine = open_queue();
        CHECK(mine && pq_next(mine, 0, &v) == PQ_OK && is_whole(&v));
        pq_close(mine);
        _exit(0);
    }
    join_all(&pid, 1);
    /* The parent's pin, reservation and listener still exist. */
    assert_int_equal(put(q, 0, 3, 64 * 1024), PQ_FULL);
    struct pq_stats s;
    pq_get_stats(q, &s);
    assert_int_equal(s.reserved_slots, 1);
    struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
    pq_notify_clear(q);
    poll(&p, 1, 100);
    pq_notify_clear(q);
    assert_int_equal(put(q, 0, 4, 10), PQ_OK);
    assert_int_equal(poll(&p, 1, 5000), 1);
    pq_close(q);
}

/* At most 512 handles; those of dead processes do not count. */
static void test_many_handles(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its deadlock detector has room for 64 mutexes held by one thread */
#endif
    enum { MAX = 512, DEAD = 20 };
    static struct pq *all[MAX];
    struct pq *q;
    make_queue(4096, 4);
    for (int i = 0; i < DEAD; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK(open_queue());
            raise(SIGKILL);
        }
        waitpid(pid, NULL, 0);
    }
    for (int i = 0; i < MAX; i++) {
        all[i] = open_queue();
        assert_non_null(all[i]);
    }
    assert_int_equal(pq_open(path, true, &q), PQ_SYSTEM);
    assert_int_equal(errno, EUSERS);
    for (int i = 0; i < MAX; i++)
        pq_close(all[i]);
    q = open_queue();
    assert_non_null(q);
    pq_close(q);
}

/* The pages of a reserved region are mapped: filling it takes no fault for each. */
static void test_reserved_pages_are_mapped(void **state)
{
#if defined MADV_POPULATE_WRITE && \
    !defined __SANITIZE_THREAD__ /* its shadow memory has faults of its own */
    enum { MB = 1 << 20, PAGES = MB / 4096 };
    struct pq_reservation *r;
    struct rusage before, after;
    void *region,
        *probe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    if (madvise(probe, 4096, MADV_POPULATE_WRITE) != 0)
        skip(); /* kernels before 5.14 */
    munmap(probe, 4096);
    make_queue(4 * MB, 16);
    struct pq *q = open_queue();
    assert_int_equal(pq_reserve(q, NULL, MB, &region, &r), PQ_OK);
    getrusage(RUSAGE_THREAD, &before);
    memset(region, 1, MB);
    getrusage(RUSAGE_THREAD, &after);
    /* Without mapping, one each; the sanitizers' own memory has an eighth as many. */
    assert_true(after.ru_minflt - before.ru_minflt < PAGES / 2);
    pq_discard(q, r);
    pq_close(q);
#else
    (void)state;
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everybody_gets_everything),
        cmocka_unit_test(test_small_queue),
        cmocka_unit_test(test_room_is_asked_for),
        cmocka_unit_test(test_room_is_asked_for_late),
        cmocka_unit_test(test_room_is_asked_for_in_vain),
        cmocka_unit_test(test_room_comes_after_a_second),
        cmocka_unit_test(test_killed_reader),
        cmocka_unit_test(test_killed_receiver_of_a_reservation),
        cmocka_unit_test(test_killed_writers),
        cmocka_unit_test(test_killed_inside_the_lock),
        cmocka_unit_test(test_notify_wakes_another_process),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_many_handles),
        cmocka_unit_test(test_reserved_pages_are_mapped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The product queue within one process: lookups by time and across gaps and their cost, removal,
 * which products make room, which processes have the queue open, waiting without polling. Regions
 * are multiples of 64 bytes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "pq_place.h"
#include "queue/pq_impl.h"

static struct pq *fresh(uint64_t data_bytes, uint32_t slots)
{
    assert_int_equal(pq_create(path, data_bytes, slots, true), PQ_OK);
    struct pq *q;
    assert_int_equal(pq_open(path, true, &q), PQ_OK);
    return q;
}

static struct pq_info info_of(unsigned n, uint32_t size)
{
    struct pq_info i = {.seqno = n, .size = size};
    memcpy(i.signature.bytes, &n, sizeof n);
    return i;
}

static enum pq_status put(struct pq *q, unsigned n, uint32_t size)
{
    static const uint8_t zeros[8192];
    struct pq_info info = info_of(n, size);
    return pq_insert(q, &info, zeros);
}

/* The seqno of the first product after a position; 0: none. */
static unsigned behind(struct pq *q, uint64_t after)
{
    struct pq_view v;
    if (pq_next(q, after, &v) != PQ_OK)
        return 0;
    unsigned n = v.info.seqno;
    pq_release(q, &v);
    return n;
}

static void assert_holds(struct pq *q, const char *want)
{
    char found[200] = "";
    struct pq_view v;
    for (uint64_t after = 0; pq_next(q, after, &v) == PQ_OK; after = v.seq, pq_release(q, &v))
        sprintf(found + strlen(found), "%s%u", *found ? " " : "", v.info.seqno);
    assert_string_equal(found, want);
    assert_int_equal(pq_check(q), PQ_OK);
}

static void set_time(struct pq *q, uint64_t seq, int64_t us)
{
    uint32_t slot = pq_index_at(q, seq);
    assert_true(slot != PQ_NONE);
    q->slots[slot].order_us = us;
}

static unsigned first_since(struct pq *q, time_t s, long us)
{
    uint64_t after = 99;
    struct timeval from = {.tv_sec = s, .tv_usec = us};
    assert_int_equal(pq_seek(q, &from, &after), PQ_OK);
    return behind(q, after);
}

static void test_by_time(void **state)
{
    (void)state;
    struct pq *q = fresh(1 << 20, 16);
    assert_int_equal(first_since(q, 0, 0), 0);
    static const int64_t at_us[] = {10000000, 20000000, 20000000, 20000001, 40000000};
    for (unsigned n = 1; n <= 5; n++) {
        assert_int_equal(put(q, n, 10), PQ_OK);
        set_time(q, n, at_us[n - 1]);
    }
    assert_int_equal(first_since(q, 0, 0), 1);
    assert_int_equal(first_since(q, -5, 0), 1);
    assert_int_equal(first_since(q, 10, 0), 1);
    assert_int_equal(first_since(q, 10, 1), 2);
    assert_int_equal(first_since(q, 20, 0), 2);
    assert_int_equal(first_since(q, 20, 1), 4);
    assert_int_equal(first_since(q, 20, 2), 5);
    assert_int_equal(first_since(q, 40, 0), 5);
    assert_int_equal(first_since(q, 40, 1), 0);
    assert_int_equal(first_since(q, INT64_MAX, 999999), 0);
    assert_int_equal(first_since(q, INT64_MIN, 0), 1);
    /* After the end: what comes next is found from there. */
    struct timeval late = {.tv_sec = 50};
    uint64_t after;
    assert_int_equal(pq_seek(q, &late, &after), PQ_OK);
    assert_int_equal(put(q, 6, 10), PQ_OK);
    assert_int_equal(behind(q, after), 6);
    assert_int_equal(pq_remove(q, 2), PQ_OK); /* gaps have no effect */
    assert_int_equal(pq_remove(q, 3), PQ_OK);
    assert_int_equal(first_since(q, 10, 1), 4);
    assert_int_equal(first_since(q, 10, 0), 1);
    pq_close(q);
}

/* The clock is set back by an hour: what is inserted then is found by its time, together with older
 * products. */
static void test_clock_set_back(void **state)
{
    (void)state;
    struct pq *q = fresh(1 << 20, 16);
    assert_int_equal(put(q, 1, 10), PQ_OK);
    struct pq_view v;
    assert_int_equal(pq_next(q, 0, &v), PQ_OK);
    int64_t hour_us = INT64_C(3600) * 1000000,
            now_us = v.inserted.tv_sec * INT64_C(1000000) + v.inserted.tv_usec;
    pq_release(q, &v);
    set_time(q, 1, now_us + hour_us);
    q->h->last_order_us = now_us + hour_us;
    assert_int_equal(put(q, 2, 10), PQ_OK);
    assert_int_equal(pq_check(q), PQ_OK);
    assert_int_equal(first_since(q, now_us / 1000000 - 1, 0), 1);
    assert_int_equal(first_since(q, now_us / 1000000 + 1800, 0), 1);
    assert_int_equal(first_since(q, now_us / 1000000 + 3602, 0), 0);
    assert_int_equal(pq_next(q, 1, &v), PQ_OK);
    assert_true(v.inserted.tv_sec < now_us / 1000000 + 60); /* the clock's own time is kept */
    pq_release(q, &v);
    pq_close(q);
}

/* 4000 slots have 16384 order cells: three levels of marks (256, 4, 1 words). */
static void test_cost_of_look_ups(void **state)
{
    (void)state;
    enum { LEVELS = 3, NEXT_MAX = 1 + 4 * LEVELS, SEEK_MAX = 15 * NEXT_MAX };
    struct pq *q = fresh(1 << 20, 4000);
    uint64_t worst = 0;
    assert_int_equal(q->mark_levels, LEVELS);
    assert_int_equal(put(q, 1, 10), PQ_OK);
    struct pq_view oldest;
    assert_int_equal(pq_next(q, 0, &oldest), PQ_OK); /* stays, with a gap of 12000 behind it */
    for (unsigned n = 2; n <= 16000; n++)
        assert_int_equal(put(q, n, 10), PQ_OK);
    assert_int_equal(pq_check(q), PQ_OK);
    for (uint64_t after = 0; after < 16000; after += 7) {
        unsigned want = after < 1 ? 1 : after < 12001 ? 12002 : (unsigned)after + 1;
        q->steps = 0;
        assert_int_equal(behind(q, after), want);
        if (q->steps > worst)
            worst = q->steps;
    }
    assert_true(worst >= 2 && worst <= NEXT_MAX);
    for (unsigned n = 12002; n <= 16000; n++)
        set_time(q, n, n * INT64_C(1000000));
    set_time(q, 1, 1000000);
    worst = 0;
    for (unsigned s = 0; s <= 16000; s += 13) {
        struct timeval from = {.tv_sec = s};
        q->steps = 0;
        uint64_t after;
        assert_int_equal(pq_seek(q, &from, &after), PQ_OK);
        if (q->steps > worst)
            worst = q->steps;
        assert_int_equal(behind(q, after), s <= 1 ? 1 : s <= 12002 ? 12002 : s);
    }
    assert_true(worst >= 14 && worst <= SEEK_MAX); /* log2(16000) = 14 */
    pq_release(q, &oldest);
    pq_close(q);
}

/* Random removals and insertions; each lookup is compared with a linear search. */
static void test_gaps(void **state)
{
    (void)state;
    enum { SLOTS = 100 };
    struct pq *q = fresh(1 << 20, SLOTS);
    static bool there[20000];
    uint64_t rng = 3, last = 0;
    for (int op = 0; op < 15000; op++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        uint64_t back = (rng >> 40) % 400, seq = last > back ? last - back : 0;
        if (rng >> 60 < 6) {
            assert_int_equal(put(q, (unsigned)++last, 10), PQ_OK);
            there[last] = true;
            unsigned count = 0, oldest = 0;
            for (uint64_t s = last; s && s + 800 > last; s--) {
                count += there[s];
                oldest = there[s] ? (unsigned)s : oldest;
            }
            if (count > SLOTS)
                there[oldest] = false;
        } else if (rng >> 60 < 9) {
            assert_int_equal(pq_remove(q, seq), there[seq] ? PQ_OK : PQ_END);
            there[seq] = false;
        } else {
            uint64_t want = seq + 1;
            while (want <= last && !there[want])
                want++;
            assert_int_equal(behind(q, seq), want > last ? 0 : want);
        }
        if (op % 500 == 0)
            assert_int_equal(pq_check(q), PQ_OK);
    }
    assert_true(last > 4000);
    pq_close(q);
}

static void test_remove(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    struct pq_info two = info_of(2, 1000);
    for (unsigned n = 1; n <= 3; n++)
        assert_int_equal(put(q, n, 1000), PQ_OK);
    struct pq *reader;
    assert_int_equal(pq_open(path, false, &reader), PQ_OK);
    assert_int_equal(pq_remove(reader, 1), PQ_INVAL);
    struct pq_view v;
    assert_int_equal(pq_find(reader, &two.signature, &v), PQ_OK);
    assert_int_equal(pq_remove(q, 2), PQ_OK);
    assert_int_equal(pq_remove(q, 2), PQ_END);
    assert_int_equal(pq_remove(q, 0), PQ_END);
    assert_int_equal(pq_remove(q, 1000), PQ_END);
    assert_holds(q, "1 3");
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.used_bytes, 3 * 1024); /* those of the reader */
    assert_int_equal(st.removed, 1);
    assert_int_equal(st.evicted, 0);
    assert_int_equal(put(q, 2, 1000), PQ_OK); /* its signature may come again */
    assert_holds(q, "1 3 2");
    assert_int_equal(pq_remove(q, 1), PQ_OK);
    pq_release(reader, &v);
    pq_get_stats(q, &st);
    assert_int_equal(st.used_bytes, 2 * 1024);
    assert_int_equal(st.reserved_slots, 0);
    assert_holds(q, "3 2");
    pq_close(reader);
    pq_close(q);
}

/* A reservation held so long that the cursor has come round meanwhile: its product is the youngest
 * when it is committed, and must not be evicted next. */
static void test_young_products_stay(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 16);
    struct pq_info late = info_of(7, 1024);
    struct pq_reservation *r;
    void *region;
    assert_int_equal(pq_reserve(q, NULL, 1024, &region, &r), PQ_OK);
    for (unsigned n = 1; n <= 6; n++)
        assert_int_equal(put(q, n, 1024), PQ_OK); /* 4 to 6 remain, the cursor is at the end */
    assert_int_equal(pq_commit(q, r, &late, 0), PQ_OK);
    assert_int_equal(pq_committed_seq(q), 7);
    assert_holds(q, "4 5 6 7");
    assert_int_equal(put(q, 8, 1024), PQ_OK);
    assert_holds(q, "5 6 7 8");
    assert_int_equal(put(q, 9, 4096), PQ_OK); /* only its eviction makes room */
    assert_holds(q, "9");
    pq_close(q);
}

/* What a killed reader had pinned does not stay forever, even if room can be made without it. */
static void test_dead_pins_go(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 16);
    for (unsigned n = 1; n <= 4; n++)
        assert_int_equal(put(q, n, 1024), PQ_OK);
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *mine;
        struct pq_view v;
        if (pq_open(path, false, &mine) || pq_next(mine, 0, &v))
            _exit(1);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    struct pq_client_info clients[4];
    assert_int_equal(pq_clients(q, clients, 4), 2);
    assert_true(clients[0].self && clients[0].alive && clients[0].writes && clients[0].pins == 0);
    assert_true(!clients[1].self && !clients[1].alive && !clients[1].writes &&
                clients[1].pins == 1);
    assert_int_equal(clients[1].pid, pid);
    assert_int_equal(pq_clients(q, clients, 0), 2);
    assert_int_equal(put(q, 5, 1024), PQ_OK); /* skips 1 */
    assert_holds(q, "1 3 4 5");
    assert_int_equal(put(q, 6, 1024), PQ_OK); /* checks which processes are alive */
    assert_int_equal(pq_clients(q, clients, 4), 1);
    assert_int_equal(put(q, 7, 1024), PQ_OK);
    assert_int_equal(put(q, 8, 1024), PQ_OK);
    assert_holds(q, "5 6 7 8");
    pq_close(q);
}

static void test_reset(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 16);
    struct pq_info old = info_of(1, 4096);
    static const uint8_t zeros[4096];
    struct timeval now;
    gettimeofday(&now, NULL);
    old.creation = (struct timeval){.tv_sec = now.tv_sec - 100, .tv_usec = now.tv_usec};
    assert_int_equal(pq_insert(q, &old, zeros), PQ_OK);
    assert_int_equal(put(q, 2, 4096), PQ_OK);
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_true(st.min_residence_s >= 100 && st.min_residence_s < 160);
    assert_int_equal(st.min_residence_bytes, 4096);
    struct pq *reader;
    assert_int_equal(pq_open(path, false, &reader), PQ_OK);
    assert_int_equal(pq_reset(reader, PQ_RESET_RESIDENCE), PQ_INVAL);
    assert_int_equal(pq_reset(q, PQ_RESET_RESIDENCE), PQ_OK);
    pq_get_stats(q, &st);
    assert_true(st.min_residence_s < 0);
    /* A creation time out of any range. */
    old.creation.tv_sec = INT64_MIN;
    old.signature.bytes[9] = 1;
    assert_int_equal(pq_insert(q, &old, zeros), PQ_OK);
    assert_int_equal(put(q, 3, 4096), PQ_OK);
    /* Only its microseconds are out of range; evicted when the next one needs its room. */
    old.creation = (struct timeval){.tv_usec = INT64_MIN};
    old.signature.bytes[9] = 2;
    assert_int_equal(pq_insert(q, &old, zeros), PQ_OK);
    assert_int_equal(put(q, 10, 4096), PQ_OK);
    pq_close(reader);
    pq_close(q);
    /* The machine stopped while a writer had the queue open: the state is of another run. */
    for (int writer = 0; writer < 2; writer++) {
        const uint64_t other[3] = {0};
        assert_int_equal(pq_create(path, 4096, 16, true), PQ_OK);
        pid_t pid = fork();
        if (pid == 0)
            _exit(pq_open(path, writer, &q)); /* and does not close */
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        int fd = open(path, O_WRONLY);
        assert_int_equal(pwrite(fd, other, sizeof other, offsetof(struct pq_header, run)),
                         sizeof other);
        close(fd);
        assert_int_equal(pq_open(path, true, &q), PQ_OK);
        pq_get_stats(q, &st);
        assert_int_equal(st.unclean, writer);
        assert_int_equal(pq_reset(q, PQ_RESET_UNCLEAN), PQ_OK);
        pq_get_stats(q, &st);
        assert_false(st.unclean);
        pq_close(q);
    }
}

/* Returns how often the listener has gone to sleep voluntarily. */
static unsigned long sleeps_of_listener(void)
{
    unsigned long sum = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    struct dirent *e;
    while ((e = readdir(d))) {
        bool is_listener = false;
        char name[300];
        snprintf(name, sizeof name, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(name, "r");
        char line[200];
        unsigned long n;
        while (f && fgets(line, sizeof line, f))
            if (strcmp(line, "Name:\t" PQ_LISTENER_NAME "\n") == 0)
                is_listener = true;
            else if (is_listener && sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
                sum += n;
        if (f)
            fclose(f);
    }
    closedir(d);
    return sum;
}

/* Wait until the listener has started and waits, on a busy machine too. */
static unsigned long settled_listener(struct pollfd *p)
{
    unsigned long before = 0, now = 0;
    for (int i = 0; i < 100 && (now == 0 || now != before); i++) {
        before = now;
        assert_int_equal(poll(p, 1, 100), 0);
        now = sleeps_of_listener();
    }
    return now;
}

static void test_waiting_is_no_polling(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    struct pollfd p = {.fd = pq_notify_fd(q), .events = POLLIN};
    unsigned long before = settled_listener(&p);
    assert_true(before > 0); /* it does wait */
    assert_int_equal(poll(&p, 1, 500), 0);
    unsigned long idle = sleeps_of_listener();
    assert_true(idle == before);
    for (unsigned n = 1; n <= 10; n++) {
        assert_int_equal(put(q, n, 10), PQ_OK);
        assert_int_equal(poll(&p, 1, 5000), 1);
        pq_notify_clear(q);
    }
    assert_true(sleeps_of_listener() > idle);
    /* No process waits: announcing a product makes no system call, so bit 0 stays clear. */
    pq_close(q);
    assert_int_equal(pq_open(path, true, &q), PQ_OK);
    assert_int_equal(put(q, 20, 10), PQ_OK);
    assert_int_equal(atomic_load(&q->h->wake) & 1, 0);
    pq_close(q);
}

/* 2^32 - 1 bytes after a header of 100: on disk, where the room is reserved without being
 * written. */
static void test_largest_product(void **state)
{
    (void)state;
#if SIZE_MAX == UINT32_MAX
    print_message("no room for 4 GiB in an address space of 32 bits\n");
    assert_int_equal(pq_file_bytes((UINT64_C(1) << 32) + 8192, 10), 0);
    skip();
#else
    char big[] = "/var/tmp/test-pql-XXXXXX";
    int fd = mkstemp(big);
    if (fd < 0)
        skip();
    close(fd);
    if (pq_create(big, (UINT64_C(1) << 32) + 8192, 10, true) != PQ_OK) {
        assert_int_equal(errno, ENOSPC);
        unlink(big);
        print_message("no room for 4 GiB in /var/tmp\n");
        skip();
    }
    struct pq *q;
    assert_int_equal(pq_open(big, true, &q), PQ_OK);
    struct pq_info info = info_of(1, UINT32_MAX);
    struct pq_reservation *r;
    void *region;
    assert_int_equal(pq_reserve(q, NULL, UINT64_C(100) + UINT32_MAX, &region, &r), PQ_OK);
    uint8_t *data = (uint8_t *)region + 100;
    data[0] = 1;
    data[INT32_MAX] = 2;
    data[UINT32_MAX - 1] = 3;
    assert_int_equal(pq_commit(q, r, &info, 102), PQ_INVAL);
    assert_int_equal(pq_commit(q, r, &info, 100), PQ_OK);
    assert_int_equal(put(q, 2, 8000), PQ_OK); /* there is room beside it */
    struct pq_view v;
    assert_int_equal(pq_next(q, 0, &v), PQ_OK);
    assert_int_equal(v.info.size, UINT32_MAX);
    assert_int_equal(v.data[0], 1);
    assert_int_equal(v.data[INT32_MAX], 2);
    assert_int_equal(v.data[UINT32_MAX - 1], 3);
    assert_int_equal(pq_check(q), PQ_OK);
    struct pq_stats st;
    pq_get_stats(q, &st);
    /* 2^32 + 99 in units of 64: 2^26 + 2 */
    assert_int_equal(st.used_bytes, ((UINT64_C(1) << 26) + 2 + 125) * 64);
    pq_release(q, &v);
    assert_int_equal(pq_reserve(q, NULL, UINT64_C(100) + UINT32_MAX, &region, &r),
                     PQ_OK); /* it is evicted */
    assert_int_equal(behind(q, 0), 2);
    pq_discard(q, r);
    pq_close(q);
    unlink(big);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_time),
        cmocka_unit_test(test_clock_set_back),
        cmocka_unit_test(test_cost_of_look_ups),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_young_products_stay),
        cmocka_unit_test(test_dead_pins_go),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_waiting_is_no_polling),
        cmocka_unit_test(test_largest_product),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

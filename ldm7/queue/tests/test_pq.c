/* SPDX-License-Identifier: Apache-2.0
 *
 * The product queue within one process. Sizes are chosen so that the expected results can be
 * calculated by hand: regions are multiples of 64 bytes; the data area has 4096 bytes = 64 units
 * unless stated otherwise.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "pq_kit.h"

static void test_empty(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 4);
    struct pq_signature sig = {{1}};
    struct pq_view v;
    assert_int_equal(pq_next(q, 0, &v), PQ_END);
    assert_int_equal(pq_find(q, &sig, &v), PQ_END);
    assert_int_equal(pq_last_seq(q), 0);
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.data_bytes, 4096);
    assert_int_equal(st.largest_free_bytes, 4096);
    assert_int_equal(st.free_extents, 1);
    assert_true(st.age_oldest_s < 0);
    pq_close(q);
}

static void test_insert_next_find(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    assert_int_equal(put(q, 1, 100), PQ_OK);
    assert_int_equal(put(q, 2, 0), PQ_OK);
    assert_int_equal(put(q, 3, 64), PQ_OK);
    HOLDS(q, 1, 2, 3);
    assert_int_equal(pq_last_seq(q), 3);
    struct pq_info want = info_of(3, 64);
    struct pq_view v;
    assert_int_equal(pq_find(q, &want.signature, &v), PQ_OK);
    assert_int_equal(v.seq, 3);
    assert_is(&v, 3);
    pq_release(q, &v);
    assert_null(v.data);
    pq_release(q, &v); /* a second time: no effect */
    struct pq_stats st;
    pq_get_stats(q, &st);
    /* 100 -> 2 units, 0 -> 1 unit, 64 -> 1 unit */
    assert_int_equal(st.used_bytes, 4 * 64);
    assert_int_equal(st.used_slots, 3);
    assert_int_equal(st.inserted, 3);
    assert_true(st.age_oldest_s >= 0 && st.age_oldest_s < 60);
    pq_close(q);
    /* And again with another handle. */
    assert_int_equal(pq_open(path, false, &q), PQ_OK);
    HOLDS(q, 1, 2, 3);
    assert_int_equal(put(q, 4, 1), PQ_INVAL); /* opened read-only */
    pq_close(q);
}

static void test_duplicate(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    assert_int_equal(put(q, 1, 100), PQ_OK);
    assert_int_equal(put(q, 1, 100), PQ_DUP);
    /* The duplicate comes while another reservation of the same signature is open. */
    struct pq_info info = info_of(2, 10);
    void *region;
    struct pq_reservation *r;
    assert_int_equal(pq_reserve(q, &info.signature, 10, &region, &r), PQ_OK);
    struct pq_reservation *late;
    assert_int_equal(pq_reserve(q, &info.signature, 10, &region, &late), PQ_OK);
    for (int i = 0; i < 10; i++)
        ((uint8_t *)region)[i] = byte_of(2, (uint32_t)i);
    assert_int_equal(pq_commit(q, late, &info, 0), PQ_OK);
    assert_int_equal(pq_commit(q, r, &info, 0), PQ_DUP);
    HOLDS(q, 1, 2);
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.duplicates, 2);
    assert_int_equal(st.reserved_slots, 0);
    assert_int_equal(st.used_bytes, 3 * 64);
    pq_close(q);
}

static void test_oldest_make_room(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 100);
    for (unsigned n = 1; n <= 4; n++)
        assert_int_equal(put(q, n, 1024), PQ_OK); /* full to the last byte */
    HOLDS(q, 1, 2, 3, 4);
    assert_int_equal(put(q, 5, 1), PQ_OK);
    HOLDS(q, 2, 3, 4, 5);
    /* 960 bytes are free where 1 was: 6 fits beside 5 without a further eviction. */
    assert_int_equal(put(q, 6, 960), PQ_OK);
    HOLDS(q, 2, 3, 4, 5, 6);
    assert_int_equal(put(q, 7, 1025), PQ_OK);
    HOLDS(q, 4, 5, 6, 7);
    assert_int_equal(put(q, 8, 4096), PQ_OK);
    HOLDS(q, 8);
    assert_int_equal(put(q, 9, 4097), PQ_BIG);
    HOLDS(q, 8);
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.evicted, 7);
    assert_int_equal(st.high_water_bytes, 4096);
    assert_int_equal(st.high_water_slots, 5);
    assert_true(st.min_residence_s >= 0);
    pq_close(q);
}

static void test_wrap_skips_the_tail(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 100);
    assert_int_equal(put(q, 1, 1536), PQ_OK);
    assert_int_equal(put(q, 2, 1536), PQ_OK); /* 1024 remain at the end */
    assert_int_equal(put(q, 3, 1088), PQ_OK); /* contiguous: begins at 0 again, evicts 1 */
    HOLDS(q, 2, 3);
    /* 448 bytes remain between 3 and 2; 512 do not fit, so 2 is evicted and its room joins them. */
    assert_int_equal(put(q, 4, 512), PQ_OK);
    HOLDS(q, 3, 4);
    /* 4096 - 1088 - 512 = 2496 free up to the end */
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.largest_free_bytes, 2496);
    assert_int_equal(st.free_extents, 1);
    pq_close(q);
}

static void test_slots_run_out(void **state)
{
    (void)state;
    struct pq *q = fresh(1 << 20, 3);
    for (unsigned n = 1; n <= 10; n++)
        assert_int_equal(put(q, n, 10), PQ_OK);
    HOLDS(q, 8, 9, 10);
    pq_close(q);
}

static void test_pins(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 100);
    for (unsigned n = 1; n <= 4; n++)
        assert_int_equal(put(q, n, 1024), PQ_OK);
    struct pq_view oldest;
    assert_int_equal(pq_next(q, 0, &oldest), PQ_OK);
    struct pq_view again;
    assert_int_equal(pq_next(q, 0, &again), PQ_OK);
    pq_release(q, &again); /* one of two views of it */
    assert_int_equal(put(q, 5, 1024), PQ_OK);
    HOLDS(q, 1, 3, 4, 5); /* 2 made room */
    assert_is(&oldest, 1);
    assert_int_equal(put(q, 6, 2048),
                     PQ_OK); /* 3 and 4 are the only neighbours that may be evicted */
    HOLDS(q, 1, 5, 6);
    assert_int_equal(put(q, 7, 4096), PQ_FULL);
    assert_int_equal(put(q, 7, 3136), PQ_FULL);
    HOLDS(q, 1, 5, 6); /* and nothing was evicted needlessly */
    pq_release(q, &oldest);
    assert_int_equal(put(q, 7, 4096), PQ_OK);
    HOLDS(q, 7);
    for (unsigned n = 11; n <= 14; n++)
        assert_int_equal(put(q, n, 1024), PQ_OK);
    uint64_t after = 0;
    struct pq_view all[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pq_next(q, after, &all[i]), PQ_OK);
        after = all[i].seq;
    }
    assert_int_equal(put(q, 15, 1), PQ_FULL);
    pq_release(q, &all[2]);
    assert_int_equal(put(q, 15, 1), PQ_OK);
    HOLDS(q, 11, 12, 14, 15);
    assert_is(&all[0], 11);
    assert_is(&all[3], 14);
    pq_close(q); /* releases the pins */
    assert_int_equal(pq_open(path, true, &q), PQ_OK);
    assert_int_equal(put(q, 16, 4096), PQ_OK);
    HOLDS(q, 16);
    pq_close(q);
}

/* A pinned product, far older than those inserted since: order_cells = 16 for 4 slots. */
static void test_pinned_for_ever(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 4);
    assert_int_equal(put(q, 1, 100), PQ_OK);
    struct pq_view v;
    assert_int_equal(pq_next(q, 0, &v), PQ_OK);
    for (unsigned n = 2; n <= 16; n++)
        assert_int_equal(put(q, n, 100), PQ_OK);
    HOLDS(q, 1, 14, 15, 16);
    /* After 1 comes 14, since 2 to 13 have been evicted. 14 also follows 5, itself evicted. */
    struct pq_view w;
    assert_int_equal(pq_next(q, 1, &w), PQ_OK);
    assert_is(&w, 14);
    pq_release(q, &w);
    assert_int_equal(pq_next(q, 5, &w), PQ_OK);
    assert_is(&w, 14);
    pq_release(q, &w);
    assert_int_equal(put(q, 17, 100), PQ_OK); /* needs the cell of 1 */
    HOLDS(q, 15, 16, 17);
    assert_is(&v, 1); /* its bytes stay where they are */
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.reserved_slots, 1);
    pq_release(q, &v);
    pq_get_stats(q, &st);
    assert_int_equal(st.reserved_slots, 0);
    assert_int_equal(st.used_bytes, 3 * 128);
    assert_int_equal(pq_check(q), PQ_OK);
    pq_close(q);
}

static void test_reservations(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    struct pq_info ia = info_of(1, 90), ib = info_of(2, 100);
    struct pq_reservation *a;
    void *ra;
    assert_int_equal(pq_reserve(q, &ia.signature, 100, &ra, &a), PQ_OK);
    struct pq_reservation *b;
    void *rb;
    assert_int_equal(pq_reserve(q, NULL, 100, &rb, &b), PQ_OK);
    struct pq_reservation *c;
    void *rc;
    assert_int_equal(pq_reserve(q, NULL, 1000, &rc, &c), PQ_OK);
    assert_holds(q, NULL, 0);
    assert_int_equal(pq_last_seq(q), 0);
    for (uint32_t i = 0; i < 90; i++)
        ((uint8_t *)ra)[10 + i] = byte_of(1, i);
    for (uint32_t i = 0; i < 100; i++)
        ((uint8_t *)rb)[i] = byte_of(2, i);
    /* Does not fit into the region: refused, nothing lost. */
    assert_int_equal(pq_commit(q, a, &ia, 11), PQ_INVAL);
    assert_int_equal(pq_commit(q, b, &ib, 0),
                     PQ_OK); /* in the order of commits, not of reservations */
    assert_int_equal(pq_commit(q, a, &ia, 10), PQ_OK);
    HOLDS(q, 2, 1);
    pq_discard(q, c);
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_int_equal(st.used_bytes, 4 * 64);
    assert_int_equal(st.free_extents, 1);
    /* A reserved region is never taken; closing releases it. */
    assert_int_equal(pq_reserve(q, NULL, 2048, &rc, &c), PQ_OK);
    memset(rc, 0xEE, 2048);
    for (unsigned n = 20; n < 60; n++)
        assert_int_equal(put(q, n, 700), PQ_OK);
    for (int i = 0; i < 2048; i++)
        assert_int_equal(((uint8_t *)rc)[i], 0xEE);
    assert_int_equal(put(q, 60, 2049), PQ_FULL);
    pq_close(q);
    assert_int_equal(pq_open(path, true, &q), PQ_OK);
    assert_int_equal(put(q, 60, 4096), PQ_OK);
    HOLDS(q, 60);
    pq_close(q);
}

static void test_notify(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    int fd = pq_notify_fd(q);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_true(fd >= 0);
    assert_int_equal(pq_notify_fd(q), fd);
    assert_int_equal(poll(&p, 1, 50), 0);
    struct pq *writer;
    assert_int_equal(pq_open(path, true, &writer), PQ_OK);
    for (unsigned n = 1; n <= 3; n++) {
        assert_int_equal(put(writer, n, 10), PQ_OK);
        assert_int_equal(poll(&p, 1, 5000), 1);
        pq_notify_clear(q);
        assert_int_equal(poll(&p, 1, 20), 0);
    }
    pq_close(writer);
    pq_close(q);
    /* The first call announces the products that already exist. */
    assert_int_equal(pq_open(path, false, &q), PQ_OK);
    p.fd = pq_notify_fd(q);
    assert_int_equal(poll(&p, 1, 5000), 1);
    pq_close(q);
}

/* Ten thousand random operations against a model: a list of the expected products, in order. */
enum { PINS = 6, RESERVED = 4 };
struct reserved {
    struct pq_reservation *r;
    unsigned n;
    uint32_t size;
};

static void pin_or_release(struct pq *q, struct pq_view *v, unsigned back)
{
    uint64_t last = pq_last_seq(q);

    if (v->data) {
        assert_is(v, v->info.seqno);
        pq_release(q, v);
    } else {
        pq_next(q, last > 10 ? last - back : 0, v);
    }
}

/* Makes a reservation, or commits or discards the existing one. False if there was no room. */
static bool reserve_or_end(struct pq *q, struct reserved *at, unsigned n, uint32_t size,
                           bool commit)
{
    if (!at->r) {
        void *region;
        enum pq_status s = pq_reserve(q, NULL, size, &region, &at->r);
        assert_true(s == PQ_OK || s == PQ_FULL);
        if (s) {
            at->r = NULL;
            return false;
        }
        at->n = n;
        at->size = size;
        for (uint32_t b = 0; b < size; b++)
            ((uint8_t *)region)[b] = byte_of(n, b);
        return true;
    }
    struct pq_info info = info_of(at->n, at->size);
    if (commit)
        assert_int_equal(pq_commit(q, at->r, &info, 0), PQ_OK);
    else
        pq_discard(q, at->r);
    at->r = NULL;
    return true;
}

/* Reads everything; returns the position of the last product. */
static uint64_t read_all(struct pq *q, uint64_t at_least)
{
    uint64_t seq = 0;
    struct pq_view v;

    while (pq_next(q, seq, &v) == PQ_OK) {
        assert_true(v.seq > seq);
        seq = v.seq;
        assert_is(&v, v.info.seqno);
        pq_release(q, &v);
    }
    assert_true(seq >= at_least);
    assert_int_equal(seq, pq_last_seq(q));
    return seq;
}

static void test_random_operations(void **state)
{
    (void)state;
    struct pq *q = fresh(64 * 1024, 40);
    struct pq_view pins[PINS] = {0};
    struct reserved res[RESERVED] = {0};
    unsigned next = 1;
    uint64_t rng = 42, last = 0;
    for (int op = 0; op < 10000; op++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        unsigned pick = (unsigned)(rng >> 33) % 100, which = (unsigned)(rng >> 40);
        uint32_t size = (uint32_t)(rng >> 45) % ((rng >> 20 & 15) ? 3000 : 20000);
        if (pick < 50) {
            enum pq_status s = put(q, next, size);
            assert_true(s == PQ_OK || s == PQ_FULL);
            next += s == PQ_OK;
        } else if (pick < 70) {
            pin_or_release(q, &pins[which % PINS], which % 10);
        } else if (pick < 98) {
            struct reserved *at = &res[which % RESERVED];
            unsigned n = at->r ? 0 : 1000000 + next++;
            if (!reserve_or_end(q, at, n, size, pick < 95))
                continue;
        } else {
            last = read_all(q, last);
        }
        if (op % 16 == 0)
            assert_int_equal(pq_check(q), PQ_OK);
    }
    struct pq_stats st;
    pq_get_stats(q, &st);
    assert_true(st.evicted > 1000);
    for (int i = 0; i < PINS; i++)
        pq_release(q, &pins[i]);
    for (int i = 0; i < RESERVED; i++)
        pq_discard(q, res[i].r);
    assert_int_equal(put(q, next, 64 * 1024), PQ_OK);
    HOLDS(q, next);
    pq_close(q);
}

/* Opens the queue for reading, and tries to write into a product. */
static int scribble(bool unprotect)
{
    struct pq *q;
    struct pq_view v;
    signal(SIGSEGV, SIG_DFL); /* not the sanitizer's */
    if (pq_open(path, false, &q) || pq_next(q, 0, &v))
        return 1;
    uint8_t *at = (uint8_t *)(uintptr_t)v.data;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *of_page = (void *)((uintptr_t)at / page * page);
    if (unprotect && (mprotect(of_page, page, PROT_READ | PROT_WRITE) == 0 || errno != EACCES))
        return 2;
    if (!unprotect)
        *(volatile uint8_t *)at = 0xff;
    pq_release(q, &v);
    pq_close(q);
    return 0;
}

static int status_of_scribble(bool unprotect)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(scribble(unprotect));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_readers_cannot_write(void **state)
{
    (void)state;
    struct pq *q = fresh(2 << 20, 8); /* some pages of its own even if they have 64 KiB */
    assert_int_equal(put(q, 1, 1 << 20), PQ_OK);
    int status = status_of_scribble(false);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    status = status_of_scribble(true);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    HOLDS(q, 1); /* with unchanged bytes */
    assert_int_equal(pq_check(q), PQ_OK);
    assert_int_equal(put(q, 2, 100), PQ_OK); /* the process that died there holds nothing */
    pq_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_insert_next_find),
        cmocka_unit_test(test_duplicate),
        cmocka_unit_test(test_oldest_make_room),
        cmocka_unit_test(test_wrap_skips_the_tail),
        cmocka_unit_test(test_slots_run_out),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_pinned_for_ever),
        cmocka_unit_test(test_reservations),
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_readers_cannot_write),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

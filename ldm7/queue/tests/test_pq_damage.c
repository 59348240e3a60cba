/* SPDX-License-Identifier: Apache-2.0
 *
 * The product queue's file: what can be created, and files that are damaged or no queue at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "pq_kit.h"

static void test_creation(void **state)
{
    (void)state;
    unlink(path);
    struct pq *q;
    assert_int_equal(pq_open(path, true, &q), PQ_SYSTEM);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(pq_create(path, 0, 1, false), PQ_INVAL);
    assert_int_equal(pq_create(path, 1, 0, false), PQ_INVAL);
    assert_int_equal(pq_create(path, UINT64_MAX, 1, false), PQ_INVAL);
    assert_int_equal(pq_create(path, 1, UINT32_MAX, false), PQ_INVAL);
    assert_int_equal(pq_create("/nonexistent/q", 1, 1, false), PQ_SYSTEM);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(pq_create(path, 1 << 20, 100, false), PQ_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, pq_file_bytes(1 << 20, 100));
    assert_true(st.st_blocks * 512 >= st.st_size); /* reserved for real */
    assert_int_equal(pq_create(path, 1 << 20, 100, false), PQ_SYSTEM);
    assert_int_equal(errno, EEXIST);
    /* 1 TiB: there is no such disk here; nothing may be left, nothing may be filled */
    char big[80];
    snprintf(big, sizeof big, "%s/big", dir);
    assert_int_equal(pq_create(big, UINT64_C(1) << 45, 100, false), PQ_SYSTEM);
    assert_int_equal(errno, ENOSPC);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "test \"$(ls -A %s)\" = queue", dir);
    assert_int_equal(system(cmd), 0);
}

/* Replaces the file by `bytes` bytes of it with one changed. */
static void damage(const char *image, size_t bytes, size_t at, uint8_t flip)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    assert_true(write(fd, image, bytes) == (ssize_t)bytes);
    uint8_t b = (uint8_t)image[at] ^ flip;
    if (flip)
        assert_int_equal(pwrite(fd, &b, 1, (off_t)at), 1);
    close(fd);
}

static void test_garbage_files(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 3);
    assert_int_equal(put(q, 1, 500), PQ_OK);
    assert_int_equal(put(q, 2, 500), PQ_OK);
    pq_close(q);
    size_t bytes = pq_file_bytes(4096, 3);
    char *image = malloc(bytes);
    int fd = open(path, O_RDONLY);
    assert_true(read(fd, image, bytes) == (ssize_t)bytes);
    close(fd);
    size_t cuts[] = {0, 1, 8, 100, 1000, 4096, bytes - 4096, bytes - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        damage(image, cuts[i], 0, 0);
        assert_int_equal(pq_open(path, true, &q), PQ_CORRUPT);
    }
    for (size_t at = 0; at < 72; at++) { /* magic, version, geometry */
        damage(image, bytes, at, 0x11);
        assert_int_equal(pq_open(path, true, &q), PQ_CORRUPT);
    }
    memset(image, 'x', bytes);
    damage(image, bytes, 0, 0);
    assert_int_equal(pq_open(path, true, &q), PQ_CORRUPT);
    assert_int_equal(pq_open("/dev/null", true, &q), PQ_CORRUPT);
    assert_int_equal(pq_open("/tmp", true, &q), PQ_SYSTEM);
    char fifo[80];
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(pq_open(fifo, true, &q), PQ_CORRUPT); /* and does not block */
    unlink(fifo);
    free(image);
}

/* Any damage of the tables behind the header: refused or survived, never a crash. */
static void test_damaged_tables(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 3);
    for (unsigned n = 1; n <= 5; n++)
        assert_int_equal(put(q, n, 500), PQ_OK);
    pq_close(q);
    size_t bytes = pq_file_bytes(4096, 3), refused = 0;
    struct pq_layout l;
    assert_true(pq_layout_of(4096, 3, &l));
    char *image = malloc(bytes);
    int fd = open(path, O_RDONLY);
    assert_true(read(fd, image, bytes) == (ssize_t)bytes);
    close(fd);
    uint64_t rng = 7;
    for (int i = 0; i < 400; i++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        size_t at =
            l.slots + (size_t)(rng >> 33) % (l.scratch - l.slots); /* slots, nodes, hash, order */
        damage(image, bytes, at, (uint8_t)(1 + (rng >> 25) % 255));
        enum pq_status s = pq_open(path, true, &q);
        if (s) {
            refused += s == PQ_CORRUPT;
            continue;
        }
        uint64_t after = 0;
        volatile unsigned sum = 0;
        struct pq_view v;
        while (pq_next(q, after, &v) == PQ_OK) {
            after = v.seq;
            for (uint32_t b = 0; b < v.info.size; b++)
                sum += v.data[b];
            pq_release(q, &v);
        }
        (void)sum;
        for (unsigned n = 100; n < 120; n++)
            put(q, n, 300);
        pq_close(q);
    }
    assert_true(refused > 50);
    free(image);
}

/* A copy of a queue in use, its lock held: works, since no process can hold the copy's lock. */
static void test_copy_of_a_live_queue(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 8);
    assert_int_equal(put(q, 1, 100), PQ_OK);
    struct pq_view v;
    assert_int_equal(pq_next(q, 0, &v), PQ_OK);
    void *region;
    struct pq_reservation *r;
    assert_int_equal(pq_reserve(q, NULL, 100, &region, &r), PQ_OK);
    char other[80];
    snprintf(other, sizeof other, "%s/copy", dir);
    char cmd[256];
    snprintf(cmd, sizeof cmd, "cp %s %s", path, other);
    assert_int_equal(system(cmd), 0);
    struct pq *copy;
    assert_int_equal(pq_open(other, true, &copy), PQ_OK);
    HOLDS(copy, 1);
    assert_int_equal(put(copy, 2, 4096), PQ_OK); /* pin and reservation are not the copy's */
    HOLDS(copy, 2);
    pq_close(copy);
    unlink(other);
    pq_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_creation),
        cmocka_unit_test(test_garbage_files),
        cmocka_unit_test(test_damaged_tables),
        cmocka_unit_test(test_copy_of_a_live_queue),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The product queue's file: what can be created, and files that are damaged or not a queue at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
    assert_true(st.st_blocks * 512 >= st.st_size); /* its blocks are allocated */
    const mode_t umasks[] = {0, 022, 027, 077, 0177}, modes[] = {0640, 0640, 0640, 0600, 0600};
    for (size_t i = 0; i < sizeof umasks / sizeof *umasks; i++) {
        mode_t before = umask(umasks[i]);
        assert_int_equal(pq_create(path, 1 << 20, 100, true), PQ_OK);
        umask(before);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, modes[i]);
    }
    assert_int_equal(pq_create(path, 1 << 20, 100, false), PQ_SYSTEM);
    assert_int_equal(errno, EEXIST);
    /* 1 TiB: no disk here is that large; no file may remain, and no disk be filled. */
    char big[80];
    snprintf(big, sizeof big, "%s/big", dir);
    bool fits = UINT64_C(1) << 45 <= PTRDIFF_MAX; /* into the address space */
    assert_int_equal(pq_create(big, UINT64_C(1) << 45, 100, false), fits ? PQ_SYSTEM : PQ_INVAL);
    if (fits)
        assert_int_equal(errno, ENOSPC);
    char cmd[128];
    snprintf(cmd, sizeof cmd, "test \"$(ls -A %s)\" = queue", dir);
    assert_int_equal(system(cmd), 0);
}

/* As after a reboot. */
static void begin_another_run(void)
{
    const uint64_t run[3] = {0};
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, run, sizeof run, offsetof(struct pq_header, run)), sizeof run);
    close(fd);
}

/* Replaces the file by its first `bytes` bytes, one of them changed. */
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

/* Any damage to the tables after the header: refused or survived, never a crash. */
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

/* A process that may only read the file holds every kind of lock on it, is stopped, is killed: no
 * other process waits. */
static void reader_holds(struct pq *q, int kind)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(path, O_RDONLY);
        struct flock all = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        bool held = kind == 0   ? flock(fd, LOCK_EX) == 0
                    : kind == 1 ? flock(fd, LOCK_SH) == 0
                    : kind == 2 ? fcntl(fd, F_OFD_SETLK, &all) == 0
                                : fcntl(fd, F_SETLK, &all) == 0;
        if (!held || write(ready[1], "h", 1) != 1)
            _exit(1);
        raise(SIGSTOP);
        _exit(0);
    }
    close(ready[1]);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    alarm(20); /* a process that waits would wait forever */
    unsigned n = 100 + (unsigned)kind;
    struct pq *second;
    assert_int_equal(put(q, n, 100), PQ_OK);
    assert_int_equal(pq_open(path, true, &second), PQ_OK);
    assert_int_equal(put(second, n + 10, 100), PQ_OK);
    pq_close(second);
    pq_close(q);
    assert_int_equal(pq_open(path, true, &q), PQ_OK); /* the first process to open it */
    assert_int_equal(put(q, n + 20, 100), PQ_OK);
    pq_close(q);
    begin_another_run();
    assert_int_equal(pq_open(path, true, &second), PQ_OK);
    pq_close(second);
    alarm(0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void test_readers_lock_nobody_out(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        reader_holds(fresh(1 << 16, 100), kind);
}

/* The tables are checked if another program changed the file, and not otherwise. */
static void test_look_through(void **state)
{
    (void)state;
    struct pq *q = fresh(4096, 3);
    assert_int_equal(put(q, 1, 500), PQ_OK);
    struct pq_layout l;
    assert_true(pq_layout_of(4096, 3, &l));
    int fd = open(path, O_RDWR);
    struct stat st;
    uint8_t good, bad;
    off_t at = (off_t)(l.slots + offsetof(struct pq_slot, offset));
    for (int i = 0; i < 20; i++) {
        pq_close(q);
        assert_int_equal(pread(fd, &good, 1, at), 1);
        bad = good ^ 1;
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, st.st_mtim};
        struct pq *other;
        assert_int_equal(pq_open(path, true, &other), PQ_CORRUPT);
        assert_int_equal(pq_open(path, true, &other), PQ_CORRUPT); /* nor a second time */
        assert_int_equal(pwrite(fd, &good, 1, at), 1);
        assert_int_equal(pq_open(path, true, &q), PQ_OK);
        assert_int_equal(pq_open(path, true, &other), PQ_OK);
        pq_close(q);
        q = other;
        pq_close(q);
        /* Modification time as the queue left it, to the nanosecond: not checked. */
        assert_int_equal(fstat(fd, &st), 0);
        times[1] = st.st_mtim;
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        assert_int_equal(futimens(fd, times), 0);
        assert_int_equal(pq_open(path, true, &q), PQ_OK);
        assert_int_equal(pwrite(fd, &good, 1, at), 1);
        assert_int_equal(pq_check(q), PQ_OK);
    }
    close(fd);
    pq_close(q);
}

/* True if the system releases the robust mutexes of a killed process. qemu-user does not: other
 * processes consider it alive. */
static bool has_robust_mutexes(void)
{
    void *head;
    size_t len;
    return syscall(SYS_get_robust_list, 0, &head, &len) == 0;
}

/* All processes that had it open were killed: the next one checks the tables. */
static void test_left_dirty(void **state)
{
    (void)state;
    if (!has_robust_mutexes()) {
        print_message("SKIPPED test_left_dirty: no robust mutexes here (qemu-user)\n");
        skip();
    }
    struct pq *q = fresh(4096, 3);
    assert_int_equal(put(q, 1, 500), PQ_OK);
    pq_close(q);
    struct pq_layout l;
    assert_true(pq_layout_of(4096, 3, &l));
    for (int damaged = 0; damaged < 2; damaged++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (pq_open(path, true, &q))
                _exit(1);
            if (damaged)
                q->slots[0].offset ^= 1;
            raise(SIGKILL);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(pq_open(path, true, &q), damaged ? PQ_CORRUPT : PQ_OK);
        if (!damaged)
            pq_close(q);
    }
}

/* A copy of a queue in use, with its lock held: usable, since no process can hold the copy's
 * lock. */
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
    assert_int_equal(put(copy, 2, 4096),
                     PQ_OK); /* the copy has neither the pin nor the reservation */
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
        cmocka_unit_test(test_readers_lock_nobody_out),
        cmocka_unit_test(test_look_through),
        cmocka_unit_test(test_left_dirty),
        cmocka_unit_test(test_copy_of_a_live_queue),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

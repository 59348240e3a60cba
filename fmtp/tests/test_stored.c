/* SPDX-License-Identifier: Apache-2.0
 *
 * Space that fmtp-recv promises to files that it has begun, on a disk whose size the test sets.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "../tools/stored.h"

enum { MB = 1000000, BLOCK = 4096 };

static uint64_t free_bytes; /* of the disk, before this store used any */
static char path[] = "/tmp/test-stored-XXXXXX";
static struct store store;
static struct stored *kept[8];
static uint32_t nkept;

static uint64_t written(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < nkept; i++)
        sum += kept[i]->written;
    return sum;
}

int __wrap_fstatvfs64(int fd, struct statvfs *out);
int __wrap_fstatvfs64(int fd, struct statvfs *out)
{
    (void)fd;
    *out = (struct statvfs){.f_frsize = BLOCK, .f_bavail = (free_bytes - written()) / BLOCK};
    return 0;
}

static bool begin(uint32_t size)
{
    char name[16];
    int n = snprintf(name, sizeof name, "f%u", nkept);
    struct stored *f = stored_begin(&store, 0, nkept, size, name, (uint16_t)n);

    if (f)
        kept[nkept++] = f;
    return f;
}

static unsigned names(void)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static int open_store(void **state)
{
    (void)state;
    store = (struct store){.dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY) : -1};
    return store.dir < 0 ? -1 : 0;
}

static int close_store(void **state)
{
    (void)state;
    close(store.dir);
    return rmdir(path);
}

static void forget_all(void)
{
    while (nkept)
        stored_discard(&store, kept[--nkept]);
    assert_true(store.promised == 0);
    assert_int_equal(names(), 0);
}

/* Each of the three fits alone, and beside what the others have written so far. */
static void test_promises_are_added_up(void **state)
{
    (void)state;
    free_bytes = 30 * MB;
    assert_true(begin(12 * MB));
    assert_true(begin(12 * MB));
    assert_true(written() + 12 * MB < free_bytes);
    assert_false(begin(12 * MB));
    assert_int_equal(names(), 2); /* nothing of the third */
    assert_true(begin(5 * MB));   /* the rest of the space */
    assert_false(begin(2 * MB));
    forget_all();
}

static bool write_megabyte(struct stored *f, uint32_t number)
{
    static uint8_t bytes[MB];

    return stored_write(&store, f, number * MB, &(struct iovec){bytes, MB}, 1);
}

/* A promise ends when its bytes are written, and when its file is gone. */
static void test_promises_end(void **state)
{
    (void)state;
    free_bytes = 30 * MB;
    assert_true(begin(20 * MB));
    for (uint32_t i = 0; i < 3; i++)
        assert_true(write_megabyte(kept[0], i));
    assert_true(kept[0]->written == 3 * MB);
    assert_true(store.promised == 20 * MB - 3 * MB);
    assert_false(begin(11 * MB));
    assert_true(begin(9 * MB));
    stored_discard(&store, kept[--nkept]);
    stored_discard(&store, kept[--nkept]);
    assert_true(store.promised == 0);
    assert_true(begin(29 * MB));
    forget_all();
    assert_false(begin(31 * MB));
    assert_true(begin(0));
    forget_all();
}

/* Parts of any number and size arrive where they belong, also beyond what one call takes. */
static void test_parts(void **state)
{
    enum { PARTS = 3000 };
    static uint8_t bytes[PARTS * (PARTS - 1) / 2];
    struct iovec parts[PARTS];
    uint8_t *at = bytes;

    (void)state;
    free_bytes = 30 * MB;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = (struct iovec){at, i};
        at += i;
    }
    assert_true(begin(sizeof bytes + 7));
    assert_true(stored_write(&store, kept[0], 7, parts, PARTS));
    assert_memory_equal((const uint8_t *)kept[0]->data + 7, bytes, sizeof bytes);
    forget_all();
}

/* A write that fails is reported once, and nothing more is written to the file. */
static void test_failure(void **state)
{
    (void)state;
    free_bytes = 30 * MB;
    assert_true(begin(2 * MB));
    int fd = kept[0]->fd;
    kept[0]->fd = open("/dev/full", O_WRONLY);
    assert_false(write_megabyte(kept[0], 0));
    assert_true(kept[0]->failed);
    close(kept[0]->fd);
    kept[0]->fd = fd;
    assert_false(write_megabyte(kept[0], 0));
    assert_true(store.promised == 2 * MB);
    forget_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_promises_are_added_up),
        cmocka_unit_test(test_promises_end),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_failure),
    };

    return cmocka_run_group_tests(tests, open_store, close_store);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing escapes from the data directory, with openat2 and without.
 */
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

#include "datadir.h"

static char top[] = "/tmp/test-datadir-XXXXXX";
static char err[300];

static int setup(void **state)
{
    (void)state;
    return !mkdtemp(top) || chdir(top) != 0 || mkdir("in", 0700) != 0 || mkdir("out", 0700) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") != 0 || system("rm -rf /tmp/test-datadir-??????") != 0;
}

static void put(int fd, const char *text)
{
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

static void assert_holds(const char *path, const char *text)
{
    char got[100] = "";
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    assert_true(read(fd, got, sizeof got - 1) >= 0);
    close(fd);
    assert_string_equal(got, text);
}

static void inside(bool walk)
{
    struct datadir d;
    assert_int_equal(datadir_open(&d, "in"), 0);
    d.walk = walk;
    put(datadir_append(&d, "a", err, sizeof err), "1");
    put(datadir_append(&d, "./a", err, sizeof err), "2");
    put(datadir_append(&d, "x/y//z/./b..", err, sizeof err), "3");
    put(datadir_append(&d, "x/y/c", err, sizeof err), "4");
    assert_holds("in/a", "12");
    assert_holds("in/x/y/z/b..", "3");
    assert_holds("in/x/y/c", "4");
    struct datadir_new n;
    assert_int_equal(datadir_new(&d, "x/y/c", &n, err, sizeof err), 0);
    assert_int_equal(write(n.fd, "new", 3), 3);
    assert_holds("in/x/y/c", "4"); /* not before it is finished */
    assert_int_equal(datadir_new_finish(&n, true, err, sizeof err), 0);
    assert_holds("in/x/y/c", "new");
    assert_int_equal(datadir_new(&d, "x/y/c", &n, err, sizeof err), 0);
    assert_int_equal(datadir_new_finish(&n, false, err, sizeof err), 0);
    assert_holds("in/x/y/c", "new");
    assert_int_equal(system("test \"$(ls -A in/x/y)\" = \"c\nz\""),
                     0); /* no temporary file remains */
    assert_int_equal(d.refused, 0);
    assert_int_equal(d.walk, walk);
    datadir_close(&d);
    assert_int_equal(system("rm -rf in/*"), 0);
}

static void outside(bool walk)
{
    static const char *const bad[] = {
        "",     "/",           ".",        "./",   "..",     "../out/f", "a/../../out/f",
        "a/..", "/etc/passwd", "a/",       "a/.",  "a\nb",   "a\177b",   "link/f",
        "link", "absolute/f",  "sub/up/f", "fifo", "file/f", "sub",      "dangling",
    };

    assert_int_equal(
        system(
            "mkdir in/sub && ln -s ../out in/link && ln -s $PWD/out in/absolute &&"
            "ln -s .. in/sub/up && mkfifo in/fifo && touch in/file && ln -s ../out/new in/dangling"),
        0);
    struct datadir d;
    assert_int_equal(datadir_open(&d, "in"), 0);
    d.walk = walk;
    struct datadir_new n;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        unsigned long refused = d.refused;
        int fd = datadir_append(&d, bad[i], err, sizeof err);

        if (fd >= 0)
            fail_msg("\"%s\" was opened", bad[i]);
        if (d.refused != refused + 1 && strcmp(bad[i], "sub") != 0)
            fail_msg("\"%s\": %s", bad[i], err);
        if (datadir_new(&d, bad[i], &n, err, sizeof err) == 0)
            fail_msg("\"%s\" was begun", bad[i]);
    }
    struct stat st;
    assert_int_equal(stat("out/f", &st), -1);
    assert_int_equal(stat("out/new", &st), -1);
    assert_int_equal(system("test -z \"$(ls -A out)\""), 0);
    char longer[300];
    memset(longer, 'a', sizeof longer);
    longer[256] = '\0';
    assert_int_equal(datadir_append(&d, longer, err, sizeof err), -1);
    assert_string_equal(err, "File name too long");
    datadir_close(&d);
    assert_int_equal(system("rm -rf in/*"), 0);
}

static void inside_openat2(void **state)
{
    (void)state;
    inside(false);
}
static void inside_walk(void **state)
{
    (void)state;
    inside(true);
}
static void outside_openat2(void **state)
{
    (void)state;
    outside(false);
}
static void outside_walk(void **state)
{
    (void)state;
    outside(true);
}

/* The temporary file of a killed process is removed, and nothing else. */
static void test_remove_begun(void **state)
{
    struct datadir d;
    struct datadir_new n;

    (void)state;
    assert_int_equal(datadir_open(&d, "in"), 0);
    put(datadir_append(&d, "below/other", err, sizeof err), "1");
    assert_int_equal(datadir_new(&d, "below/file", &n, err, sizeof err), 0);
    char begun[100];
    snprintf(begun, sizeof begun, "in/below/%s", n.temporary);
    assert_int_equal(datadir_remove_begun(&d, "below/file", getpid() + 1, err, sizeof err), 0);
    assert_int_equal(access(begun, F_OK), 0);
    assert_int_equal(datadir_remove_begun(&d, "../in/below/file", getpid(), err, sizeof err), -1);
    assert_int_equal(access(begun, F_OK), 0);
    assert_int_equal(datadir_remove_begun(&d, "below/file", getpid(), err, sizeof err), 0);
    assert_int_equal(access(begun, F_OK), -1);
    assert_holds("in/below/other", "1");
    datadir_new_finish(&n, false, err, sizeof err);
    datadir_close(&d);
}

/* No spelling of a path reaches the program's own directory. */
static void test_own(void **state)
{
    static const char *const bad[] = {".own/f", ".own", "./.own/f", ".//.own//f", "././.own/./f"};
    static const char *const good[] = {".owner/f", "a/.own/f", ".ow", "own"};
    struct datadir d;

    (void)state;
    assert_int_equal(datadir_open(&d, "in"), 0);
    d.own = ".own";
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(datadir_append(&d, bad[i], err, sizeof err), -1);
        assert_string_equal(err, "refused: the program's own files");
    }
    assert_int_equal(d.refused, sizeof bad / sizeof *bad);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        put(datadir_append(&d, good[i], err, sizeof err), "1");
    datadir_close(&d);
    assert_int_equal(system("rm -rf in && mkdir in"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),        cmocka_unit_test(test_remove_begun),
        cmocka_unit_test(inside_openat2),  cmocka_unit_test(inside_walk),
        cmocka_unit_test(outside_openat2), cmocka_unit_test(outside_walk)};

    return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "stats_read.h"

#define COUNTERS(X)                       \
    X(things, COUNTER, 0, "Things done.") \
    X(wait_seconds, GAUGE, 6, "How long it waited.")
enum { NCOLUMNS = 2, ROWS = 3 };
static const struct stats_column columns[] = {COUNTERS(STATS_COLUMN)};
static const struct stats_table tables[] = {
    {.name = "own", .columns = columns, .ncolumns = NCOLUMNS, .nrows = 1},
    {.name = "peer", .keys = {"host"}, .columns = columns, .ncolumns = NCOLUMNS, .nrows = ROWS}};
static const struct stats_spec spec = {
    .program = "prog", .keys = {"feed"}, .texts = {"NGRID|EXP"}, .tables = tables, .ntables = 2};

static char top[] = "/tmp/stats-XXXXXX", dir[64];

static char *file_of(char out[128], pid_t pid)
{
    char name[64];

    snprintf(out, 128, "%s/%s", dir, stats_file_name(name, sizeof name, "prog", pid));
    return out;
}

static int group_setup(void **state)
{
    (void)state;
    if (!mkdtemp(top))
        return -1;
    snprintf(dir, sizeof dir, "%s/q.stats", top);
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    rmdir(dir);
    return rmdir(top);
}

static void load(struct stats_image *image, pid_t pid)
{
    char why[STATS_WHY], name[64];
    int at = open(dir, O_RDONLY | O_DIRECTORY);

    bool ok = stats_load(image, at, stats_file_name(name, sizeof name, "prog", pid), why);
    close(at);
    if (!ok)
        fail_msg("%s", why);
}

/* What was written is read back with its description; rows come and go. */
static void test_what_is_written_is_read(void **state)
{
    static const char long_text[] = "a text of more than a hundred and four bytes, which is what "
                                    "a label has room for, so its end is cut off somewhere here";
    struct stats_page *p = stats_open(dir, &spec);
    char texts[STATS_LABELS][STATS_TEXT];
    uint64_t got[STATS_COLUMNS_MAX];
    bool torn;

    (void)state;
    assert_non_null(p);
    stats_write(p, 0, 0, NULL, (const uint64_t[]){7, 1500000});
    stats_write(p, 1, 2, (const char *[STATS_LABELS]){long_text},
                (const uint64_t[]){8, UINT64_MAX});
    struct stats_image image;
    load(&image, getpid());
    assert_true(stats_alive(&image));
    assert_string_equal(image.head.program, "prog");
    assert_string_equal(image.head.labels[0].key, "feed");
    assert_string_equal(image.head.labels[0].text, "NGRID|EXP");
    struct stats_column_entry c;
    stats_get_column(&image, 1, 1, &c);
    assert_string_equal(c.name, "wait_seconds");
    assert_string_equal(c.help, "How long it waited.");
    assert_int_equal(c.kind, STATS_GAUGE);
    assert_int_equal(c.decimals, 6);
    assert_true(stats_get_row(&image, 0, 0, texts, got, &torn));
    assert_int_equal(got[0], 7);
    assert_int_equal(got[1], 1500000);
    assert_false(stats_get_row(&image, 1, 0, texts, got, &torn));
    assert_true(stats_get_row(&image, 1, 2, texts, got, &torn));
    assert_int_equal(strlen(texts[0]), STATS_TEXT - 1);
    assert_memory_equal(texts[0], long_text, STATS_TEXT - 1);
    assert_int_equal(got[1], UINT64_MAX);
    stats_free(&image);
    stats_forget(p, 1, 2);
    load(&image, getpid());
    assert_false(stats_get_row(&image, 1, 2, texts, got, &torn));
    assert_false(torn);
    stats_free(&image);
    stats_close(p);
    char path[128];
    assert_int_equal(access(file_of(path, getpid()), F_OK), -1);
}

#define NO_WALL 3 /* exit status: the kernel has no seccomp */

/* Under a seccomp filter that allows only write and exit, an update makes no system call. */
static void test_an_update_is_no_system_call(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct stats_page *p = stats_open(dir, &spec);
        if (!p)
            _exit(2);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) < 0)
            _exit(NO_WALL);
        for (uint64_t i = 0; i < 1000; i++)
            stats_write(p, 1, (unsigned)(i % ROWS), (const char *[STATS_LABELS]){"10.0.0.1"},
                        (const uint64_t[]){i, i});
        stats_forget(p, 1, 0);
        syscall(SYS_exit, 0); /* _exit is exit_group */
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    char path[128];
    if (WEXITSTATUS(status) == NO_WALL) {
        unlink(file_of(path, pid));
        print_message("SKIPPED test_an_update_is_no_system_call: no seccomp here (qemu-user)\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
    struct stats_image image;
    load(&image, pid);
    char texts[STATS_LABELS][STATS_TEXT];
    uint64_t got[STATS_COLUMNS_MAX];
    bool torn;
    assert_true(stats_get_row(&image, 1, 1, texts, got, &torn));
    assert_int_equal(got[0], 997);
    assert_false(stats_get_row(&image, 1, 0, texts, got, &torn));
    assert_false(stats_alive(&image)); /* the process has ended, and its file still exists */
    stats_free(&image);
    unlink(file_of(path, pid));
}

/* No reader sees half an update. */
static void test_rows_are_whole(void **state)
{
    unsigned seen = 0;
    int ready[2];
    char byte;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct stats_page *p = stats_open(dir, &spec);
        write(ready[1], "", 1);
        if (!p)
            _exit(1);
        for (uint64_t i = 1;; i++) {
            char text[24];
            snprintf(text, sizeof text, "%llu", (unsigned long long)i);
            stats_write(p, 1, 0, (const char *[STATS_LABELS]){text}, (const uint64_t[]){i, i});
            if (i % 3 == 0)
                usleep(20);
        }
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int i = 0; i < 2000; i++) {
        struct stats_image image;
        char texts[STATS_LABELS][STATS_TEXT];
        uint64_t got[STATS_COLUMNS_MAX];
        bool torn;
        load(&image, pid);
        if (stats_get_row(&image, 1, 0, texts, got, &torn)) {
            assert_int_equal(got[0], got[1]);
            assert_int_equal(got[0], strtoull(texts[0], NULL, 10));
            seen++;
        }
        stats_free(&image);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(seen > 100);
    char path[128];
    unlink(file_of(path, pid));
    close(ready[0]);
    close(ready[1]);
}

struct damage {
    const char *said;
    size_t at;
    uint8_t value;
};
#define HEADER(member) offsetof(struct stats_header, member)
#define TABLE(member) (sizeof(struct stats_header) + offsetof(struct stats_table_entry, member))
#define COLUMNS (sizeof(struct stats_header) + 2 * sizeof(struct stats_table_entry))

/* Byte `number` of a 32-bit number at an offset; 0 is the least significant. */
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define OCTET(at, number) ((at) + 3 - (number))
#else
#define OCTET(at, number) ((at) + (number))
#endif

static const struct damage damages[] = {
    {"not a counters page", HEADER(magic), 'X'},
    {"byte order", OCTET(HEADER(order), 0), 9},
    {"found version 9; valid: 1", OCTET(HEADER(version), 0), 9},
    {"bytes; valid: the", OCTET(HEADER(bytes), 0), 3},
    {"found 0 tables", OCTET(HEADER(ntables), 0), 0},
    {"found 200 tables", OCTET(HEADER(ntables), 0), 200},
    {"program name", HEADER(program), ' '},
    {"label 0", HEADER(labels[0].key), '"'},
    {"table 0 has no valid name", TABLE(name), '{'},
    {"table own: label 0", TABLE(keys), 'A'},
    {"found 0 columns", OCTET(TABLE(ncolumns), 0), 0},
    {"found 200 columns", OCTET(TABLE(ncolumns), 0), 200},
    {"found 2 columns and 0 rows", OCTET(TABLE(nrows), 0), 0},
    {"rows of", OCTET(TABLE(row_bytes), 0), 1},
    {"beyond the end", OCTET(TABLE(columns_at), 3), 0xff},
    {"beyond the end", OCTET(TABLE(rows_at), 2), 0xff},
    {"column 0 of table own", COLUMNS, '\n'},
    {"found kind 7", OCTET(COLUMNS + offsetof(struct stats_column_entry, kind), 0), 7},
    {"with 99 decimals", OCTET(COLUMNS + offsetof(struct stats_column_entry, decimals), 0), 99},
};

static uint8_t *good_bytes(size_t *n)
{
    struct stats_page *p = stats_open(dir, &spec);
    struct stats_image image;

    assert_non_null(p);
    load(&image, getpid());
    stats_close(p);
    *n = image.n;
    return image.bytes;
}

static void test_damage_is_refused(void **state)
{
    struct stats_image image;
    char why[STATS_WHY];
    size_t n;
    uint8_t *good = good_bytes(&n), *bad = malloc(n);

    (void)state;
    assert_true(stats_parse(&image, good, n, why));
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        memcpy(bad, good, n);
        bad[damages[i].at] = damages[i].value;
        assert_false(stats_parse(&image, bad, n, why));
        if (!strstr(why, damages[i].said) || strchr(why, '\n'))
            fail_msg("found \"%s\"; valid: \"%s\"", why, damages[i].said);
    }
    for (size_t cut = 0; cut < n; cut++) { /* truncated anywhere */
        uint8_t *exact = malloc(cut + 1);
        memcpy(exact, good, cut);
        assert_false(stats_parse(&image, exact, cut, why));
        free(exact);
    }
    free(bad);
    free(good);
}

/* Files of other types neither crash nor block the reader. */
static void test_other_files(void **state)
{
    struct stats_image image;
    char why[STATS_WHY];

    (void)state;
    assert_int_equal(mkdir(dir, 0700) == 0 || errno == EEXIST, 1);
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(mkfifoat(at, "pipe", 0600), 0);
    assert_int_equal(symlinkat("/proc/self/mem", at, "link"), 0);
    close(openat(at, "empty", O_CREAT | O_WRONLY, 0600));
    int large = openat(at, "large", O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(large, STATS_FILE_MAX + 1), 0);
    close(large);
    static const char *const cases[][2] = {{"pipe", "not a regular file"},
                                           {"link", "symbolic link"},
                                           {"empty", "found 0 bytes"},
                                           {"large", "at most"},
                                           {"nothing", "No such file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(stats_load(&image, at, cases[i][0], why));
        if (!strstr(why, cases[i][1]))
            fail_msg("%s: found \"%s\"", cases[i][0], why);
        unlinkat(at, cases[i][0], 0);
    }
    close(at);
}

static void test_what_cannot_be_described(void **state)
{
    struct stats_table large = {.name = "t", .columns = columns, .ncolumns = NCOLUMNS};
    struct stats_spec bad = {.program = "prog", .tables = &large, .ntables = 1};

    (void)state;
    for (int i = 0; i < 2; i++) {
        large.nrows = i == 0 ? 0 : STATS_ROWS_MAX + 1;
        assert_null(stats_open(dir, &bad));
        assert_int_equal(errno, EOVERFLOW);
    }
    assert_null(stats_open("/nowhere/at/all", &spec));
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_an_update_is_no_system_call),
        cmocka_unit_test(test_rows_are_whole),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_what_cannot_be_described),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}

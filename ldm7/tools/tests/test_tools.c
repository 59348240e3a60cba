/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs that create, fill and read queues. Golden digests: an independent program (Python,
 * from the definition of SplitMix64) made the same bytes.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "queue/pq.h"
#include "tool_run.h"

static const char three[] =
    "1000 20150615000000.000\n217 20150615000001.000\n300000 20150615000002.000\n";
static const char three_listed[] = "ae07dc8033a1edcaac1ab8521c64d617 1000 hour.000000\n"
                                   "126da68aca964a2d1120b1ad3e07fa3e 217 hour.000001\n"
                                   "9e83ac7bcfe6ca37bfbc2e63b7090d94 300000 hour.000002\n";

static void test_replay_golden(void **state)
{
    (void)state;
    fresh_queue();
    write_file("hour.txt", three);
    assert_int_equal(run("pqinsert -q queue -f NGRID --trace hour.txt --scale 10 --seed 42 -v"), 0);
    assert_matches(
        err,
        "^[0-9TZ.]+ pqinsert\\[[0-9]+\\]   replay.c:commit_due:[0-9]+   INFO Inserted:       1000 "
        "20[0-9]{12}\\.[0-9]{6} NGRID 000  hour\\.000000\n"
        "[^\n]* INFO Inserted:        217 [0-9.]+ NGRID 001  hour\\.000001\n"
        "[^\n]* INFO Inserted:     300000 [0-9.]+ NGRID 002  hour\\.000002\n"
        "[^\n]* NOTE Replayed: products=3 bytes=301217 elapsed_s=[0-9.]+ late_p50_ms=[0-9.]+ "
        "late_max_ms=[0-9.]+\n$");
    double elapsed = atof(strstr(err, "elapsed_s=") + 10),
           late = atof(strstr(err, "late_max_ms=") + 12);
    assert_true(elapsed >= 0.2 && elapsed <= 0.2 + late / 1000 + 0.001);
    assert_int_equal(run("pqcat -q queue --list -c"), 0);
    assert_string_equal(out, three_listed);
    assert_string_equal(err, "");
    /* Only what lies before the second second: 0.000 and 1.000, not 2.000. */
    fresh_queue();
    assert_int_equal(
        run("pqinsert -q queue --trace hour.txt --scale 1000 --duration 2 --name n --seed 42"), 0);
    assert_matches(err, "Replayed: products=2 bytes=1217 ");
    assert_int_equal(run("pqcat -q queue --list"), 0);
    assert_matches(out, "^[0-9a-f]{32} 1000 n\\.000000\n[0-9a-f]{32} 217 n\\.000001\n$");
    /* The same bytes again are duplicates, all of them; another seed makes others. */
    assert_int_equal(run("pqinsert -q queue --trace hour.txt --scale 1000 --duration 2 --seed 42"),
                     4);
    assert_matches(err, "WARN Duplicate product: +1000 .*Replayed: products=0 bytes=0 ");
    assert_int_equal(run("pqinsert -q queue --trace - --scale 1000 --seed 43 < hour.txt"), 0);
    assert_matches(err, "Replayed: products=3 bytes=301217 ");
}

static void test_replay_needs_no_more_than_the_queue_has(void **state)
{
    (void)state;
    /* 300000 is rounded up to 74 pages: 303104. 1024 + 256 + 302016 = 303296 is more. */
    assert_int_equal(run("pqcreate -s 300000 -S 3 -c -q queue"), 0);
    write_file("tight.txt",
               "1000 20150615000000.000\n217 20150615000001.000\n302000 20150615000002.000\n");
    write_file("hour.txt", three);
    assert_int_equal(run("pqinsert -q queue --trace tight.txt --scale 1000"), 0);
    assert_int_equal(run("pqcat -q queue --list"), 0);
    assert_matches(out, "^[0-9a-f]{32} 302000 tight\\.000002\n$");
    assert_int_equal(run("pqcreate -s 200000 -S 3 -c -q queue"), 0);
    assert_int_equal(run("pqinsert -q queue --trace hour.txt --scale 1000"), 2);
    /* 200000 is rounded up to 49 pages. */
    assert_matches(
        err,
        "ERROR hour\\.txt:3: found \"300000\"; valid: at most 200704 bytes, the queue's capacity\n$");
    assert_int_equal(run("pqcat -q queue --list"), 0);
    assert_string_equal(out, "");
}

static void test_queue_full_of_pins(void **state)
{
    (void)state;
    fresh_queue();
    write_file("hour.txt", three);
    assert_int_equal(run("pqinsert -q queue --trace hour.txt --scale 1000"), 0);
    struct pq *q;
    assert_int_equal(pq_open("queue", true, &q), PQ_OK);
    uint64_t after = 0;
    struct pq_view v;
    while (pq_next(q, after, &v) == PQ_OK)
        after = v.seq;
    struct pq_reservation *r;
    void *region;
    assert_int_equal(pq_reserve(q, NULL, 1003520 - 300032 - 256 - 1024, &region, &r), PQ_OK);
    assert_int_equal(
        run("pqinsert -q queue --trace hour.txt --scale 1000 --seed 2 --full-wait 0.2"), 1);
    assert_matches(
        err,
        "WARN Queue full: .*Replayed: products=0 .*ERROR Product 1 of 3 \\(1000 bytes\\) cannot be "
        "inserted: queue full");
    /* Room becomes free while it waits; before that, the queue itself has requested it for 2 s. */
    pid_t pid = start("pqinsert -q queue --trace hour.txt --scale 1000 --seed 2 --full-wait 20");
    usleep(3000000);
    pq_discard(q, r);
    assert_int_equal(finish(pid), 0);
    assert_matches(err, "WARN Queue full: .*Replayed: products=3 ");
    pq_close(q);
}

static void test_signal_ends_a_replay(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fresh_queue();
        write_file("slow.txt", "100 20150615000000.000\n100 20150615010000.000\n");
        pid_t pid = start("pqinsert -q queue --trace slow.txt");
        usleep(500000);
        kill(pid, i ? SIGTERM : SIGINT);
        assert_int_equal(finish(pid), 0);
        assert_matches(
            err,
            "Replayed: products=1 bytes=100 .*Stopped by signal (2|15) after 1 of 2 products\n$");
        assert_int_equal(run("pqmon -q queue"), 0); /* no reservation made ahead remains: nempty */
        assert_matches(out, "\n1 1 9 128 ");
    }
}

static void test_broken_traces_insert_nothing(void **state)
{
    (void)state;
    fresh_queue();
    write_file("bad.txt", "100 20150615000000.000\n1O0 20150615000000.001\n100 20150615000000\n");
    assert_int_equal(run("pqinsert -q queue --trace bad.txt"), 2);
    assert_string_equal(
        err,
        "bad.txt:2: found \"1O0 20150615000000.001\"; valid: SIZE YYYYMMDDhhmmss.mmm, size 1 to "
        "4294967295 bytes, a time that exists\n"
        "bad.txt:3: found \"100 20150615000000\"; valid: SIZE YYYYMMDDhhmmss.mmm, size 1 to "
        "4294967295 bytes, a time that exists\n");
    assert_int_equal(run("pqinsert -q queue --trace missing.txt"), 2);
    assert_matches(err, "Trace \"missing.txt\" cannot be read: No such file");
    assert_int_equal(run("pqinsert -q queue --trace ."), 2);
    assert_int_equal(run("pqinsert -q queue --trace /dev/null"), 2);
    assert_matches(err, "/dev/null: found no product; valid: ");
    assert_int_equal(run("pqcat -q queue"), 0);
    assert_string_equal(out, "");
}

static void test_files(void **state)
{
    (void)state;
    fresh_queue();
    write_file("a", "first\n");
    write_file("b", "second");
    write_file("empty", "");
    assert_int_equal(run("pqinsert -q queue -f EXP -s 7 --origin here a b empty"), 0);
    assert_string_equal(err, "");
    assert_int_equal(run("pqcat -q queue -c"), 0);
    assert_string_equal(out, "first\nsecond");
    assert_int_equal(run("pqcat -q queue --list"), 0);
    /* Digests by md5sum. */
    assert_string_equal(
        out,
        "eb260e9ae827821beceeed4104f0ad89 6 a\na9f0e61a137d86aa9db53465e0801612 6 b\nd41d8cd98f00b204e9800998ecf8427e 0 empty\n");
    assert_int_equal(run("pqcat -q queue -v"), 0);
    assert_matches(
        err,
        "INFO          6 20[0-9.]+ EXP 007  a\n.*INFO          6 20[0-9.]+ EXP 008  b\n.*Number of "
        "products 3\n$");
    write_file("c", "third");
    assert_int_equal(run("pqinsert -q queue a -v c b"), 4);
    assert_matches(err,
                   "Duplicate product: .* a\n.*INFO Inserted: .* c\n.*Duplicate product: .* b\n$");
    assert_int_equal(run("pqinsert -q queue -p 'my id' -f NGRID stdout"), 4); /* also empty */
    write_file("d", "fourth");
    assert_int_equal(run("pqinsert -q queue -p 'my id' -f NGRID d"), 0);
    assert_int_equal(run("pqcat -q queue -f NGRID"), 0);
    assert_string_equal(out, "fourth");
    assert_int_equal(run("pqcat -q queue -p '^[ab]$'"), 0);
    assert_string_equal(out, "first\nsecond");
    /* One of them does not exist: none is inserted. */
    write_file("e", "fifth");
    assert_int_equal(run("pqinsert -q queue e missing ."), 3);
    assert_matches(
        err,
        "\"missing\" cannot be read: No such file.*\n.*\"\\.\" is not a regular file; valid: ");
    assert_int_equal(run("pqcat -q queue -p '^e$'"), 0);
    assert_string_equal(out, "");
    write_file("big", "");
    assert_int_equal(truncate("big", 1100000), 0);
    assert_int_equal(run("pqinsert -q queue big"), 3);
    assert_matches(err, "\"big\" has 1100000 bytes; valid: at most 1003520");
}

static void test_output_file_is_whole_or_not_there(void **state)
{
    (void)state;
    fresh_queue();
    write_file("a", "first\n");
    assert_int_equal(run("pqinsert -q queue a"), 0);
    assert_int_equal(run("pqcat -q queue result"), 0);
    slurp("result", out, sizeof out);
    assert_string_equal(out, "first\n");
    assert_int_equal(run("pqcat -q queue missing/result"), 1);
    assert_matches(err, "ERROR \"missing/result\" cannot be written: No such file");
    assert_int_equal(run("pqcat -q queue > /dev/full"), 1);
    assert_matches(err, "standard output\" cannot be written: No space left");
    assert_int_equal(run("pqcat -q queue /dev/full"), 1);
    struct stat st;
    assert_int_equal(stat("/dev/full", &st), 0);
    assert_true(S_ISCHR(st.st_mode)); /* still a device */
    assert_int_equal(system("test -z \"$(ls | grep tmp)\""), 0);
    unlink("result");
}

static void test_check_finds_a_changed_byte(void **state)
{
    (void)state;
    fresh_queue();
    write_file("a", "first\n");
    assert_int_equal(run("pqinsert -q queue a"), 0);
    int fd = open("queue", O_RDWR);
    off_t data_at = (off_t)(pq_file_bytes(1000000, 10) - 1003520);
    assert_int_equal(pwrite(fd, "F", 1, data_at), 1);
    close(fd);
    assert_int_equal(run("pqcat -q queue"), 0);
    assert_string_equal(out, "First\n");
    assert_int_equal(run("pqcat -q queue -c"), 1);
    assert_matches(err, "ERROR Signature differs: data has [0-9a-f]{32},          6 .* a\n$");
}

static void test_follow(void **state)
{
    (void)state;
    fresh_queue();
    write_file("a", "first\n");
    write_file("b", "second\n");
    assert_int_equal(run("pqinsert -q queue a"), 0);
    pid_t pid = start("pqcat -q queue -i 10 followed");
    usleep(300000);
    pid_t other = fork();
    if (other == 0) {
        char cmd[200];
        snprintf(cmd, sizeof cmd, "%s/pqinsert -q queue b", getenv("PQ_TOOLS"));
        _exit(system(cmd) ? 1 : 0);
    }
    int status;
    waitpid(other, &status, 0);
    assert_int_equal(status, 0);
    usleep(400000);
    kill(pid, SIGTERM);
    assert_int_equal(finish(pid), 0);
    slurp("followed", out, sizeof out);
    assert_string_equal(out, "first\nsecond\n");
    unlink("followed");
}

static void test_pqmon(void **state)
{
    (void)state;
    static const char header[] =
        "nprods nfree nempty nbytes maxprods maxfree minempty maxext age\n";
    fresh_queue();
    assert_int_equal(run("pqmon -q queue"), 0);
    char ere[400];
    snprintf(ere, sizeof ere, "%s0 1 10 0 0 0 10 1003520 -1\n", header);
    assert_string_equal(out, ere);
    assert_int_equal(run("pqmon -q queue -S"), 0);
    assert_string_equal(out, "no 1003520 0 0 10 0 0 -1.000 -1.000 -1.000 -1 -1\n");
    write_file("hour.txt", three);
    assert_int_equal(run("pqinsert -q queue --trace hour.txt --scale 1000"), 0);
    assert_int_equal(run("pqmon -q queue"), 0);
    /* 1000 -> 1024, 217 -> 256, 300000 -> 300032: 301312; 1003520 - 301312 = 702208 */
    snprintf(ere, sizeof ere, "^%s3 1 7 301312 3 [0-9] [0-9] 702208 [0-9]+\n$", header);
    assert_matches(out, ere);
    for (int seed = 2; seed < 6; seed++) {
        char cmd[100];
        snprintf(cmd, sizeof cmd, "pqinsert -q queue --trace hour.txt --scale 1000 --seed %d",
                 seed);
        assert_int_equal(run(cmd), 0);
    }
    assert_int_equal(run("pqmon -q queue -S"), 0);
    assert_matches(
        out,
        "^yes 1003520 [0-9]+ [0-9]+ 10 [0-9]+ [0-9]+ [0-9]+\\.[0-9]{3} [0-9.]+ [0-9.]+ [0-9]+ [0-9]+\n$");
}

static void test_pqcreate_errors(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "10x", "", "-5", "0", "1.5g", "5gg", "99999999999999999999", "80000000g", "k"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char cmd[100];
        snprintf(cmd, sizeof cmd, "pqcreate -q new -s '%s'", bad[i]);
        assert_int_equal(run(cmd), 2);
        char want[200];
        snprintf(want, sizeof want,
                 "pqcreate: -s: found \"%s\"; valid: bytes from 1 to 70368744177664", bad[i]);
        assert_int_equal(strncmp(err, want, strlen(want)), 0);
    }
    assert_int_equal(run("pqcreate -q new -s 1m -S 0"), 2);
    assert_matches(err, "^pqcreate: -S: found \"0\"; valid: a whole number from 1 to 16777216\n");
    assert_int_equal(run("pqcreate -s 1m"), 2);
    assert_matches(err, "^pqcreate: -q PATH is missing\nTry 'pqcreate --help'\\.\n$");
    assert_int_equal(run("pqcreate -q new"), 2);
    assert_int_equal(run("pqcreate -q new -s 60000g"), 1);
    assert_matches(
        err,
        "ERROR Queue \"new\" needs 60\\.[0-9] TB of disk \\(data and tables\\), but [0-9.]+ [kMGT]B are "
        "free: ");
    assert_int_equal(run("pqcreate -q missing/new -s 1m"), 2);
    struct stat st;
    assert_int_equal(stat("new", &st), -1);
    fresh_queue();
    assert_int_equal(run("pqcreate -q queue -s 1m"), 2);
    assert_matches(err, "ERROR Queue \"queue\" exists: -c replaces it\n$");
    assert_int_equal(system("test -z \"$(ls | grep tmp)\""), 0);
}

static void test_options(void **state)
{
    (void)state;
    static const char *const names[] = {"pqcreate", "pqinsert", "pqcat", "pqmon",
                                        "pqcheck",  "pqexpire", "pqutil"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char cmd[100];
        snprintf(cmd, sizeof cmd, "%s --help", names[i]);
        assert_int_equal(run(cmd), 0);
        char want[100];
        snprintf(want, sizeof want, "^Usage: %s .*Exit status: ", names[i]);
        assert_matches(out, want);
        snprintf(cmd, sizeof cmd, "%s --version", names[i]);
        assert_int_equal(run(cmd), 0);
        snprintf(want, sizeof want, "^%s \\(Downpour\\) [0-9][0-9a-z.+]*\n$", names[i]);
        assert_matches(out, want);
        snprintf(cmd, sizeof cmd, "%s --nonsense", names[i]);
        assert_int_equal(run(cmd), 2);
        snprintf(want, sizeof want, "unrecognized option '--nonsense'\nTry '%s --help'\\.\n$",
                 names[i]);
        assert_matches(err, want);
    }
    assert_int_equal(run("pqmon -q missing"), 2);
    assert_matches(
        err,
        "ERROR Product queue \"missing\" cannot be opened: No such file or directory \\(pqcreate");
    write_file("a", "no queue");
    assert_int_equal(run("pqcat -q a"), 2);
    assert_matches(err, "\"a\" cannot be opened: not a product queue");
    fresh_queue();
    assert_int_equal(run("pqcat -q queue -f NGIRD"), 2);
    assert_matches(err, "^pqcat: feed type \"NGIRD\": unknown name \"NGIRD\"; valid: ");
    assert_int_equal(run("pqcat -q queue -p '('"), 2);
    assert_matches(err,
                   "^pqcat: -p: found \"\\(\" \\(.*\\); valid: an extended regular expression");
    assert_int_equal(run("pqinsert -q queue --scale 0 --trace x"), 2);
    assert_matches(err, "^pqinsert: --scale: found \"0\"; valid: a number from 1e-06 to 1e\\+06\n");
    assert_int_equal(run("pqinsert -q queue --seed 1 a"), 2);
    assert_int_equal(run("pqinsert -q queue --trace x a"), 2);
    assert_int_equal(run("pqinsert -q queue -l log -v --log-format json a"), 0);
    assert_string_equal(err, "");
    slurp("log", out, sizeof out);
    assert_matches(
        out,
        "^\\{\"time\":\"[0-9TZ.]+\",\"prog\":\"pqinsert\",.*\"message\":\"Inserted:          8 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_golden),
        cmocka_unit_test(test_replay_needs_no_more_than_the_queue_has),
        cmocka_unit_test(test_queue_full_of_pins),
        cmocka_unit_test(test_signal_ends_a_replay),
        cmocka_unit_test(test_broken_traces_insert_nothing),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_output_file_is_whole_or_not_there),
        cmocka_unit_test(test_check_finds_a_changed_byte),
        cmocka_unit_test(test_follow),
        cmocka_unit_test(test_pqmon),
        cmocka_unit_test(test_pqcreate_errors),
        cmocka_unit_test(test_options),
    };
    return run_tool_tests("tools", tests, sizeof tests / sizeof *tests);
}

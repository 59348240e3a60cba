/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs that maintain queues, and how products are chosen. Signatures of fixed texts are
 * those of md5sum: "first" 8b04d5e3775d298e78455efc5ca404d5, "second"
 * a9f0e61a137d86aa9db53465e0801612, "third" dd5c8bf51558ffcbe5007071908e9524, "x"
 * 9dd4e461268c8034f5c8564e155c67a6.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "queue/pq_impl.h"
#include "tool_run.h"

#define FIRST "8b04d5e3775d298e78455efc5ca404d5"
#define SECOND "a9f0e61a137d86aa9db53465e0801612"
#define THIRD "dd5c8bf51558ffcbe5007071908e9524"
#define X "9dd4e461268c8034f5c8564e155c67a6"

static void three_files(void)
{
    fresh_queue();
    write_file("a", "first");
    write_file("b", "second");
    write_file("c", "third");
    assert_int_equal(run("pqinsert -q queue -f EXP --origin one a"), 0);
    assert_int_equal(run("pqinsert -q queue -f NGRID --origin two b"), 0);
    assert_int_equal(run("pqinsert -q queue -f EXP -s 5 --origin three c"), 0);
}

/* Moves a product's times into the past. */
static void age(uint64_t seq, int64_t seconds)
{
    struct pq *q;
    assert_int_equal(pq_open("queue", true, &q), PQ_OK);
    struct pq_slot *s = &q->slots[pq_index_at(q, seq)];
    s->inserted_us -= seconds * 1000000;
    s->order_us -= seconds * 1000000;
    s->info.creation.tv_sec -= seconds;
    pq_close(q);
}

static void test_choice_of_products(void **state)
{
    (void)state;
    three_files();
    assert_int_equal(run("pqcat -q queue"), 0);
    assert_string_equal(out, "firstsecondthird");
    assert_int_equal(run("pqcat -q queue -f NGRID -"), 0);
    assert_string_equal(out, "second");
    assert_int_equal(run("pqcat -q queue -f 'EXP|NGRID' -p '^[bc]$'"), 0);
    assert_string_equal(out, "secondthird");
    assert_int_equal(run("pqcat -q queue -O -v -p a /dev/null"), 0);
    assert_string_equal(out, "");
    assert_matches(err, "INFO          5 20[0-9.]+ EXP 000  a one\n[^\n]*Number of products 1\n$");
    assert_int_equal(run("pqcat -q queue a b"), 2);
    assert_matches(err, "^pqcat: unexpected argument \"b\"\n");
    /* Two hours ago, one hour ago and now. */
    age(1, 7200);
    age(2, 3600);
    assert_int_equal(run("pqcat -q queue -o 3000"), 0);
    assert_string_equal(out, "third");
    assert_int_equal(run("pqcat -q queue -o 3700"), 0);
    assert_string_equal(out, "secondthird");
    assert_int_equal(run("pqcat -q queue -o 0"), 0);
    assert_string_equal(out, "");
    assert_int_equal(run("pqcat -q queue -o 1e9 -i 0"), 0);
    assert_string_equal(out, "firstsecondthird");
    assert_int_equal(run("pqcat -q queue -o -1"), 2);
    assert_matches(err, "^pqcat: -o: found \"-1\"; valid: a number from 0 to 1e\\+09\n");
}

static void test_sanity(void **state)
{
    (void)state;
    three_files();
    assert_int_equal(run("pqcat -q queue -s /dev/null"), 0);
    assert_string_equal(err, "");
    assert_int_equal(run("pqcat -q queue -s -f NGRID /dev/null"), 0);
    assert_int_equal(run("pqcat -q queue -s -o 5"), 2);
    /* Opened by a process that does not check it again, then damaged. */
    struct pq *q;
    assert_int_equal(pq_open("queue", true, &q), PQ_OK);
    q->slots[pq_index_at(q, 2)].older = PQ_NONE;
    assert_int_equal(run("pqcheck -q queue"), 4);
    assert_matches(err, "ERROR \"queue\" is damaged");
    pq_close(q);
    assert_int_equal(run("pqcat -q queue -s"), 2);
}

static void test_insertion_from_standard_input(void **state)
{
    (void)state;
    fresh_queue();
    write_file("a", "first");
    write_file("b", "second");
    write_file("e", "");
    assert_int_equal(run("pqinsert -q queue -v < a"), 0);
    assert_matches(err, "INFO Inserted:          5 [0-9.]+ EXP 000  STDIN\n$");
    assert_int_equal(run("pqinsert -q queue -p two -s 8 -n 6 < b"), 0);
    assert_int_equal(run("pqinsert -q queue -p none < e"), 0);
    assert_int_equal(run("pqcat -q queue --list -c"), 0);
    assert_string_equal(out, FIRST " 5 STDIN\n" SECOND
                                   " 6 two\nd41d8cd98f00b204e9800998ecf8427e 0 none\n");
    assert_int_equal(run("pqinsert -q queue < a"), 4);
    assert_matches(err, "ERROR Duplicate product: ");
    assert_int_equal(run("pqinsert -q queue -n 5 -p more < b"), 3);
    assert_matches(err, "ERROR -n: standard input has more than 5 bytes\n$");
    assert_int_equal(run("pqinsert -q queue -n 2000000 < b"), 3);
    assert_matches(
        err,
        "standard input \\(2000000 bytes\\) cannot be inserted: product larger than the queue\n$");
    assert_int_equal(run("pqinsert -q queue -p much < /dev/zero"), 3);
    assert_matches(err, "ERROR standard input has more than 1003520 bytes\n$");
    assert_int_equal(run("pqinsert -q queue -n 0 < a"), 2);
    assert_matches(err, "^pqinsert: -n: found \"0\"; valid: a whole number from 1 to 4294967295\n");
    assert_int_equal(run("pqinsert -q queue -n 5 a"), 2);
    assert_int_equal(run("pqinsert -q queue -p '' < a"), 3);
    assert_matches(err, "ERROR identifier \"\"; valid: 1 to 255 characters\n$");
    assert_int_equal(run("pqinsert -q queue < ."), 1);
    assert_int_equal(run("pqmon -q queue"), 0);
    assert_matches(out, "\n3 1 7 192 "); /* nothing stays reserved */
}

static void test_insertion_of_files(void **state)
{
    (void)state;
    fresh_queue();
    write_file("a", "first");
    write_file("b", "second");
    /* Several files share an identifier, extended by their numbers. -i: signature of the
     * identifier. */
    assert_int_equal(run("pqinsert -q queue -r -p id -s 7 a b"), 0);
    assert_int_equal(run("pqinsert -q queue -i -p x a"), 0);
    assert_int_equal(run("pqutil -q queue list"), 0);
    assert_matches(out, "^1 [0-9.]+ " FIRST
                        "          5 [0-9.]+ EXP 007  id\\.7 [^ \n]+\n2 [0-9.]+ " SECOND
                        "          6 [0-9.]+ EXP 008  id\\.8 [^ \n]+\n3 [0-9.]+ " X
                        "          5 [0-9.]+ EXP 000  x [^ \n]+\n$");
    assert_int_equal(run("pqinsert -q queue -i -p x b"), 4);
    assert_int_equal(run("pqcheck -q queue -c"), 0); /* either signature is accepted */
    assert_int_equal(run("pqcat -q queue -c /dev/null"), 1);
    write_file("d", "fourth");
    assert_int_equal(run("pqinsert -q queue d missing"), 3);
    assert_matches(err, "ERROR \"missing\" cannot be read: No such file");
    assert_int_equal(run("pqinsert -q queue d ."), 3);
    assert_matches(
        err, "ERROR \"\\.\" is not a regular file; valid: regular files up to 4294967295 bytes");
    assert_int_equal(system("truncate -s 1100000 big"), 0);
    assert_int_equal(run("pqinsert -q queue d big"), 3);
    assert_matches(
        err, "ERROR \"big\" has 1100000 bytes; valid: at most 1003520, the queue's capacity\n$");
    assert_int_equal(system("truncate -s 4294967296 big"), 0);
    assert_int_equal(run("pqinsert -q queue d big"), 3);
    assert_matches(
        err,
        "ERROR \"big\" is too large for a product; valid: regular files up to 4294967295 bytes");
    assert_int_equal(run("pqutil -q queue stats"), 0);
    assert_matches(out, "\nused_slots=3\n"); /* d was not inserted either */
}

static void test_expiry(void **state)
{
    (void)state;
    three_files();
    age(1, 7200);
    age(2, 3600);
    assert_int_equal(run("pqexpire -q queue -i 0 -a 3"), 0);
    assert_matches(err, "NOTE Expired: products=0 bytes=0 left=3\n$");
    assert_int_equal(run("pqexpire -q queue -i 0 -a 0.5 -f EXP -v"), 0);
    assert_matches(
        err,
        "INFO Expired:          5 [0-9.]+ EXP 000  a\n[^\n]*NOTE Expired: products=1 bytes=5 left=2\n$");
    assert_int_equal(run("pqexpire -q queue -i 0 -a 0.5 -p '^c$'"), 0);
    assert_matches(err, "products=0 bytes=0 left=2\n$");
    assert_int_equal(run("pqexpire -q queue -w -i 0"), 0); /* 1.0833 hours */
    assert_matches(err, "products=0 bytes=0 left=2\n$");
    age(2, 400);
    pid_t pid = start("pqexpire -q queue -i 0.05");
    for (int i = 0; i < 200; i++) {
        struct pq_stats s = {0};
        struct pq *q;
        assert_int_equal(pq_open("queue", false, &q), PQ_OK);
        pq_get_stats(q, &s);
        pq_close(q);
        if (s.used_slots == 1)
            break;
        usleep(20000);
    }
    for (int i = 0; i < 200; i++) { /* until it has looked once more */
        slurp("stderr", err, sizeof err);
        if (strstr(err, "products=0"))
            break;
        usleep(20000);
    }
    kill(pid, SIGTERM);
    assert_int_equal(finish(pid), 0);
    assert_matches(err, "products=1 bytes=6 left=1\n.*products=0 bytes=0 left=1\n$");
    assert_int_equal(run("pqmon -q queue -S"), 0);
    assert_matches(out, "^no "); /* nothing had to make room */
    assert_int_equal(run("pqexpire -q queue -a x"), 2);
    assert_matches(err, "^pqexpire: -a: found \"x\"; valid: a number from 0 to 1e\\+06\n");
    assert_int_equal(run("pqexpire -q queue extra"), 2);
    assert_int_equal(run("pqexpire -q missing"), 2);
}

static void test_check(void **state)
{
    (void)state;
    three_files();
    assert_int_equal(run("pqcheck -q queue"), 0);
    assert_string_equal(err, "");
    assert_int_equal(run("pqcheck -q queue -v -c"), 0);
    assert_matches(err, "INFO Open: writers=0 readers=0 killed=0; recoveries=0\n$");
    /* A writer is killed while it holds the lock: nothing is lost. */
    pid_t pid = fork();
    if (pid == 0) {
        struct pq *q;
        if (pq_open("queue", true, &q) || pq_lock(q))
            _exit(1);
        memset(q->order, 0, q->h->order_cells * sizeof *q->order);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(run("pqcheck -q queue -v -c"), 0);
    assert_matches(err, "INFO Open: writers=0 readers=0 killed=0; recoveries=1\n$");
    /* The machine stops meanwhile. */
    pid = fork();
    if (pid == 0) {
        struct pq *q;
        _exit(pq_open("queue", true, &q));
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    int fd = open("queue", O_RDWR);
    const uint64_t other[3] = {0};
    assert_int_equal(pwrite(fd, other, sizeof other, offsetof(struct pq_header, run)),
                     sizeof other);
    assert_int_equal(run("pqcheck -q queue"), 3);
    assert_matches(err, "WARN \"queue\": the machine stopped");
    assert_int_equal(run("pqcheck -q queue"), 3);
    assert_int_equal(run("pqcheck -q queue -F"), 0);
    assert_int_equal(run("pqcheck -q queue"), 0);
    /* A byte of the last product's data. */
    off_t data_at = (off_t)(pq_file_bytes(1000000, 10) - 1003520);
    assert_int_equal(pwrite(fd, "T", 1, data_at + 2 * 64), 1);
    assert_int_equal(run("pqcheck -q queue"), 0);
    assert_int_equal(run("pqcheck -q queue -c"), 4);
    assert_matches(err, "ERROR Signature differs:          5 [0-9.]+ EXP 005  c\n$");
    assert_int_equal(pwrite(fd, "XXXXXXXX", 8, 0), 8);
    close(fd);
    assert_int_equal(run("pqcheck -q queue"), 4);
    assert_matches(err, "ERROR \"queue\" is damaged, or not a product queue of this version\n$");
    assert_int_equal(run("pqcheck -q missing"), 2);
    assert_matches(err, "\"missing\" cannot be opened: No such file");
    assert_int_equal(run("pqcheck"), 2);
    assert_int_equal(run("pqcheck -q queue extra"), 2);
}

static void test_util_products(void **state)
{
    (void)state;
    three_files();
    assert_int_equal(run("pqutil -q queue list"), 0);
    assert_matches(out, "^1 [0-9]{10}\\.[0-9]{6} " FIRST
                        "          5 [0-9.]+ EXP 000  a one\n2 [0-9.]+ " SECOND
                        "          6 [0-9.]+ NGRID 000  b two\n3 [0-9.]+ " THIRD
                        "          5 [0-9.]+ EXP 005  c three\n$");
    assert_int_equal(run("pqutil -q queue -f NGRID list"), 0);
    assert_matches(out, "^2 [^\n]*\n$");
    assert_int_equal(run("pqutil -q queue -p c list"), 0);
    assert_matches(out, "^3 [^\n]*\n$");
    assert_int_equal(run("pqutil -q queue find 2"), 0);
    assert_matches(out, "^2 [^\n]*  b two\n$");
    assert_int_equal(run("pqutil -q queue find DD5C8BF51558FFCBE5007071908E9524"), 0);
    assert_matches(out, "^3 ");
    assert_int_equal(run("pqutil -q queue get " FIRST), 0);
    assert_string_equal(out, "first");
    assert_int_equal(run("pqutil -q queue get 1 > /dev/full"), 1);
    assert_int_equal(run("pqutil -q queue find 4"), 3);
    assert_matches(err, "ERROR Product \"4\": there is none\n$");
    assert_int_equal(run("pqutil -q queue find 00000000000000000000000000000000"), 3);
    assert_int_equal(run("pqutil -q queue find 0000000000000000000000000000000g"), 2);
    assert_int_equal(run("pqutil -q queue find 0"), 2);
    assert_matches(err, "^pqutil: PRODUCT: found \"0\"; valid: a whole number from 1 ");
    assert_int_equal(run("pqutil -q queue delete 2"), 0);
    assert_int_equal(run("pqutil -q queue delete 2"), 3);
    assert_int_equal(run("pqutil -q queue find 2"), 3);
    assert_int_equal(run("pqcat -q queue"), 0);
    assert_string_equal(out, "firstthird");
}

static void test_util_state(void **state)
{
    (void)state;
    three_files();
    assert_int_equal(run("pqutil -q queue delete 2"), 0);
    assert_int_equal(run("pqutil -q queue stats"), 0);
    /* 10 slots; "first" and "third" take 64 bytes each. */
    assert_matches(
        out,
        "^data_bytes=1003520\nused_bytes=128\nhigh_water_bytes=192\n.*\nslots=10\nused_slots=2\n"
        ".*\ninserted=3\nevicted=0\nremoved=1\nduplicates=0\nrecoveries=0\nunclean=0\n.*"
        "min_residence_s=-1\\.000\n$");
    struct pq *q;
    assert_int_equal(pq_open("queue", true, &q), PQ_OK);
    struct pq_view v;
    assert_int_equal(pq_next(q, 0, &v), PQ_OK);
    struct pq_reservation *r;
    void *region;
    assert_int_equal(pq_reserve(q, NULL, 100, &region, &r), PQ_OK);
    assert_int_equal(run("pqutil -q queue clients"), 0);
    char want[100];
    snprintf(want, sizeof want, "%d alive writer 1 1 128\n", getpid());
    assert_string_equal(out, want);
    /* A product is evicted: from then on there is a shortest residence time, until it is reset. */
    pq_discard(q, r);
    pq_release(q, &v);
    assert_int_equal(pq_reserve(q, NULL, 1003520, &region, &r), PQ_OK);
    pq_close(q);
    assert_int_equal(run("pqutil -q queue stats"), 0);
    assert_matches(
        out,
        "\nmin_residence_s=[0-9.]+\nmin_residence_bytes=[0-9]+\nmin_residence_slots=[0-9]+\n$");
    assert_int_equal(run("pqutil -q queue reset"), 0);
    assert_int_equal(run("pqmon -q queue -S"), 0);
    assert_matches(out, " -1\\.000 -1 -1\n$");
}

static void test_util_usage(void **state)
{
    (void)state;
    three_files();
    assert_int_equal(run("pqutil -q queue"), 2);
    assert_matches(err, "^pqutil: COMMAND is missing\n");
    assert_int_equal(run("pqutil -q queue purge"), 2);
    assert_matches(err, "^pqutil: found command \"purge\"; valid: list, find, ");
    assert_int_equal(run("pqutil -q queue get"), 2);
    assert_matches(err, "^pqutil: get: PRODUCT is missing\n");
    assert_int_equal(run("pqutil -q queue stats 1"), 2);
}

static void test_monitor_again_and_again(void **state)
{
    (void)state;
    fresh_queue();
    pid_t pid = start("pqmon -q queue -i 0.05");
    usleep(500000);
    kill(pid, SIGINT);
    assert_int_equal(finish(pid), 0);
    assert_matches(out,
                   "^nprods [^\n]*age\n0 1 10 0 0 0 10 1003520 -1\n0 1 10 0 0 0 10 1003520 -1\n");
    assert_null(strstr(strchr(out, '\n'), "nprods"));
    assert_int_equal(run("pqmon -q queue -i x"), 2);
    assert_int_equal(run("pqmon -q queue -i 1 > /dev/full"), 1);
}

/* Waiting costs no system calls: two in half a second would indicate polling. */
static void test_following_is_no_polling(void **state)
{
    (void)state;
    unsigned long before = 0, after = 0;
    fresh_queue();
    pid_t pid = start("pqcat -q queue -i 60 /dev/null");
    usleep(500000);
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/status", pid);
    char text[4096];
    slurp(name, text, sizeof text);
    assert_int_equal(sscanf(strstr(text, "\nvoluntary_ctxt_switches:"),
                            "\nvoluntary_ctxt_switches: %lu", &before),
                     1);
    usleep(700000);
    slurp(name, text, sizeof text);
    assert_int_equal(sscanf(strstr(text, "\nvoluntary_ctxt_switches:"),
                            "\nvoluntary_ctxt_switches: %lu", &after),
                     1);
    kill(pid, SIGTERM);
    assert_int_equal(finish(pid), 0);
    assert_int_equal(after, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice_of_products),
        cmocka_unit_test(test_sanity),
        cmocka_unit_test(test_insertion_from_standard_input),
        cmocka_unit_test(test_insertion_of_files),
        cmocka_unit_test(test_expiry),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_util_products),
        cmocka_unit_test(test_util_state),
        cmocka_unit_test(test_util_usage),
        cmocka_unit_test(test_monitor_again_and_again),
        cmocka_unit_test(test_following_is_no_polling),
    };
    return run_tool_tests("pqtools", tests, sizeof tests / sizeof *tests);
}

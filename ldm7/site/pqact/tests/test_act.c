/* SPDX-License-Identifier: Apache-2.0
 *
 * What actions do, with real files and programs in a directory of the test.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "site/pqact/act.h"

static char top[] = "/tmp/test-pqact-XXXXXX";
static volatile sig_atomic_t stop;
static struct actconf conf;
static struct datadir dir;
static struct commands commands;
static struct outputs outputs;
static struct actor actor;

static void begin(const char *text, unsigned max_open, unsigned max_children, double timeout_s)
{
    sigset_t waiting;

    sigprocmask(SIG_SETMASK, NULL, &waiting);
    sigdelset(&waiting, SIGCHLD);
    if (actconf_parse(&conf, "pqact.conf", text, top, stderr) < 0)
        fail_msg("%s", text);
    assert_int_equal(datadir_open(&dir, top), 0);
    commands_init(&commands, max_children, timeout_s, &waiting, &stop);
    outputs_init(&outputs, max_open, &dir, &commands);
    actor = (struct actor){.outputs = &outputs, .dir = &dir, .commands = &commands};
    actor_use(&actor, &conf);
}

static void product(const char *ident, const void *data, size_t bytes)
{
    struct pq_info info = {.creation = {1434375909, 250000},
                           .feedtype = 0x40000000,
                           .seqno = 7,
                           .size = (uint32_t)bytes,
                           .origin = "up.example",
                           .signature = {{1, 2, 3}}};

    snprintf(info.ident, sizeof info.ident, "%s", ident);
    actor_product(&actor, &info, data);
}

static void say(const char *ident, const char *text)
{
    product(ident, text, strlen(text));
}

/* Waits until everything is written and every program has ended. */
static void end(void)
{
    outputs_free(&outputs);
    commands_wait_all(&commands);
    assert_int_equal(commands.n, 0);
    commands_free(&commands);
    actor_free(&actor);
    datadir_close(&dir);
    actconf_free(&conf);
}

static char *content(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    if (!f)
        return "(no such file)";
    fclose(f);
    text[n] = '\0';
    return text;
}

static void nothing(int number)
{
    (void)number;
}

static int setup(void **state)
{
    struct sigaction sa = {.sa_handler = nothing};

    (void)state;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    sigaction(SIGCHLD, &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    log_set_destination("/dev/null");
    return !mkdtemp(top) || chdir(top) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") != 0 || system("rm -rf /tmp/test-pqact-??????") != 0;
}

static void files(void **state)
{
    (void)state;
    begin("EXP\t^a(.)\tFILE\tf/\\1\n"
          "EXP\t^a(.)\tFILE\t-overwrite o\n"
          "EXP\t^a\tSTDIOFILE\tbuffered\n"
          "EXP\t^a\tFILE\t-strip -close s\n"
          "NGRID\t^a\tFILE\tother-feed\n"
          "EXP\t^A\tFILE\tother-case\n",
          64, 64, 60);
    say("a1", "one\r\n\001");
    say("a2", "two\x7f\n");
    say("a1", "three");
    assert_string_equal(content("f/1"), "one\r\n\001three");
    assert_string_equal(content("f/2"), "two\x7f\n");
    assert_string_equal(content("o"), "three");
    assert_string_equal(content("s"), "one\ntwo\nthree");
    assert_string_equal(content("buffered"), "");
    outputs_flush(&outputs);
    assert_string_equal(content("buffered"), "one\r\n\001two\x7f\nthree");
    assert_string_equal(content("other-feed"), "(no such file)");
    assert_string_equal(content("other-case"), "(no such file)");
    /* A file that was removed is created again. */
    assert_int_equal(unlink("f/1"), 0);
    say("a1", "four");
    assert_string_equal(content("f/1"), "four");
    assert_int_equal(actor.stats.products, 4);
    assert_int_equal(actor.stats.actions, 16);
    assert_int_equal(actor.stats.failed + actor.stats.refused, 0);
    end();
}

static void big_buffered(void **state)
{
    char *data = malloc(200000);

    (void)state;
    memset(data, 'x', 200000);
    begin("EXP\t.\tSTDIOFILE\tbig\n", 64, 64, 60);
    product("a", data, 100);
    product("a", data, 200000);
    product("a", data, 65500);
    product("a", data, 100);
    end();
    struct stat st;
    assert_int_equal(stat("big", &st), 0);
    assert_int_equal(st.st_size, 100 + 200000 + 65500 + 100);
    free(data);
}

/* LDM-6.15.0, counted by hand: 4+16+4+8+4+4+4+(4+3)+(4+10) = 65 bytes. */
static void metadata(void **state)
{
    static const uint8_t want[] =
        {
            65,   0,    0,   0,   1,   2,   3,   0,    0,   0,   0,   0,    0,
            0,    0,    0,   0,   0,   0,   0,   4,    0,   0,   0,   0xe5, 0xd6,
            0x7e, 0x55, 0,   0,   0,   0, /* 1434375909 = 0x557ed6e5 */
            0x90, 0xd0, 3,   0,   0,   0,   0,   0x40, 7,   0,   0,   0, /* 250000 = 0x3d090 */
            3,    0,    0,   0,   'm', 'e', 't', 10,   0,   0,   0,   'u',  'p',
            '.',  'e',  'x', 'a', 'm', 'p', 'l', 'e',  'a', 'b', 'c', 'd'};

    (void)state;
    if (*(const uint8_t *)&(uint32_t){1} != 1)
        skip(); /* the bytes above are a little-endian machine's */
    begin("EXP\tmet\tFILE\t-metadata m\nEXP\tmet\tFILE\t-metadata -strip ms\n"
          "EXP\t^met(.?)\tPIPE\t-metadata -close cp /dev/stdin mp\\1\n",
          64, 64, 60);
    say("met1", "a\002b");
    assert_int_equal(content("m")[20], 3);
    assert_int_equal(content("ms")[20], 2); /* the size of the data that follows */
    unlink("m");
    say("met", "abcd");
    end();
    assert_memory_equal(content("m"), want, sizeof want);
    assert_memory_equal(content("mp"), want, sizeof want);
}

static void pipes(void **state)
{
    (void)state;
    begin("EXP\t^(k.)\tPIPE\tsh -c 'cat >> $0; echo end >> $0' \\1\n"
          "EXP\t^k\tPIPE\t-close sh -c 'cat >> $0; echo end >> $0' closed\n",
          64, 64, 60);
    say("k1", "one,");
    say("k1", "two,");
    say("k2", "other,");
    say("k1", "three,");
    end();
    assert_string_equal(content("k1"), "one,two,three,end\n");
    assert_string_equal(content("k2"), "other,end\n");
    /* Successive programs with the same words may overlap: all lines are there. */
    assert_int_equal(system("test $(grep -o end closed | wc -l) = 4"), 0);
    assert_int_equal(system("test $(grep -oE 'one|two|other|three' closed | wc -l) = 4"), 0);
}

static void program_that_ended_is_started_again(void **state)
{
    (void)state;
    begin("EXP\t.\tPIPE\tsh -c 'read line; echo \"$line\" >> lines'\n", 64, 64, 60);
    say("a", "one\n");
    siginfo_t ended;
    assert_int_equal(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0);
    say("a", "two\n");
    end();
    assert_string_equal(content("lines"), "one\ntwo\n");
    assert_int_equal(actor.stats.actions, 2);
}

static void program_that_does_not_read(void **state)
{
    static char data[3 << 20];

    (void)state;
    begin("EXP\tbig\tPIPE\tsleep 1000\nEXP\tbig\tFILE\tafter\nEXP\tsmall\tPIPE\t-close true\n", 64,
          64, 0.3);
    product("big", data, sizeof data);
    assert_int_equal(commands.n, 0);
    assert_int_equal(commands.failed, 1);
    assert_int_equal(actor.stats.failed, 1);
    assert_int_equal(actor.stats.actions, 1); /* still the file */
    end();
}

static void missing_program(void **state)
{
    (void)state;
    begin(
        "EXP\t.\tPIPE\t/no/such/program x\nEXP\t.\tEXEC\t/no/such/program\nEXP\t.\tEXEC\t-wait false\n",
        64, 64, 60);
    say("a", "x");
    assert_int_equal(actor.stats.failed, 3);
    end();
}

/* No shell: whatever the identifier contains is one argument. */
static void exec_arguments(void **state)
{
    static const char *const hostile[] = {"a;touch b", "$(touch b)", "`touch b`",  "a b",
                                          "*",         "a\nb",       "'\"",        "%Y(seq)",
                                          "> b",       "$HOME",      "a --version"};

    (void)state;
    begin("EXP\t(.*)\tEXEC\t-wait touch \\1\n", 64, 64, 60);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        assert_int_equal(access(hostile[i], F_OK), -1);
        say(hostile[i], "");
        if (access(hostile[i], F_OK) != 0)
            fail_msg("no file \"%s\"", hostile[i]);
        unlink(hostile[i]);
    }
    assert_int_equal(access("b", F_OK), -1);
    say("--reference=/etc/passwd", "");
    assert_int_equal(actor.stats.refused, 1);
    assert_int_equal(actor.stats.actions, sizeof hostile / sizeof hostile[0]);
    end();
}

static void exec_has_no_descriptors(void **state)
{
    (void)state;
    begin("EXP\t.\tFILE\topen\nEXP\t.\tPIPE\tsh -c 'ls /proc/self/fd > fds; cat > /dev/null'\n", 64,
          64, 60);
    say("a", "x");
    end();
    assert_string_equal(content("fds"), "0\n1\n2\n3\n"); /* 3: the directory that ls reads */
}

static void traversal(void **state)
{
    static const char *const hostile[] = {
        "../%s",   "a/../../%s",
        "/tmp/%s", "link/%s",
        "..",      "a\nb",
        "",        "0123456789012345678901234567890123456789/../../../../../../tmp/%s"};

    (void)state;
    char name[32];
    snprintf(name, sizeof name, "pqact-traversal.%d", (int)getpid());
    char above[40];
    snprintf(above, sizeof above, "../%s", name);
    char in_tmp[40];
    snprintf(in_tmp, sizeof in_tmp, "/tmp/%s", name);
    assert_int_equal(symlink("/tmp", "link"), 0);
    begin("EXP\t(.*)\tFILE\t\\1\nEXP\t(.*)\tSTDIOFILE\t\\1\nEXP\t(.*)\tFILE\t-overwrite \\1\n", 64,
          64, 60);
    char ident[128];
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const char *place = strstr(hostile[i], "%s");

        if (place)
            snprintf(ident, sizeof ident, "%.*s%s", (int)(place - hostile[i]), hostile[i], name);
        else
            snprintf(ident, sizeof ident, "%s", hostile[i]);
        say(ident, "evil");
    }
    assert_int_equal(actor.stats.refused, 3 * sizeof hostile / sizeof hostile[0]);
    assert_int_equal(actor.stats.actions + actor.stats.failed, 0);
    assert_int_equal(access(above, F_OK), -1);
    assert_int_equal(access(in_tmp, F_OK), -1);
    end();
}

static void bounded(void **state)
{
    (void)state;
    begin(
        "EXP\t^f(.*)\tFILE\tb/\\1\nEXP\t^p(.*)\tPIPE\tsh -c 'cat >> $0' b/p\\1\nEXP\t^e(.*)\tEXEC\tsh -c 'sleep 0.1; echo x >> $0' b/e\n",
        2, 2, 60);
    char ident[20];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 5; i++) {
            snprintf(ident, sizeof ident, "f%d", i);
            say(ident, "x");
            snprintf(ident, sizeof ident, "p%d", i);
            say(ident, "y");
            say("e", "");
            assert_true(outputs.n <= 2);
            assert_true(commands.n <= 2);
        }
    end();
    assert_int_equal(actor.stats.actions, 30);
    for (int i = 0; i < 5; i++) {
        snprintf(ident, sizeof ident, "b/%d", i);
        assert_string_equal(content(ident), "xx");
        snprintf(ident, sizeof ident, "b/p%d", i);
        assert_string_equal(content(ident), "yy");
    }
    assert_int_equal(strlen(content("b/e")), 20);
    assert_int_equal(commands.failed, 0);
}

/* A child that does not end is killed when its place is needed. */
static void stuck_children(void **state)
{
    (void)state;
    begin("EXP\t^s\tEXEC\tsleep 1000\nEXP\t^w\tEXEC\t-wait sleep 1000\n", 4, 2, 0.2);
    say("s", "");
    say("s", "");
    say("s", "");
    assert_int_equal(commands.failed, 1);
    assert_int_equal(actor.stats.actions, 3);
    say("w", "");
    assert_int_equal(actor.stats.failed, 1);
    end();
    assert_int_equal(commands.failed, 4);
}

static void otherwise(void **state)
{
    (void)state;
    begin("ANY\t^_ELSE_$\tFILE\telse\nEXP\t^a\tFILE\tfirst\nEXP\t^ab\tFILE\tfirst\nEXP\t^n\tNOOP\n"
          "NGRID\t^_ELSE_$\tFILE\tno\n",
          64, 64, 60);
    say("ab", "1");
    say("a", "2");
    say("n", "3");
    say("x", "4");
    end();
    assert_string_equal(content("first"), "112");
    assert_string_equal(content("else"), "4");
    assert_string_equal(content("no"), "(no such file)");
    assert_int_equal(actor.stats.matched, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(big_buffered),
        cmocka_unit_test(metadata),
        cmocka_unit_test(pipes),
        cmocka_unit_test(program_that_ended_is_started_again),
        cmocka_unit_test(program_that_does_not_read),
        cmocka_unit_test(missing_program),
        cmocka_unit_test(exec_arguments),
        cmocka_unit_test(exec_has_no_descriptors),
        cmocka_unit_test(traversal),
        cmocka_unit_test(bounded),
        cmocka_unit_test(stuck_children),
        cmocka_unit_test(otherwise),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}

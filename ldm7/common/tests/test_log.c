/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/log.h"
#include "common/log_peer.h"
#include "common/product_line.h"
#include "matches.h"

static char path[] = "/tmp/test-log-XXXXXX";

static void clear(void)
{
    assert_int_equal(truncate(path, 0), 0);
}

static const char *logged(void)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return text;
}

static void test_line(void **state)
{
    (void)state;
    clear();
    log_note("Received: {delay: %.6f s}", 0.001701);
    char ere[200];
    snprintf(
        ere, sizeof ere,
        "^20[0-9]{6}T[0-9]{6}\\.[0-9]{6}Z test_log\\[%d\\]   test_log.c:test_line:[0-9]+   NOTE Received: "
        "\\{delay: 0\\.001701 s\\}\n$",
        (int)getpid());
    assert_matches(logged(), ere);
}

static void test_levels(void **state)
{
    (void)state;
    clear();
    log_info("not shown");
    log_set_level(LOG_LVL_INFO);
    log_info("shown");
    log_debug("not shown");
    log_set_level(LOG_LVL_NOTE);
    log_error("e");
    log_warn("w");
    const char *t = logged();
    assert_null(strstr(t, "not shown"));
    assert_non_null(strstr(t, "   INFO shown\n"));
    assert_non_null(strstr(t, "   ERROR e\n"));
    assert_non_null(strstr(t, "   WARN w\n"));
}

static size_t lines_of(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* A flood caused by a peer becomes a few lines and one that counts the rest, from whichever process
 * they come; another peer has its own lines. */
static void test_peers(void **state)
{
    (void)state;
    clear();
    assert_int_equal(log_peer_share(), 0);
    for (int i = 0; i < 5000; i++)
        log_peer_warn("10.0.0.1", "bad request %d", i);
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 5000; i++)
            log_peer_note("10.0.0.2", "%s", "gone");
        log_peer_rest(true); /* The other process writes that line. */
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    assert_int_equal(lines_of(logged()), 2 * LOG_PEER_LINES);
    log_peer_rest(false);
    assert_int_equal(lines_of(logged()), 2 * LOG_PEER_LINES);
    log_peer_rest(true);
    const char *t = logged();
    assert_int_equal(lines_of(t), 2 * LOG_PEER_LINES + 2);
    assert_matches(t, "WARN bad request 4\n");
    assert_null(strstr(t, "bad request 5\n"));
    assert_matches(
        t, "WARN 4995 more of these from 10\\.0\\.0\\.1 \\(test_log\\.c:test_peers:[0-9]+\\)\n");
    assert_matches(t, "WARN 4995 more of these from 10\\.0\\.0\\.2 ");
}

static void test_text_from_outside_forges_nothing(void **state)
{
    (void)state;
    clear();
    log_note("ident %s", "a\n20260101T000000.000000Z x[1]\x1b[31m\x7f");
    const char *t = logged();
    assert_non_null(strstr(t, "ident a\\x0a20260101T000000.000000Z x[1]\\x1b[31m\\x7f\n"));
    assert_ptr_equal(strchr(t, '\n'), t + strlen(t) - 1);
    char out[8];
    assert_int_equal(log_escape(out, sizeof out, "ab\ncd"), 8);
    assert_string_equal(out, "ab\\x0ac");
    assert_int_equal(log_escape(out, 5, "ab\ncd"), 8); /* escapes are not split */
    assert_string_equal(out, "ab");
}

static void test_long_message(void **state)
{
    (void)state;
    char text[2 * LOG_LINE_MAX];
    memset(text, 1, sizeof text - 1); /* the worst case: six characters for one */
    text[sizeof text - 1] = 0;
    for (int json = 0; json < 2; json++) {
        clear();
        log_set_json(json);
        log_note("%s", text);
        log_set_json(false);
        const char *t = logged();
        assert_true(strlen(t) > 4 * (LOG_LINE_MAX - 8));
        assert_string_equal(t + strlen(t) - (json ? 6 : 4), json ? "...\"}\n" : "...\n");
    }
}

static void test_json(void **state)
{
    (void)state;
    clear();
    assert_false(log_set_format("xml"));
    assert_true(log_set_format("json"));
    log_warn("say \"%s\" \\ %s \xc3\xa9 \xff", "hi", "\t");
    assert_true(log_set_format("text"));
    assert_matches(
        logged(),
        "^\\{\"time\":\"[0-9T.]+Z\",\"prog\":\"test_log\",\"pid\":[0-9]+,\"file\":\"test_log.c\","
        "\"function\":\"test_json\",\"line\":[0-9]+,\"level\":\"WARN\",\"message\":\"say "
        "\\\\\"hi\\\\\" \\\\\\\\ \\\\u0009 \xc3\xa9 \\\\ufffd\"\\}\n$");
}

static void test_lines_of_processes_do_not_mix(void **state)
{
    (void)state;
    enum { CHILDREN = 4, LINES = 300 };
    clear();
    char filler[1500];
    memset(filler, 'x', sizeof filler - 1);
    filler[sizeof filler - 1] = 0;
    pid_t pid[CHILDREN];
    for (int c = 0; c < CHILDREN; c++)
        if ((pid[c] = fork()) == 0) {
            for (int i = 0; i < LINES; i++)
                log_error("%d %s end", c, filler);
            _exit(0);
        }
    for (int c = 0; c < CHILDREN; c++)
        waitpid(pid[c], NULL, 0);
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0, lines = 0;
    ssize_t n;
    while ((n = getline(&line, &room, f)) > 0) {
        assert_memory_equal(line + n - 6, "x end\n", 6);
        assert_true(n > 1500 && n < 1700);
        lines++;
    }
    free(line);
    fclose(f);
    assert_int_equal(lines, CHILDREN * LINES);
}

static void test_reopen(void **state)
{
    (void)state;
    char old[64];
    snprintf(old, sizeof old, "%s.1", path);
    clear();
    log_note("before");
    assert_int_equal(rename(path, old), 0);
    log_note("still old");
    assert_int_equal(log_reopen(), 0);
    log_note("new");
    assert_null(strstr(logged(), "old"));
    assert_non_null(strstr(logged(), "NOTE new"));
    unlink(old);
    assert_int_equal(log_set_destination("/nonexistent/x"), -1);
    log_note("as before");
    assert_non_null(strstr(logged(), "as before"));
}

static void read_proc(const char *what, char *out, size_t bytes)
{
    int fd = open(what, O_RDONLY);
    ssize_t n = read(fd, out, bytes - 1);
    close(fd);
    assert_true(n >= 0);
    for (ssize_t i = 0; i < n; i++)
        if (!out[i])
            out[i] = ' ';
    while (n > 0 && (out[n - 1] == ' ' || out[n - 1] == '\n'))
        n--;
    out[n] = 0;
}

/* Runs in a child that executes this program again with arguments, since the name is
 * overwritten. */
static int show_renamed(int argc, char **argv)
{
    const char *kept = argv[2];
    log_init(argc, &argv);
    if (strcmp(log_prog(), "test_log") != 0)
        return 2;
    log_set_prog("mldm");
    char text[400];
    read_proc("/proc/self/cmdline", text, sizeof text);
    char comm[64];
    read_proc("/proc/self/comm", comm, sizeof comm);
    if (strcmp(text, "mldm --rename -q queue") != 0 || strcmp(comm, "mldm") != 0 ||
        strcmp(log_prog(), "mldm") != 0)
        return 3;
    if (strcmp(argv[2], "-q") != 0 || strcmp(argv[3], "queue") != 0 || argv[2] == kept)
        return 4;
    log_set_prog(
        "a_name_that_is_much_longer_than_the_room_of_the_arguments_of_this_process_together_can_hold");
    read_proc("/proc/self/cmdline", text, sizeof text);
    return strncmp(text, "a_name_that_is", 14) == 0 ? 0 : 5;
}

static void test_names_in_ps(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "./test_log", "--rename", "-q", "queue", (char *)NULL);
        _exit(9);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The example line of the LDM7 description. */
static void test_product_line(void **state)
{
    (void)state;
    struct pq_info i = {
        .creation = {1795217967, 931833}, .feedtype = 0x40000000, .size = 120000, .ident = "t7.2"};
    char line[PRODUCT_LINE_MAX];
    assert_string_equal(product_line_format(&i, line, sizeof line),
                        "    120000 20261120233927.931833 EXP 000  t7.2");
    i.size = 4294967295u;
    i.seqno = 12345;
    i.feedtype = 0x00800001;
    assert_string_equal(product_line_format(&i, line, sizeof line),
                        "4294967295 20261120233927.931833 NGRID|PPS 12345  t7.2");
    /* Hostile: a time outside the calendar, the longest feed and identifier. */
    i.creation = (struct timeval){INT64_MAX, -1};
    i.feedtype = 0xFFFFFFFF & ~0x40000000u;
    memset(i.ident, 'i', PQ_IDENT_MAX);
    product_line_format(&i, line, sizeof line);
    assert_int_equal(line[strlen(line) - 1], 'i');
    assert_true(strlen(line) < sizeof line - 1);
    struct pq_signature sig = {{0, 1, 0xab, 0xff}};
    char hex[33];
    assert_string_equal(signature_format(&sig, hex), "0001abff000000000000000000000000");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--rename") == 0)
        return show_renamed(argc, argv);
    log_init(argc, &argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_text_from_outside_forges_nothing),
        cmocka_unit_test(test_long_message),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_lines_of_processes_do_not_mix),
        cmocka_unit_test(test_reopen),
        cmocka_unit_test(test_names_in_ps),
        cmocka_unit_test(test_product_line),
    };
    int fd = mkstemp(path);
    if (fd < 0 || log_set_destination(path) != 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    log_set_destination("-");
    unlink(path);
    return failed;
}

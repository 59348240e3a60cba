/* SPDX-License-Identifier: Apache-2.0
 *
 * Without memory a program logs one line and ends with ALLOC_EXIT; with memory it gets what it
 * requested.
 */
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

#include "common/alloc.h"
#include "failing_memory.h"

static void zeroed(void)
{
    xcalloc(3, 1000);
}

static void copied(void)
{
    xstrdup("text");
}

static void grown(void)
{
    size_t n = 0;

    xgrow(NULL, &n, 24);
}

static void too_many(void)
{
    xreallocarray(NULL, SIZE_MAX / 4, 24);
}

static void counted_over(void)
{
    size_t n = SIZE_MAX;

    xgrow(NULL, &n, 24);
}

/* call() writes `said` to standard error before it ends with ALLOC_EXIT. */
static void assert_ends(void (*call)(void), unsigned failing, const char *said)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(pipes[1], STDERR_FILENO);
        memory_fails_at(failing);
        call();
        _exit(77);
    }
    close(pipes[1]);
    char text[1000] = "";
    size_t used = 0;
    for (ssize_t n; (n = read(pipes[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)n;
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), ALLOC_EXIT);
    assert_non_null(strstr(text, "ERROR out of memory: "));
    if (!strstr(text, said))
        fail_msg("found \"%s\"; valid: %s", text, said);
    assert_ptr_equal(strchr(text, '\n'), text + used - 1);
}

static void no_memory(void **state)
{
    (void)state;
    assert_ends(zeroed, 1, " 3000 bytes\n");
    assert_ends(copied, 1, " 5 bytes\n");
    assert_ends(grown, 1, " 24 bytes\n");
}

static void more_than_there_can_be(void **state)
{
    (void)state;
    char most[40];
    snprintf(most, sizeof most, " %zu bytes\n", SIZE_MAX);
    assert_ends(too_many, 0, most);
    assert_ends(counted_over, 0, most);
}

static void memory(void **state)
{
    (void)state;
    uint32_t *list = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < 100; i++) {
        list = xgrow(list, &n, sizeof *list);
        assert_int_equal(n, i + 1);
        assert_int_equal(list[i], 0);
        list[i] = i;
    }
    assert_int_equal(list[42], 42);
    assert_null(xreallocarray(list, 0, sizeof *list));
    char *nothing = xcalloc(0, 8), *copy = xstrdup("");
    assert_non_null(nothing);
    assert_string_equal(copy, "");
    free(nothing);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_memory),
        cmocka_unit_test(more_than_there_can_be),
        cmocka_unit_test(memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

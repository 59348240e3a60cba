/* SPDX-License-Identifier: Apache-2.0 */
#include "tool_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

char out[TOOL_TEXT_MAX], err[TOOL_TEXT_MAX];
static char dir[] = "/tmp/test-pqtools-XXXXXX";
static const char *tools;

void slurp(const char *name, char *text, size_t room)
{
    FILE *f = fopen(name, "r");
    size_t n = f ? fread(text, 1, room - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
}

pid_t start(const char *cmd)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* survives exec: nothing keeps running after a test that fails */
        char line[1000];
        snprintf(line, sizeof line, "exec %s/%s", tools, cmd);
        if (!freopen("stdout", "w", stdout) || !freopen("stderr", "w", stderr))
            _exit(126);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    return pid;
}

int finish(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    slurp("stdout", out, sizeof out);
    slurp("stderr", err, sizeof err);
    return WEXITSTATUS(status);
}

/* Runs "tool arguments" in the test's directory; returns its exit code. */
int run(const char *cmd)
{
    return finish(start(cmd));
}

void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    fputs(text, f);
    fclose(f);
}

void fresh_queue(void)
{
    assert_int_equal(run("pqcreate -s 1m -S 10 -c -q queue"), 0);
    assert_string_equal(err, "");
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char cmd[100];
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    return chdir("/") || system(cmd);
}

int run_tool_tests(const char *group, const struct CMUnitTest *tests, size_t count)
{
    tools = getenv("PQ_TOOLS");
    if (!tools) {
        fprintf(stderr, "PQ_TOOLS is not set: the directory of the programs\n");
        return 2;
    }
    return _cmocka_run_group_tests(group, tests, count, setup, teardown);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/log.h"

extern char **environ;

uint64_t command_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void commands_init(struct commands *c, unsigned max, double timeout_s, const sigset_t *waiting,
                   volatile sig_atomic_t *stop)
{
    *c = (struct commands){.max = max, .timeout_s = timeout_s, .waiting = *waiting, .stop = stop};
    c->children = xcalloc(max, sizeof *c->children);
}

void commands_free(struct commands *c)
{
    free(c->children);
    c->children = NULL;
}

static uint64_t deadline(const struct commands *c)
{
    return command_now_ns() + (uint64_t)(c->timeout_s * 1e9);
}

/* Calls ppoll() until a time; signals (including a child's end) end the wait. */
static int wait_for(struct commands *c, struct pollfd *p, uint64_t deadline_ns)
{
    uint64_t now = command_now_ns(), left = deadline_ns > now ? deadline_ns - now : 0;
    struct timespec t = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};

    return ppoll(p, p ? 1 : 0, &t, &c->waiting);
}

bool command_wait_writable(struct commands *c, int fd, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    for (;;) {
        int n = wait_for(c, &p, deadline_ns);

        if (n > 0)
            return true; /* if no process reads, write() reports it */
        if (n == 0 || command_now_ns() >= deadline_ns) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static struct child *find(const struct commands *c, pid_t pid)
{
    for (unsigned i = 0; i < c->n; i++)
        if (c->children[i].pid == pid)
            return &c->children[i];
    return NULL;
}

bool command_runs(const struct commands *c, pid_t pid)
{
    return find(c, pid);
}

/* The child has ended: forgets it. */
static bool ended(struct commands *c, struct child *ch, int status)
{
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;

    if (WIFSIGNALED(status))
        log_warn("%s[%d] was killed by signal %d", ch->name, (int)ch->pid, WTERMSIG(status));
    else if (failed)
        log_warn("%s[%d] ended with status %d", ch->name, (int)ch->pid, WEXITSTATUS(status));
    else
        log_debug("%s[%d] ended", ch->name, (int)ch->pid);
    c->failed += failed;
    *ch = c->children[--c->n];
    return failed;
}

void commands_reap(struct commands *c)
{
    for (unsigned i = c->n; i-- > 0;) {
        int status;

        if (waitpid(c->children[i].pid, &status, WNOHANG) == c->children[i].pid)
            ended(c, &c->children[i], status);
    }
}

void command_kill(struct commands *c, pid_t pid, const char *why)
{
    struct child *ch = find(c, pid);

    if (!ch)
        return;
    log_error("%s[%d] %s: killed", ch->name, (int)pid, why);
    kill(pid, SIGKILL);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    ended(c, ch, status);
}

bool command_wait(struct commands *c, pid_t pid)
{
    uint64_t until = deadline(c);
    int status;

    struct child *ch;
    while ((ch = find(c, pid))) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return !ended(c, ch, status);
        if (*c->stop)
            return true;
        if (command_now_ns() >= until) {
            command_kill(c, pid, "does not end");
            return false;
        }
        wait_for(c, NULL, until);
    }
    return true;
}

void command_unfed(struct commands *c, pid_t pid)
{
    struct child *ch = find(c, pid);

    if (ch)
        ch->fed = false;
}

/* Returns the oldest child without an open pipe; -1: none. */
static pid_t oldest(const struct commands *c)
{
    const struct child *o = NULL;

    for (unsigned i = 0; i < c->n; i++)
        if (!c->children[i].fed && (!o || c->children[i].started_ns < o->started_ns))
            o = &c->children[i];
    return o ? o->pid : -1;
}

/* Waits until there are fewer than max children. */
static bool wait_until_below(struct commands *c, unsigned max)
{
    uint64_t until = deadline(c);

    for (;;) {
        commands_reap(c);
        if (c->n < max)
            return true;
        if (*c->stop && max > 1)
            return false;
        if (command_now_ns() >= until) {
            if (oldest(c) < 0)
                return false;
            command_kill(c, oldest(c), "does not end");
        } else {
            wait_for(c, NULL, until);
        }
    }
}

void commands_wait_all(struct commands *c)
{
    wait_until_below(c, 1);
}

pid_t command_start(struct commands *c, char *const *argv, int stdin_fd, char *err,
                    size_t err_bytes)
{
    if (!wait_until_below(c, c->max)) {
        snprintf(err, err_bytes, "%u children are already running", c->n);
        return -1;
    }
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    if (stdin_fd >= 0)
        posix_spawn_file_actions_adddup2(&files, stdin_fd, STDIN_FILENO);
    else
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t pid;
    int e = posix_spawnp(&pid, argv[0], &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    if (e != 0) {
        snprintf(err, err_bytes, "\"%s\" cannot be started: %s", argv[0], strerror(e));
        return -1;
    }
    struct child *ch = &c->children[c->n++];
    *ch = (struct child){.pid = pid, .started_ns = command_now_ns(), .fed = stdin_fd >= 0};
    snprintf(ch->name, sizeof ch->name, "%s", argv[0]);
    return pid;
}

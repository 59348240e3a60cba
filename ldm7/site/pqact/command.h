/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that actions start: no shell, standard input from a pipe or /dev/null, default signals,
 * no other descriptors except standard output and error. Their number is limited.
 */
#ifndef PQACT_COMMAND_H
#define PQACT_COMMAND_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    uint64_t started_ns;
    bool fed;      /* a pipe to it is open: it ends when that is closed */
    char name[64]; /* the program, for messages */
};
struct commands {
    struct child *children;
    unsigned n, max;
    double timeout_s;            /* how long to wait for anything */
    sigset_t waiting;            /* signals are unblocked only while waiting, with this mask */
    volatile sig_atomic_t *stop; /* ends waits for running children */
    unsigned long failed;        /* children that failed or were killed */
};

/* CLOCK_MONOTONIC. */
uint64_t command_now_ns(void);
/* SIGCHLD must have a handler (which may do nothing) and be blocked except during waits. */
void commands_init(struct commands *c, unsigned max, double timeout_s, const sigset_t *waiting,
                   volatile sig_atomic_t *stop);
/* Forgets the children without ending them. */
void commands_free(struct commands *c);

/* Returns the child's PID, or -1 and a reason. stdin_fd: -1 for none; otherwise the child counts as
 * fed until command_unfed(). If there are already max children, waits for one to end; after the
 * timeout kills the oldest one that is not fed. */
pid_t command_start(struct commands *c, char *const *argv, int stdin_fd, char *err,
                    size_t err_bytes);
/* The pipe to the child was closed. */
void command_unfed(struct commands *c, pid_t pid);
/* Reaps the children that have ended; logs those that failed. */
void commands_reap(struct commands *c);
/* Waits until it ends; kills it at the timeout. Returns false if it failed. */
bool command_wait(struct commands *c, pid_t pid);
/* Does the same for all children together. */
void commands_wait_all(struct commands *c);
/* Returns whether this child is still running. */
bool command_runs(const struct commands *c, pid_t pid);
/* Kills it with SIGKILL and logs `why`. */
void command_kill(struct commands *c, pid_t pid, const char *why);
/* Waits until descriptor fd is writable or deadline_ns is reached (false, errno ETIMEDOUT). Signals
 * do not cut it short: a product goes to a program as a whole. */
bool command_wait_writable(struct commands *c, int fd, uint64_t deadline_ns);

#endif

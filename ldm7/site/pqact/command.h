/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that actions start: no shell, standard input from a pipe or /dev/null, default signals,
 * no other descriptors but standard output and error. There are never more than a given number.
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
    double timeout_s;            /* how long something is waited for */
    sigset_t waiting;            /* signals are let in only while one waits, with this mask */
    volatile sig_atomic_t *stop; /* ends waits for children that run */
    unsigned long failed;        /* children that ended badly or were killed */
};

/* CLOCK_MONOTONIC. */
uint64_t command_now_ns(void);
/* SIGCHLD must have a handler (which need do nothing) and be blocked outside of waits. */
void commands_init(struct commands *c, unsigned max, double timeout_s, const sigset_t *waiting,
                   volatile sig_atomic_t *stop);
/* Forgets the children without ending them. */
void commands_free(struct commands *c);

/* The child's id, or -1 and a reason. stdin_fd: -1 for none; else the child counts as fed until
 * command_unfed. If there are already max children the end of one is waited for; after the timeout
 * the oldest that is not fed is killed. */
pid_t command_start(struct commands *c, char *const *argv, int stdin_fd, char *err,
                    size_t err_bytes);
/* The pipe to the child was closed. */
void command_unfed(struct commands *c, pid_t pid);
/* Takes the children that ended; those that failed are logged. */
void commands_reap(struct commands *c);
/* Waits until it ends; kills it at the timeout. false: it failed. */
bool command_wait(struct commands *c, pid_t pid);
/* The same for all there are, together. */
void commands_wait_all(struct commands *c);
/* True if this child has not ended yet. */
bool command_runs(const struct commands *c, pid_t pid);
/* Kills it with SIGKILL and logs `why`. */
void command_kill(struct commands *c, pid_t pid, const char *why);
/* Waits until descriptor fd can be written to, or deadline_ns is reached (false, errno ETIMEDOUT).
 * It is not cut short: a product goes to a program as a whole. */
bool command_wait_writable(struct commands *c, int fd, uint64_t deadline_ns);

#endif

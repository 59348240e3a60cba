/* SPDX-License-Identifier: Apache-2.0
 *
 * One epoll loop per process, with a signal descriptor (SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP,
 * SIGCHLD).
 */
#ifndef LDMD_LOOP_H
#define LDMD_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#define LOOP_FOREVER UINT64_MAX
#define NS_PER_S 1000000000ull

typedef void (*loop_fn)(void *ctx, uint32_t events);

struct loop_source { /* embedded by the owner; must not move while added */
    int fd;
    loop_fn fn;
    void *ctx;
    uint32_t events;
};

struct loop {
    int epoll_fd;
    struct loop_source signals;
    bool stop;               /* set by SIGTERM, SIGINT or the program */
    bool got_usr1, got_chld; /* set by signals, cleared by the program */
    bool got_usr2, got_hup;  /* likewise; this process has already done what they request */
    uint64_t now_ns;         /* when the last wait ended: one clock reading per wake-up for all */
};

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* Blocks the signals for good (children inherit that; see loop_unblock_signals()) and opens the
 * descriptors. Returns 0, or -1 with errno. In a child, call it again after loop_close(). */
int loop_open(struct loop *l);
/* Closes the loop's descriptors; those of its sources belong to their owners. */
void loop_close(struct loop *l);
/* For children that execute another program. */
void loop_unblock_signals(void);

/* Calls fn(ctx, events) when fd has one of the epoll events. s must remain valid until loop_del().
 * Returns 0, or -1 with errno. */
int loop_add(struct loop *l, struct loop_source *s, int fd, uint32_t events, loop_fn fn, void *ctx);
/* Waits for these events of the source from now on. */
void loop_events(struct loop *l, struct loop_source *s, uint32_t events);
/* Call this before closing the source's descriptor. Safe if it was never added (fd < 0). */
void loop_del(struct loop *l, struct loop_source *s);
/* Waits until something happens or deadline_ns (now_ns() scale; a deadline not after the loop's
 * now_ns does not wait), sets now_ns and calls the functions of what happened. Serves at most one
 * source per call, so a function may delete any source. */
void loop_once(struct loop *l, uint64_t deadline_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void cycle_level(void)
{
    log_set_level(log_get_level() == LOG_LVL_DEBUG ? LOG_LVL_NOTE : log_get_level() + 1);
}

static void on_signal(void *ctx, uint32_t events)
{
    struct loop *l = ctx;

    (void)events;
    struct signalfd_siginfo info;
    while (read(l->signals.fd, &info, sizeof info) == (ssize_t)sizeof info) {
        switch (info.ssi_signo) {
        case SIGUSR1: l->got_usr1 = true; break;
        case SIGUSR2:
            cycle_level();
            l->got_usr2 = true;
            break;
        case SIGHUP:
            log_reopen();
            l->got_hup = true;
            break;
        case SIGCHLD: l->got_chld = true; break;
        default: l->stop = true; break;
        }
    }
}

static void handled_signals(sigset_t *set)
{
    static const int list[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCHLD};

    sigemptyset(set);
    for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++)
        sigaddset(set, list[i]);
}

int loop_open(struct loop *l)
{
    *l = (struct loop){
        .epoll_fd = epoll_create1(EPOLL_CLOEXEC), .signals = {.fd = -1}, .now_ns = now_ns()};
    if (l->epoll_fd < 0)
        return -1;
    sigset_t set;
    handled_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0 || loop_add(l, &l->signals, fd, EPOLLIN, on_signal, l) < 0) {
        close(l->epoll_fd);
        return -1;
    }
    return 0;
}

void loop_close(struct loop *l)
{
    if (l->signals.fd >= 0)
        close(l->signals.fd);
    close(l->epoll_fd);
    l->signals.fd = l->epoll_fd = -1;
}

void loop_unblock_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGPIPE, SIG_DFL);
}

int loop_add(struct loop *l, struct loop_source *s, int fd, uint32_t events, loop_fn fn, void *ctx)
{
    struct epoll_event e = {.events = events, .data.ptr = s};

    *s = (struct loop_source){.fd = fd, .fn = fn, .ctx = ctx, .events = events};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &e) == 0)
        return 0;
    s->fd = -1;
    return -1;
}

void loop_events(struct loop *l, struct loop_source *s, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = s};

    if (s->fd < 0 || s->events == events)
        return;
    s->events = events;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, s->fd, &e);
}

void loop_del(struct loop *l, struct loop_source *s)
{
    if (s->fd < 0)
        return;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
    s->fd = -1;
}

void loop_once(struct loop *l, uint64_t deadline_ns)
{
    uint64_t now = l->now_ns;
    int timeout_ms = -1;

    if (deadline_ns != LOOP_FOREVER) {
        uint64_t ms = deadline_ns <= now ? 0 : (deadline_ns - now + 999999) / 1000000;

        timeout_ms = ms > 3600000 ? 3600000 : (int)ms;
    }
    struct epoll_event e;
    int n = epoll_wait(l->epoll_fd, &e, 1, timeout_ms);
    l->now_ns = now_ns();
    if (n == 1) {
        struct loop_source *s = e.data.ptr;

        s->fn(s->ctx, e.events);
    } else if (n < 0 && errno != EINTR) {
        log_error("epoll_wait failed: errno %d", errno);
        l->stop = true;
    }
}

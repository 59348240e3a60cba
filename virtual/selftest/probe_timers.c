// SPDX-License-Identifier: Apache-2.0
// Tests every kind of wait in the kernel and prints how long each took by CLOCK_MONOTONIC, one line
// "NAME ASKED_NS MEASURED_NS" each. NAME says what is measured (virtual/selftest/timers.py holds
// the theory).
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)
#define NS_PER_US INT64_C(1000)

static volatile sig_atomic_t alarm_seen;
static int64_t alarm_at_ns;

static void die(const char *what)
{
    fprintf(stderr, "selftest-timers: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;

    if (clock_gettime(clock, &t) != 0)
        die("clock_gettime");
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static struct timespec to_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

static struct timeval to_timeval(int64_t ns)
{
    return (struct timeval){.tv_sec = ns / NS_PER_S, .tv_usec = ns % NS_PER_S / NS_PER_US};
}

static void say(const char *name, int64_t asked_ns, int64_t measured_ns)
{
    printf("%s %" PRId64 " %" PRId64 "\n", name, asked_ns, measured_ns);
}

static void sleep_ns(int64_t ns)
{
    const struct timespec t = to_timespec(ns);

    if (nanosleep(&t, NULL) != 0)
        die("nanosleep");
}

static void sleep_until(int64_t due_ns)
{
    const struct timespec t = to_timespec(due_ns);

    if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        die("clock_nanosleep");
}

static void sleeps(void)
{
    static const int64_t asked_ns[] = {NS_PER_MS, 10 * NS_PER_MS, NS_PER_S};
    int64_t began;

    for (size_t i = 0; i < sizeof asked_ns / sizeof *asked_ns; i++) {
        began = now_ns();
        sleep_ns(asked_ns[i]);
        say("nanosleep", asked_ns[i], now_ns() - began);
    }
    began = now_ns();
    sleep_until(began + 10 * NS_PER_MS);
    say("clock_nanosleep", 10 * NS_PER_MS, now_ns() - began);

    began = now_ns();
    for (int i = 0; i < 1000; i++)
        sleep_ns(NS_PER_MS);
    say("nanosleep-1000", 1000 * NS_PER_MS, now_ns() - began);

    began = now_ns();
    for (int i = 1; i <= 1000; i++)
        sleep_until(began + i * NS_PER_MS);
    say("clock_nanosleep-1000", 1000 * NS_PER_MS, now_ns() - began);
}

static void timeouts(void)
{
    static const int64_t asked_ns[] = {10 * NS_PER_MS, 250 * NS_PER_MS, 2500 * NS_PER_MS};
    const int epoll = epoll_create1(EPOLL_CLOEXEC);

    if (epoll < 0)
        die("epoll_create1");
    for (size_t i = 0; i < sizeof asked_ns / sizeof *asked_ns; i++) {
        struct timeval limit = to_timeval(asked_ns[i]);
        int64_t began = now_ns();

        if (poll(NULL, 0, (int)(asked_ns[i] / NS_PER_MS)) != 0)
            die("poll");
        say("poll", asked_ns[i], now_ns() - began);

        began = now_ns();
        if (select(0, NULL, NULL, NULL, &limit) != 0)
            die("select");
        say("select", asked_ns[i], now_ns() - began);

        began = now_ns();
        struct epoll_event event;
        if (epoll_wait(epoll, &event, 1, (int)(asked_ns[i] / NS_PER_MS)) != 0)
            die("epoll_wait");
        say("epoll_wait", asked_ns[i], now_ns() - began);
    }
    close(epoll);
}

static void receive_timeouts(void)
{
    static const int64_t asked_ns[] = {40 * NS_PER_MS, 200 * NS_PER_MS, NS_PER_S};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        die("socket");
    char byte;
    for (size_t i = 0; i < sizeof asked_ns / sizeof *asked_ns; i++) {
        const struct timeval limit = to_timeval(asked_ns[i]);

        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
            die("SO_RCVTIMEO");
        int64_t began = now_ns();
        if (recv(fd, &byte, 1, 0) != -1 || errno != EAGAIN)
            die("recv");
        say("SO_RCVTIMEO", asked_ns[i], now_ns() - began);
    }
    close(fd);
}

static void timer_descriptors(void)
{
    const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    const struct itimerspec once = {.it_value = to_timespec(50 * NS_PER_MS)};
    const struct itimerspec often = {.it_value = to_timespec(10 * NS_PER_MS),
                                     .it_interval = to_timespec(10 * NS_PER_MS)};
    uint64_t count = 0;

    if (fd < 0)
        die("timerfd_create");
    int64_t began = now_ns();
    if (timerfd_settime(fd, 0, &once, NULL) != 0)
        die("timerfd_settime");
    uint64_t expired;
    if (read(fd, &expired, sizeof expired) != sizeof expired)
        die("read of a timerfd");
    say("timerfd", 50 * NS_PER_MS, now_ns() - began);

    began = now_ns();
    if (timerfd_settime(fd, 0, &often, NULL) != 0)
        die("timerfd_settime");
    while (count < 100) {
        if (read(fd, &expired, sizeof expired) != sizeof expired)
            die("read of a timerfd");
        count += expired;
    }
    say("timerfd-100", 1000 * NS_PER_MS, now_ns() - began);
    close(fd);
}

static void interval_timers(void)
{
    const struct itimerval once = {.it_value = to_timeval(50 * NS_PER_MS)};
    const struct itimerval often = {.it_value = to_timeval(10 * NS_PER_MS),
                                    .it_interval = to_timeval(10 * NS_PER_MS)};
    const struct itimerval never = {.it_value = {0}};
    const struct itimerspec posix = {.it_value = to_timespec(50 * NS_PER_MS)};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    sigset_t old;
    if (sigprocmask(SIG_BLOCK, &set, &old) != 0)
        die("sigprocmask");

    int64_t began = now_ns();
    if (setitimer(ITIMER_REAL, &once, NULL) != 0)
        die("setitimer");
    int signal_number;
    if (sigwait(&set, &signal_number) != 0)
        die("sigwait");
    say("setitimer", 50 * NS_PER_MS, now_ns() - began);

    began = now_ns();
    if (setitimer(ITIMER_REAL, &often, NULL) != 0)
        die("setitimer");
    for (int i = 0; i < 100; i++)
        if (sigwait(&set, &signal_number) != 0)
            die("sigwait");
    say("setitimer-100", 1000 * NS_PER_MS, now_ns() - began);
    if (setitimer(ITIMER_REAL, &never, NULL) != 0)
        die("setitimer");

    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0)
        die("timer_create");
    began = now_ns();
    if (timer_settime(timer, 0, &posix, NULL) != 0)
        die("timer_settime");
    if (sigwait(&set, &signal_number) != 0)
        die("sigwait");
    say("timer_create", 50 * NS_PER_MS, now_ns() - began);
    timer_delete(timer);
    if (sigprocmask(SIG_SETMASK, &old, NULL) != 0)
        die("sigprocmask");
}

static void on_alarm(int number)
{
    (void)number;
    alarm_at_ns = now_ns();
    alarm_seen = 1;
}

// A signal that arrives while a program polls the clock.
static void spinning(void)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    const struct itimerval once = {.it_value = to_timeval(2 * NS_PER_MS)};

    if (sigaction(SIGALRM, &action, NULL) != 0)
        die("sigaction");
    int64_t began = now_ns();
    if (setitimer(ITIMER_REAL, &once, NULL) != 0)
        die("setitimer");
    int64_t now;
    do
        now = now_ns();
    while (now < began + 5 * NS_PER_MS);
    say("spin", 5 * NS_PER_MS, now - began);
    say("signal-in-spin", 2 * NS_PER_MS, alarm_seen ? alarm_at_ns - began : 0);
}

// What the kernel charges for, since the processor itself is infinitely fast.
static void charges(void)
{
    volatile uint32_t work = 1;
    int64_t began = now_ns();

    for (int i = 0; i < 999; i++)
        (void)now_ns();
    int64_t ended = now_ns();
    say("clock-read", 1, (ended - began) / 1000);

    began = now_ns();
    char byte;
    for (int i = 0; i < 1000; i++)
        if (read(-1, &byte, 1) != -1)
            die("read of no descriptor succeeded");
    ended = now_ns();
    say("failed-call", 1, (ended - began) / 1000);

    began = now_ns();
    for (int i = 0; i < 1000; i++)
        (void)getppid();
    ended = now_ns();
    say("good-call", 1, (ended - began) / 1000);

    began = now_ns();
    for (int i = 0; i < 20000000; i++)
        work = work * 1664525u + 1013904223u;
    say("computing", 0, now_ns() - began);
}

static void clocks(void)
{
    const int64_t since_boot = now_ns(), raw = clock_ns(CLOCK_MONOTONIC_RAW);
    const int64_t real = clock_ns(CLOCK_REALTIME);

    say("raw-at-start", 0, raw);
    say("real-at-start", 0, real);
    sleep_ns(10 * NS_PER_S);
    {
        const int64_t monotonic = now_ns() - since_boot;

        say("raw-beside-monotonic", monotonic, clock_ns(CLOCK_MONOTONIC_RAW) - raw);
        say("real-beside-monotonic", monotonic, clock_ns(CLOCK_REALTIME) - real);
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct timespec tick;
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0)
        die("clock_getres");
    say("tick", 0, tick.tv_sec * NS_PER_S + tick.tv_nsec);
    say("slack", 0, prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
    clocks();
    charges();
    sleeps();
    timeouts();
    receive_timeouts();
    timer_descriptors();
    interval_timers();
    spinning();
    return 0;
}

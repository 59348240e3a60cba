/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <sys/timerfd.h>
#include <time.h>

#include "timers.h"

uint64_t tp_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint32_t tp_ntp_s(void)
{
    return (uint32_t)((uint64_t)time(NULL) + 2208988800u);
}

int tp_watch(int epfd, int fd, int op, uint32_t events, void *ptr)
{
    struct epoll_event ev = {.events = events, .data.ptr = ptr};

    return epoll_ctl(epfd, op, fd, &ev);
}

void tp_arm(int timer_fd, uint64_t at_ns, uint64_t *armed)
{
    struct itimerspec when = {0};

    if (at_ns == *armed)
        return;
    *armed = at_ns;
    if (at_ns != TP_NEVER) {
        if (at_ns == 0)
            at_ns = 1;
        when.it_value.tv_sec = (time_t)(at_ns / 1000000000u);
        when.it_value.tv_nsec = (long)(at_ns % 1000000000u);
    }
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

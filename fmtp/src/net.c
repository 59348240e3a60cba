/* SPDX-License-Identifier: Apache-2.0 */
#include "net.h"

#include <errno.h>
#include <linux/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include "timers.h"

enum { NOTSENT_LOWAT = 128 * 1024 };

int fmtp_fail(struct fmtp_error *err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return -1;
}

uint64_t fmtp_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int fmtp_set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value);
}

void fmtp_tune_tcp(int fd)
{
    fmtp_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    fmtp_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    fmtp_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 30);
    fmtp_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
    fmtp_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* What waits unsent in the kernel can no longer be rejected by the sender timer. */
    fmtp_set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT);
}

uint64_t fmtp_tcp_rtt_ns(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return 0;
    return info.tcpi_rtt * UINT64_C(1000);
}

int fmtp_watch(int epfd, int fd, int op, uint32_t events, void *ptr)
{
    struct epoll_event ev = {.events = events, .data.ptr = ptr};

    return epoll_ctl(epfd, op, fd, &ev);
}

void fmtp_arm(int timer_fd, uint64_t at_ns, uint64_t *armed)
{
    struct itimerspec when = {0};

    if (at_ns == *armed)
        return;
    *armed = at_ns;
    if (at_ns != FMTP_NEVER) {
        if (at_ns == 0)
            at_ns = 1;
        when.it_value.tv_sec = (time_t)(at_ns / 1000000000u);
        when.it_value.tv_nsec = (long)(at_ns % 1000000000u);
    }
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

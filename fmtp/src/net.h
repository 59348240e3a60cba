/* SPDX-License-Identifier: Apache-2.0
 *
 * What server.c and client.c share: sockets, clocks, the nested epoll.
 */
#ifndef FMTP_NET_H
#define FMTP_NET_H

#include "fmtp.h"

#include <sys/epoll.h>

/* Fills err with the formatted text; returns -1. */
int fmtp_fail(struct fmtp_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

uint64_t fmtp_now_ns(void);                        /* CLOCK_MONOTONIC */

int fmtp_set_option(int fd, int level, int name, int value);
/* keepalive (60 s idle, 30 s interval, 5 probes), no delay, bounded unsent backlog. */
void fmtp_tune_tcp(int fd);
/* Smoothed round-trip time of a connected TCP socket, 0 if unknown. */
uint64_t fmtp_tcp_rtt_ns(int fd);

/* Registers or changes; ptr comes back in epoll_event.data.ptr. */
int fmtp_watch(int epfd, int fd, int op, uint32_t events, void *ptr);
/* Arms the timer descriptor at a CLOCK_MONOTONIC time (FMTP_NEVER disarms). *armed remembers. */
void fmtp_arm(int timer_fd, uint64_t at_ns, uint64_t *armed);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What event loops share: the clock, epoll and a timer descriptor.
 */
#ifndef TRANSPORT_LOOP_LOOP_H
#define TRANSPORT_LOOP_LOOP_H

#include <stdint.h>
#include <sys/epoll.h>

uint64_t tp_now_ns(void); /* CLOCK_MONOTONIC */
uint32_t tp_ntp_s(void);  /* seconds since 1900; from 2036 on, since 2036 */
/* Registers a descriptor or changes its events; ptr comes back in epoll_event.data.ptr. Returns -1
 * with errno on failure. */
int tp_watch(int epfd, int fd, int op, uint32_t events, void *ptr);
/* Arms the timer descriptor at a CLOCK_MONOTONIC time (TP_NEVER disarms). *armed caches the
 * setting. */
void tp_arm(int timer_fd, uint64_t at_ns, uint64_t *armed);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages to a service manager (sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names.
 * Only the top process sends them: its children, and programs of EXEC entries, do not inherit the
 * variable.
 */
#ifndef LDMD_NOTIFY_H
#define LDMD_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; /* -1: no service manager listens */
    struct sockaddr_un to;
    socklen_t to_bytes;
    uint64_t interval_ns; /* of the watchdog's heartbeat; 0: none */
    uint64_t due_ns;
};

/* Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment. Without them, or with
 * an impossible socket (after a warning), everything below does nothing. */
void notify_open(struct notify *n, uint64_t now);
/* Sends `state`, lines of NAME=VALUE. */
void notify_say(const struct notify *n, const char *state);
/* Sends the heartbeat if it is due: twice per watchdog interval. Returns when to call this again at
 * the latest. */
uint64_t notify_tend(struct notify *n, uint64_t now);
/* Also call this in children. */
void notify_close(struct notify *n);

#endif

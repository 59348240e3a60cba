/* SPDX-License-Identifier: Apache-2.0 */
#include "log_peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "log_limit.h"
#include "queue/own_pid.h"

#define ENTRIES 64u /* enough, while many peers cannot fill the log either */
#define NS_PER_SECOND UINT64_C(1000000000)

static struct log_limit *limit;
static pid_t sharer; /* 0: none */

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

static struct log_limit *table(void)
{
    if (!limit)
        limit = log_limit_new(ENTRIES, LOG_PEER_WINDOW_S * NS_PER_SECOND);
    return limit;
}

int log_peer_share(void)
{
    if (!table())
        return -1;
    sharer = own_pid();
    return 0;
}

static void tell(const struct log_limit_rest *rest)
{
    log_warn("%" PRIu64 " more of these from %s (%s)", rest->lines, rest->peer, rest->kind);
}

void log_peer_rest(bool all)
{
    struct log_limit_rest rest;
    int saved = errno;

    if (sharer && sharer != own_pid())
        return;
    while (limit && log_limit_rest(limit, now(), all, &rest))
        tell(&rest);
    errno = saved;
}

void log_peer_msg(enum log_level level, const char *file, const char *func, int line,
                  unsigned lines, const char *peer, const char *fmt, ...)
{
    const char *slash = strrchr(file, '/');
    int saved = errno;

    struct log_limit_rest rest;
    snprintf(rest.peer, sizeof rest.peer, "%s", peer);
    snprintf(rest.kind, sizeof rest.kind, "%s:%s:%d", slash ? slash + 1 : file, func, line);
    /* Without memory for the table, write every line. */
    rest.lines = 0;
    bool may = !table() || log_limit_take(limit, peer, rest.kind, lines, now(), &rest.lines);
    if (rest.lines > 0)
        tell(&rest);
    errno = saved;
    if (!may)
        return;
    char text[LOG_LINE_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_msg(level, file, func, line, "%s", text);
    errno = saved;
}

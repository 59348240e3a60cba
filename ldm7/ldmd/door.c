/* SPDX-License-Identifier: Apache-2.0 */
#include "door.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "greeter.h"
#include "privileges.h"

#define SILENT_TOTAL 1024u
#define SILENT_PER_ADDRESS 32u
#define OTHER_FILES 1024u /* ends of control channels, logs, queues */
#define ACCEPTS_PER_TURN 64
#define PAUSE_NS (NS_PER_S / 10)
#define REPORT_NS (10 * NS_PER_S)

struct door {
    struct loop *loop;
    struct loop_source listener;
    struct children *children;
    struct greeter *greeter;
    uint64_t paused_until_ns, reported_ns;
    struct greeter_stats reported;
    uint64_t reported_refused;
};

static void speaks(void *ctx, int fd, struct in_addr from)
{
    struct door *d = ctx;

    children_serve(d->children, fd, from);
}

static void on_connection(void *ctx, uint32_t events)
{
    struct door *d = ctx;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_in from = {0};
        socklen_t n = sizeof from;
        int fd = accept4(d->listener.fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);

        if (fd >= 0) {
            greeter_take(d->greeter, fd, from.sin_addr, d->loop->now_ns);
            continue;
        }
        if ((errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) &&
            !greeter_displace(d->greeter)) {
            log_error("cannot accept: %s", strerror(errno));
            d->paused_until_ns = d->loop->now_ns + PAUSE_NS;
            loop_events(d->loop, &d->listener, 0); /* the connection stays in the backlog */
        }
        return;
    }
}

static void in_child(void *ctx)
{
    struct door *d = ctx;

    greeter_free(d->greeter);
    d->greeter = NULL;
}

struct door *door_open(struct loop *loop, int listen_fd, struct children *children)
{
    struct greeter_limits limits = {SILENT_TOTAL, SILENT_PER_ADDRESS};
    struct door *d = calloc(1, sizeof *d);
    size_t files = privileges_open_files(SILENT_TOTAL + OTHER_FILES);

    if (!d)
        return NULL;
    if (files < SILENT_TOTAL + OTHER_FILES) {
        limits.total = files > 128 ? (unsigned)(files - 64) / 2 : 32;
        log_note("only %zu files may be open: at most %u connections wait for their first request",
                 files, limits.total);
    }
    *d = (struct door){.loop = loop, .children = children};
    d->greeter = greeter_new(loop, limits, speaks, d);
    if (!d->greeter || loop_add(loop, &d->listener, listen_fd, EPOLLIN, on_connection, d) < 0) {
        greeter_free(d->greeter);
        free(d);
        return NULL;
    }
    children_on_fork(children, in_child, d);
    return d;
}

static bool report(struct door *d, uint64_t now)
{
    const struct greeter_stats *old = &d->reported;
    uint64_t refused = children_refused(d->children);
    struct greeter_stats s;

    greeter_get_stats(d->greeter, &s);
    if (s.garbage == old->garbage && s.silent == old->silent && s.displaced == old->displaced &&
        refused == d->reported_refused)
        return false;
    if (now < d->reported_ns + REPORT_NS)
        return true;
    log_warn("Connections turned away: garbage=%lu silent=%lu displaced=%lu refused=%lu",
             s.garbage - old->garbage, s.silent - old->silent, s.displaced - old->displaced,
             refused - d->reported_refused);
    d->reported = s;
    d->reported_refused = refused;
    d->reported_ns = now;
    return false;
}

uint64_t door_tend(struct door *d, uint64_t now)
{
    uint64_t next = greeter_tend(d->greeter, now);

    if (d->paused_until_ns != 0 && now >= d->paused_until_ns) {
        d->paused_until_ns = 0;
        loop_events(d->loop, &d->listener, EPOLLIN);
    }
    if (d->paused_until_ns != 0 && d->paused_until_ns < next)
        next = d->paused_until_ns;
    if (report(d, now) && d->reported_ns + REPORT_NS < next)
        next = d->reported_ns + REPORT_NS;
    return next;
}

void door_close(struct door *d)
{
    if (!d)
        return;
    loop_del(d->loop, &d->listener);
    greeter_free(d->greeter);
    free(d);
}

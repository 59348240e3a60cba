/* SPDX-License-Identifier: Apache-2.0 */
#include "acceptor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admission.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "file_limit.h"

#define SILENT_TOTAL 1024u
#define SILENT_PER_ADDRESS 32u
#define OTHER_FILES 1024u /* ends of control channels, logs, queues */
#define ACCEPTS_PER_TURN 64
#define PAUSE_NS (NS_PER_S / 10)
#define REPORT_NS (10 * NS_PER_S)
#define TELL_NS (10 * NS_PER_S) /* interval of reports about suppressed lines */

struct acceptor {
    struct loop *loop;
    struct loop_source listener;
    struct children *children;
    struct admission *admission;
    uint64_t paused_until_ns, reported_ns, told_ns;
    struct admission_stats reported;
    uint64_t reported_refused;
};

static void speaks(void *ctx, int fd, struct in_addr from)
{
    struct acceptor *a = ctx;

    children_serve(a->children, fd, from);
}

static void on_connection(void *ctx, uint32_t events)
{
    struct acceptor *a = ctx;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_in from = {0};
        socklen_t n = sizeof from;
        int fd = accept4(a->listener.fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);

        if (fd >= 0) {
            admission_take(a->admission, fd, from.sin_addr, a->loop->now_ns);
            continue;
        }
        if ((errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) &&
            !admission_displace(a->admission)) {
            log_error("cannot accept: %s", strerror(errno));
            a->paused_until_ns = a->loop->now_ns + PAUSE_NS;
            loop_events(a->loop, &a->listener, 0); /* the connection stays in the backlog */
        }
        return;
    }
}

static void in_child(void *ctx)
{
    struct acceptor *a = ctx;

    admission_free(a->admission);
    a->admission = NULL;
}

struct acceptor *acceptor_open(struct loop *loop, int listen_fd, struct children *children)
{
    struct admission_limits limits = {SILENT_TOTAL, SILENT_PER_ADDRESS};
    struct acceptor *a = calloc(1, sizeof *a);
    size_t files = file_limit_set(SILENT_TOTAL + OTHER_FILES);

    if (!a)
        return NULL;
    if (files < SILENT_TOTAL + OTHER_FILES) {
        limits.total = files > 128 ? (unsigned)(files - 64) / 2 : 32;
        log_note("only %zu files may be open: at most %u connections wait for their first request",
                 files, limits.total);
    }
    *a = (struct acceptor){.loop = loop, .children = children};
    a->admission = admission_new(loop, limits, speaks, a);
    if (!a->admission || loop_add(loop, &a->listener, listen_fd, EPOLLIN, on_connection, a) < 0) {
        admission_free(a->admission);
        free(a);
        return NULL;
    }
    children_on_fork(children, in_child, a);
    return a;
}

static bool report(struct acceptor *a, uint64_t now)
{
    const struct admission_stats *old = &a->reported;
    uint64_t refused = children_refused(a->children);
    struct admission_stats s;

    admission_get_stats(a->admission, &s);
    if (s.garbage == old->garbage && s.silent == old->silent && s.displaced == old->displaced &&
        refused == a->reported_refused)
        return false;
    if (now < a->reported_ns + REPORT_NS)
        return true;
    log_warn("Connections turned away: garbage=%" PRIu64 " silent=%" PRIu64 " displaced=%" PRIu64
             " refused=%" PRIu64,
             s.garbage - old->garbage, s.silent - old->silent, s.displaced - old->displaced,
             refused - a->reported_refused);
    a->reported = s;
    a->reported_refused = refused;
    a->reported_ns = now;
    return false;
}

uint64_t acceptor_tend(struct acceptor *a, uint64_t now)
{
    uint64_t next = admission_tend(a->admission, now);

    if (a->paused_until_ns != 0 && now >= a->paused_until_ns) {
        a->paused_until_ns = 0;
        loop_events(a->loop, &a->listener, EPOLLIN);
    }
    if (a->paused_until_ns != 0 && a->paused_until_ns < next)
        next = a->paused_until_ns;
    if (now >= a->told_ns + TELL_NS) {
        log_peer_rest(false);
        a->told_ns = now;
    }
    if (a->told_ns + TELL_NS < next)
        next = a->told_ns + TELL_NS;
    if (report(a, now) && a->reported_ns + REPORT_NS < next)
        next = a->reported_ns + REPORT_NS;
    return next;
}

void acceptor_close(struct acceptor *a)
{
    if (!a)
        return;
    loop_del(a->loop, &a->listener);
    admission_free(a->admission);
    free(a);
}

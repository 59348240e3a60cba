/* SPDX-License-Identifier: Apache-2.0 */
#include "fallback.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "privileges.h"
#include "resume.h"

#define AGAIN_S 5u
#define END_MS 5000

void fallback_init(struct fallback *f, const struct options *opt, const struct conf_receive *rcv)
{
    *f = (struct fallback){.opt = opt};
    f->request = (struct conf_request){.feed = rcv->feed, .ere = ".*", .port = rcv->port};
    memcpy(f->request.host, rcv->host, sizeof f->request.host);
}

/* Writes where LDM6 must begin. */
static void hand_over(const struct fallback *f, struct pq *queue, const struct pq_signature *last)
{
    char path[4096];

    if (!last || !resume_path(path, sizeof path, f->opt->queue, &f->request))
        return;
    struct pq_view v;
    if (pq_find(queue, last, &v) != PQ_OK)
        return; /* long gone: LDM6 requests by time */
    if (resume_save(path, &v.info) < 0)
        log_warn("cannot write %s: %s", path, strerror(errno));
    pq_release(queue, &v);
}

void fallback_start(struct fallback *f, struct pq *queue, const struct pq_signature *last,
                    void (*close_mine)(void *ctx), void *ctx)
{
    uint64_t now = now_ns();
    pid_t parent = getpid();

    if (f->pid > 0 || now < f->not_before_ns)
        return;
    hand_over(f, queue, last);
    f->not_before_ns = now + AGAIN_S * NS_PER_S;
    f->pid = fork();
    if (f->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(0);
        close_mine(ctx);
        privileges_renounce(true);
        _exit(down6_run(f->opt, &f->request));
    }
    if (f->pid < 0)
        log_error("cannot fork: %s", strerror(errno));
    else
        log_note("no multicast from %s:%u: receiving its products by LDM6", f->request.host,
                 f->request.port);
}

void fallback_reap(struct fallback *f)
{
    int status;

    if (f->pid <= 0 || waitpid(f->pid, &status, WNOHANG) != f->pid)
        return;
    log_warn("down6 process %d ended", (int)f->pid);
    f->pid = 0;
}

bool fallback_stop(struct fallback *f, struct pq_signature *last)
{
    if (f->pid <= 0)
        return false;
    kill(f->pid, SIGTERM);
    int status;
    for (int ms = 0; waitpid(f->pid, &status, WNOHANG) == 0; ms += 5) {
        if (ms == END_MS)
            kill(f->pid, SIGKILL);
        poll(NULL, 0, 5);
    }
    f->pid = 0;
    f->not_before_ns = 0;
    struct pq_info info;
    char path[4096];
    if (!resume_path(path, sizeof path, f->opt->queue, &f->request) ||
        !resume_load(path, &info, NULL))
        return false;
    *last = info.signature;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "children.h"

#include "feeds.h"
#include "log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKOFF_MAX_S 60u
#define LONG_LIFE_S 60u
#define KILL_AFTER_MS 10000

enum kind { KIND_CLIENT, KIND_MLDM, KIND_DOWN6, KIND_DOWN7, KIND_EXEC };

struct child {
    pid_t pid;                         /* 0: not running */
    enum kind kind;
    size_t entry;
    uint64_t started_ns, due_ns;
    unsigned backoff_s;
};

struct children {
    const struct options *opt;
    int listen_fd;
    unsigned max_clients;
    struct loop *loop;
    struct child *entries, *clients;
    size_t nentries;
    struct feeds *feeds;
    int *mldm_fds, *mldm_own;          /* both ends per MULTICAST entry, so that a new mldm can
                                          take over from one that died */
};

static struct children *the_children;  /* for is_alive in a forked child */

static bool is_alive(uint32_t id)
{
    for (unsigned i = 0; i < the_children->max_clients; i++)
        if (the_children->clients[i].pid > 0 && (uint32_t)the_children->clients[i].pid == id)
            return kill((pid_t)id, 0) == 0;
    return false;
}

struct children *children_new(const struct options *opt, int listen_fd, unsigned max_clients,
                              struct loop *loop)
{
    const struct conf *conf = opt->conf;
    struct children *c = calloc(1, sizeof *c);
    size_t n = conf->nmulticasts + conf->nreceives + conf->nrequests + conf->nexecs;

    if (c == NULL)
        return NULL;
    *c = (struct children){.opt = opt, .listen_fd = listen_fd, .max_clients = max_clients,
                           .loop = loop};
    c->entries = calloc(n + 1, sizeof *c->entries);
    c->clients = calloc(max_clients + 1, sizeof *c->clients);
    c->feeds = feeds_new(max_clients);
    c->mldm_fds = calloc(conf->nmulticasts + 1, sizeof *c->mldm_fds);
    c->mldm_own = calloc(conf->nmulticasts + 1, sizeof *c->mldm_own);
    if (c->entries == NULL || c->clients == NULL || c->feeds == NULL || c->mldm_fds == NULL || c->mldm_own == NULL)
        return NULL;
    for (size_t i = 0; i < conf->nmulticasts; i++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
            return NULL;
        c->mldm_fds[i] = pair[0];
        c->mldm_own[i] = pair[1];
        c->entries[c->nentries++] = (struct child){.kind = KIND_MLDM, .entry = i};
    }
    for (size_t i = 0; i < conf->nreceives; i++)
        c->entries[c->nentries++] = (struct child){.kind = KIND_DOWN7, .entry = i};
    for (size_t i = 0; i < conf->nrequests; i++)
        c->entries[c->nentries++] = (struct child){.kind = KIND_DOWN6, .entry = i};
    for (size_t i = 0; i < conf->nexecs; i++)
        c->entries[c->nentries++] = (struct child){.kind = KIND_EXEC, .entry = i};
    the_children = c;
    return c;
}

static int run_exec(char *const *argv)
{
    loop_unblock_signals();
    execvp(argv[0], argv);
    log_error("cannot execute \"%s\": %s", argv[0], strerror(errno));
    return 127;
}

static int run_child(struct children *c, const struct child *what, int fd)
{
    const struct conf *conf = c->opt->conf;
    struct upstream_env env = {c->opt, c->mldm_fds, is_alive, c->feeds};

    switch (what->kind) {
    case KIND_CLIENT: return upstream_run(&env, fd);
    case KIND_MLDM: return mldm_run(c->opt, &conf->multicasts[what->entry], c->mldm_own[what->entry]);
    case KIND_DOWN6: return down6_run(c->opt, &conf->requests[what->entry]);
    case KIND_DOWN7: return down7_run(c->opt, &conf->receives[what->entry]);
    default: return run_exec(conf->execs[what->entry].argv);
    }
}

/* Descriptors that the child has no business with. */
static void close_foreign(struct children *c, const struct child *what)
{
    loop_close(c->loop);
    close(c->listen_fd);
    for (size_t i = 0; i < c->opt->conf->nmulticasts; i++) {
        if (what->kind != KIND_CLIENT)
            close(c->mldm_fds[i]);
        if (what->kind != KIND_MLDM || what->entry != i)
            close(c->mldm_own[i]);
    }
}

static void spawn(struct children *c, struct child *what, int fd)
{
    pid_t parent = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
            _exit(0);
        close_foreign(c, what);
        _exit(run_child(c, what, fd));
    }
    what->started_ns = now_ns();
    if (pid > 0) {
        what->pid = pid;
        return;
    }
    log_error("cannot fork: %s", strerror(errno));
    what->due_ns = what->started_ns + NS_PER_S;
}

void children_start(struct children *c, uint64_t now)
{
    for (size_t i = 0; i < c->nentries; i++)
        c->entries[i].due_ns = now;
    children_tend(c, now);
}

bool children_serve(struct children *c, int fd, const char *host)
{
    for (unsigned i = 0; i < c->max_clients; i++) {
        if (c->clients[i].pid != 0)
            continue;
        c->clients[i] = (struct child){.kind = KIND_CLIENT};
        spawn(c, &c->clients[i], fd);
        close(fd);
        return c->clients[i].pid != 0;
    }
    log_warn("connection from %s refused: %u clients are connected (-M)", host, c->max_clients);
    close(fd);
    return false;
}

static const char *const kind_names[] = {"connection", "mldm", "down6", "down7", "EXEC"};

static void ended(struct child *ch, int status, uint64_t now)
{
    const char *name = kind_names[ch->kind];

    if (WIFSIGNALED(status))
        log_error("%s process %d was ended by signal %d", name, (int)ch->pid, WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        log_error("%s process %d ended with status %d", name, (int)ch->pid, WEXITSTATUS(status));
    else
        log_debug("%s process %d ended", name, (int)ch->pid);
    if (ch->kind == KIND_CLIENT)
        feeds_leave(the_children->feeds, ch->pid);
    ch->pid = 0;
    ch->due_ns = LOOP_FOREVER;
    if (ch->kind == KIND_CLIENT || ch->kind == KIND_EXEC)
        return;
    if (now - ch->started_ns > LONG_LIFE_S * NS_PER_S)
        ch->backoff_s = 0;
    ch->backoff_s = ch->backoff_s == 0 ? 1 : 2 * ch->backoff_s;
    if (ch->backoff_s > BACKOFF_MAX_S)
        ch->backoff_s = BACKOFF_MAX_S;
    ch->due_ns = now + ch->backoff_s * NS_PER_S;
}

static bool reap(struct children *c, uint64_t now)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);

    if (pid <= 0)
        return false;
    for (size_t i = 0; i < c->nentries; i++)
        if (c->entries[i].pid == pid)
            ended(&c->entries[i], status, now);
    for (unsigned i = 0; i < c->max_clients; i++)
        if (c->clients[i].pid == pid)
            ended(&c->clients[i], status, now);
    return true;
}

uint64_t children_tend(struct children *c, uint64_t now)
{
    uint64_t next = LOOP_FOREVER;

    while (reap(c, now))
        ;
    for (size_t i = 0; i < c->nentries; i++) {
        struct child *ch = &c->entries[i];

        if (ch->pid == 0 && now >= ch->due_ns)
            spawn(c, ch, -1);
        if (ch->pid == 0 && ch->due_ns < next)
            next = ch->due_ns;
    }
    return next;
}

static size_t signal_all(struct children *c, int sig)
{
    size_t n = 0;

    for (size_t i = 0; i < c->nentries; i++)
        if (c->entries[i].pid != 0 && ++n > 0)
            kill(c->entries[i].pid, sig);
    for (unsigned i = 0; i < c->max_clients; i++)
        if (c->clients[i].pid != 0 && ++n > 0)
            kill(c->clients[i].pid, sig);
    return n;
}

void children_end(struct children *c)
{
    uint64_t start = now_ns();
    bool killed = false;

    signal_all(c, SIGTERM);
    for (;;) {
        uint64_t now = now_ns();

        while (reap(c, now))
            ;
        if (signal_all(c, 0) == 0)
            break;
        if (!killed && now - start > KILL_AFTER_MS * 1000000ull) {
            log_warn("%zu children do not end: killed", signal_all(c, SIGKILL));
            killed = true;
        }
        poll(NULL, 0, 5);
    }
    for (size_t i = 0; i < c->opt->conf->nmulticasts; i++) {
        close(c->mldm_fds[i]);
        close(c->mldm_own[i]);
    }
    free(c->entries);
    free(c->clients);
    feeds_free(c->feeds);
    free(c->mldm_fds);
    free(c->mldm_own);
    free(c);
    the_children = NULL;
}

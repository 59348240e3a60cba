/* SPDX-License-Identifier: Apache-2.0 */
#include "children.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "confine.h"
#include "counters.h"
#include "feeds.h"
#include "file_limit.h"
#include "lane.h"
#include "places.h"
#include "privileges.h"
#include "subscribers.h"
#include "vlan.h"

#define BACKOFF_MAX_S 60u
#define LONG_LIFE_S 60u
#define KILL_AFTER_MS 10000
#define CLIENT_FILES 64u /* descriptors that one connection's process may need */

enum kind { KIND_CLIENT, KIND_MLDM, KIND_DOWN6, KIND_DOWN7, KIND_EXEC };

struct child {
    pid_t pid; /* 0: not running */
    enum kind kind;
    size_t entry;
    uint64_t started_ns, due_ns;
    unsigned backoff_s;
    struct in_addr from; /* peer of a connection */
};

/* A MULTICAST entry's control channel: requests for its mldm. Both ends are kept, so that a new
 * mldm can replace one that died. Meanwhile a request waits here and triggers the start. */
struct control {
    struct children *owner;
    struct child *mldm;
    int towards, own; /* up7's end, mldm's end */
    struct loop_source src;
};

struct children {
    const struct options *opt;
    int listen_fd;
    struct places_limits limits;
    struct loop *loop;
    struct child *entries, *clients;
    size_t nentries;
    struct feeds *feeds;
    struct places *places;
    struct control *controls;
    int *mldm_fds; /* up7's ends only */
    struct {
        void (*in_child)(void *ctx);
        void *ctx;
    } hooks[CHILDREN_HOOKS_MAX];
    unsigned nhooks;
    uint64_t failures; /* of entries' processes */
};

static struct children *the_children; /* for is_alive() in a forked child */

static bool is_alive(uint32_t id)
{
    for (unsigned i = 0; i < the_children->limits.clients; i++)
        if (the_children->clients[i].pid > 0 && (uint32_t)the_children->clients[i].pid == id)
            return kill((pid_t)id, 0) == 0;
    return false;
}

static void free_all(struct children *c)
{
    for (size_t i = 0; c->controls && i < c->opt->conf->nmulticasts; i++)
        if (c->controls[i].towards > 0) {
            loop_del(c->loop, &c->controls[i].src);
            close(c->controls[i].towards);
            close(c->controls[i].own);
        }
    free(c->entries);
    free(c->clients);
    feeds_free(c->feeds);
    places_free(c->places);
    free(c->controls);
    free(c->mldm_fds);
    free(c);
    the_children = NULL;
}

/* A subscription waits for its mldm. */
static void on_control(void *ctx, uint32_t events)
{
    struct control *at = ctx;
    struct child *mldm = at->mldm;
    uint64_t now = at->owner->loop->now_ns;

    (void)events;
    loop_del(at->owner->loop, &at->src);
    mldm->due_ns = mldm->started_ns + mldm->backoff_s * NS_PER_S;
    if (mldm->due_ns < now)
        mldm->due_ns = now;
}

static bool watch_control(struct control *at)
{
    return loop_add(at->owner->loop, &at->src, at->own, EPOLLIN, on_control, at) == 0;
}

static void add_entry(struct children *c, enum kind kind, size_t entry)
{
    c->entries[c->nentries++] =
        (struct child){.kind = kind, .entry = entry, .due_ns = LOOP_FOREVER};
}

struct children *children_new(const struct options *opt, int listen_fd, struct places_limits limits,
                              struct loop *loop)
{
    const struct conf *conf = opt->conf;
    struct children *c = xcalloc(1, sizeof *c);
    size_t n = conf->nmulticasts + conf->nreceives + conf->nrequests + conf->nexecs;

    *c = (struct children){.opt = opt, .listen_fd = listen_fd, .limits = limits, .loop = loop};
    c->entries = xcalloc(n + 1, sizeof *c->entries);
    c->clients = xcalloc(limits.clients + 1, sizeof *c->clients);
    c->feeds = feeds_new(limits.clients);
    c->places = places_new(&limits);
    c->controls = xcalloc(conf->nmulticasts + 1, sizeof *c->controls);
    c->mldm_fds = xcalloc(conf->nmulticasts + 1, sizeof *c->mldm_fds);
    if (!c->feeds || !c->places)
        goto fail;
    for (size_t i = 0; i < conf->nmulticasts; i++) {
        struct control *at = &c->controls[i];
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
            goto fail;
        add_entry(c, KIND_MLDM, i);
        *at = (struct control){.owner = c,
                               .mldm = &c->entries[c->nentries - 1],
                               .towards = pair[0],
                               .own = pair[1],
                               .src = {.fd = -1}};
        c->mldm_fds[i] = pair[0];
        if (!conf_has_path(conf, &conf->multicasts[i]) && !watch_control(at))
            goto fail;
    }
    for (size_t i = 0; i < conf->nreceives; i++)
        add_entry(c, KIND_DOWN7, i);
    for (size_t i = 0; i < conf->nrequests; i++)
        add_entry(c, KIND_DOWN6, i);
    for (size_t i = 0; i < conf->nexecs; i++)
        add_entry(c, KIND_EXEC, i);
    the_children = c;
    return c;
fail:
    free_all(c);
    return NULL;
}

void children_on_fork(struct children *c, void (*in_child)(void *ctx), void *ctx)
{
    if (c->nhooks == CHILDREN_HOOKS_MAX)
        abort();
    c->hooks[c->nhooks].in_child = in_child;
    c->hooks[c->nhooks++].ctx = ctx;
}

static int run_exec(char *const *argv)
{
    loop_unblock_signals();
    log_take_stderr();
    execvp(argv[0], argv);
    log_error("cannot execute \"%s\": %s", argv[0], strerror(errno));
    return 127;
}

/* Enters the sandbox before the first byte from a peer. Returns 0, or -1: the process must end. */
static int confine(struct children *c, const struct child *what)
{
    const struct conf *conf = c->opt->conf;

    switch (what->kind) {
    case KIND_CLIENT: return confine_connection(c->opt);
    case KIND_MLDM: return confine_mldm(c->opt, &conf->multicasts[what->entry]);
    case KIND_DOWN6: return confine_down6(c->opt);
    case KIND_DOWN7:
        /* In the sandbox it cannot start vlanutil. */
        if (c->opt->sandbox && vlan_is_ours(&conf->receives[what->entry]) &&
            vlan_start_helper(&conf->receives[what->entry], conf->set.vlanutil) < 0)
            return -1;
        return confine_down7(c->opt);
    default: return 0;
    }
}

/* Makes the interface before entering the sandbox, which permits no execution. */
static int run_mldm(struct children *c, const struct child *what)
{
    const struct conf_multicast *entry = &c->opt->conf->multicasts[what->entry];
    int control_fd = c->controls[what->entry].own, rc = 1;

    struct stats_page *page = counters_mldm(c->opt, entry);
    struct qlog *qlog = counters_qlog(c->opt, "mldm");
    if (lane_make(c->opt, entry) < 0)
        subscribers_refuse_waiting(control_fd);
    else if (confine(c, what) == 0)
        rc = mldm_run(c->opt, entry, control_fd, page, qlog);
    lane_remove();
    return rc;
}

static int run_child(struct children *c, const struct child *what, int fd)
{
    const struct conf *conf = c->opt->conf;
    struct upstream_env env = {
        .opt = c->opt, .mldm_fds = c->mldm_fds, .is_alive = is_alive, .feeds = c->feeds};

    if (what->kind == KIND_MLDM)
        return run_mldm(c, what);
    struct stats_page *page =
        what->kind != KIND_DOWN7 ? NULL : counters_down7(c->opt, &conf->receives[what->entry]);
    struct qlog *qlog = what->kind != KIND_DOWN7 ? NULL : counters_qlog(c->opt, "down7");
    if (confine(c, what) < 0)
        return 1;
    if (what->kind == KIND_CLIENT)
        env.visitor = places_visitor(c->places, (size_t)(what - c->clients));
    switch (what->kind) {
    case KIND_CLIENT: return upstream_run(&env, fd);
    case KIND_DOWN6: return down6_run(c->opt, &conf->requests[what->entry]);
    case KIND_DOWN7: return down7_run(c->opt, &conf->receives[what->entry], page, qlog);
    default: return run_exec(conf->execs[what->entry].argv);
    }
}

/* Closes descriptors that the child must not have. */
static void close_foreign(struct children *c, const struct child *what)
{
    loop_close(c->loop);
    close(c->listen_fd);
    for (size_t i = 0; i < c->opt->conf->nmulticasts; i++) {
        if (what->kind != KIND_CLIENT)
            close(c->mldm_fds[i]);
        if (what->kind != KIND_MLDM || what->entry != i)
            close(c->controls[i].own);
    }
    for (unsigned i = 0; i < c->nhooks; i++)
        c->hooks[i].in_child(c->hooks[i].ctx);
}

/* A process that reads from peers, or runs another program, gets no rights beyond those of its
 * user. */
static void set_rights(const struct child *what)
{
    switch (what->kind) {
    case KIND_MLDM: privileges_use_reserve(false); break;
    case KIND_DOWN7: privileges_use_reserve(true); break;
    case KIND_CLIENT:
        privileges_renounce(true);
        file_limit_set(CLIENT_FILES);
        break;
    case KIND_DOWN6: privileges_renounce(true); break;
    default: privileges_renounce(false); break;
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
        set_rights(what);
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

/* A sender without its own path waits for the first subscription. One with a path starts at once,
 * to take care of what an earlier one left at the path service. */
static bool is_on_request(const struct children *c, const struct child *what)
{
    const struct conf *conf = c->opt->conf;

    return what->kind == KIND_MLDM && !conf_has_path(conf, &conf->multicasts[what->entry]);
}

void children_start(struct children *c, uint64_t now)
{
    for (size_t i = 0; i < c->nentries; i++)
        if (!is_on_request(c, &c->entries[i]))
            c->entries[i].due_ns = now;
    children_tend(c, now);
}

static bool is_known(const struct conf *conf, struct in_addr from)
{
    char text[INET_ADDRSTRLEN];
    const char *name = text;

    inet_ntop(AF_INET, &from, text, sizeof text);
    if (conf_allowed(conf, UINT32_MAX, &name, 1) != 0)
        return true;
    for (size_t i = 0; i < conf->naccepts; i++)
        if (ere_match(conf->accepts[i].host, text) == ERE_YES)
            return true;
    return false;
}

static void log_from(struct in_addr from, const char *what)
{
    char text[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &from, text, sizeof text);
    log_peer_warn(text, "%s: connection %s", text, what);
}

/* Another process gets its place. This one was not admitted, so it holds nothing that the queue
 * needs. */
static void displace(struct children *c, size_t place)
{
    struct child *ch = &c->clients[place];

    kill(ch->pid, SIGKILL);
    waitpid(ch->pid, NULL, 0);
    feeds_leave(c->feeds, ch->pid);
    log_from(ch->from, "ended before its first request: another connection needs its place");
    ch->pid = 0;
    places_leave(c->places, place);
}

void children_serve(struct children *c, int fd, struct in_addr from)
{
    size_t place, leaves;
    enum places_verdict v = places_take(c->places, from, is_known(c->opt->conf, from),
                                        c->loop->now_ns, &place, &leaves);

    if (v == PLACES_TAKEN) {
        if (leaves != PLACES_NONE)
            displace(c, leaves);
        places_enter(c->places, place, from, c->loop->now_ns);
        c->clients[place] = (struct child){.kind = KIND_CLIENT, .from = from};
        spawn(c, &c->clients[place], fd);
        if (c->clients[place].pid == 0)
            places_leave(c->places, place);
    } else {
        log_from(from, places_strverdict(v));
    }
    close(fd);
}

struct children_count children_count(const struct children *c)
{
    struct children_count n = {0};

    for (unsigned i = 0; i < c->limits.clients; i++)
        n.clients += c->clients[i].pid != 0;
    for (size_t i = 0; i < c->nentries; i++)
        n.entries += c->entries[i].pid != 0;
    return n;
}

uint64_t children_failures(const struct children *c)
{
    return c->failures;
}

uint64_t children_refused(const struct children *c)
{
    return places_refused(c->places);
}

static const char *const kind_names[] = {"connection", "mldm", "down6", "down7", "EXEC"};

static void ended(struct child *ch, int status, uint64_t now)
{
    const char *name = kind_names[ch->kind];

    if (ch->kind == KIND_MLDM || ch->kind == KIND_DOWN7)
        counters_remove(the_children->opt, name, ch->pid);
    the_children->failures += ch->kind != KIND_CLIENT && status != 0;
    if (WIFSIGNALED(status))
        log_error("%s process %d was killed by signal %d", name, (int)ch->pid, WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        log_error("%s process %d ended with status %d", name, (int)ch->pid, WEXITSTATUS(status));
    else
        log_debug("%s process %d ended", name, (int)ch->pid);
    if (ch->kind == KIND_CLIENT) {
        feeds_leave(the_children->feeds, ch->pid);
        places_leave(the_children->places, (size_t)(ch - the_children->clients));
    }
    ch->pid = 0;
    ch->due_ns = LOOP_FOREVER;
    /* A command that succeeded is not restarted. */
    if (ch->kind == KIND_CLIENT || (ch->kind == KIND_EXEC && status == 0))
        return;
    if (now - ch->started_ns > LONG_LIFE_S * NS_PER_S)
        ch->backoff_s = 0;
    ch->backoff_s = ch->backoff_s == 0 ? 1 : 2 * ch->backoff_s;
    if (ch->backoff_s > BACKOFF_MAX_S)
        ch->backoff_s = BACKOFF_MAX_S;
    ch->due_ns = now + ch->backoff_s * NS_PER_S;
    if (ch->kind == KIND_EXEC)
        log_note("\"%s\" will be restarted in %u s",
                 the_children->opt->conf->execs[ch->entry].argv[0], ch->backoff_s);
}

/* After its death mldm is restarted when there is a request for it. */
static void await_request(struct children *c, struct child *mldm, uint64_t now)
{
    struct control *at = &c->controls[mldm->entry];

    mldm->started_ns = now; /* the delay counts from its end */
    mldm->due_ns = LOOP_FOREVER;
    if (!watch_control(at)) {
        log_error("cannot watch for subscriptions: %s", strerror(errno));
        mldm->due_ns = now + mldm->backoff_s * NS_PER_S;
    }
}

static bool reap(struct children *c, uint64_t now)
{
    int status;
    pid_t pid = waitpid(-1, &status, WNOHANG);

    if (pid <= 0)
        return false;
    for (size_t i = 0; i < c->nentries; i++)
        if (c->entries[i].pid == pid) {
            ended(&c->entries[i], status, now);
            if (is_on_request(c, &c->entries[i]))
                await_request(c, &c->entries[i], now);
        }
    for (unsigned i = 0; i < c->limits.clients; i++)
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
    for (unsigned i = 0; i < c->limits.clients; i++)
        if (c->clients[i].pid != 0 && ++n > 0)
            kill(c->clients[i].pid, sig);
    return n;
}

void children_signal(struct children *c, int sig)
{
    for (size_t i = 0; i < c->nentries; i++)
        if (c->entries[i].pid != 0 && c->entries[i].kind != KIND_EXEC)
            kill(c->entries[i].pid, sig);
    for (unsigned i = 0; i < c->limits.clients; i++)
        if (c->clients[i].pid != 0)
            kill(c->clients[i].pid, sig);
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
            log_warn("%zu children did not end: killed", signal_all(c, SIGKILL));
            killed = true;
        }
        poll(NULL, 0, 5);
    }
    free_all(c);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * pqact: carries out the actions of pqact.conf for the products of a queue.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "act.h"
#include "common/alloc.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/product_line.h"
#include "common/selection.h"
#include "common/tool.h"
#include "plural.h"
#include "state.h"

static const char help[] =
    "Usage: pqact -q QUEUE [-d DIR] [-f FEED] [-p ERE] [-i SECONDS] [-o SECONDS] CONF\n"
    "Runs the actions of CONF (pqact.conf) on the products of a queue: those after the last one that it\n"
    "processed; the first time, all products.\n"
    "  -q, --queue QUEUE      the queue\n"
    "  -d, --data-dir DIR     directory of files (default: the current one); no path leads out of it\n"
    "  -f, --feed FEED        only products of these feed types (default ANY)\n"
    "  -p, --pattern ERE      only products whose identifier matches\n"
    "  -i, --interval SECONDS look for products at least this often (default 15; an insertion is noticed\n"
    "                         immediately); 0: end after the last one\n"
    "  -o, --offset SECONDS   the first time: only products created at most SECONDS ago\n"
    "  -t, --timeout SECONDS  how long to wait for a program that does not read its input or does not end\n"
    "                         (-wait), or for a free place (default 60); then a program is killed\n"
    "      --state FILE       file that keeps the last processed product (default CONF.state)\n"
    "      --max-open N       files and pipes kept open (default 64)\n"
    "      --max-children N   programs running at once (default 64)\n"
    "      --check            check CONF and end\n" TOOL_HELP_TEXT
    "Signals: SIGTERM, SIGINT end it after the current product; SIGHUP reads CONF again; SIGUSR1 logs\n"
    "counts; both open the log file again; SIGUSR2 cycles the log level.\n"
    "Exit status: 0 success, 1 system error, 2 bad usage or CONF, or QUEUE is not a product queue.\n";

#define STOP_WAIT_S 10.0 /* at the end, for running programs */
enum { STATE = TOOL_OWN, MAX_OPEN, MAX_CHILDREN, CHECK };
static const struct option options[] = {
    {"queue", required_argument, NULL, 'q'},
    {"data-dir", required_argument, NULL, 'd'},
    {"feed", required_argument, NULL, 'f'},
    {"pattern", required_argument, NULL, 'p'},
    {"interval", required_argument, NULL, 'i'},
    {"offset", required_argument, NULL, 'o'},
    {"timeout", required_argument, NULL, 't'},
    {"state", required_argument, NULL, STATE},
    {"max-open", required_argument, NULL, MAX_OPEN},
    {"max-children", required_argument, NULL, MAX_CHILDREN},
    {"check", no_argument, NULL, CHECK},
    TOOL_LONG,
    {NULL, 0, NULL, 0},
};

struct arguments {
    const char *queue, *conf, *data_dir, *state;
    char *log;
    struct selection wanted;
    double interval_s, offset_s, timeout_s;
    unsigned max_open, max_children;
    bool check;
};

static volatile sig_atomic_t stop, reread, report, cycle;

static void on_signal(int signal)
{
    switch (signal) {
    case SIGHUP: reread = 1; break;
    case SIGUSR1: report = 1; break;
    case SIGUSR2: cycle = 1; break;
    case SIGCHLD: break;
    default: stop = 1; break;
    }
}

/* The signals are blocked except during a wait, which uses the mask *waiting. */
static void catch_signals(sigset_t *waiting)
{
    static const int caught[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    struct sigaction sa = {.sa_handler = on_signal};

    sigemptyset(&sa.sa_mask);
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) {
        sigaddset(&blocked, caught[i]);
        sigaction(caught[i], &sa, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &blocked, waiting);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        sigdelset(waiting, caught[i]);
}

struct pqact {
    const struct arguments *args;
    struct pq *q;
    struct actconf conf;
    struct datadir dir;
    struct commands commands;
    struct outputs outputs;
    struct actor actor;
    struct state state;
    sigset_t waiting;
    uint64_t after;      /* position of the last product processed */
    time_t created_from; /* older products are skipped */
    bool state_failed;
};

static const char *entries(size_t n)
{
    return plural(n, "entry", "entries");
}

static void log_counts(const struct pqact *p)
{
    const struct act_stats *s = &p->actor.stats;

    log_note(
        "Counts: products=%llu matched=%llu actions=%llu refused=%llu failed=%llu children_failed=%lu open=%u "
        "children=%u",
        (unsigned long long)s->products, (unsigned long long)s->matched,
        (unsigned long long)s->actions, (unsigned long long)s->refused,
        (unsigned long long)s->failed, p->commands.failed, p->outputs.n, p->commands.n);
}

/* Errors in the new configuration are logged, and the old one stays in use. */
static void read_again(struct pqact *p)
{
    struct actconf fresh, old = p->conf;
    char *text = NULL;
    size_t n;
    FILE *errors = open_memstream(&text, &n);
    if (!errors)
        alloc_fails(0);
    int rc = actconf_load(&fresh, p->args->conf, p->args->data_dir, errors);

    if (fclose(errors) != 0)
        alloc_fails(0);
    char *save;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        log_error("%s", line);
    free(text);
    if (rc < 0) {
        log_error("\"%s\" has %zu %s: the previous configuration stays in use", p->args->conf,
                  fresh.nerrors, plural(fresh.nerrors, "error", "errors"));
        actconf_free(&fresh);
        return;
    }
    p->conf = fresh;
    actor_use(&p->actor, &p->conf);
    actconf_free(&old);
    log_note("\"%s\" read again: %zu %s", p->args->conf, p->conf.n, entries(p->conf.n));
}

static void heed_signals(struct pqact *p)
{
    /* After log rotation: SIGHUP as for ldmd, which passes it on, SIGUSR1 as for LDM's programs. */
    if ((report || reread) && log_reopen() != 0)
        log_error("cannot reopen the log file: %s", strerror(errno));
    if (report) {
        report = 0;
        log_counts(p);
    }
    if (cycle) {
        cycle = 0;
        log_set_level(log_get_level() == LOG_LVL_NOTE   ? LOG_LVL_INFO
                      : log_get_level() == LOG_LVL_INFO ? LOG_LVL_DEBUG
                                                        : LOG_LVL_NOTE);
    }
    if (reread) {
        reread = 0;
        read_again(p);
    }
}

static void process(struct pqact *p, const struct pq_view *v)
{
    if (v->info.creation.tv_sec >= p->created_from && selection_has(&p->args->wanted, &v->info))
        actor_product(&p->actor, &v->info, v->data);
    if (!state_put(&p->state, &v->info) && !p->state_failed) {
        log_error("the state file cannot be written: %s", strerror(errno));
        p->state_failed = true;
    }
}

/* Works until the queue has no more, or it is time to stop. */
static enum pq_status work(struct pqact *p)
{
    static const struct timespec no_time;
    enum pq_status s = PQ_OK;

    struct pq_view v;
    while (!stop && (s = pq_next(p->q, p->after, &v)) == PQ_OK) {
        process(p, &v);
        p->after = v.seq;
        pq_release(p->q, &v);
        ppoll(NULL, 0, &no_time, &p->waiting);
        heed_signals(p);
    }
    outputs_flush(&p->outputs);
    return s;
}

static int run(struct pqact *p)
{
    struct pollfd fd = {.fd = pq_notify_fd(p->q), .events = POLLIN};
    double interval_s = p->args->interval_s;
    struct timespec interval = {(time_t)interval_s,
                                (long)((interval_s - (double)(time_t)interval_s) * 1e9)};

    if (fd.fd < 0) {
        log_error("the queue cannot be waited for: %s", strerror(errno));
        return TOOL_SYSTEM;
    }
    enum pq_status s;
    while ((s = work(p)) == PQ_OK || s == PQ_END) {
        if (stop || interval_s == 0)
            return TOOL_OK;
        ppoll(&fd, 1, &interval, &p->waiting);
        pq_notify_clear(p->q);
        commands_reap(&p->commands);
        heed_signals(p);
    }
    log_error("the queue cannot be read: %s", pq_strerror(s));
    return TOOL_SYSTEM;
}

/* Begins after the product of the state file if the queue still has it, else with the oldest. */
static int begin(struct pqact *p)
{
    char path[4096];
    if (!p->args->state &&
        snprintf(path, sizeof path, "%s.state", p->args->conf) >= (int)sizeof path) {
        log_error("\"%s.state\": %s", p->args->conf, strerror(ENAMETOOLONG));
        return TOOL_USAGE;
    }
    struct pq_signature last;
    char why[4600];
    bool known;
    if (state_open(&p->state, p->args->state ? p->args->state : path, &last, &known, why,
                   sizeof why) < 0) {
        log_error("%s", why);
        return TOOL_SYSTEM;
    }
    struct pq_view v;
    if (!known) {
        p->created_from = p->args->offset_s >= 0 ? time(NULL) - (time_t)p->args->offset_s : 0;
    } else if (pq_find(p->q, &last, &v) == PQ_OK) {
        p->after = v.seq;
        pq_release(p->q, &v);
    } else {
        log_warn("the last processed product is no longer in the queue: beginning with the oldest");
    }
    return TOOL_OK;
}

static void take_arguments(struct arguments *a, int argc, char **argv)
{
    *a = (struct arguments){.data_dir = ".",
                            .wanted = {.feed = FEEDTYPE_ANY},
                            .interval_s = 15,
                            .offset_s = -1,
                            .timeout_s = 60,
                            .max_open = 64,
                            .max_children = 64};
    for (int c; (c = getopt_long(argc, argv, TOOL_SHORT "q:d:f:p:i:o:t:", options, NULL)) != -1;) {
        switch (c) {
        case 'q': a->queue = optarg; break;
        case 'd': a->data_dir = optarg; break;
        case 'f': a->wanted.feed = tool_feed(optarg); break;
        case 'p': selection_pattern(&a->wanted, optarg); break;
        case 'i': a->interval_s = tool_real("-i", optarg, 0, 86400); break;
        case 'o': a->offset_s = tool_real("-o", optarg, 0, 1e9); break;
        case 't': a->timeout_s = tool_real("-t", optarg, 0.01, 86400); break;
        case STATE: a->state = optarg; break;
        case MAX_OPEN: a->max_open = (unsigned)tool_u64("--max-open", optarg, 1, 4096); break;
        case MAX_CHILDREN:
            a->max_children = (unsigned)tool_u64("--max-children", optarg, 1, 4096);
            break;
        case CHECK: a->check = true; break;
        case 'l': a->log = optarg; break;
        default: tool_option(c, help);
        }
    }
    if (argc - optind != 1)
        tool_usage("found %d configuration files; valid: one", argc - optind);
    a->conf = argv[optind];
}

int main(int argc, char **argv)
{
    struct arguments a;
    struct pqact p = {.args = &a, .state = {-1}};

    log_init(argc, &argv);
    take_arguments(&a, argc, argv);
    if (actconf_load(&p.conf, a.conf, a.data_dir, stderr) < 0) {
        actconf_free(&p.conf);
        return TOOL_USAGE;
    }
    if (a.check) {
        printf("%s is valid: %zu %s\n", a.conf, p.conf.n, entries(p.conf.n));
        actconf_free(&p.conf);
        return fflush(stdout) ? TOOL_SYSTEM : TOOL_OK;
    }
    /* Not for a check: root would create a log that pqact, as the server's user, cannot write. */
    if (a.log) {
        optarg = a.log;
        tool_option('l', help);
    }
    /* A core file would contain the whole queue. */
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    catch_signals(&p.waiting);
    p.q = tool_open(a.queue, false);
    if (datadir_open(&p.dir, a.data_dir) < 0) {
        log_error("data directory \"%s\" cannot be opened: %s", a.data_dir, strerror(errno));
        pq_close(p.q);
        actconf_free(&p.conf);
        return TOOL_USAGE;
    }
    commands_init(&p.commands, a.max_children, a.timeout_s, &p.waiting, &stop);
    outputs_init(&p.outputs, a.max_open, &p.dir, &p.commands);
    p.actor = (struct actor){.outputs = &p.outputs, .dir = &p.dir, .commands = &p.commands};
    actor_use(&p.actor, &p.conf);
    int rc = begin(&p);
    if (rc == TOOL_OK) {
        log_note("Starting Up: %zu %s of \"%s\", data directory \"%s\"", p.conf.n,
                 entries(p.conf.n), a.conf, a.data_dir);
        rc = run(&p);
    }
    outputs_free(&p.outputs);
    if (p.commands.timeout_s > STOP_WAIT_S)
        p.commands.timeout_s = STOP_WAIT_S;
    commands_wait_all(&p.commands);
    if (rc == TOOL_OK)
        log_counts(&p);
    commands_free(&p.commands);
    actor_free(&p.actor);
    state_close(&p.state);
    datadir_close(&p.dir);
    actconf_free(&p.conf);
    selection_free(&a.wanted);
    pq_close(p.q);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * ldmd: the top process. It listens, forks a child for each connection that speaks, and keeps the
 * children of the configuration's entries running.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "acceptor.h"
#include "children.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "confine.h"
#include "counters.h"
#include "keys.h"
#include "lane.h"
#include "notify.h"
#include "privileges.h"

#ifndef DOWNPOUR_VERSION
#define DOWNPOUR_VERSION "0"
#endif
#define BACKLOG 1024

static const char usage[] =
    "Usage: ldmd [options] CONF\n"
    "Serves and receives data products by LDM6 (unicast) and LDM7 (multicast).\n"
    "\n"
    "  -q, --queue PATH      product queue (made by pqcreate); required\n"
    "  -P, --port PORT       TCP port to listen on (default 388)\n"
    "  -I, --ip ADDRESS      IPv4 address to listen on (default 0.0.0.0)\n"
    "  -l, --log DEST        log file; - standard error (default), \"\" the system log\n"
    "      --log-format F    text (default) or json\n"
    "      --qlog DIR        write events of products to files in DIR\n"
    "  -f, --foreground      do not become a daemon\n"
    "  -M, --max-clients N   connections served at once (default 256), at most a quarter of them\n"
    "                        from addresses that no ALLOW or ACCEPT entry matches\n"
    "      --max-per-address N  connections from one address (default 32)\n"
    "  -u, --user USER       become USER after the port is bound; root must name one (\"root\": stay)\n"
    "      --no-sandbox      run the processes that talk to peers without a sandbox\n"
    "  -n, --check           check CONF and exit\n"
    "  -v, --verbose         log each product\n"
    "  -x, --debug           log debugging messages\n"
    "  -h, --help\n"
    "      --version\n"
    "\n"
    "Exit status: 0 success, 1 system error, 2 bad usage or configuration.\n"
    "Signals: SIGTERM ends; SIGHUP reopens the log file; SIGUSR2 cycles the log level;\n"
    "SIGUSR1 makes mldm and down7 log counters. ldmd passes signals on to the children that serve\n"
    "connections and entries, but not to programs of EXEC entries.\n";

struct arguments {
    const char *queue, *log, *conf, *user, *qlog;
    struct in_addr ip;
    uint16_t port;
    unsigned max_clients, max_per_address;
    bool foreground, check, no_sandbox;
};

static int bad_usage(const char *what, const char *found, const char *valid)
{
    fprintf(stderr, "ldmd: %s: found \"%s\"; valid: %s\n", what, found, valid);
    return 2;
}

static bool number(const char *text, unsigned long min, unsigned long max, unsigned long *out)
{
    errno = 0;
    char *end;
    *out = strtoul(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *out >= min &&
           *out <= max;
}

/* Returns -1 to continue; otherwise the exit status. */
static int take_option(struct arguments *a, int opt)
{
    static char resolved[PATH_MAX];
    unsigned long v;

    switch (opt) {
    case 'q': a->queue = optarg; return -1;
    case 'l': a->log = optarg; return -1;
    case 'f': a->foreground = true; return -1;
    case 'n': a->check = true; return -1;
    case 'v':
        if (log_get_level() < LOG_LVL_INFO)
            log_set_level(LOG_LVL_INFO);
        return -1;
    case 'x': log_set_level(LOG_LVL_DEBUG); return -1;
    case 'P':
        if (!number(optarg, 1, 65535, &v))
            return bad_usage("--port", optarg, "1 to 65535");
        a->port = (uint16_t)v;
        return -1;
    case 'M':
        if (!number(optarg, 1, 65536, &v))
            return bad_usage("--max-clients", optarg, "1 to 65536");
        a->max_clients = (unsigned)v;
        return -1;
    case 'A':
        if (!number(optarg, 1, 65536, &v))
            return bad_usage("--max-per-address", optarg, "1 to 65536");
        a->max_per_address = (unsigned)v;
        return -1;
    case 'u': a->user = optarg; return -1;
    case 'S': a->no_sandbox = true; return -1;
    case 'I':
        if (inet_pton(AF_INET, optarg, &a->ip) != 1)
            return bad_usage("--ip", optarg, "an IPv4 address such as 10.0.0.1");
        return -1;
    case 'Q':
        a->qlog = realpath(optarg, resolved); /* a daemon changes its directory */
        if (!a->qlog || access(a->qlog, W_OK | X_OK) < 0)
            return bad_usage("--qlog", optarg, "a directory that ldmd may write to");
        return -1;
    case 'F':
        if (!log_set_format(optarg))
            return bad_usage("--log-format", optarg, "text or json");
        return -1;
    case 'h': fputs(usage, stdout); return 0;
    case 'V': puts("ldmd (Downpour) " DOWNPOUR_VERSION); return 0;
    default: fputs("Try 'ldmd --help'.\n", stderr); return 2;
    }
}

static int parse_arguments(struct arguments *a, int argc, char **argv)
{
    static const struct option longs[] = {{"queue", required_argument, NULL, 'q'},
                                          {"port", required_argument, NULL, 'P'},
                                          {"ip", required_argument, NULL, 'I'},
                                          {"log", required_argument, NULL, 'l'},
                                          {"log-format", required_argument, NULL, 'F'},
                                          {"qlog", required_argument, NULL, 'Q'},
                                          {"foreground", no_argument, NULL, 'f'},
                                          {"max-clients", required_argument, NULL, 'M'},
                                          {"check", no_argument, NULL, 'n'},
                                          {"max-per-address", required_argument, NULL, 'A'},
                                          {"user", required_argument, NULL, 'u'},
                                          {"no-sandbox", no_argument, NULL, 'S'},
                                          {"verbose", no_argument, NULL, 'v'},
                                          {"debug", no_argument, NULL, 'x'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'V'},
                                          {0}};

    *a = (struct arguments){
        .queue = "", .log = "-", .port = LDM_PORT, .max_clients = 256, .max_per_address = 32};
    int opt, rc;
    while ((opt = getopt_long(argc, argv, "q:P:I:l:fM:u:nvxh", longs, NULL)) != -1)
        if ((rc = take_option(a, opt)) >= 0)
            return rc;
    if (argc - optind != 1) {
        fprintf(stderr, "ldmd: found %d configuration files; valid: one\nTry 'ldmd --help'.\n",
                argc - optind);
        return 2;
    }
    a->conf = argv[optind];
    if (a->queue[0] == '\0' && !a->check) {
        fputs("ldmd: no product queue given; valid: -q PATH\n", stderr);
        return 2;
    }
    return -1;
}

/* An attacker would want root, so ldmd stays root only if --user names it. */
static int check_user(const struct arguments *a)
{
    if (a->user || a->check || geteuid() != 0)
        return -1;
    fputs(
        "ldmd: found no --user, started by root; valid: --user NAME (a user without rights, such as "
        "ldm), or --user root to stay root\n",
        stderr);
    return 2;
}

static int check_queue(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0 && errno == ENOENT) {
        fprintf(stderr,
                "ldmd: product queue %s does not exist; make it with: "
                "pqcreate -s SIZE -S SLOTS -q %s\n",
                path, path);
        return 1;
    }
    struct pq *q;
    enum pq_status rc = pq_open(path, true, &q);
    if (rc == PQ_OK) {
        pq_close(q);
        return 0;
    }
    fprintf(stderr, "ldmd: cannot open product queue %s: %s; pqcreate makes a new one\n", path,
            rc == PQ_SYSTEM ? strerror(errno) : pq_strerror(rc));
    return 1;
}

static int open_listener(const struct arguments *a)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(a->port), .sin_addr = a->ip};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    char ip[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &a->ip, ip, sizeof ip);
    fprintf(stderr, "ldmd: cannot listen on %s:%u: %s\n", ip, a->port,
            errno == EADDRINUSE ? "address already in use; end the program that uses it or choose "
                                  "another port with -P"
                                : strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

#define STATUS_NS NS_PER_S

/* Reports what `systemctl status` shows. Returns when to call this again at the latest. */
static uint64_t tell_status(struct notify *n, const struct children *c, uint64_t now)
{
    static struct children_count told = {UINT_MAX, UINT_MAX};
    static uint64_t due_ns;
    struct children_count is = children_count(c);
    char text[160];

    if (n->fd < 0 || (is.clients == told.clients && is.entries == told.entries))
        return LOOP_FOREVER;
    if (now < due_ns)
        return due_ns;
    snprintf(text, sizeof text,
             "STATUS=Connections: %u, processes of entries: %u, refused: %" PRIu64, is.clients,
             is.entries, children_refused(c));
    notify_say(n, text);
    told = is;
    due_ns = now + STATUS_NS;
    return LOOP_FOREVER;
}

/* Programs that rotate the log, and people who want more detail, know only the top process. */
static void pass_signals_on(struct loop *loop, struct children *children)
{
    if (loop->got_hup)
        children_signal(children, SIGHUP);
    if (loop->got_usr2)
        children_signal(children, SIGUSR2);
    if (loop->got_usr1)
        children_signal(children, SIGUSR1);
    loop->got_hup = loop->got_usr2 = loop->got_usr1 = false;
}

static void show_counters(struct stats_page *page, const struct children *c)
{
    struct children_count is = children_count(c);

    if (page)
        counters_put_ldmd(page, &(struct ldmd_counters){.connections = is.clients,
                                                        .entries = is.entries,
                                                        .refused = children_refused(c),
                                                        .failures = children_failures(c)});
}

static void serve(struct loop *loop, struct children *children, struct acceptor *acceptor,
                  struct notify *manager, struct stats_page *page)
{
    children_start(children, now_ns());
    notify_say(manager, "READY=1");
    while (!loop->stop) {
        uint64_t now = now_ns();
        uint64_t next[] = {children_tend(children, now), acceptor_tend(acceptor, now),
                           tell_status(manager, children, now), notify_tend(manager, now)};
        uint64_t first = next[0];

        for (unsigned i = 1; i < sizeof next / sizeof next[0]; i++)
            first = next[i] < first ? next[i] : first;
        show_counters(page, children);
        loop->got_chld = false;
        loop_once(loop, first);
        pass_signals_on(loop, children);
    }
    log_note("Terminating");
    notify_say(manager, "STOPPING=1");
}

static void forget_manager(void *ctx)
{
    notify_close(ctx);
}

static int run(const struct options *opt, int listen_fd, const struct arguments *a)
{
    struct places_limits limits = {.clients = a->max_clients,
                                   .per_address = a->max_per_address,
                                   .unknown = (a->max_clients + 3) / 4};
    struct children *children = NULL;
    struct acceptor *acceptor = NULL;

    struct loop loop;
    if (log_peer_share() < 0 || loop_open(&loop) < 0) {
        log_error("cannot start: %s", strerror(errno));
        return 1;
    }
    lane_sweep(opt);
    children = children_new(opt, listen_fd, limits, &loop);
    acceptor = !children ? NULL : acceptor_open(&loop, listen_fd, children);
    if (!acceptor) {
        log_error("cannot start: %s", strerror(errno));
        loop_close(&loop);
        return 1;
    }
    struct notify manager;
    notify_open(&manager, now_ns());
    children_on_fork(children, forget_manager, &manager);
    counters_sweep(opt);
    struct stats_page *page = counters_ldmd(opt, a->port);
    serve(&loop, children, acceptor, &manager, page);
    stats_close(page);
    acceptor_close(acceptor);
    close(listen_fd);
    children_end(children);
    log_peer_rest(true);
    notify_close(&manager);
    loop_close(&loop);
    return 0;
}

/* The original process prints the daemon's PID and returns 0 with *is_daemon false. */
static int become_daemon(bool *is_daemon)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "ldmd: cannot fork: %s\n", strerror(errno));
        return 1;
    }
    *is_daemon = pid == 0;
    if (pid > 0) {
        printf("%d\n", (int)pid);
        return 0;
    }
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(null);
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool is_daemon = true;

    log_init(argc, &argv);
    struct arguments a;
    int rc = parse_arguments(&a, argc, argv);
    if (rc < 0)
        rc = check_user(&a);
    if (rc >= 0)
        return rc;
    rc = 0;
    struct conf conf;
    if (conf_load(&conf, a.conf, stderr) < 0 || keys_load(&conf, stderr) < 0) {
        conf_free(&conf);
        return 2;
    }
    if (a.check) {
        printf("%s is valid\n", a.conf);
        conf_free(&conf);
        return 0;
    }
    struct options opt = {.queue = a.queue,
                          .conf = &conf,
                          .qlog = a.qlog,
                          .sandbox = conf.set.sandbox && !a.no_sandbox};
    int fd = open_listener(&a);
    char why[512];
    if (fd >= 0 && congestion_control_set(fd, conf.set.congestion_control, why, sizeof why) < 0) {
        fprintf(stderr, "ldmd: %s: ldm6.congestion_control: %s\n", a.conf, why);
        close(fd);
        fd = -1;
    }
    if (fd >= 0 && a.user && privileges_drop(a.user, why, sizeof why) < 0) {
        fprintf(stderr, "ldmd: --user: %s\n", why);
        close(fd);
        fd = -1;
    }
    if (fd < 0 || check_queue(a.queue) != 0) {
        conf_free(&conf);
        return 1;
    }
    dial_congestion_control(conf.set.congestion_control);
    if (!a.log || log_set_destination(a.log) < 0) {
        fprintf(stderr, "ldmd: cannot open log %s: %s\n", a.log, strerror(errno));
        return 1;
    }
    if (!a.foreground && strcmp(a.log, "-") != 0)
        rc = become_daemon(&is_daemon);
    if (rc == 0 && is_daemon) {
        log_note("Starting Up(" DOWNPOUR_VERSION "): port=%u, pq=\"%s\", conf=\"%s\"", a.port,
                 a.queue, a.conf);
        confine_report(&opt);
        rc = run(&opt, fd, &a);
        log_note("Exiting");
    }
    conf_free(&conf);
    return rc;
}

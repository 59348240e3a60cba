/* SPDX-License-Identifier: Apache-2.0
 *
 * wire-relay: carries the frames of delayed links from interface to interface, holding each for its
 * link's delay. The configuration file is described in config.h.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "file_limit.h"
#include "line.h"
#include "port.h"
#include "report.h"

static volatile sig_atomic_t stop_asked;
static volatile sig_atomic_t report_asked;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        report_asked = 1;
    else
        stop_asked = 1;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    enum { LIMIT = 1 << 20 };
    char *text = malloc(LIMIT + 1);
    size_t n = text ? fread(text, 1, LIMIT, file) : 0;
    if (text)
        text[n] = '\0';
    fclose(file);
    return text;
}

static bool ask_fifo(int priority)
{
    if (priority == 0)
        return false;
    struct sched_param parameter = {.sched_priority = priority};
    return sched_setscheduler(0, SCHED_FIFO, &parameter) == 0;
}

/* The open wires of one configuration. */
struct relay {
    struct config config;
    struct port *ports; /* n_lines of each; the first `opened` are open */
    struct line *lines;
    struct pollfd *watched;
    size_t opened;
    int tx;
    unsigned sequence; /* of the last report */
};

static int save_stats(struct relay *r)
{
    for (size_t i = 0; i < r->config.n_lines; i++)
        port_collect_drops(&r->ports[i], &r->lines[i]);
    if (report_stats(&r->config, r->lines, ++r->sequence, (double)now_ns() / 1e9) == 0)
        return 0;
    fprintf(stderr, "wire-relay: %s: %s\n", r->config.stats, strerror(errno));
    return -1;
}

static int run(struct relay *r, const sigset_t *while_waiting)
{
    size_t n = r->config.n_lines;
    while (!stop_asked) {
        int64_t wake = now_ns();
        for (size_t i = 0; i < n; i++)
            port_serve(&r->ports[i], &r->lines[i], now_ns());
        if (report_asked) {
            report_asked = 0;
            (void)save_stats(r);
        }
        int64_t now = now_ns();
        int64_t next = lines_next_wake(r->lines, n, now, wake, r->config.gap_us * 1000);
        bool any_waiting = next != INT64_MAX;
        nfds_t n_watched = 0;
        for (size_t i = 0; i < n; i++)
            if (line_is_watched(&r->lines[i], any_waiting))
                r->watched[n_watched++] =
                    (struct pollfd){.fd = r->ports[i].ring.fd, .events = POLLIN};
        int64_t rest = any_waiting ? (next > now ? next - now : 0) : 0;
        struct timespec timeout = {.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
        if (ppoll(r->watched, n_watched, any_waiting ? &timeout : NULL, while_waiting) < 0 &&
            errno != EINTR) {
            fprintf(stderr, "wire-relay: poll: %s\n", strerror(errno));
            return 1;
        }
        for (nfds_t i = 0; i < n_watched; i++)
            if (r->watched[i].revents & POLLERR)
                port_clear_error(r->watched[i].fd);
    }
    return save_stats(r) == 0 ? 0 : 1;
}

/* Lets signals arrive only while waiting, so that a report never covers a half-served line. */
static void catch_signals(sigset_t *while_waiting)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
    enum { SIGNALS = sizeof signals / sizeof *signals };
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < SIGNALS; i++)
        sigaddset(&blocked, signals[i]);
    sigprocmask(SIG_BLOCK, &blocked, while_waiting);
    for (size_t i = 0; i < SIGNALS; i++) {
        sigdelset(while_waiting, signals[i]);
        sigaction(signals[i], &action, NULL);
    }
}

/* Reads the configuration; -1 after a message. */
static int load(struct config *config, const char *path)
{
    char *text = read_file(path);
    if (!text) {
        fprintf(stderr, "wire-relay: %s: %s\n", path, strerror(errno));
        return -1;
    }
    char error[512];
    int rc = config_parse(config, path, text, error, sizeof error);
    free(text);
    if (rc != 0)
        fprintf(stderr, "wire-relay: %s\n", error);
    return rc;
}

/* Opens both ends of every line. Returns -1 after a message; close_relay() then closes what is
 * open. */
static int open_relay(struct relay *r)
{
    size_t n = r->config.n_lines;
    r->ports = calloc(n, sizeof *r->ports);
    r->lines = calloc(n, sizeof *r->lines);
    r->watched = calloc(n, sizeof *r->watched);
    if (!r->ports || !r->lines || !r->watched) {
        fprintf(stderr, "wire-relay: out of memory\n");
        return -1;
    }
    char error[512];
    r->tx = port_open_sender(error, sizeof error);
    if (r->tx < 0) {
        fprintf(stderr, "wire-relay: %s\n", error);
        return -1;
    }
    for (; r->opened < n; r->opened++) {
        struct config_line *c = &r->config.lines[r->opened];
        struct port *port = &r->ports[r->opened];
        line_init(&r->lines[r->opened], c->delay_us * 1000, c->jitter_us * 1000, c->loss, c->seed);
        if (port_open(port, c->in, c->out, r->tx, &c->slots, error, sizeof error) != 0) {
            fprintf(stderr, "wire-relay: line %s %s: %s\n", c->link, c->direction, error);
            port_close(port);
            return -1;
        }
    }
    return 0;
}

static void close_relay(struct relay *r)
{
    for (size_t i = 0; i < r->opened; i++)
        port_close(&r->ports[i]);
    if (r->tx >= 0)
        close(r->tx);
    free(r->watched);
    free(r->lines);
    free(r->ports);
    config_free(&r->config);
}

static int serve(struct relay *r, const sigset_t *while_waiting)
{
    if (open_relay(r) < 0)
        return 1;
    bool fifo = ask_fifo(r->config.priority);
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    if (report_ready(&r->config, r->lines, fifo) != 0) {
        fprintf(stderr, "wire-relay: %s: %s\n", r->config.ready, strerror(errno));
        return 1;
    }
    return run(r, while_waiting);
}

int main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '-') {
        bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr,
                "usage: wire-relay CONFIG\n"
                "Delays the frames of emulated links. SIGUSR1 writes the statistics file, SIGTERM "
                "writes it and terminates.\n");
        return help ? 0 : 2;
    }
    struct relay relay = {.tx = -1};
    if (load(&relay.config, argv[1]) != 0)
        return 2;
    sigset_t while_waiting;
    catch_signals(&while_waiting);
    file_limit_set(CONFIG_MAX_LINES + 64);
    int rc = serve(&relay, &while_waiting);
    close_relay(&relay);
    return rc;
}

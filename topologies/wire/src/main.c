/* SPDX-License-Identifier: Apache-2.0
 *
 * wire-relay: carries the frames of delayed links from interface to interface, holding each for
 * its link's delay. See config.h for the configuration file.
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
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
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

static int save_stats(const struct config *config, const struct port *ports, struct line *lines,
                      unsigned *sequence)
{
    for (size_t i = 0; i < config->n_lines; i++)
        port_collect_drops(&ports[i], &lines[i]);
    if (report_stats(config, lines, ++*sequence, (double)now_ns() / 1e9) == 0)
        return 0;
    fprintf(stderr, "wire-relay: %s: %s\n", config->stats, strerror(errno));
    return -1;
}

static int run(const struct config *config, struct port *ports, struct line *lines,
               struct pollfd *watched, const sigset_t *while_waiting)
{
    unsigned sequence = 0;
    size_t n = config->n_lines;
    while (!stop_asked) {
        int64_t wake = now_ns();
        for (size_t i = 0; i < n; i++)
            port_serve(&ports[i], &lines[i], now_ns());
        if (report_asked) {
            report_asked = 0;
            (void)save_stats(config, ports, lines, &sequence);
        }
        int64_t now = now_ns();
        int64_t next = lines_next_wake(lines, n, now, wake, config->gap_us * 1000);
        bool any_waiting = next != INT64_MAX;
        nfds_t n_watched = 0;
        for (size_t i = 0; i < n; i++)
            if (line_is_watched(&lines[i], any_waiting))
                watched[n_watched++] = (struct pollfd){.fd = ports[i].rx, .events = POLLIN};
        int64_t rest = any_waiting ? (next > now ? next - now : 0) : 0;
        struct timespec timeout = {.tv_sec = rest / 1000000000, .tv_nsec = rest % 1000000000};
        if (ppoll(watched, n_watched, any_waiting ? &timeout : NULL, while_waiting) < 0 &&
            errno != EINTR) {
            fprintf(stderr, "wire-relay: poll: %s\n", strerror(errno));
            return 1;
        }
        for (nfds_t i = 0; i < n_watched; i++)
            if (watched[i].revents & POLLERR)
                port_clear_error(watched[i].fd);
    }
    return save_stats(config, ports, lines, &sequence) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 2 || argv[1][0] == '-') {
        bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr,
                "usage: wire-relay CONFIG\n"
                "Holds the frames of delayed links. SIGUSR1 writes the statistics file, SIGTERM "
                "writes it and ends.\n");
        return help ? 0 : 2;
    }
    char *text = read_file(argv[1]);
    if (!text) {
        fprintf(stderr, "wire-relay: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    char error[512];
    struct config config;
    int rc = config_parse(&config, argv[1], text, error, sizeof error);
    free(text);
    if (rc != 0) {
        fprintf(stderr, "wire-relay: %s\n", error);
        return 2;
    }

    /* Signals arrive only while waiting, so that a report never sees a half-served line. */
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGUSR1);
    sigset_t while_waiting;
    sigprocmask(SIG_BLOCK, &blocked, &while_waiting);
    sigdelset(&while_waiting, SIGTERM);
    sigdelset(&while_waiting, SIGINT);
    sigdelset(&while_waiting, SIGUSR1);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);

    struct rlimit files = {.rlim_cur = CONFIG_MAX_LINES + 64, .rlim_max = CONFIG_MAX_LINES + 64};
    struct rlimit now_allowed;
    if (getrlimit(RLIMIT_NOFILE, &now_allowed) == 0 && now_allowed.rlim_cur < files.rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, &files);

    struct port *ports = calloc(config.n_lines, sizeof *ports);
    struct line *lines = calloc(config.n_lines, sizeof *lines);
    struct pollfd *watched = calloc(config.n_lines, sizeof *watched);
    size_t opened = 0;
    int tx = -1;
    rc = 1;
    if (!ports || !lines || !watched) {
        fprintf(stderr, "wire-relay: out of memory\n");
        goto cleanup;
    }
    tx = port_open_sender(error, sizeof error);
    if (tx < 0) {
        fprintf(stderr, "wire-relay: %s\n", error);
        goto cleanup;
    }
    for (; opened < config.n_lines; opened++) {
        struct config_line *c = &config.lines[opened];
        line_init(&lines[opened], c->delay_us * 1000, c->jitter_us * 1000, c->loss, c->seed);
        if (port_open(&ports[opened], c->in, c->out, tx, &c->slots, error, sizeof error) != 0) {
            fprintf(stderr, "wire-relay: line %s %s: %s\n", c->link, c->direction, error);
            port_close(&ports[opened]);
            goto cleanup;
        }
    }
    bool fifo = ask_fifo(config.priority);
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    if (report_ready(&config, lines, fifo) != 0) {
        fprintf(stderr, "wire-relay: %s: %s\n", config.ready, strerror(errno));
        goto cleanup;
    }
    rc = run(&config, ports, lines, watched, &while_waiting);
cleanup:
    for (size_t i = 0; i < opened; i++)
        port_close(&ports[i]);
    if (tx >= 0)
        close(tx);
    free(watched);
    free(lines);
    free(ports);
    config_free(&config);
    return rc;
}

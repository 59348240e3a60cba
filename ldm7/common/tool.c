/* SPDX-License-Identifier: Apache-2.0 */
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "feedtype.h"
#include "log.h"

#ifndef DOWNPOUR_VERSION
#define DOWNPOUR_VERSION "unknown"
#endif

volatile int tool_stop;

const char *tool_version(void)
{
    return DOWNPOUR_VERSION;
}

void tool_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", log_prog());
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry '%s --help'.\n", log_prog());
    exit(TOOL_USAGE);
}

void tool_option(int option, const char *help)
{
    switch (option) {
    case 'h': printf("%s", help); exit(fflush(stdout) ? TOOL_SYSTEM : TOOL_OK);
    case TOOL_VERSION:
        printf("%s (Downpour) %s\n", log_prog(), DOWNPOUR_VERSION);
        exit(fflush(stdout) ? TOOL_SYSTEM : TOOL_OK);
    case 'v': log_set_level(LOG_LVL_INFO); return;
    case 'x': log_set_level(LOG_LVL_DEBUG); return;
    case 'l':
        if (log_set_destination(optarg) != 0)
            tool_usage("--log: \"%s\" cannot be opened: %s", optarg, strerror(errno));
        return;
    case TOOL_LOG_FORMAT:
        if (!log_set_format(optarg))
            tool_usage("--log-format: found \"%s\"; valid: text, json", optarg);
        return;
    default: /* getopt_long() has already printed which one */
        fprintf(stderr, "Try '%s --help'.\n", log_prog());
        exit(TOOL_USAGE);
    }
}

uint64_t tool_u64(const char *what, const char *text, uint64_t min, uint64_t max)
{
    errno = 0;
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n < min || n > max)
        tool_usage("%s: found \"%s\"; valid: a whole number from %llu to %llu", what, text,
                   (unsigned long long)min, (unsigned long long)max);
    return n;
}

double tool_real(const char *what, const char *text, double min, double max)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !isfinite(x) || x < min || x > max)
        tool_usage("%s: found \"%s\"; valid: a number from %g to %g", what, text, min, max);
    return x;
}

uint64_t tool_bytes(const char *what, const char *text, uint64_t max)
{
    uint64_t unit = 1;
    errno = 0;
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    bool bad = *text < '0' || *text > '9' || errno;
    if (*end && !bad) {
        unit = strchr("kK", *end)   ? 1000
               : strchr("mM", *end) ? 1000000
               : strchr("gG", *end) ? 1000000000
                                    : 0;
        bad = !unit || end[1];
    }
    if (bad || n == 0 || n > max / unit)
        tool_usage(
            "%s: found \"%s\"; valid: bytes from 1 to %llu, a whole number, then k, m, g or nothing",
            what, text, (unsigned long long)max);
    return n * unit;
}

uint32_t tool_feed(const char *text)
{
    char err[300];
    uint32_t feed;
    if (!feedtype_parse(text, &feed, err, sizeof err))
        tool_usage("%s", err);
    return feed;
}

struct pq *tool_open(const char *path, bool writable)
{
    if (!path)
        tool_usage("-q QUEUE is missing");
    struct pq *q;
    enum pq_status s = pq_open(path, writable, &q);
    if (!s)
        return q;
    bool input = s == PQ_CORRUPT ||
                 (s == PQ_SYSTEM && (errno == ENOENT || errno == ENOTDIR || errno == EISDIR));
    log_error("Product queue \"%s\" cannot be opened: %s%s", path, pq_strerror(s),
              s == PQ_SYSTEM && errno == ENOENT ? " (pqcreate makes one)" : "");
    exit(input ? TOOL_USAGE : TOOL_SYSTEM);
}

static void note_signal(int signal)
{
    tool_stop = signal;
}

void tool_catch_signals(void)
{
    struct sigaction sa = {.sa_handler = note_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

void tool_wait(int fd, double seconds)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigset_t before;
    sigprocmask(SIG_BLOCK, &stop, &before);
    if (!tool_stop)
        ppoll(&p, fd >= 0, seconds < 0 ? NULL : &limit, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command-line programs share: exit codes, --help, --version, -v -x -l --log-format,
 * numbers with their messages. On a user's mistake these print one line and end the program with
 * TOOL_USAGE.
 */
#ifndef LDM_TOOL_H
#define LDM_TOOL_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "queue/pq.h"

enum { TOOL_OK = 0, TOOL_SYSTEM = 1, TOOL_USAGE = 2, TOOL_DUPLICATE = 4 };

/* Long-only options every tool has; a tool's own begin at TOOL_OWN. */
enum { TOOL_HELP = 1000, TOOL_VERSION, TOOL_LOG_FORMAT, TOOL_OWN };
#define TOOL_SHORT "hvxl:"
/* clang-format off */
#define TOOL_LONG                                                                                  \
    {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, TOOL_VERSION},                \
    {"verbose", no_argument, NULL, 'v'}, {"debug", no_argument, NULL, 'x'},                        \
    {"log", required_argument, NULL, 'l'}, {"log-format", required_argument, NULL, TOOL_LOG_FORMAT}
/* clang-format on */
#define TOOL_HELP_TEXT                                                                           \
    "  -l, --log DEST         log to DEST: - standard error (default), '' syslog, else a file\n" \
    "      --log-format FORM  text (default) or json\n"                                          \
    "  -v, --verbose          also log each product;  -x, --debug: everything\n"                 \
    "  -h, --help             this text;  --version: the version\n"

/* The version of this build. */
const char *tool_version(void);
/* Handles an option of TOOL_SHORT/TOOL_LONG, or ends with the message for an unknown one. */
void tool_option(int option, const char *help);
/* "PROG: message" and "Try 'PROG --help'." on standard error; ends with TOOL_USAGE. */
_Noreturn void tool_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Numbers; `what` is the option as the user knows it. */
uint64_t tool_u64(const char *what, const char *text, uint64_t min, uint64_t max);
/* A number from min to max. */
double tool_real(const char *what, const char *text, double min, double max);
/* Bytes with suffix k, m, g (decimal: 1000, 10^6, 10^9, as pqcreate of LDM). */
uint64_t tool_bytes(const char *what, const char *text, uint64_t max);
/* A feed type expression (feedtype.h) as bits. */
uint32_t tool_feed(const char *text);
/* Opens the queue, or logs why not and exits: TOOL_USAGE if there is no such queue, else SYSTEM. */
struct pq *tool_open(const char *path, bool writable);

/* SIGINT and SIGTERM set *tool_stop to the signal's number; blocked calls return EINTR. */
extern volatile int tool_stop;
/* From now on these signals set tool_stop. */
void tool_catch_signals(void);
/* Until fd (-1: none) is readable, the time is over (seconds < 0: never) or tool_stop is set, also
 * by a signal that comes just before. */
void tool_wait(int fd, double seconds);

#endif

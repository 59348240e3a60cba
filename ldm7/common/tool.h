/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command-line programs share: exit codes, --help, --version, -v -x -l --log-format,
 * numbers with their messages. On a usage error they print one line and end the program with
 * TOOL_USAGE.
 */
#ifndef LDM_TOOL_H
#define LDM_TOOL_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "queue/pq.h"

enum { TOOL_OK = 0, TOOL_SYSTEM = 1, TOOL_USAGE = 2, TOOL_DUPLICATE = 4 };

/* Long options that every tool has; a tool's own begin at TOOL_OWN. */
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

/* Returns the version of this build. */
const char *tool_version(void);
/* Handles an option of TOOL_SHORT/TOOL_LONG, or ends with a message about an unknown one. */
void tool_option(int option, const char *help);
/* Prints "PROG: message" and "Try 'PROG --help'." on standard error; ends with TOOL_USAGE. */
_Noreturn void tool_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Parse numbers; `what` is the option as the user knows it. */
uint64_t tool_u64(const char *what, const char *text, uint64_t min, uint64_t max);
/* A number from min to max. */
double tool_real(const char *what, const char *text, double min, double max);
/* Parses bytes with suffix k, m, g (decimal: 1000, 10^6, 10^9, as in LDM's pqcreate). */
uint64_t tool_bytes(const char *what, const char *text, uint64_t max);
/* Parses a feed type expression (feedtype.h) to bits. */
uint32_t tool_feed(const char *text);
/* Opens the queue; on failure logs why and exits: TOOL_USAGE if there is no such queue, else
 * SYSTEM. */
struct pq *tool_open(const char *path, bool writable);

/* SIGINT and SIGTERM set tool_stop to the signal's number; blocked calls return EINTR. */
extern volatile int tool_stop;
/* From now on these signals set tool_stop. */
void tool_catch_signals(void);
/* Waits until fd (-1: none) is readable, the time is over (seconds < 0: never) or tool_stop is set,
 * including by a signal that arrives just before. */
void tool_wait(int fd, double seconds);

#endif

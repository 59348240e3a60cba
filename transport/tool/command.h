/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command-line programs of transports share: options and their values, messages, memory,
 * signals. A function that finds a bad value quotes it, says what would be valid, and exits with
 * code 2.
 */
#ifndef TRANSPORT_TOOL_COMMAND_H
#define TRANSPORT_TOOL_COMMAND_H

#include <getopt.h>
#include <stddef.h>

#include "net/address.h"

enum { EXIT_USAGE = 2 };

extern const char *program;

void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));       /* 1 */
void die_usage(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn)); /* 2 */

/* Returns memory, zeroed if new; without any, the program ends with exit code 1 and a message
 * (docs/develop/c-style.md). The caller frees it. */
void *xcalloc(size_t n, size_t bytes) __attribute__((malloc, returns_nonnull));
/* Resizes `old` to n elements; new elements are not initialized. */
void *xreallocarray(void *old, size_t n, size_t bytes);
/* Returns a copy of the text. */
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));

/* Wraps getopt_long() for options without letters, each with its own value other than '?' and ':'.
 * An unknown option ends the program. */
int next_option(int argc, char **argv, const struct option *options);
/* Parses an address without port. */
struct sockaddr_storage parse_ip(const char *option, const char *text);
/* Parses a whole number between min and max, with an optional k, M or G (1000, 10^6, 10^9). */
uint64_t parse_number(const char *option, const char *text, uint64_t min, uint64_t max);

/* Ends the program with exit code 1 if something could not be written to standard output. */
void check_output(void);

double now_s(void); /* CLOCK_MONOTONIC */
/* SIGINT and SIGTERM set it after catch_signals(). */
extern volatile int stop_requested;
/* From now on SIGINT and SIGTERM set stop_requested. */
void catch_signals(void);
/* Overwrites the progress line on a terminal and does nothing elsewhere. Empty text removes the
 * line. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

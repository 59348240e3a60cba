/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command-line programs of transports share: options and their values, messages, memory,
 * signals. Every function that finds a bad value quotes it and what would be valid, and exits
 * with 2.
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

/* Memory, zeroed where it is new; without any the program ends with 1 and says so
 * (docs/develop/c-style.md). The caller frees. */
void *xcalloc(size_t n, size_t bytes) __attribute__((malloc, returns_nonnull));
/* `old` with room for n elements; what is new is not set. */
void *xreallocarray(void *old, size_t n, size_t bytes);
/* A copy of the text. */
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));

/* getopt_long() of options without letters, each with a value of its own other than '?' and ':';
 * what is none of them ends the program. */
int next_option(int argc, char **argv, const struct option *options);
/* An address without port. */
struct sockaddr_storage parse_ip(const char *option, const char *text);
/* Whole number between min and max, with an optional k, M or G (1000, 10^6, 10^9). */
uint64_t parse_number(const char *option, const char *text, uint64_t min, uint64_t max);

/* Ends the program with 1 if something on standard output was not written. */
void check_output(void);

double now_s(void); /* CLOCK_MONOTONIC */
/* Set by SIGINT and SIGTERM after catch_signals(). */
extern volatile int stop_requested;
/* From now on SIGINT and SIGTERM set stop_requested. */
void catch_signals(void);
/* Overwrites the progress line on a terminal; nothing elsewhere. Empty text removes it. */
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines of the benchmark programs: `NAME=VALUE` words, each required or with a default. A
 * wrong or unknown one ends the program with exit code 2 and one line that quotes it.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct option_word {
    const char *name;
    const char **text; /* exactly one of the three is set */
    uint64_t *number;
    struct sockaddr_in *endpoint; /* IP:PORT, or an IP alone with port 0 */
};

extern const char *program;

/* Prints one line on stderr and ends with exit code 1, or 2 for wrong usage. */
#define die(...) end_with(1, __VA_ARGS__)
#define die_usage(...) end_with(2, __VA_ARGS__)
#define end_with(code, ...)                                                               \
    (fprintf(stderr, "%s: ", program), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), \
     exit(code))

/* `words` ends with a NULL name; `from` is the first argument to read. */
void read_options(int argc, char **argv, int from, const struct option_word *words);

double now_s(void); /* CLOCK_MONOTONIC */

#endif

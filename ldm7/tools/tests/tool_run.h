/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the real programs, found in $PQ_TOOLS, in a directory that is removed after the tests.
 */
#ifndef TOOL_RUN_H
#define TOOL_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "matches.h"

enum { TOOL_TEXT_MAX = 1 << 16 };
extern char out[TOOL_TEXT_MAX], err[TOOL_TEXT_MAX]; /* of the last program run */

/* Runs "tool arguments" (a line of the shell) in the test's directory; returns its exit code. */
int run(const char *cmd);
pid_t start(const char *cmd);
int finish(pid_t pid);
void write_file(const char *name, const char *text);
void slurp(const char *name, char *text, size_t room);
/* "queue", of 1000000 bytes (1003520 usable) and 10 slots, empty. */
void fresh_queue(void);
int run_tool_tests(const char *group, const struct CMUnitTest *tests, size_t count);

#endif

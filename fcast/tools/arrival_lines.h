/* SPDX-License-Identifier: Apache-2.0
 *
 * A program's files as lines: on standard output those that are here, on standard error trouble.
 */
#ifndef FCAST_TOOLS_ARRIVAL_LINES_H
#define FCAST_TOOLS_ARRIVAL_LINES_H

#include "arrival.h"

/* Opens the directory, or ends the program. */
void arrival_lines_open(struct arrival *a, const char *dir_path, uint64_t max_bytes);

#endif

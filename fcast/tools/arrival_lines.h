/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports a program's files in lines: complete files on standard output, problems on standard
 * error.
 */
#ifndef FCAST_TOOLS_ARRIVAL_LINES_H
#define FCAST_TOOLS_ARRIVAL_LINES_H

#include "arrival.h"

/* Opens the directory, or ends the program. */
void arrival_lines_open(struct arrival *a, const char *dir_path, uint64_t max_bytes);

#endif

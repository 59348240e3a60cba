/* SPDX-License-Identifier: Apache-2.0
 *
 * The relay's two JSON files, written under a temporary name and renamed. Each returns 0 or -1
 * with errno set.
 */
#ifndef WIRE_REPORT_H
#define WIRE_REPORT_H

#include <stdbool.h>

#include "config.h"
#include "line.h"

/* Writes the accepted configuration with the values that the lines really use. */
int report_ready(const struct config *config, const struct line *lines, bool fifo_granted);

/* `sequence` counts the reports of this process; `time_s` is in seconds since 1970. */
int report_stats(const struct config *config, const struct line *lines, unsigned sequence,
                 double time_s);

#endif

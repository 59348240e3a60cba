/* SPDX-License-Identifier: Apache-2.0
 *
 * fmtp-send's counters: the sum over its feeds, and the line at its end.
 */
#ifndef FMTP_TOOLS_STATS_H
#define FMTP_TOOLS_STATS_H

#include <stdbool.h>

#include "fmtp.h"

/* Adds a feed's counters to the total. */
void stats_add(struct fmtp_server_stats *all, const struct fmtp_server_stats *s);
/* Prints the line on standard output. */
void stats_print(const struct fmtp_server_stats *s, double seconds, bool ok);

#endif

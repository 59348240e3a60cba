/* SPDX-License-Identifier: Apache-2.0
 *
 * The multipoint paths of a publisher, according to its ldmd's log (DRFSM21 3.1: a publisher sends
 * the rate of each feed's path). A path's record has 6 fields, separated by commas: timestamp,
 * host, feedtype, path, rate (bit/s), leaves. timestamp: the end of the minute.
 */
#ifndef RTSTATS_PATHS_H
#define RTSTATS_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/feedtype.h"

#define PATHS_MAX 256u
#define PATH_NAME_MAX 128
#define PATH_LINE_MAX 1024

/* The path of one mldm. */
struct feed_path {
    long pid;
    char feed[FEEDTYPE_TEXT_MAX], name[PATH_NAME_MAX];
    uint64_t rate_bps, leaves;
    bool ready;
};
struct paths {
    struct feed_path list[PATHS_MAX];
    size_t n;
};

/* Takes a line of the text format by mldm; ignores other lines. */
void paths_take(struct paths *p, const char *line);
/* Formats the record of a path that is ready, with a newline; returns out. */
char *path_format(const struct feed_path *path, time_t end, const char *host,
                  char out[PATH_LINE_MAX]);

#endif

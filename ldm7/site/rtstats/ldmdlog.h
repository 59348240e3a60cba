/* SPDX-License-Identifier: Apache-2.0
 *
 * ldmd's log as a source of arrivals: only the log says what arrived by FMTP and what by the
 * backstop.
 */
#ifndef RTSTATS_LDMDLOG_H
#define RTSTATS_LDMDLOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/types.h>

/* Returns the message of `program` in a line of the text format, and its time; NULL if another
 * program wrote the line. */
const char *ldmdlog_message(const char *line, const char *program, struct timeval *at, long *pid);

struct arrival {
    struct timeval at, creation;
    uint32_t feed, bytes;
    bool by_fmtp;     /* Received; else Inserted (backstop) */
    int64_t delay_us; /* from the BOP's timestamp to completion; only by FMTP */
    uint32_t retrans; /* blocks sent again; only by FMTP */
};
/* Parses a line of the text format by down7, `Received: {..., info: "<product>"}` or `Inserted:
 * <product>`. */
bool ldmdlog_arrival(const char *line, struct arrival *out);

/* Follows a log file as it grows and is rotated. */
struct ldmdlog {
    const char *path;
    FILE *file;
    ino_t inode;
    char line[8192];
    size_t used;
};
/* Starts at the file's beginning. Returns 0, or -1 with errno. */
int ldmdlog_open(struct ldmdlog *l, const char *path);
/* Returns the next whole line; NULL if there is none yet. */
const char *ldmdlog_line(struct ldmdlog *l);
/* Closes the file. */
void ldmdlog_close(struct ldmdlog *l);

#endif

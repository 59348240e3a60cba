/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that fmtp-send sends. Each is mapped while feeds need it, and watched: one that
 * changes, shrinks or cannot be read no longer matches what receivers were told.
 */
#ifndef FMTP_TOOLS_SOURCE_H
#define FMTP_TOOLS_SOURCE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common.h"

struct source {
    struct source *next_open; /* next one that is mapped */
    char *path;
    const char *name; /* last component of the path */
    void *data;
    size_t size;
    unsigned users; /* feeds that still need it */
    int fd;         /* while it is mapped; else -1 */
    struct timespec modified;
    volatile sig_atomic_t cut; /* part of its content is gone: SIGBUS */
    bool changed;              /* it changed, and that was reported */
    bool unreadable;           /* when it was due to be sent */
    uint32_t indices[FEEDS_MAX];
};

/* Makes a file of that path, not yet mapped. Ends the program with exit code 2 if it cannot be
 * sent. */
struct source *source_new(const char *path);
/* Maps it for that many users, or says why not and sets `unreadable`. */
void source_open(struct source *s, unsigned users);
/* Returns whether it is still what was mapped. Reports it once if not. */
bool source_is_intact(struct source *s);
/* A user no longer needs it; the last one frees it. */
void source_leave(struct source *s);
/* Frees one that was never opened or is no longer needed. */
void source_free(struct source *s);

/* Returns the first mapped file; next_open links the others. */
struct source *source_first_open(void);
/* Returns whether any file lost content since the last call. */
bool source_any_cut(void);
/* From now on a mapped file that loses its content does not end the program. */
void source_catch_bus_errors(void);

#endif

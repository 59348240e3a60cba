/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that fmtp-send sends. Each is mapped while feeds need it, and watched: one that
 * changes, shrinks or cannot be read is no longer what receivers were told.
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
    struct source *next_open; /* of those that are mapped */
    char *path;
    const char *name; /* its last component */
    void *data;
    size_t size;
    unsigned users; /* feeds that still need it */
    int fd;         /* while it is mapped; else -1 */
    struct timespec modified;
    volatile sig_atomic_t cut; /* bytes of it are gone: SIGBUS */
    bool changed;              /* told */
    bool unreadable;           /* when its turn came */
    uint32_t indices[FEEDS_MAX];
};

/* A file of that path, not yet mapped. Ends the program with 2 if it cannot be sent. */
struct source *source_new(const char *path);
/* Maps it for that many users, or says why not and sets `unreadable`. */
void source_open(struct source *s, unsigned users);
/* True if it is still what was mapped. Reports once if not. */
bool source_is_intact(struct source *s);
/* A user needs it no more; the last one frees it. */
void source_leave(struct source *s);
/* Frees one that was never opened or is needed no more. */
void source_free(struct source *s);

/* The first of those that are mapped; next_open has the others. */
struct source *source_first_open(void);
/* True if the content of any is gone since the last call. */
bool source_any_cut(void);
/* From now on a mapped file that loses its content does not end the program. */
void source_catch_bus_errors(void);

#endif

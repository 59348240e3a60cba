/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns objects into files: what a receiver's core needs from the program around it. Prints
 * nothing.
 */
#ifndef FCAST_TOOLS_ARRIVAL_H
#define FCAST_TOOLS_ARRIVAL_H

#include "datadir.h"
#include "net/error.h"
#include "place.h"

enum { AGE = 300, AGE_MAX = 1 << 30 }; /* seconds, for datagrams with a MAC */

/* A complete file. */
struct arrival_file {
    uint64_t toi, bytes;
    const char *name;
    bool has_digest; /* and the data match it */
    double seconds;  /* since begun_ns */
    struct fcast_receiver_stats stats;
};

/* What it reports to the caller. */
struct arrival_news {
    void *ctx;
    void (*began)(void *ctx, uint64_t toi, uint64_t bytes); /* of the object; may be NULL */
    void (*file)(void *ctx, const struct arrival_file *file);
    void (*trouble)(void *ctx, const char *text); /* a line for people; the program continues */
};

struct arrival {
    struct arrival_news news;    /* set by the caller before opening */
    uint64_t max_unpacked_bytes; /* limit of a gzip-encoded file; likewise */
    const char *dir_path;
    struct datadir dir;
    struct places places;
    struct log_limit *log;
    struct fcast_receiver *core; /* set by the caller */
    uint64_t now_ns, begun_ns;   /* likewise */
    uint64_t stale;              /* number already reported */
    uint64_t bytes;              /* of all complete files */
    struct fcast_fti fti;        /* of the object that began last */
    uint64_t max_bytes;          /* of all incomplete files */
    bool has_session;
    uint64_t source, tsi; /* of the object that began last */
};

enum arrival_opened {
    ARRIVAL_OPEN,
    ARRIVAL_NO_DIRECTORY, /* dir_path cannot be used */
    ARRIVAL_FAILED
};
/* Opens the directory and removes what an earlier process left unfinished; on failure sets *err. */
enum arrival_opened arrival_open(struct arrival *a, const char *dir_path, uint64_t max_bytes,
                                 struct tp_error *err);
/* Sets the receiver's callbacks. */
void arrival_serve(struct arrival *a, struct fcast_receiver_config *cfg);
/* Updates the time, and reports datagrams refused because of their age. */
void arrival_time(struct arrival *a);
/* is_complete: nothing of the session is left for another process. Call this after
 * fcast_receiver_free(). */
void arrival_close(struct arrival *a, bool is_complete);

#endif

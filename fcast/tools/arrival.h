/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects on their way to files: what a receiver's core asks of the program that it is in. Nothing
 * is printed here.
 */
#ifndef FCAST_TOOLS_ARRIVAL_H
#define FCAST_TOOLS_ARRIVAL_H

#include "datadir.h"
#include "net/error.h"
#include "place.h"

enum { AGE = 300, AGE_MAX = 1 << 30 }; /* seconds: of datagrams with a MAC */

/* A file that is here. */
struct arrival_file {
    uint64_t toi, bytes;
    const char *name;
    bool has_digest; /* which it has met */
    double seconds;  /* since begun_ns */
    struct fcast_receiver_stats stats;
};

/* What it reports to the caller. */
struct arrival_news {
    void *ctx;
    void (*began)(void *ctx, uint64_t toi, uint64_t bytes); /* of the object; may be NULL */
    void (*file)(void *ctx, const struct arrival_file *file);
    void (*trouble)(void *ctx, const char *text); /* a line for people; nothing ends by it */
};

struct arrival {
    struct arrival_news news;    /* set before */
    uint64_t max_unpacked_bytes; /* of a file that is sent as gzip; the same */
    const char *dir_path;
    struct datadir dir;
    struct places places;
    struct log_limit *log;
    struct fcast_receiver *core; /* set by the caller */
    uint64_t now_ns, begun_ns;   /* the same */
    uint64_t stale;              /* datagrams already reported */
    uint64_t bytes;              /* of the files that are here */
    struct fcast_fti fti;        /* of the object that began last */
    uint64_t max_bytes;          /* of all that is incomplete */
    bool has_session;
    uint64_t source, tsi; /* of the object that began last */
};

enum arrival_opened {
    ARRIVAL_OPEN,
    ARRIVAL_NO_DIRECTORY, /* dir_path cannot be used */
    ARRIVAL_FAILED
};
/* Opens the directory and removes what an earlier process left half made; otherwise *err. */
enum arrival_opened arrival_open(struct arrival *a, const char *dir_path, uint64_t max_bytes,
                                 struct tp_error *err);
/* Sets the receiver's functions. */
void arrival_serve(struct arrival *a, struct fcast_receiver_config *cfg);
/* Takes the time; says so if datagrams were refused by it. */
void arrival_time(struct arrival *a);
/* is_complete: nothing of the session waits for another process. After fcast_receiver_free(). */
void arrival_close(struct arrival *a, bool is_complete);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where fcast-recv keeps incomplete objects: three files each below DIR/.fcast. Another process can
 * continue with them.
 */
#ifndef FCAST_TOOLS_PLACE_H
#define FCAST_TOOLS_PLACE_H

#include <sys/types.h>

#include "disk.h"
#include "fcast.h"

/* --storage: in place, or enum fcast_scheme + 1. */
enum { STORAGE_IN_PLACE };

struct keeping {
    int storage;
    bool is_direct;
    uint32_t crowd;        /* blocks per write */
    uint64_t memory_bytes; /* for the schemes of 1999, all objects together */
    int rs_kind;
    bool has_header; /* objects begin with FCAST's header, which the file does not include */
};

struct places {
    int dir_fd;             /* DIR/.fcast */
    int error;              /* errno of the first failed write; 0: none */
    struct keeping keeping; /* set after places_open() */
    /* Read by the caller. */
    const char *why;                       /* of the last refusal; NULL: see errno */
    struct disk_counts receiving, sorting; /* while symbols arrive; when the object is complete */
    uint64_t peak_blocks;                  /* most blocks of an object in memory at a time */
    uint64_t memory_used, memory_peak;     /* bytes that the schemes may use: now, at most */
    struct gather *gather; /* in place, cached: for all objects; NULL: no object yet */
};

/* Opens the folder, creates it if necessary, and locks it. Returns -1 with errno: EWOULDBLOCK if
 * another process has it. */
int places_open(struct places *p, int dir_fd);
/* Removes the oldest parts until the rest takes at most this many bytes. */
void places_bound(struct places *p, uint64_t most_bytes);
/* Records which file below DIR this process is about to make of an object, so that the next process
 * can remove an unfinished one. Returns -1 with errno. */
int places_note_copy(struct places *p, const char *path);
/* The file is complete or has been removed. */
void places_forget_copy(struct places *p);
/* Returns the file that an earlier process left unfinished. false: there is none. */
bool places_left_copy(struct places *p, char *path, size_t room, pid_t *pid);
/* Implements `begin`: continues with what an earlier process stored. */
enum fcast_begin place_open(struct places *p, uint64_t source, uint64_t tsi, uint64_t toi,
                            const struct fcast_fti *fti, struct fcast_place *out);
/* Reads the object's bytes. Returns -1 with errno. */
int place_read(void *place, uint64_t at, void *bytes, size_t len);
/* Turns the object's bytes [at, at + bytes) into the file `name` in dir_fd without copying them,
 * with the mode of a new file. Returns false if the file holds other bytes too, or cannot be moved
 * there. */
bool place_move(void *place, uint64_t at, uint64_t bytes, int dir_fd, const char *name);
/* Returns whether place_move() could do so. */
bool place_may_move(void *place, uint64_t at, uint64_t bytes);
/* Closes the place. done: remembers that the object is complete; keep: leaves the files for another
 * process. */
void place_close(struct places *p, void *place, bool done, bool keep);
/* Call this when no place is open. */
void places_close(struct places *p);
/* The session is over: removes what is remembered about complete objects. */
void places_forget_done(struct places *p);

#endif

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
    uint32_t crowd;        /* blocks of a write */
    uint64_t memory_bytes; /* of the schemes of 1999, all objects */
    int rs_kind;
    bool has_header; /* objects begin with FCAST's header, which the file lacks */
};

struct places {
    int dir_fd;             /* DIR/.fcast */
    int error;              /* errno of the first write that failed; 0: none has */
    struct keeping keeping; /* set after places_open() */
    /* Read by the caller. */
    const char *why;                       /* of the last refusal; NULL: errno says it */
    struct disk_counts receiving, sorting; /* while symbols come; when all are here */
    uint64_t peak_blocks;                  /* in memory at a time, of an object */
    uint64_t memory_used, memory_peak;     /* bytes that the schemes may take: now, at most */
    struct gather *gather; /* in place, cached: of all objects; NULL: none has come */
};

/* Opens (makes) the folder and locks it. -1 with errno: EWOULDBLOCK if another process has it. */
int places_open(struct places *p, int dir_fd);
/* Removes the oldest parts until all take no more than that many bytes. */
void places_bound(struct places *p, uint64_t most_bytes);
/* Notes which file below DIR this process is about to make of an object: if it is killed, the next
 * one can remove what it began. -1 with errno. */
int places_note_copy(struct places *p, const char *path);
/* It is made, or has been removed. */
void places_forget_copy(struct places *p);
/* What a process began and did not end. false: there is none. */
bool places_left_copy(struct places *p, char *path, size_t room, pid_t *pid);
/* The answer to `begin`: continues with what is there of an earlier process. */
enum fcast_begin place_open(struct places *p, uint64_t source, uint64_t tsi, uint64_t toi,
                            const struct fcast_fti *fti, struct fcast_place *out);
/* The object's bytes. -1 with errno. */
int place_read(void *place, uint64_t at, void *bytes, size_t len);
/* The object's bytes [at, at + bytes) become the file `name` in dir_fd, without being copied; it
 * has the mode of a new file. false: the file holds other bytes too, or cannot be moved there. */
bool place_move(void *place, uint64_t at, uint64_t bytes, int dir_fd, const char *name);
/* True if place_move() could take them. */
bool place_may_move(void *place, uint64_t at, uint64_t bytes);
/* Closes it; done: remembers that the object is here; keep: leaves the files for another process.
 */
void place_close(struct places *p, void *place, bool done, bool keep);
/* Call it when no place is open. */
void places_close(struct places *p);
/* The session is over: removes what is remembered of objects that are here. */
void places_forget_done(struct places *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Where fcast-recv keeps objects that are not complete: below DIR/.fcast, three files each, which
 * another process can go on with.
 */
#ifndef FCAST_TOOLS_PLACE_H
#define FCAST_TOOLS_PLACE_H

#include "fcast.h"

struct places {
    int dir_fd; /* DIR/.fcast */
};

/* Opens (makes) the folder. -1 with errno. */
int places_open(struct places *p, int dir_fd);
/* The answer to `begin`: goes on with what is there of an earlier process. */
enum fcast_begin place_open(struct places *p, uint64_t source, uint64_t tsi, uint64_t toi,
                            const struct fcast_fti *fti, struct fcast_place *out);
/* The object's bytes. -1 with errno. */
int place_read(void *place, uint64_t at, void *bytes, size_t len);
/* Closes it; done: removes the files and remembers that the object is here; keep: leaves them. */
void place_close(struct places *p, void *place, bool done, bool keep);
/* The session is over: removes what is remembered of objects that are here. */
void places_forget_done(struct places *p);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that fmtp-recv receives: each under a temporary name until it is complete, and on a
 * disk that has promised its bytes.
 */
#ifndef FMTP_TOOLS_STORED_H
#define FMTP_TOOLS_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common.h"

struct store { /* the directory */
    int dir;
    uint64_t promised; /* bytes of files that have begun and are not reserved yet */
    uint64_t token;    /* in the names of temporary files */
};

struct stored { /* a file that is being received */
    struct stored *next;
    uint32_t index;
    size_t size, reserved; /* reserved: bytes of disk it has for sure */
    int fd;                /* until all is reserved, then -1 */
    void *data;
    double begun_s;
    char temporary[64], name[256];
};

/* Begins the file of that name (safe_name) and size. NULL if there is no place for it; standard
 * error says why. `feed` and `index` go into its temporary name. */
struct stored *stored_begin(struct store *store, int feed, uint32_t index, uint32_t size,
                            const void *meta, uint16_t meta_len);
/* Reserves its next bytes. false: there is no room (reported); what arrives would have no place. */
bool stored_reserve(struct store *store, struct stored *f);
/* Gives it its name; false if that fails (reported). The file stays open. */
bool stored_name(struct store *store, const struct stored *f);
/* Closes one that has its name. */
void stored_close(struct store *store, struct stored *f);
/* Removes one that has none. */
void stored_discard(struct store *store, struct stored *f);
/* Takes the file of that index out of a list; NULL if it is not there. */
struct stored *stored_take(struct stored **list, uint32_t index);

#endif

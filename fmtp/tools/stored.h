/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that fmtp-recv receives: each under a temporary name until it is complete. Bytes are
 * written, which takes a fresh page half the time of a page fault, and read by the mapping.
 */
#ifndef FMTP_TOOLS_STORED_H
#define FMTP_TOOLS_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common.h"

struct store { /* the directory */
    int dir;
    uint64_t promised; /* bytes of begun files that are not written yet */
    uint64_t token;    /* for the names of temporary files */
};

struct stored { /* a file that is being received */
    struct stored *next;
    uint32_t index;
    size_t size, written; /* bytes */
    int fd;
    bool failed; /* some bytes could not be written */
    const void *data;
    double begun_s;
    char temporary[64], name[256];
};

/* Begins the file of that name (safe_name) and size. Returns NULL if there is no space for it;
 * standard error says why. `feed` and `index` become part of its temporary name. */
struct stored *stored_begin(struct store *store, int feed, uint32_t index, uint32_t size,
                            const void *meta, uint16_t meta_len);
/* Writes the parts to its bytes from `at` on. Returns false if that fails (reported); it keeps
 * nothing more then. */
bool stored_write(struct store *store, struct stored *f, uint32_t at, const struct iovec *parts,
                  int nparts);
/* Renames it to its final name; returns false if that fails (reported). The file stays open. */
bool stored_name(struct store *store, const struct stored *f);
/* Closes a file that has its final name. */
void stored_close(struct store *store, struct stored *f);
/* Removes a file that does not have it yet. */
void stored_discard(struct store *store, struct stored *f);
/* Returns the file of that index; NULL if there is none. */
struct stored *stored_find(struct stored *list, uint32_t index);
/* Removes the file of that index from a list and returns it; NULL if there is none. */
struct stored *stored_take(struct stored **list, uint32_t index);

#endif

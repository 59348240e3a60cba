/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that fmtp-recv receives: each under a temporary name until it is complete, and on a
 * disk with reserved space for it.
 */
#ifndef FMTP_TOOLS_STORED_H
#define FMTP_TOOLS_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common.h"

struct store { /* the directory */
    int dir;
    uint64_t promised; /* bytes of begun files that are not reserved yet */
    uint64_t token;    /* for the names of temporary files */
};

struct stored { /* a file that is being received */
    struct stored *next;
    uint32_t index;
    size_t size, reserved; /* reserved: bytes of disk space guaranteed */
    int fd;                /* until everything is reserved, then -1 */
    void *data;
    double begun_s;
    char temporary[64], name[256];
};

/* Begins the file of that name (safe_name) and size. Returns NULL if there is no space for it;
 * standard error says why. `feed` and `index` become part of its temporary name. */
struct stored *stored_begin(struct store *store, int feed, uint32_t index, uint32_t size,
                            const void *meta, uint16_t meta_len);
/* Reserves its next bytes. Returns false if there is no room (reported); data would have no
 * place. */
bool stored_reserve(struct store *store, struct stored *f);
/* Renames it to its final name; returns false if that fails (reported). The file stays open. */
bool stored_name(struct store *store, const struct stored *f);
/* Closes a file that has its final name. */
void stored_close(struct store *store, struct stored *f);
/* Removes a file that does not have it yet. */
void stored_discard(struct store *store, struct stored *f);
/* Removes the file of that index from a list and returns it; NULL if there is none. */
struct stored *stored_take(struct stored **list, uint32_t index);

#endif

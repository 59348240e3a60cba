/* SPDX-License-Identifier: Apache-2.0
 *
 * What an LDM7 downstream remembers between sessions (LDM-6.13.17 mcast_session_memory): the
 * signature of the newest product up to which all are complete, and the indices of missed products
 * still to be fetched. Kept in `<queue directory>/<host:port>_<FEED>.yaml`.
 */
#ifndef LDMD_SESSION_H
#define LDMD_SESSION_H

#include "queue/pq.h"

#define SESSION_MISSED_MAX 65536u

struct session {
    bool has_last;
    struct pq_signature last;
    uint32_t *missed; /* the oldest first */
    size_t nmissed, cap;
    uint64_t dropped; /* missed products beyond SESSION_MISSED_MAX */
    bool dirty;
};

/* Everything up to this product is complete. */
void session_set_last(struct session *s, const struct pq_signature *sig);
/* Returns false if it was already in the list, or if there is no room. Takes the time of a search,
 * as a gap may be of 65,536 products. */
bool session_add_missed(struct session *s, uint32_t index);
/* Returns whether the index must still be fetched. */
bool session_has_missed(const struct session *s, uint32_t index);
/* Removes an index that need not be fetched any more. Returns false if it was not in the list. */
bool session_remove_missed(struct session *s, uint32_t index);
/* Makes the path of the file for this upstream and feed. Returns false if it does not fit. */
bool session_path(char *out, size_t out_bytes, const char *queue, const char *host, uint16_t port,
                  const char *feed);
/* If the file is missing or damaged, the session is empty. */
void session_load(struct session *s, const char *path);
/* Writes a temporary file and renames it. Returns -1 with errno on failure. */
int session_save(struct session *s, const char *path);
/* Frees the list of missed products. */
void session_free(struct session *s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Product-index map <queue directory>/<FEED>.pim: FMTP product index -> signature, for the backstop
 * (LDM-6.13.17 prod_index_map). Host byte order: u64 count, u64 position of the oldest, u32 index
 * of the oldest, then a ring of 16-byte signatures. It survives restarts, so that indices continue.
 *
 * One writer (mldm) and any number of readers (up7) in other processes: advisory record locks on an
 * open file description protect each operation.
 */
#ifndef LDMD_PIM_H
#define LDMD_PIM_H

#include "queue/pq.h"

struct pim;

/* Makes the path of the map beside the queue. Returns false if it does not fit. */
bool pim_path(char *out, size_t out_bytes, const char *queue, const char *feed);
/* writable: creates it if missing or damaged (then *reset is true and it is empty) with room for
 * capacity signatures; a map of another capacity keeps its newest entries. Returns NULL with errno
 * on failure. */
struct pim *pim_open(const char *path, bool writable, uint32_t capacity, bool *reset);
/* p may be NULL. */
void pim_close(struct pim *p);
/* Returns the index of the next product (count entries after the oldest; wraps modulo 2^32). */
uint32_t pim_next_index(struct pim *p);
/* index must be pim_next_index(), otherwise the map restarts with this index. Returns -1 with errno
 * on failure. */
int pim_put(struct pim *p, uint32_t index, const struct pq_signature *sig);
/* Removes the newest entry, if it has this index. */
void pim_take_back(struct pim *p, uint32_t index);
/* Returns false if the index is not (or no longer) in the map. */
bool pim_get(struct pim *p, uint32_t index, struct pq_signature *sig);

#endif

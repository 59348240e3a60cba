/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers short writes to neighbouring places of some files into long ones. Many runs grow side by
 * side: a carousel sends one symbol of each block in turn.
 */
#ifndef FCAST_TOOLS_GATHER_H
#define FCAST_TOOLS_GATHER_H

#include <stddef.h>
#include <stdint.h>

/* A file to which it writes. */
struct gather_file {
    int (*write)(void *ctx, uint64_t at, const void *bytes, size_t len); /* 0, or -1 with errno */
    void *ctx;
    unsigned runs; /* that wait: 0 when it begins */
};

struct gather;

/* For so many runs side by side (as far as memory_bytes lets). NULL: no memory. */
struct gather *gather_new(uint32_t streams, size_t memory_bytes);
void gather_free(struct gather *g);
/* Room for more streams; what waits is written first. -1: it stays as it is. */
int gather_widen(struct gather *g, uint32_t streams);
/* Takes the bytes, or writes them. -1 with errno: they are not taken; others stay for another
 * attempt. */
int gather_put(struct gather *g, struct gather_file *f, uint64_t at, const void *bytes, size_t len);
/* Writes what waits for the file. -1 with errno: what is not written stays. */
int gather_flush(struct gather *g, struct gather_file *f);
/* Forgets what waits for the file. */
void gather_drop(struct gather *g, struct gather_file *f);

#endif

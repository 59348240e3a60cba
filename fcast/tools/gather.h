/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers short writes to adjacent places of a few files into long ones. Many runs grow in
 * parallel: a carousel sends one symbol of each block in turn.
 */
#ifndef FCAST_TOOLS_GATHER_H
#define FCAST_TOOLS_GATHER_H

#include <stddef.h>
#include <stdint.h>

/* A file to write to. */
struct gather_file {
    int (*write)(void *ctx, uint64_t at, const void *bytes,
                 size_t len); /* returns 0, or -1 with errno */
    void *ctx;
    unsigned runs; /* waiting runs; initially 0 */
};

struct gather;

/* Makes room for this many runs in parallel, as far as memory_bytes permits. Returns NULL if out of
 * memory. */
struct gather *gather_new(uint32_t streams, size_t memory_bytes);
void gather_free(struct gather *g);
/* Makes room for more streams, after writing what waits. Returns -1 if that fails; nothing changes
 * then. */
int gather_widen(struct gather *g, uint32_t streams);
/* Takes the bytes, or writes them. Returns -1 with errno if they are not taken; bytes taken earlier
 * remain for another attempt. */
int gather_put(struct gather *g, struct gather_file *f, uint64_t at, const void *bytes, size_t len);
/* Writes what waits for the file. Returns -1 with errno; what could not be written remains. */
int gather_flush(struct gather *g, struct gather_file *f);
/* Discards what waits for the file. */
void gather_drop(struct gather *g, struct gather_file *f);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * One object being received: which symbols have arrived, and the blocks that they complete.
 */
#ifndef FCAST_RECEPTION_H
#define FCAST_RECEPTION_H

#include "fcast.h"
#include "fec/ldpc.h"
#include "fec/rs.h"

struct fcast_block_state {
    uint32_t received; /* distinct symbols */
    uint32_t source;   /* source symbols among them */
    uint32_t try_at;   /* number of symbols at which to try decoding */
    uint32_t repair;   /* newest repair symbol as 1 + slot; 0: none */
};

struct fcast_slot {      /* a repair symbol in the repair store */
    uint32_t id, before; /* 1 + slot of the block's previous one; 0: none */
};

struct fcast_reception {
    struct fcast_fti fti;
    int rs_kind;
    struct fcast_partition partition;
    struct fcast_place place;
    uint64_t *have;                   /* one bit per encoding symbol of every block */
    uint64_t large_n, small_n;        /* most symbols in a large and in a small block */
    struct fcast_block_state *blocks; /* received UINT32_MAX: complete */
    struct fcast_slot *slots;
    uint32_t slot_count, slot_room;
    uint32_t open_blocks;
    struct ldpc_matrix *matrices[2]; /* of large and small blocks, made when needed */
    struct rs_code *codes[2];        /* likewise */
    uint64_t decoded, store_errors;
    uint64_t work; /* of the last try to decode (fec/ldpc.h) */
};

/* Return the bytes of memory that an object with this FTI needs besides its place, and that its
 * largest block needs while it is decoded. 0: impossible. */
uint64_t fcast_reception_bytes(const struct fcast_fti *fti);
uint64_t fcast_reception_block_bytes(const struct fcast_fti *fti);

/* Takes over the place's notes; *restored counts them. Returns -1 if out of memory. */
int fcast_reception_init(struct fcast_reception *r, const struct fcast_fti *fti, int rs_kind,
                         const struct fcast_place *place, uint64_t *restored);
void fcast_reception_free(struct fcast_reception *r);

enum fcast_taken { FCAST_TAKEN, FCAST_REDUNDANT, FCAST_BAD_SYMBOL, FCAST_NOT_STORED };
/* Takes a symbol of fti.symbol_bytes bytes; it may complete blocks. */
enum fcast_taken fcast_reception_take(struct fcast_reception *r, struct fcast_symbol s,
                                      const uint8_t *bytes);
/* Tries to decode all blocks with at least k symbols: no more will arrive. */
void fcast_reception_try(struct fcast_reception *r);
static inline bool fcast_reception_is_complete(const struct fcast_reception *r)
{
    return r->open_blocks == 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * One object that is being received: which symbols are there, and the blocks that follow from them.
 */
#ifndef FCAST_RECEPTION_H
#define FCAST_RECEPTION_H

#include "fcast.h"
#include "fec/ldpc.h"
#include "fec/rs.h"

struct fcast_block_state {
    uint32_t received; /* different symbols */
    uint32_t source;   /* of these, source symbols */
    uint32_t try_at;   /* symbols at which decoding is tried */
    uint32_t repair;   /* newest repair symbol: 1 + slot; 0: none */
};

struct fcast_slot {      /* of a repair symbol in the repair store */
    uint32_t id, before; /* 1 + the slot of the block's one before; 0: none */
};

struct fcast_reception {
    struct fcast_fti fti;
    int rs_kind;
    struct fcast_partition partition;
    struct fcast_place place;
    uint64_t *have;                   /* bit per encoding symbol of every block */
    uint64_t large_n, small_n;        /* of the large and the small blocks, at most */
    struct fcast_block_state *blocks; /* received UINT32_MAX: done */
    struct fcast_slot *slots;
    uint32_t slot_count, slot_room;
    uint32_t open_blocks;
    struct ldpc_matrix *matrices[2]; /* of large and small blocks, when needed */
    struct rs_code *codes[2];        /* the same */
    uint64_t decoded, store_errors;
};

/* Bytes of memory that an object with this FTI needs, beside its place; of its largest block while
 * that is decoded. 0: more than can be. */
uint64_t fcast_reception_bytes(const struct fcast_fti *fti);
uint64_t fcast_reception_block_bytes(const struct fcast_fti *fti);

/* -1: no memory. The place's notes are taken over; *restored counts them. */
int fcast_reception_init(struct fcast_reception *r, const struct fcast_fti *fti, int rs_kind,
                         const struct fcast_place *place, uint64_t *restored);
void fcast_reception_free(struct fcast_reception *r);

enum fcast_taken { FCAST_TAKEN, FCAST_REDUNDANT, FCAST_BAD_SYMBOL, FCAST_NOT_STORED };
/* A symbol of fti.symbol_bytes bytes came; blocks may be decoded by it. */
enum fcast_taken fcast_reception_take(struct fcast_reception *r, struct fcast_symbol s,
                                      const uint8_t *bytes);
/* Tries all blocks that have k symbols or more: nothing more will come. */
void fcast_reception_try(struct fcast_reception *r);
static inline bool fcast_reception_is_complete(const struct fcast_reception *r)
{
    return r->open_blocks == 0;
}

#endif

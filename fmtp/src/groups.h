/* SPDX-License-Identifier: Apache-2.0
 *
 * The FEC groups of one product at the receiver: what is missing, the parity received, and decoding
 * blocks from it. receiver_ask.c decides when to request more, and keeps its state per group here.
 *
 * Memory: at most 80 bytes per group, and symbols->limit symbols for all products together.
 */
#ifndef FMTP_GROUPS_H
#define FMTP_GROUPS_H

#include <sys/queue.h>

#include "fec.h"
#include "wire.h"

struct fmtp_symbol {
    struct fmtp_symbol *next;
    uint8_t number;
    uint8_t bytes[]; /* block_bytes */
};

/* Parity kept for all products. */
struct fmtp_symbols {
    size_t block_bytes;
    size_t count, limit; /* symbols */
    uint8_t *pad;        /* 2 * block_bytes: a short last block, padded, for input and output */
};

enum fmtp_group_state {
    FMTP_GROUP_OPEN,    /* nothing requested */
    FMTP_GROUP_WAITING, /* requested by REPAIR_REQ; in the list of waiting groups */
    FMTP_GROUP_STREAM   /* requested by RETX_REQ, which cannot get lost */
};

struct fmtp_group {
    TAILQ_ENTRY(fmtp_group) link;
    struct fmtp_symbol *parity;
    uint64_t asked_ns, due_ns; /* time of the first request; when patience ends */
    uint32_t order;            /* sequence number of the latest request, among all requests */
    uint8_t state;             /* enum fmtp_group_state */
    uint8_t missing;           /* blocks not received */
    uint8_t held;              /* symbols in `parity`: always fewer than missing */
    uint8_t high, asked_high;  /* largest end known; its value at the last request */
    uint8_t round;             /* consecutive timeouts without progress */
    uint8_t asks;              /* requests sent */
    bool answered;             /* something arrived since the first request */
};

struct fmtp_groups {
    uint32_t nblocks, count;
    unsigned fec_k;
    uint32_t at; /* group of the last lookup, and its blocks */
    struct fmtp_fec_group at_blocks;
    TAILQ_HEAD(, fmtp_group) waiting;
    struct fmtp_group group[];
};

/* Allocates the pad. Returns -1 without memory. */
int fmtp_symbols_init(struct fmtp_symbols *s, size_t block_bytes, size_t limit_bytes);
/* Frees the pad. All groups must have returned their symbols. */
void fmtp_symbols_free(struct fmtp_symbols *s);

/* Makes the groups of nblocks > 0 blocks, all missing. Returns NULL without memory. */
struct fmtp_groups *fmtp_groups_new(uint32_t nblocks, unsigned fec_k);
/* Also returns the symbols. gs may be NULL. */
void fmtp_groups_free(struct fmtp_groups *gs, struct fmtp_symbols *s);

/* Returns the group of block < nblocks. */
uint32_t fmtp_groups_of(struct fmtp_groups *gs, uint32_t block);
/* Returns the blocks of group g < count. */
struct fmtp_fec_group fmtp_groups_blocks(struct fmtp_groups *gs, uint32_t g);
/* A missing block of the group arrived. The last one frees the parity and ends the wait. */
void fmtp_groups_received(struct fmtp_groups *gs, struct fmtp_symbols *s, uint32_t g);

enum fmtp_keep { FMTP_KEEP_NEW, FMTP_KEEP_HAD, FMTP_KEEP_NO_ROOM };
/* Keeps a copy of a parity symbol (block_bytes). */
enum fmtp_keep fmtp_groups_keep(struct fmtp_groups *gs, struct fmtp_symbols *s, uint32_t g,
                                uint8_t number, const uint8_t *bytes);
/* A product to decode into. */
struct fmtp_target {
    uint8_t *product;
    uint32_t size_bytes;
    uint64_t *received;
    /* Stores a block; returns false if it cannot. NULL: blocks go straight to their places. */
    bool (*put)(void *ctx, uint32_t at, const uint8_t *bytes, size_t len);
    void *ctx;
};

/* If as many symbols are held as blocks are missing, decodes these and sets their bits in received.
 * Returns how many it decoded; 0: not possible or no memory. */
unsigned fmtp_groups_decode(struct fmtp_groups *gs, struct fmtp_symbols *s, uint32_t g,
                            const struct fmtp_target *to);
/* Writes the group's missing blocks as the bitmap of a REPAIR_REQ. */
void fmtp_groups_bitmap(struct fmtp_groups *gs, uint32_t g, const uint64_t *received,
                        uint8_t bitmap[32]);

/* Returns whether the bitmap marks the block as received. */
static inline bool fmtp_have(const uint64_t *received, uint32_t block)
{
    return received[block / 64] >> (block % 64) & 1;
}

/* Marks the block as received. */
static inline void fmtp_mark(uint64_t *received, uint32_t block)
{
    received[block / 64] |= UINT64_C(1) << (block % 64);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How an object is encoded: the FEC Object Transmission Information, the FEC Payload ID of a
 * packet, and the partition of an object into blocks (RFC 5052 9.1).
 */
#ifndef FCAST_FTI_H
#define FCAST_FTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FEC Encoding IDs. */
enum fcast_fec {
    FCAST_NO_CODE = 0,   /* RFC 5445 */
    FCAST_STAIRCASE = 3, /* RFC 5170 */
    FCAST_TRIANGLE = 4,
    FCAST_RS = 5, /* RFC 5510 */
};
enum { FCAST_FTI_MAX = 20, FCAST_PAYLOAD_ID = 4 };
#define FCAST_LENGTH_MAX ((UINT64_C(1) << 48) - 1)

struct fcast_fti {
    uint8_t fec;           /* enum fcast_fec */
    uint64_t length;       /* of the object in bytes; 48 bits */
    uint16_t symbol_bytes; /* E */
    uint32_t block_max;    /* B: most source symbols in a block */
    uint32_t n_max;        /* most encoding symbols in a block; no code: 0 */
    uint8_t n1;            /* LDPC: N1, ones per column of the left side */
    uint32_t seed;         /* LDPC */
    /* Fcast of 1999: each block has B source symbols; the last one of the object is padded with
     * zeroes. */
    bool is_padded;
};

/* Reads the content of EXT_FTI for the code. Returns false if it is invalid or describes an
 * impossible code (sizes of 0, a code rate above 1, more blocks or symbols than can be
 * numbered). */
bool fcast_fti_get(uint8_t fec, const uint8_t *content, size_t len, struct fcast_fti *out);
/* Returns whether fcast_fti_get() would accept it. */
bool fcast_fti_is_good(const struct fcast_fti *f);
/* Writes the content of EXT_FTI; returns its length. */
size_t fcast_fti_put(uint8_t out[FCAST_FTI_MAX], const struct fcast_fti *f);

/* The symbol in a packet. */
struct fcast_symbol {
    uint32_t block, id;
};
struct fcast_symbol fcast_payload_id_get(uint8_t fec, const uint8_t bytes[FCAST_PAYLOAD_ID]);
void fcast_payload_id_put(uint8_t fec, struct fcast_symbol s, uint8_t out[FCAST_PAYLOAD_ID]);

/* Block sizes: the first `large_blocks` have `large` symbols, the others `small`. */
struct fcast_partition {
    uint64_t symbols; /* in the object; the last one may be short */
    uint32_t blocks, large_blocks, large, small;
};
/* Returns the partition; an empty object has no blocks. With padding, `symbols` includes it. */
struct fcast_partition fcast_partition_of(const struct fcast_fti *f);
/* Return the k of a block, and the number of its first symbol in the object. */
uint32_t fcast_block_k(const struct fcast_partition *p, uint32_t block);
uint64_t fcast_block_first(const struct fcast_partition *p, uint32_t block);
/* Returns the n of a block with k source symbols. */
uint32_t fcast_block_n(const struct fcast_fti *f, uint32_t k);

#endif

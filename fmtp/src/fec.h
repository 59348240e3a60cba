/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward error correction of extension 1: systematic Reed-Solomon over GF(2^8) with a Cauchy
 * matrix (ISA-L's gf_gen_cauchy1_matrix: parity number j of a group of k blocks is row k+j), so any
 * k of a group's blocks and parity symbols restore the group.
 *
 * A product of n blocks has ceil(n / fec_k) groups, whose sizes differ by at most one. All symbols
 * are block_bytes long. The product's short last block counts as padded with zeros: callers supply
 * a padded copy of it and get it back in a scratch buffer.
 */
#ifndef FMTP_FEC_H
#define FMTP_FEC_H

#include <stddef.h>
#include <stdint.h>

#define FMTP_FEC_MAX_K 254u /* leaves room for one parity symbol */
#define FMTP_FEC_DEFAULT_K 200u
#define FMTP_FEC_MAX_GROUPS 65536u /* a product with more groups cannot use extension 1 */

struct fmtp_fec_group {
    uint32_t first; /* first block in the product */
    uint32_t count; /* k_g blocks: 1..fec_k */
};

/* Returns how many groups a product of nblocks has (0 for an empty one). fec_k:
 * 1..FMTP_FEC_MAX_K. */
uint32_t fmtp_fec_groups(uint32_t nblocks, unsigned fec_k);
/* Returns group g < fmtp_fec_groups(). */
struct fmtp_fec_group fmtp_fec_group(uint32_t nblocks, unsigned fec_k, uint32_t g);
/* Returns the number of the group that block < nblocks belongs to. */
uint32_t fmtp_fec_group_of(uint32_t nblocks, unsigned fec_k, uint32_t block);
/* Returns how many parity symbols a group of k blocks can have: numbers 0..255-k-1. */
static inline unsigned fmtp_fec_max_parity(unsigned k)
{
    return 255 - k;
}

/* Makes parity symbols number..number+count-1 (number+count <= fmtp_fec_max_parity(k)) of the k
 * blocks. Making several at once is cheaper. out must not overlap blocks. */
void fmtp_fec_encode(unsigned k, unsigned number, unsigned count, size_t block_bytes,
                     const uint8_t *const *blocks, uint8_t *const *out);

/* Restores m missing blocks from m parity symbols and the k-m other blocks. blocks: k pointers;
 * those of missing blocks are not read. missing: their m numbers, distinct. numbers: those of
 * parity[], distinct. out: where the missing blocks go; must not overlap anything else. Returns -1
 * on bad numbers or without memory; then nothing was written. */
int fmtp_fec_decode(unsigned k, size_t block_bytes, const uint8_t *const *blocks, unsigned m,
                    const uint8_t *missing, const uint8_t *numbers, const uint8_t *const *parity,
                    uint8_t *const *out);

#endif

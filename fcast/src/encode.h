/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the repair symbols of an object, one block at a time.
 */
#ifndef FCAST_ENCODE_H
#define FCAST_ENCODE_H

#include "fcast.h"

/* Reads `len` bytes of the object at offset `at`. */
typedef int fcast_read_fn(void *ctx, uint64_t at, void *bytes, size_t len);

/* Reads symbol `number` of the object; its end is padded with zeroes. Returns 0, or -1 with
 * errno. */
int fcast_read_symbol(fcast_read_fn *read, void *ctx, const struct fcast_fti *fti, uint64_t number,
                      uint8_t *out);
/* Returns the size of all repair symbols, block after block, in bytes. */
uint64_t fcast_repair_bytes(const struct fcast_fti *fti);
/* Writes the repair symbols of a block to the store, starting at `at`. */
int fcast_encode_block(const struct fcast_fti *fti, int rs_kind, uint32_t block,
                       fcast_read_fn *read, void *ctx, const struct fcast_store *repair,
                       uint64_t at);
/* Writes those of all blocks, starting at *at, and advances it. */
int fcast_encode(const struct fcast_fti *fti, int rs_kind, fcast_read_fn *read, void *ctx,
                 const struct fcast_store *repair, uint64_t *at);
/* Returns a seed for the LDPC code of these sizes that performs well in simulated receptions; 0
 * with errno on failure. */
uint32_t fcast_choose_seed(const struct fcast_fti *fti);

#endif

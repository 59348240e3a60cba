/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the repair symbols of an object, a block at a time.
 */
#ifndef FCAST_ENCODE_H
#define FCAST_ENCODE_H

#include "fcast.h"

/* Reads `len` bytes of the object at `at`. */
typedef int fcast_read_fn(void *ctx, uint64_t at, void *bytes, size_t len);

/* Symbol `number` of the object, its end padded with zeroes. 0, or -1 with errno. */
int fcast_read_symbol(fcast_read_fn *read, void *ctx, const struct fcast_fti *fti, uint64_t number,
                      uint8_t *out);
/* Bytes of all repair symbols, block after block. */
uint64_t fcast_repair_bytes(const struct fcast_fti *fti);
/* The repair symbols of a block, into the store from `at` on. */
int fcast_encode_block(const struct fcast_fti *fti, int rs_kind, uint32_t block,
                       fcast_read_fn *read, void *ctx, const struct fcast_store *repair,
                       uint64_t at);
/* Those of all blocks, from *at on, which moves on. */
int fcast_encode(const struct fcast_fti *fti, int rs_kind, fcast_read_fn *read, void *ctx,
                 const struct fcast_store *repair, uint64_t *at);
/* A seed for the LDPC code of these sizes that simulated receptions find good. 0 with errno. */
uint32_t fcast_choose_seed(const struct fcast_fti *fti);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the reception.
 */
#ifndef FCAST_RECEPTION_IMPL_H
#define FCAST_RECEPTION_IMPL_H

#include "reception.h"

#define FCAST_RECEIVED_ALL UINT32_MAX

/* Returns the bytes of a source symbol: the object's last one may be short, and padding has
 * none. */
size_t fcast_source_len(const struct fcast_reception *r, uint64_t number);
/* Returns the most symbols that a block can have. */
uint64_t fcast_reception_n(const struct fcast_fti *fti, uint32_t k);
/* Returns whether the symbol has arrived. */
bool fcast_reception_has(const struct fcast_reception *r, struct fcast_symbol s);
/* Computes the block's missing source symbols and stores them. Returns false if more symbols are
 * needed, memory ran out or a store failed. (decode.c) */
bool fcast_decode_block(struct fcast_reception *r, uint32_t block);

#endif

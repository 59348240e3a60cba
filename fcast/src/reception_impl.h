/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the reception only.
 */
#ifndef FCAST_RECEPTION_IMPL_H
#define FCAST_RECEPTION_IMPL_H

#include "reception.h"

#define FCAST_RECEIVED_ALL UINT32_MAX

/* Bytes of a source symbol: the object's last may be short, and padding has none. */
size_t fcast_source_len(const struct fcast_reception *r, uint64_t number);
/* The most symbols that a block can have. */
uint64_t fcast_reception_n(const struct fcast_fti *fti, uint32_t k);
/* True if the symbol is here. */
bool fcast_reception_has(const struct fcast_reception *r, struct fcast_symbol s);
/* Computes the block's missing source symbols and stores them. false: more symbols are needed, or
 * memory or a store failed. (decode.c) */
bool fcast_decode_block(struct fcast_reception *r, uint32_t block);

#endif

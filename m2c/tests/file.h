/* SPDX-License-Identifier: Apache-2.0
 *
 * The code of a file that m2c-send would send, and a receiver's symbols of it, without their bytes:
 * Fcast's own reception decides when a receiver has the file.
 */
#ifndef M2C_TESTS_FILE_H
#define M2C_TESTS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "fti.h"

struct file {
    struct fcast_fti fti;
    struct fcast_partition partition;
    uint32_t symbols; /* all, with repair symbols: of the ring */
};

/* As m2c-send has it. The program ends if the code is impossible. */
void file_init(struct file *f, double bytes, unsigned symbol_bytes);
/* Symbol `number` of the ring, as fcast_sender_pick() numbers them. */
struct fcast_symbol file_symbol(const struct file *f, uint32_t number);

struct got { /* of a receiver */
    const struct file *file;
    struct fcast_reception *reception; /* NULL: it does not decode */
    uint8_t *have;                     /* by block, then by symbol */
    uint32_t *counts, open;            /* symbols by block; blocks that need more */
    uint64_t useful, redundant;        /* symbols */
};
/* Either it decodes, which takes time, or it takes k + k/256 symbols of a block, at which m2c-recv
 * first tries to decode it, as enough. Ends the program without memory. */
void got_init(struct got *g, const struct file *f, bool decodes);
void got_free(struct got *g);
/* True if the file is complete with this symbol. */
bool got_symbol(struct got *g, struct fcast_symbol s);

#endif

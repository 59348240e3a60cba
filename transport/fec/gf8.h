/* SPDX-License-Identifier: Apache-2.0
 *
 * The common part of codes over GF(2^8) with field polynomial 0x11d, on ISA-L: linear combinations
 * of symbols, and the rows that recover missing source symbols.
 */
#ifndef TRANSPORT_FEC_GF8_H
#define TRANSPORT_FEC_GF8_H

#include <stddef.h>
#include <stdint.h>

#define GF8_N_MAX 255u /* symbols of a code */

/* Computes out[i] = the sum over j < k of rows[i * k + j] * in[j]. k is at most GF8_N_MAX; out
 * overlaps no in. */
void gf8_combine(size_t size_bytes, unsigned k, unsigned count, const uint8_t *rows,
                 const uint8_t *const in[], uint8_t *const out[]);

/* A block of k source symbols of which m are missing; m repair symbols have arrived. */
struct gf8_loss {
    unsigned k, m;
    const uint8_t *present,
        *missing;          /* numbers of the k - m present and the m missing source symbols */
    const uint8_t *parity; /* m rows of k coefficients that made the repair symbols */
};

/* Fills rows with m times k coefficients: row i gives the ith missing symbol from the present
 * source symbols followed by the repair symbols. Returns -1 without memory or if the parity rows do
 * not suffice. */
int gf8_recovery(const struct gf8_loss *loss, uint8_t *rows);

#endif

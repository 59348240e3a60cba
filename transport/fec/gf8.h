/* SPDX-License-Identifier: Apache-2.0
 *
 * What codes over GF(2^8) share, field polynomial 0x11d, on ISA-L: linear combinations of symbols,
 * and the rows that give missing source symbols back.
 */
#ifndef TRANSPORT_FEC_GF8_H
#define TRANSPORT_FEC_GF8_H

#include <stddef.h>
#include <stdint.h>

#define GF8_N_MAX 255u /* symbols of a code */

/* out[i] = the sum over j < k of rows[i * k + j] * in[j]. k at most GF8_N_MAX; out overlaps no in.
 */
void gf8_combine(size_t size_bytes, unsigned k, unsigned count, const uint8_t *rows,
                 const uint8_t *const in[], uint8_t *const out[]);

/* A block of k source symbols of which m are missing; m repair symbols are there. */
struct gf8_loss {
    unsigned k, m;
    const uint8_t *present, *missing; /* k - m and m numbers of source symbols */
    const uint8_t *parity;            /* m rows of k: how the repair symbols were made */
};

/* Fills rows, m of k coefficients: each gives a missing symbol of those that are present and then
 * the repair symbols, in these orders. -1: no memory, or the parity rows do not suffice. */
int gf8_recovery(const struct gf8_loss *loss, uint8_t *rows);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reed-Solomon over GF(2^8), field polynomial 0x11d, on ISA-L: any k of n symbols give the k source
 * symbols. Ids 0 to k-1 are source symbols, k to n-1 repair symbols.
 *
 * Programs that claim "FEC Encoding ID 5" (RFC 5510) use three different codes. In all three the
 * systematic matrix is the inverse of part of a Vandermonde matrix times that matrix, but the
 * points differ. */
#ifndef TRANSPORT_FEC_RS_H
#define TRANSPORT_FEC_RS_H

#include <stddef.h>
#include <stdint.h>

enum rs_kind {
    RS_RFC5510, /* points a^0, a^1, a^2 ...: the text of RFC 5510 8.1 */
    RS_RIZZO,   /* points 0, a^0, a^1 ...: zfec, OpenFEC, Rizzo's fec.c */
    RS_COUNTED, /* points 0, 1, 2 ...: the crates reed-solomon-erasure and flute */
};

#define RS_N_MAX 255u

struct rs_code;

/* Returns NULL with errno: EINVAL unless 1 <= k < n <= RS_N_MAX; ENOMEM. The code never changes, so
 * threads may share it. Making it takes time proportional to k^3. */
struct rs_code *rs_code_new(enum rs_kind kind, unsigned k, unsigned n);
void rs_code_free(struct rs_code *code);

/* Makes the repair symbols of ids `first` to `first + count - 1`. source: k symbols of size_bytes.
 * The ids must be those of repair symbols (assert). */
void rs_encode(const struct rs_code *code, size_t size_bytes, const uint8_t *const source[],
               unsigned first, unsigned count, uint8_t *const repair[]);

/* Computes the missing source symbols. ids, symbols: k different symbols that arrived, in any
 * order; out: k pointers; only those of missing source symbols are written. Returns 0; EINVAL if an
 * id is not below n or occurs twice; ENOMEM. */
int rs_decode(const struct rs_code *code, size_t size_bytes, const unsigned ids[],
              const uint8_t *const symbols[], uint8_t *const out[]);

#endif

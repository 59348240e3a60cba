/* SPDX-License-Identifier: Apache-2.0 */
/* Reed-Solomon over GF(2^8), field polynomial 0x11d, on ISA-L: any k of n symbols give the k source
 * symbols. Ids 0 to k-1 are source symbols, k to n-1 repair symbols.
 *
 * Programs that say "FEC Encoding ID 5" (RFC 5510) mean three codes: the systematic matrix is the
 * product of an inverse and a Vandermonde matrix in all, of other points. */
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

/* NULL with errno: EINVAL unless 1 <= k < n <= RS_N_MAX; ENOMEM. It never changes, so threads may
 * share it. Costs k^3 once. */
struct rs_code *rs_code_new(enum rs_kind kind, unsigned k, unsigned n);
void rs_code_free(struct rs_code *code);

/* Make the repair symbols of ids `first` to `first + count - 1`. source: k symbols of size_bytes.
 * Ids that are not repair symbols are a caller's mistake (assert). */
void rs_encode(const struct rs_code *code, size_t size_bytes, const uint8_t *const source[],
               unsigned first, unsigned count, uint8_t *const repair[]);

/* Compute the missing source symbols. ids, symbols: k different symbols that arrived, in any order;
 * out: k pointers, of which those of missing source symbols are written to. Returns 0; EINVAL if an
 * id is not below n or comes twice; ENOMEM. */
int rs_decode(const struct rs_code *code, size_t size_bytes, const unsigned ids[],
              const uint8_t *const symbols[], uint8_t *const out[]);

#endif

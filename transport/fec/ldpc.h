/* SPDX-License-Identifier: Apache-2.0 */
/* LDPC-Staircase and LDPC-Triangle, the large-block codes of RFC 5170.
 *
 * A block has k source symbols, ids 0 to k-1, and n-k repair symbols, ids k to n-1, all of the same
 * size. A code is a sparse matrix with n-k rows; the sum of a row's symbols is zero. Sender and
 * receiver make the same matrix from the kind, k, n, N1 and the seed.
 *
 * No call blocks or reads a clock or a socket. A matrix never changes after it is made, so threads
 * may share one; a decoder belongs to one thread. */
#ifndef TRANSPORT_FEC_LDPC_H
#define TRANSPORT_FEC_LDPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ldpc_kind { LDPC_STAIRCASE, LDPC_TRIANGLE };

#define LDPC_N_MAX (1u << 20) /* the encoding symbol id has 20 bits (RFC 5170 3.1) */
#define LDPC_N1_MIN 3         /* of the FEC object transmission information (RFC 5170 4.2.3) */
#define LDPC_N1_MAX 10
#define LDPC_SEED_MAX 0x7ffffffeu /* valid seeds are 1 to this (RFC 5170 5.7) */

struct ldpc_matrix;

/* Makes a matrix (RFC 5170 5.3, 5.4). Returns NULL with errno: EINVAL unless 2 <= k < n <=
 * LDPC_N_MAX, n - k >= n1, and n1 and the seed are in their ranges; ENOMEM. */
struct ldpc_matrix *ldpc_matrix_new(enum ldpc_kind kind, uint32_t k, uint32_t n, unsigned n1,
                                    uint32_t seed);
void ldpc_matrix_free(struct ldpc_matrix *matrix);
/* Returns the most memory that such a matrix takes, in bytes; four times as much while it is
 * made. */
uint64_t ldpc_matrix_bytes(enum ldpc_kind kind, uint32_t k, uint32_t n, unsigned n1);

uint32_t ldpc_k(const struct ldpc_matrix *matrix);
uint32_t ldpc_n(const struct ldpc_matrix *matrix);
size_t ldpc_edges(const struct ldpc_matrix *matrix);
/* Returns the generator's state after the matrix was made, which test vectors compare. */
uint32_t ldpc_prng_state(const struct ldpc_matrix *matrix);
/* Returns the ids in a row (0 to n-k-1), ascending; *count receives how many. */
const uint32_t *ldpc_row(const struct ldpc_matrix *matrix, uint32_t row, size_t *count);

/* Makes all repair symbols. source: k pointers; repair: n-k pointers; symbols of size_bytes.
 * Returns 0, or ENOMEM. */
int ldpc_encode(const struct ldpc_matrix *matrix, size_t size_bytes, const uint8_t *const source[],
                uint8_t *const repair[]);

/* --- decoding ----------------------------------------------------------------------------------
 * A decoder first learns which symbols have arrived, without touching any byte; ldpc_decode() then
 * computes the missing source symbols in place. */
struct ldpc_decoder;

/* Returns NULL with errno ENOMEM on failure. `matrix` must outlive the decoder. */
struct ldpc_decoder *ldpc_decoder_new(const struct ldpc_matrix *matrix);
void ldpc_decoder_free(struct ldpc_decoder *decoder);
/* Returns the most memory that a decoder takes for n symbols of which k are source symbols, solving
 * and decoding included, in bytes. Repair symbols that it computes and the dense system of a solve
 * (at most 64 MiB) are not in it. */
uint64_t ldpc_decoder_bytes(uint32_t k, uint32_t n);

enum ldpc_arrival {
    LDPC_NEW,       /* it is needed: keep its bytes */
    LDPC_USELESS,   /* already known, or follows from known ones: its bytes are not needed */
    LDPC_NO_SYMBOL, /* its id is not below n */
};
/* Records that a symbol has arrived. */
enum ldpc_arrival ldpc_decoder_add(struct ldpc_decoder *decoder, uint32_t id);

/* Return how many different symbols have arrived as LDPC_NEW, and how many source symbols are still
 * unknown. */
uint32_t ldpc_decoder_received(const struct ldpc_decoder *decoder);
uint32_t ldpc_decoder_missing(const struct ldpc_decoder *decoder);
/* Returns whether iterative decoding alone gives every source symbol. */
bool ldpc_decoder_is_complete(const struct ldpc_decoder *decoder);

/* Tries maximum likelihood: elimination with inactivation on what iteration left. Returns true if
 * every source symbol follows from what has arrived: ldpc_decode() will then compute it. Returns
 * false if more symbols are needed (errno 0; E2BIG: with what has arrived it would take more than
 * a second or 64 MiB) or there is no memory (errno ENOMEM). Call it once at least k symbols
 * have arrived, and not for each. */
bool ldpc_decoder_solve(struct ldpc_decoder *decoder);

/* Returns what the last try cost: operations of a few nanoseconds, so that callers can try again
 * only after as many new symbols as pay for it. */
uint64_t ldpc_decoder_work(const struct ldpc_decoder *decoder);

/* Computes the missing source symbols. symbols: n pointers to size_bytes each; those of symbols
 * that arrived hold the bytes, those of missing source symbols receive them. Missing repair symbols
 * that are needed on the way go to the decoder's own memory; their pointers may be NULL. Call it
 * after ldpc_decoder_is_complete() or ldpc_decoder_solve() returned true. Returns 0, ENOMEM, or
 * EAGAIN (not decodable yet). */
int ldpc_decode(struct ldpc_decoder *decoder, size_t size_bytes, uint8_t *const symbols[]);

/* --- choosing a seed ---------------------------------------------------------------------------
 * Some seeds give matrices that need far more symbols than others. */

/* Returns how many symbols one reception needs if they arrive in a random order, which *state (1 to
 * LDPC_SEED_MAX) determines and which advances it. ml: with maximum likelihood. Returns 0 without
 * memory (errno ENOMEM). */
uint32_t ldpc_needed(const struct ldpc_matrix *matrix, uint32_t *state, bool ml);

/* Returns whether two symbols are in exactly the same rows: if both are missing, no row can give
 * either. Returns -1 without memory. */
int ldpc_has_twins(const struct ldpc_matrix *matrix);

/* Returns the mean number of symbols needed, divided by k, over `trials` receptions in random
 * orders that the matrix's seed determines. ml: with maximum likelihood. *worst, if not NULL,
 * receives the largest. Returns 0 without memory (errno ENOMEM). */
double ldpc_overhead(const struct ldpc_matrix *matrix, unsigned trials, bool ml, double *worst);

/* Returns the first seed from `seed` on that gives no twins and whose worst of `trials` receptions
 * needs at most `limit` times k symbols; if none of `attempts` seeds does, the best of them.
 * Returns 0 with errno as for ldpc_matrix_new(). */
uint32_t ldpc_choose_seed(enum ldpc_kind kind, uint32_t k, uint32_t n, unsigned n1, uint32_t seed,
                          unsigned trials, double limit, unsigned attempts);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * How a file is encoded for layered multicast.
 */
#ifndef M2C_CODING_H
#define M2C_CODING_H

#include <stdint.h>

/* Entries of a column. With 3, some blocks of a large file need 0.5 % more symbols than others,
 * which get 0.6 % duplicates meanwhile. Only iterative decoders would need more with 5. */
enum { M2C_N1 = 5 };

/* Returns how many repair symbols there are for each source symbol of a file. A receiver that hears
 * at most N symbols of a buffer needs k of n in k / N' buffers, N' being the mean; levels repeat
 * after n / N rounded up to a power of two. With 1 (M2C10) rate changes cost up to 1.4 %
 * duplicates, with 1.5 up to 0.5 % (m2c/tests/test_transfers.c). A small file ends before its rate
 * is even: with 1.5 up to 5 % of its symbols are duplicates, with 4 hardly any. */
static inline double m2c_overhead(uint64_t bytes)
{
    return bytes <= 16000000 ? 4 : 1.5;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A receiver takes the symbols' ids, order and code from the network: whatever arrives, it reads
 * and writes nothing beyond a symbol, and what it decodes equals what was encoded. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "ldpc.h"
#include "rs.h"

enum { SIZE = 4, K_MAX = 64 };

static void ldpc(const uint8_t *bytes, size_t count)
{
    uint32_t k = 2 + bytes[0] % K_MAX, n = k + 3 + bytes[1] % K_MAX;
    struct ldpc_matrix *m =
        ldpc_matrix_new(bytes[2] & 1, k, n, 3 + bytes[2] / 2 % 4, 1u + bytes[3]);
    if (!m)
        return;
    uint8_t sent[4 * K_MAX * SIZE], got[4 * K_MAX * SIZE], *symbols[4 * K_MAX], *places[4 * K_MAX];
    for (uint32_t i = 0; i < n; i++) {
        symbols[i] = sent + i * SIZE;
        places[i] = got + i * SIZE;
        memset(symbols[i], (int)(i * 31 + bytes[3]), SIZE);
    }
    if (ldpc_encode(m, SIZE, (const uint8_t *const *)symbols, symbols + k) != 0)
        abort();
    struct ldpc_decoder *d = ldpc_decoder_new(m);
    if (!d)
        abort();
    for (size_t i = 4; i < count; i++) {
        uint32_t id = bytes[i];
        enum ldpc_arrival arrival = ldpc_decoder_add(d, id);
        if ((arrival == LDPC_NO_SYMBOL) != (id >= n))
            abort();
        if (arrival == LDPC_NEW)
            memcpy(places[id], symbols[id], SIZE);
    }
    if (ldpc_decoder_solve(d) &&
        (ldpc_decode(d, SIZE, places) != 0 || memcmp(got, sent, k * SIZE) != 0))
        abort();
    ldpc_decoder_free(d);
    ldpc_matrix_free(m);
}

static void rs(const uint8_t *bytes, size_t count)
{
    unsigned k = 1 + bytes[0] % 16, n = k + 1 + bytes[1] % 16, ids[16];
    if (count < 4u + k)
        return;
    struct rs_code *code = rs_code_new((enum rs_kind)(bytes[2] / 2 % 3), k, n);
    if (!code)
        return;
    uint8_t sent[32 * SIZE], got[16 * SIZE] = {0}, *symbols[32], *out[16];
    const uint8_t *in[16];
    for (unsigned i = 0; i < n; i++) {
        symbols[i] = sent + i * SIZE;
        memset(symbols[i], (int)(i * 31 + bytes[3]), SIZE);
    }
    rs_encode(code, SIZE, (const uint8_t *const *)symbols, k, n - k, symbols + k);
    for (unsigned i = 0; i < k; i++)
        out[i] = got + i * SIZE;
    for (unsigned i = 0; i < k; i++) {
        ids[i] = bytes[4 + i];
        in[i] = ids[i] < n ? symbols[ids[i]] : NULL;
        if (ids[i] < k)
            memcpy(out[ids[i]], symbols[ids[i]], SIZE);
    }
    if (rs_decode(code, SIZE, ids, in, out) == 0 && memcmp(got, sent, k * SIZE) != 0)
        abort();
    rs_code_free(code);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count < 5)
        return 0;
    if (bytes[2] & 0x80)
        rs(bytes, count);
    else
        ldpc(bytes, count);
    return 0;
}

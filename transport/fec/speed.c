/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of the codes in MB of source data per second of processor time, one thread.
 *
 * Usage: fec-speed [K N SYMBOL_BYTES [SPARE]]: LDPC-Triangle, N1 = 3; encoding, iterative decoding
 * with 10 % of all symbols lost, and elimination with (1 + SPARE) * K symbols (default 0.02). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ldpc.h"

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint32_t *shuffled(uint32_t n, unsigned seed)
{
    uint32_t *order = malloc(n * sizeof *order);
    if (!order)
        exit(1);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    srand(seed);
    for (uint32_t i = n; i-- > 1;) {
        /* NOLINTNEXTLINE(cert-msc30-c,cert-msc50-cpp): any order serves a measurement */
        uint32_t j = (uint32_t)rand() % (i + 1), id = order[i];
        order[i] = order[j];
        order[j] = id;
    }
    return order;
}

struct result {
    double structure_s, bytes_s;
    uint32_t used;
};

/* Decode from the first symbols of a random order and check the result against the source. */
static struct result decode(const struct ldpc_matrix *m, size_t size_bytes, uint8_t *block,
                            uint32_t count, bool ml, unsigned seed)
{
    uint32_t k = ldpc_k(m), n = ldpc_n(m);
    uint32_t *order = shuffled(n, seed);
    uint8_t *got = calloc(n, size_bytes);
    uint8_t **symbols = malloc(n * sizeof *symbols);
    if (!got || !symbols)
        exit(1);
    for (uint32_t i = 0; i < n; i++)
        symbols[i] = got + i * size_bytes;
    for (uint32_t i = 0; i < count; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.ArraySubscript): count <= n */
        memcpy(symbols[order[i]], block + order[i] * size_bytes, size_bytes);
    struct result r = {0};
    double before = cpu_s();
    struct ldpc_decoder *d = ldpc_decoder_new(m);
    if (!d)
        exit(1);
    while (r.used < count && !ldpc_decoder_is_complete(d))
        ldpc_decoder_add(d, order[r.used++]);
    bool is_done = ldpc_decoder_is_complete(d) || (ml && ldpc_decoder_solve(d));
    r.structure_s = cpu_s() - before;
    before = cpu_s();
    if (!is_done || ldpc_decode(d, size_bytes, symbols) != 0 ||
        memcmp(got, block, k * size_bytes) != 0) {
        fprintf(stderr, "fec-speed: %u of %u symbols did not decode\n", count, n);
        r.used = 0;
    }
    r.bytes_s = cpu_s() - before;
    ldpc_decoder_free(d);
    free(order);
    free(got);
    free(symbols);
    return r;
}

static void show(const char *what, double mb, struct result r)
{
    if (r.used)
        printf("%-28s %8.0f MB/s  (%.1f ms for the structure, %.1f ms for the bytes, %u symbols)\n",
               what, mb / (r.structure_s + r.bytes_s), 1e3 * r.structure_s, 1e3 * r.bytes_s,
               r.used);
}

static void speed(uint32_t k, uint32_t n, size_t size_bytes, double spare)
{
    double before = cpu_s(), mb = k * (double)size_bytes / 1e6;
    struct ldpc_matrix *m = ldpc_matrix_new(LDPC_TRIANGLE, k, n, 3, 1);
    if (!m) {
        fprintf(stderr, "fec-speed: no code with k = %u, n = %u\n", k, n);
        exit(2);
    }
    printf("k = %u, n = %u, symbols of %zu bytes: matrix %.1f ms\n", k, n, size_bytes,
           1e3 * (cpu_s() - before));
    uint8_t *block = malloc(n * size_bytes);
    uint8_t **symbols = malloc(n * sizeof *symbols);
    if (!block || !symbols)
        exit(1);
    for (size_t i = 0; i < n * size_bytes; i++)
        block[i] = (uint8_t)rand(); /* NOLINT(cert-msc30-c,cert-msc50-cpp): as above */
    for (uint32_t i = 0; i < n; i++)
        symbols[i] = block + i * size_bytes;
    before = cpu_s();
    if (ldpc_encode(m, size_bytes, (const uint8_t *const *)symbols, symbols + k) != 0)
        exit(1);
    printf("%-28s %8.0f MB/s\n", "  encode", mb / (cpu_s() - before));
    show("  iterative, 10 % lost", mb, decode(m, size_bytes, block, n - n / 10, false, 1));
    for (unsigned seed = 1; seed <= 3; seed++)
        show("  elimination", mb,
             decode(m, size_bytes, block, (uint32_t)(k * (1 + spare)), true, seed));
    free(block);
    free(symbols);
    ldpc_matrix_free(m);
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    double spare = argc > 4 ? strtod(argv[4], NULL) : 0.02;
    if (argc >= 4) {
        speed(number(argv[1]), number(argv[2]), number(argv[3]), spare);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "usage: fec-speed [K N SYMBOL_BYTES [SPARE]]\n");
        return 2;
    }
    speed(1000, 1500, 1400, spare);
    speed(1000, 2000, 1400, spare);
    speed(10000, 15000, 1400, spare);
    speed(10000, 20000, 1400, spare);
    return 0;
}

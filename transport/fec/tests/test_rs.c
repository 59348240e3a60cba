/* SPDX-License-Identifier: Apache-2.0 */
/* Reed-Solomon: the parity matches that of three other programs, and any k of n symbols suffice. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rs.h"

/* The parity of source bytes 1, 2, 3, 200 according to the text of RFC 5510, to zfec 1.6 and
 * OpenFEC 1.4.2, and to reed-solomon-erasure 6. */
static void test_parity_of_other_programs(void **state)
{
    (void)state;
    static const struct {
        enum rs_kind kind;
        uint8_t parity[3];
    } others[] = {
        {RS_RFC5510, {166, 170, 234}}, {RS_RIZZO, {59, 194, 142}}, {RS_COUNTED, {14, 135, 2}}};
    const uint8_t bytes[] = {1, 2, 3, 200};
    const uint8_t *source[] = {bytes, bytes + 1, bytes + 2, bytes + 3};
    for (size_t i = 0; i < 3; i++) {
        struct rs_code *code = rs_code_new(others[i].kind, 4, 7);
        assert_non_null(code);
        uint8_t parity[3], *repair[] = {parity, parity + 1, parity + 2};
        rs_encode(code, 1, source, 4, 3, repair);
        assert_memory_equal(parity, others[i].parity, 3);
        parity[1] = 0;
        rs_encode(code, 1, source, 5, 1, repair + 1);
        assert_int_equal(parity[1], others[i].parity[1]);
        rs_code_free(code);
    }
}

static void test_what_is_no_code(void **state)
{
    (void)state;
    static const unsigned wrong[][2] = {{0, 4}, {4, 4}, {5, 4}, {4, 256}, {255, 255}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        errno = 0;
        assert_null(rs_code_new(RS_RFC5510, wrong[i][0], wrong[i][1]));
        assert_int_equal(errno, EINVAL);
    }
}

enum { SIZE = 37 };

static void try_one(const struct rs_code *code, unsigned k, unsigned n, uint8_t *bytes)
{
    unsigned ids[RS_N_MAX], order[RS_N_MAX];
    const uint8_t *symbols[RS_N_MAX];
    uint8_t *out[RS_N_MAX], *decoded = calloc(k, SIZE);
    assert_non_null(decoded);
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; i-- > 1;) {
        unsigned j = (unsigned)rand() % (i + 1), id = order[i];
        order[i] = order[j];
        order[j] = id;
    }
    for (unsigned i = 0; i < k; i++) {
        ids[i] = order[i];
        symbols[i] = bytes + ids[i] * SIZE;
        out[i] = decoded + i * SIZE;
        if (ids[i] < k)
            memcpy(decoded + ids[i] * SIZE, symbols[i], SIZE);
    }
    assert_int_equal(rs_decode(code, SIZE, ids, symbols, out), 0);
    assert_memory_equal(decoded, bytes, k * SIZE);
    free(decoded);
}

static void test_any_k_of_n(void **state)
{
    (void)state;
    static const unsigned codes[][2] = {{1, 2}, {1, 255}, {4, 7}, {32, 48}, {200, 255}, {254, 255}};
    srand(1);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        for (int kind = RS_RFC5510; kind <= RS_COUNTED; kind++) {
            unsigned k = codes[i][0], n = codes[i][1];
            struct rs_code *code = rs_code_new((enum rs_kind)kind, k, n);
            uint8_t *bytes = malloc(n * SIZE), *symbols[RS_N_MAX];
            assert_true(code && bytes);
            for (unsigned j = 0; j < n; j++)
                symbols[j] = bytes + j * SIZE;
            for (unsigned j = 0; j < k * SIZE; j++)
                bytes[j] = (uint8_t)rand();
            rs_encode(code, SIZE, (const uint8_t *const *)symbols, k, n - k, symbols + k);
            for (int trial = 0; trial < 10; trial++)
                try_one(code, k, n, bytes);
            free(bytes);
            rs_code_free(code);
        }
}

static void test_ids_that_are_wrong(void **state)
{
    (void)state;
    struct rs_code *code = rs_code_new(RS_RFC5510, 2, 4);
    uint8_t bytes[4] = {0}, *out[] = {bytes, bytes + 1};
    const uint8_t *symbols[] = {bytes + 2, bytes + 3};
    assert_int_equal(rs_decode(code, 1, (const unsigned[]){2, 4}, symbols, out), EINVAL);
    assert_int_equal(rs_decode(code, 1, (const unsigned[]){3, 3}, symbols, out), EINVAL);
    assert_int_equal(rs_decode(code, 1, (const unsigned[]){0, 1}, symbols, out), 0);
    rs_code_free(code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parity_of_other_programs),
        cmocka_unit_test(test_what_is_no_code),
        cmocka_unit_test(test_any_k_of_n),
        cmocka_unit_test(test_ids_that_are_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

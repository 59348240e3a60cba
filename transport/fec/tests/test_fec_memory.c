/* SPDX-License-Identifier: Apache-2.0 */
/* Let each allocation of the codes fail once: the call returns an error, and works when
 * repeated. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "failing_memory.h"
#include "ldpc.h"
#include "rs.h"

enum { K = 40, N = 60, SIZE = 8 };

struct kit {
    uint8_t bytes[N * SIZE], *symbols[N];
};

/* Run everything once. True: no allocation failed. */
static bool ldpc_once(struct kit *kit)
{
    bool is_done = false;
    struct ldpc_decoder *d = NULL;
    struct ldpc_matrix *m = ldpc_matrix_new(LDPC_TRIANGLE, K, N, 3, 1);
    if (!m) {
        assert_int_equal(errno, ENOMEM);
        return false;
    }
    int error = ldpc_encode(m, SIZE, (const uint8_t *const *)kit->symbols, kit->symbols + K);
    if (error) {
        assert_int_equal(error, ENOMEM);
        goto out;
    }
    d = ldpc_decoder_new(m);
    if (!d) {
        assert_int_equal(errno, ENOMEM);
        goto out;
    }
    for (uint32_t id = 16; id < N; id++)
        ldpc_decoder_add(d, id);
    assert_false(ldpc_decoder_is_complete(d));
    if (!ldpc_decoder_solve(d)) {
        assert_int_equal(errno, ENOMEM);
        goto out;
    }
    error = ldpc_decode(d, SIZE, kit->symbols);
    assert_true(error == 0 || error == ENOMEM);
    is_done = error == 0 && ldpc_overhead(m, 2, true, NULL) > 0;
out:
    ldpc_decoder_free(d);
    ldpc_matrix_free(m);
    return is_done;
}

static bool rs_once(struct kit *kit)
{
    struct rs_code *code = rs_code_new(RS_RIZZO, 4, 8);
    if (!code) {
        assert_int_equal(errno, ENOMEM);
        return false;
    }
    rs_encode(code, SIZE, (const uint8_t *const *)kit->symbols, 4, 4, kit->symbols + 4);
    int error = rs_decode(code, SIZE, (const unsigned[]){4, 5, 6, 7},
                          (const uint8_t *const *)kit->symbols + 4, kit->symbols);
    assert_true(error == 0 || error == ENOMEM);
    rs_code_free(code);
    return error == 0;
}

static void each_fails(bool (*once)(struct kit *))
{
    struct kit kit;
    unsigned failed = 0;
    for (unsigned n = 1;; n++) {
        for (size_t i = 0; i < sizeof kit.bytes; i++)
            kit.bytes[i] = (uint8_t)(i * 7);
        for (unsigned i = 0; i < N; i++)
            kit.symbols[i] = kit.bytes + i * SIZE;
        memory_fails_at(n);
        bool is_done = once(&kit);
        bool has_failed = memory_failed();
        failed += has_failed;
        if (!has_failed) {
            assert_true(is_done);
            break;
        }
        assert_false(is_done);
    }
    assert_true(failed >= 4);
    for (size_t i = 0; i < 4 * SIZE; i++)
        assert_int_equal(kit.bytes[i], (uint8_t)(i * 7));
}

static void test_ldpc(void **state)
{
    (void)state;
    each_fails(ldpc_once);
}

static void test_rs(void **state)
{
    (void)state;
    each_fails(rs_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ldpc), cmocka_unit_test(test_rs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

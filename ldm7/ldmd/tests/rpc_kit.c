/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc_kit.h"

const struct pq_info hereis_info = {.creation = {0x6b00d282, 0xca47c},
                                    .signature = {{0x9a, 0x0d, 0x74, 0x32}},
                                    .origin = "up",
                                    .feedtype = 0x40000000,
                                    .ident = "test.product.1",
                                    .size = 5000};

size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = 0;
    unsigned v;

    while (*hex != '\0') {
        if (*hex == ' ') {
            hex++;
            continue;
        }
        assert_int_equal(sscanf(hex, "%2x", &v), 1);
        out[n++] = (uint8_t)v;
        hex += 2;
    }
    return n;
}

void assert_bytes(const struct xout *x, const char *hex)
{
    uint8_t want[512];
    size_t n = unhex(hex, want);

    assert_false(x->overflow);
    assert_int_equal(x->len, n);
    assert_memory_equal(x->buf, want, n);
}

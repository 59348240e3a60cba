/* SPDX-License-Identifier: Apache-2.0 */
#include "repair_kit.h"

#include <string.h>

#include "fec.h"

const uint8_t repair_symbol[100] = {1, 2, 3};

void open_product(void)
{
    kit_open_extended(4, 0);
    fmtp_receiver_rtt(kit.r, 40 * MS);
    kit_bop(0, 1000);
    kit_expect_nothing();
}

void blocks(uint32_t from, uint32_t to)
{
    for (uint32_t b = from; b < to; b++)
        kit_datagram(FMTP_MEM_DATA, 0, b * 100, 100, (uint8_t)(b + 1));
}

void assert_product(void)
{
    for (int i = 0; i < 1000; i++)
        assert_int_equal(kit.data[i], i / 100 + 1);
}

const uint8_t *parity_of(uint32_t first, unsigned k, unsigned number)
{
    static uint8_t out[100];
    uint8_t *const outs[] = {out};
    const uint8_t *in[4];

    uint8_t data[4][100];
    for (unsigned i = 0; i < k; i++) {
        memset(data[i], (int)(first + i + 1), 100);
        in[i] = data[i];
    }
    fmtp_fec_encode(k, number, 1, 100, in, outs);
    return out;
}

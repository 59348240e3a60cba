/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds the sender's stream to the receiver core while four products are in flight. Input: a byte
 * of options (bit 0 layout, bits 1-2 size of the pieces, bit 3 extended), then the stream.
 */
#include "fuzz.h"
#include "rx.h"

static void begin_products(struct fmtp_receiver *r, enum fmtp_layout layout, uint32_t block)
{
    uint8_t bytes[64 + FMTP_DATA_LEN] = {0};

    for (uint32_t index = 0; index < 4; index++) {
        struct fmtp_bop bop = {.size_bytes = 2 * block * (index + 1) + 104};
        uint16_t len = (uint16_t)fmtp_bop_put(layout, bytes + FMTP_HEADER_LEN, &bop);
        struct fmtp_header h = {index, 0, len, FMTP_BOP};
        if (index != 2) {
            fmtp_header_put(bytes, &h);
            fmtp_receiver_datagram(r, bytes, bytes + FMTP_HEADER_LEN, len, 0);
        }
        h = (struct fmtp_header){index, block, (uint16_t)block, FMTP_MEM_DATA};
        fmtp_header_put(bytes, &h);
        fmtp_receiver_datagram(r, bytes, bytes + FMTP_HEADER_LEN, block, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 13, 700};

    if (size < 1)
        return 0;
    enum fmtp_layout layout = *data & 1 ? FMTP_LAYOUT_2021 : FMTP_LAYOUT_2017;
    size_t piece = pieces[*data >> 1 & 3];
    bool extended = *data & 8;
    struct rx rx;
    struct fmtp_receiver *r = rx_new(&rx, layout);
    if (!r)
        return 0;
    if (extended)
        rx_session(&rx, r, true, 0, 1);
    begin_products(r, layout, extended ? RX_BLOCK : FMTP_DATA_LEN);
    for (data++, size--; size;) {
        size_t n = piece < size ? piece : size;
        if (fmtp_receiver_stream(r, data, n, 1) < 0)
            break;
        rx_drain(r, n);
        data += n;
        size -= n;
    }
    rx_free(&rx, r);
    return 0;
}

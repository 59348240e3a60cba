/* SPDX-License-Identifier: Apache-2.0
 *
 * Datagrams into the receiver core. Input: layout byte, then records {length u16 big-endian,
 * bytes}; bit 15 of the length set: the low byte is a step of time instead.
 */
#include "fuzz.h"
#include "rx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rx rx;
    struct fmtp_receiver *r;
    uint64_t now_ns = 0;

    if (size < 1)
        return 0;
    r = rx_new(&rx, *data & 1 ? FMTP_LAYOUT_2021 : FMTP_LAYOUT_2017);
    if (!r)
        return 0;
    for (data++, size--; size >= 2;) {
        size_t n = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        if (n & 0x8000) {
            now_ns += (uint64_t)(n & 0xff) * 1000000;
            fmtp_receiver_timeout(r, now_ns);
            rx_drain(r, n & 0xff);
            continue;
        }
        n = n < size ? n : size;
        if (n < FMTP_HEADER_LEN)
            fmtp_receiver_bad_datagram(r);
        else
            fmtp_receiver_datagram(r, data, data + FMTP_HEADER_LEN, n - FMTP_HEADER_LEN, now_ns);
        data += n;
        size -= n;
    }
    rx_free(&rx, r);
    return 0;
}

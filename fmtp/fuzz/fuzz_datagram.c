/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds datagrams, time, pieces of the stream and new connections to the receiver core. Input:
 * options (bit 0 layout, bit 1 extended session), then records that begin with a u16, big-endian:
 *   0 000 length         a datagram of this many bytes, which follow
 *   1 --- ---- ms        a step of time in ms, after which as many bytes of output are taken
 *   0 1-- length         bytes of the sender's stream
 *   0 01- ---- -i eeeeee another connection: bit 6 same session or another, next index e
 */
#include "fuzz.h"
#include "rx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t now_ns = 0, id = 1;

    if (size < 1)
        return 0;
    struct rx rx;
    struct fmtp_receiver *r = rx_new(&rx, *data & 1 ? FMTP_LAYOUT_2021 : FMTP_LAYOUT_2017);
    if (!r)
        return 0;
    bool extended = *data & 2;
    if (extended)
        rx_session(&rx, r, true, 0, id);
    for (data++, size--; size >= 2;) {
        size_t n = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        if (n & 0x8000) {
            now_ns += (uint64_t)(n & 0xff) * 1000000;
            fmtp_receiver_timeout(r, now_ns);
            rx_drain(r, n & 0xff);
            rx_check(r);
            continue;
        }
        if (!(n & 0x4000) && n & 0x2000) {
            id += n >> 6 & 1;
            rx_session(&rx, r, extended, n & 63, id);
            rx_check(r);
            continue;
        }
        size_t len = n & 0x1fff;
        len = len < size ? len : size;
        if (!(n & 0x4000))
            rx_datagram(r, data, len, now_ns);
        else if (fmtp_receiver_stream(r, data, len, now_ns) < 0)
            rx_session(&rx, r, extended, 0, ++id);
        data += len;
        size -= len;
    }
    rx_free(&rx, r);
    return 0;
}

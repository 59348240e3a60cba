/* SPDX-License-Identifier: Apache-2.0 */
#include "identity.h"

#include <linux/if_ether.h>

enum {
    TAG_BYTES = 4,
    IPV4_BYTES = 20,
    NO_OPTIONS = 0x45,
    PROTOCOL_UDP = 17,
    UDP_LEAST_BYTES = 40,  /* IPv4 20, UDP 8, payload 12 */
    OTHER_LEAST_BYTES = 52 /* IPv4 20, TCP 20, time stamps 12 */
};

static uint32_t half_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t fold(uint32_t h, const uint8_t *packet, const size_t *offsets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = packet + offsets[i];
        h = (h ^ (half_at(at) << 16 | half_at(at + 2))) * UINT32_C(0x9e3779b1);
    }
    return h;
}

bool identity_hash(const uint8_t *frame, size_t size_bytes, uint64_t seed, uint32_t *hash)
{
    static const size_t first[] = {0};
    static const size_t udp[] = {28, 32, 36};
    static const size_t other[] = {24, 28, 44, 48};
    static const size_t header[] = {4, 8};
    size_t at = (size_t)2 * ETH_ALEN;
    if (size_bytes < at + 2)
        return false;
    uint32_t type = half_at(frame + at);
    while ((type == ETH_P_8021Q || type == ETH_P_8021AD) && size_bytes >= at + TAG_BYTES + 2) {
        at += TAG_BYTES;
        type = half_at(frame + at);
    }
    at += 2;
    if (type != ETH_P_IP || size_bytes - at < IPV4_BYTES)
        return false;
    const uint8_t *packet = frame + at;
    uint32_t length = half_at(packet + 2);
    if (length > size_bytes - at)
        return false;
    uint32_t h = fold((uint32_t)(seed >> 32), packet, first, 1);
    if (packet[0] == NO_OPTIONS && packet[9] == PROTOCOL_UDP && length >= UDP_LEAST_BYTES) {
        h = fold(h, packet, udp, sizeof udp / sizeof udp[0]);
    } else {
        if (packet[0] == NO_OPTIONS && packet[9] != PROTOCOL_UDP && length >= OTHER_LEAST_BYTES)
            h = fold(h, packet, other, sizeof other / sizeof other[0]);
        h = fold(h, packet, header, sizeof header / sizeof header[0]);
    }
    h = (h ^ h >> 16) * UINT32_C(0x85ebca6b) ^ (uint32_t)seed;
    *hash = (h ^ h >> 13) * UINT32_C(0xc2b2ae35);
    return true;
}

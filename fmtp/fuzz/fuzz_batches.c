/* SPDX-License-Identifier: Apache-2.0
 *
 * The batched receive path: datagrams over the loopback interface, which the kernel writes to the
 * places that the core predicts, or which the application stores; it frees a product's memory as
 * soon as the product ends. Input: options (bit 0 MAC level 1, bit 1 the application stores), then
 * records that begin with a u16, big-endian: 1 --- ---- ms        reads and delivers what was sent;
 * then a step of time in ms 0 f-- length         a datagram of this many bytes, which follow, with
 * its MAC; f: a wrong one 0 -1- length         the bytes as datagrams of 12+64 bytes in one message
 * (GSO)
 */
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "multicast_in.h"
#include "rx.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { FORGED = 0x4000, RUN = 0x2000, PDU = FMTP_HEADER_LEN + RX_BLOCK, RUN_MAX = 64 };

static struct {
    int in_fd, out_fd;
    struct fmtp_mac *signer, *verifier;
} fixed = {-1, -1, NULL, NULL};

static bool set_up(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    size_t key_len;

    if (fixed.verifier)
        return true;
    fixed.in_fd = socket(AF_INET, SOCK_DGRAM, 0);
    fixed.out_fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(fixed.in_fd, (struct sockaddr *)&at, sizeof at) < 0 ||
        getsockname(fixed.in_fd, (struct sockaddr *)&at, &len) < 0 ||
        connect(fixed.out_fd, (struct sockaddr *)&at, sizeof at) < 0)
        return false;
    fixed.signer = fmtp_mac_new_signer(1);
    const uint8_t *key = fmtp_mac_key(fixed.signer, &key_len);
    fixed.verifier = fmtp_mac_new_verifier(key, key_len);
    return fixed.verifier;
}

/* Copies a datagram and appends its MAC, if MACs are in use; returns the length. */
static size_t seal(uint8_t *out, const uint8_t *bytes, size_t len, bool mac, bool forge)
{
    struct iovec all = {out, len};

    memcpy(out, bytes, len);
    if (!mac)
        return len;
    if (fmtp_mac_sign(fixed.signer, &all, 1, out + len) < 0)
        abort();
    out[len] ^= forge;
    return len + fmtp_mac_len(fixed.signer);
}

static void send_one(const uint8_t *bytes, size_t len, bool mac, bool forge)
{
    static uint8_t out[0x2000 + FMTP_MAC_MAX];

    (void)!send(fixed.out_fd, out, seal(out, bytes, len, mac, forge), MSG_DONTWAIT);
}

static void send_run(const uint8_t *bytes, size_t len, bool mac, bool forge)
{
    static uint8_t out[RUN_MAX * (PDU + FMTP_MAC_MAX)];
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(uint16_t))] = {0};
    size_t seg = PDU + (mac ? fmtp_mac_len(fixed.signer) : 0), n = 0;

    for (size_t at = 0; at + PDU <= len && n < RUN_MAX; at += PDU, n++)
        seal(out + n * seg, bytes + at, PDU, mac, forge && at == 0);
    struct iovec all = {out, n * seg};
    struct msghdr m = {
        .msg_iov = &all, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
    memcpy(CMSG_DATA(c), &(uint16_t){(uint16_t)seg}, sizeof(uint16_t));
    if (n)
        (void)!sendmsg(fixed.out_fd, &m, MSG_DONTWAIT);
}

static void deliver(struct fmtp_multicast_in *in, struct rx *rx, struct fmtp_receiver *r,
                    uint64_t now_ns)
{
    while (fmtp_multicast_in_read(in, r))
        fmtp_multicast_in_deliver(in, r, now_ns);
    rx_abandon(rx, r);
    rx_check(r);
}

static void play(struct fmtp_multicast_in *in, struct rx *rx, struct fmtp_receiver *r, bool mac,
                 const uint8_t *data, size_t size)
{
    uint64_t now_ns = 0;

    while (size >= 2) {
        size_t n = (size_t)data[0] << 8 | data[1];
        data += 2;
        size -= 2;
        if (n & 0x8000) {
            deliver(in, rx, r, now_ns);
            now_ns += (uint64_t)(n & 0xff) * 1000000;
            fmtp_receiver_timeout(r, now_ns);
            rx_drain(r, n & 0xff);
            rx_check(r);
            continue;
        }
        size_t len = n & 0x1fff;
        len = len < size ? len : size;
        (n & RUN ? send_run : send_one)(data, len, mac, n & FORGED);
        data += len;
        size -= len;
    }
    deliver(in, rx, r, now_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || !set_up())
        return 0;
    struct rx rx;
    struct fmtp_receiver *r = (*data & 2 ? rx_new_storing : rx_new)(&rx, FMTP_LAYOUT_2021);
    struct fmtp_multicast_in *in = r ? fmtp_multicast_in_new(dup(fixed.in_fd)) : NULL;
    if (in) {
        fmtp_multicast_in_set_mac(in, *data & 1 ? fixed.verifier : NULL);
        if (rx.storing)
            fmtp_multicast_in_set_store(in, rx_store, &rx);
        rx_session(&rx, r, true, 0, 1);
        play(in, &rx, r, *data & 1, data + 1, size - 1);
    }
    if (r)
        rx_free(&rx, r);
    fmtp_multicast_in_close(in);
    return 0;
}

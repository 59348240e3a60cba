/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Destination and source address: what precedes a VLAN tag. */
static const size_t ADDRESSES_BYTES = 2u * (size_t)ETH_ALEN;

enum { TAG_BYTES = 4, BLOCK_BYTES = 1 << 16 };

static int failed(char *error, size_t size, const char *interface, const char *what)
{
    snprintf(error, size, "%s: %s: %s", interface, what, strerror(errno));
    return -1;
}

static int bind_to(int fd, int protocol, unsigned index)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons((uint16_t)protocol),
                                  .sll_ifindex = (int)index};
    return bind(fd, (struct sockaddr *)&address, sizeof address);
}

static int mtu_of(int fd, const char *interface)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    return ioctl(fd, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : -1;
}

int ring_open(struct ring *ring, const char *interface, unsigned *slots, char *error,
              size_t error_size)
{
    memset(ring, 0, sizeof *ring);
    ring->fd = -1;
    unsigned index = if_nametoindex(interface);
    if (index == 0)
        return failed(error, error_size, interface, "interface");

    /* Protocol 0: nothing is received before the ring is ready. */
    ring->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (ring->fd < 0)
        return failed(error, error_size, interface, "packet socket");

    int version = TPACKET_V2;
    int on = 1;
    unsigned reserve = TAG_BYTES; /* room to restore a VLAN tag */
    if (setsockopt(ring->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0)
        return failed(error, error_size, interface, "PACKET_VERSION");
    if (setsockopt(ring->fd, SOL_PACKET, PACKET_RESERVE, &reserve, sizeof reserve) != 0)
        return failed(error, error_size, interface, "PACKET_RESERVE");
    /* The other direction's frames leave by this interface; the ring must not receive them. */
    if (setsockopt(ring->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0)
        return failed(error, error_size, interface, "PACKET_IGNORE_OUTGOING (needs Linux 4.20)");

    int mtu = mtu_of(ring->fd, interface);
    if (mtu < 0)
        return failed(error, error_size, interface, "MTU");
    size_t need = TPACKET2_HDRLEN + 16 + TAG_BYTES + (size_t)mtu + ETH_HLEN + TAG_BYTES;
    ring->slot_bytes = 2048;
    while (ring->slot_bytes < need)
        ring->slot_bytes *= 2;
    size_t block = ring->slot_bytes > BLOCK_BYTES ? ring->slot_bytes : BLOCK_BYTES;
    unsigned per_block = (unsigned)(block / ring->slot_bytes);
    unsigned blocks = (*slots + per_block - 1) / per_block;
    struct tpacket_req request = {.tp_block_size = (unsigned)block,
                                  .tp_block_nr = blocks,
                                  .tp_frame_size = (unsigned)ring->slot_bytes,
                                  .tp_frame_nr = blocks * per_block};
    if (setsockopt(ring->fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        return failed(error, error_size, interface, "PACKET_RX_RING");
    ring->slots = request.tp_frame_nr;
    *slots = ring->slots;
    ring->n_bytes = (size_t)blocks * block;
    void *bytes = mmap(NULL, ring->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
    if (bytes == MAP_FAILED)
        return failed(error, error_size, interface, "mmap of the ring");
    ring->bytes = bytes;
    if (bind_to(ring->fd, ETH_P_ALL, index) != 0)
        return failed(error, error_size, interface, "bind");
    return 0;
}

void ring_close(struct ring *ring)
{
    if (ring->bytes)
        munmap(ring->bytes, ring->n_bytes);
    if (ring->fd >= 0)
        close(ring->fd);
    ring->bytes = NULL;
    ring->fd = -1;
}

struct tpacket2_hdr *ring_slot(const struct ring *ring, unsigned index)
{
    return (struct tpacket2_hdr *)(void *)(ring->bytes + (size_t)index * ring->slot_bytes);
}

uint32_t ring_status(struct tpacket2_hdr *header)
{
    return __atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE);
}

int64_t ring_arrival_ns(const struct tpacket2_hdr *header)
{
    return (int64_t)header->tp_sec * 1000000000 + header->tp_nsec;
}

void ring_give_back(struct tpacket2_hdr *header)
{
    __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
}

struct iovec ring_frame(struct tpacket2_hdr *header, uint32_t status)
{
    uint8_t *frame = (uint8_t *)header + header->tp_mac;
    size_t size = header->tp_snaplen;
    if ((status & TP_STATUS_VLAN_VALID) && size >= ADDRESSES_BYTES) {
        uint16_t tpid = (status & TP_STATUS_VLAN_TPID_VALID) ? header->tp_vlan_tpid : ETH_P_8021Q;
        memmove(frame - TAG_BYTES, frame, ADDRESSES_BYTES);
        frame -= TAG_BYTES;
        size += TAG_BYTES;
        uint8_t *tag = frame + ADDRESSES_BYTES;
        tag[0] = (uint8_t)(tpid >> 8);
        tag[1] = (uint8_t)tpid;
        tag[2] = (uint8_t)(header->tp_vlan_tci >> 8);
        tag[3] = (uint8_t)header->tp_vlan_tci;
    }
    return (struct iovec){.iov_base = frame, .iov_len = size};
}

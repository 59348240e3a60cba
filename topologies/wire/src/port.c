/* SPDX-License-Identifier: Apache-2.0 */
#include "port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Destination and source address: what precedes a tag. */
static const size_t ADDRESSES_BYTES = 2u * (size_t)ETH_ALEN;

enum {
    TAG_BYTES = 4,
    BATCH = 64,
    BLOCK_BYTES = 1 << 16,
    /* Frames wait in the qdisc of the outgoing interface charged to our socket: its limit is the
     * qdisc's, not ours. */
    SEND_BUFFER_BYTES = 1 << 30
};

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

int port_open_sender(char *error, size_t error_size)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0); /* protocol 0: receives nothing */
    int size = SEND_BUFFER_BYTES;
    if (fd < 0)
        return failed(error, error_size, "sender", "packet socket");
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) != 0) {
        close(fd);
        return failed(error, error_size, "sender", "SO_SNDBUFFORCE");
    }
    return fd;
}

int port_open(struct port *port, const char *in, const char *out, int tx, unsigned *slots,
              char *error, size_t error_size)
{
    memset(port, 0, sizeof *port);
    port->rx = -1;
    port->tx = tx;
    unsigned in_index = if_nametoindex(in);
    if (in_index == 0)
        return failed(error, error_size, in, "interface");
    unsigned out_index = if_nametoindex(out);
    if (out_index == 0)
        return failed(error, error_size, out, "interface");

    /* Protocol 0: nothing is received before the ring is ready. */
    port->rx = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (port->rx < 0)
        return failed(error, error_size, in, "packet socket");

    int version = TPACKET_V2;
    int on = 1;
    unsigned reserve = TAG_BYTES; /* room to put a VLAN tag back */
    if (setsockopt(port->rx, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0)
        return failed(error, error_size, in, "PACKET_VERSION");
    if (setsockopt(port->rx, SOL_PACKET, PACKET_RESERVE, &reserve, sizeof reserve) != 0)
        return failed(error, error_size, in, "PACKET_RESERVE");
    /* The other direction's line sends on this interface. */
    if (setsockopt(port->rx, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0)
        return failed(error, error_size, in, "PACKET_IGNORE_OUTGOING (needs Linux 4.20)");

    int mtu = mtu_of(port->rx, in);
    if (mtu < 0)
        return failed(error, error_size, in, "MTU");
    size_t need = TPACKET2_HDRLEN + 16 + TAG_BYTES + (size_t)mtu + ETH_HLEN + TAG_BYTES;
    port->slot_bytes = 2048;
    while (port->slot_bytes < need)
        port->slot_bytes *= 2;
    size_t block = port->slot_bytes > BLOCK_BYTES ? port->slot_bytes : BLOCK_BYTES;
    unsigned per_block = (unsigned)(block / port->slot_bytes);
    unsigned blocks = (*slots + per_block - 1) / per_block;
    struct tpacket_req request = {.tp_block_size = (unsigned)block,
                                  .tp_block_nr = blocks,
                                  .tp_frame_size = (unsigned)port->slot_bytes,
                                  .tp_frame_nr = blocks * per_block};
    if (setsockopt(port->rx, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        return failed(error, error_size, in, "PACKET_RX_RING");
    port->slots = request.tp_frame_nr;
    *slots = port->slots;
    port->ring_bytes = (size_t)blocks * block;
    void *ring = mmap(NULL, port->ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, port->rx, 0);
    if (ring == MAP_FAILED)
        return failed(error, error_size, in, "mmap of the ring");
    port->ring = ring;

    port->out = (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_ifindex = (int)out_index};
    if (bind_to(port->rx, ETH_P_ALL, in_index) != 0)
        return failed(error, error_size, in, "bind");
    return 0;
}

void port_close(struct port *port)
{
    if (port->ring)
        munmap(port->ring, port->ring_bytes);
    if (port->rx >= 0)
        close(port->rx);
    port->ring = NULL;
    port->rx = -1;
}

void port_clear_error(int fd)
{
    int error;
    socklen_t size = sizeof error;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
}

static struct tpacket2_hdr *slot(const struct port *port, unsigned index)
{
    return (struct tpacket2_hdr *)(void *)(port->ring + (size_t)index * port->slot_bytes);
}

static uint32_t status_of(struct tpacket2_hdr *header)
{
    return __atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE);
}

static void give_back(struct tpacket2_hdr *header)
{
    __atomic_store_n(&header->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
}

/* The frame as it was on the wire: a tag that the kernel took off is put back in place. */
static struct iovec frame_of(struct tpacket2_hdr *header, uint32_t status)
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

struct batch {
    size_t n;
    struct mmsghdr messages[BATCH];
    struct iovec frames[BATCH];
    int64_t due_ns[BATCH];
};

static void send_batch(struct port *port, struct line *line, struct batch *batch, int64_t now_ns)
{
    size_t done = 0;
    while (done < batch->n) {
        int sent =
            sendmmsg(port->tx, &batch->messages[done], (unsigned)(batch->n - done), MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent > 0) {
            for (int i = 0; i < sent; i++, done++)
                line_count(line, LINE_SENT, batch->due_ns[done], now_ns,
                           batch->frames[done].iov_len);
            continue;
        }
        line_count(line, errno == ENOBUFS ? LINE_QUEUE_DROPPED : LINE_SEND_FAILED,
                   batch->due_ns[done], now_ns, batch->frames[done].iov_len);
        done++;
    }
    batch->n = 0;
}

size_t port_serve(struct port *port, struct line *line, int64_t now_ns)
{
    size_t taken = 0;
    struct batch batch;
    memset(batch.messages, 0, sizeof batch.messages);
    /* At most one turn of the ring, so that a flood on one line cannot starve the others. */
    while (taken < port->slots) {
        size_t first = port->head;
        size_t n = 0;
        batch.n = 0;
        while (n < BATCH && taken + n < port->slots) {
            struct tpacket2_hdr *header = slot(port, (unsigned)((first + n) % port->slots));
            uint32_t status = status_of(header);
            if (!(status & TP_STATUS_USER))
                break;
            int64_t arrival_ns = (int64_t)header->tp_sec * 1000000000 + header->tp_nsec;
            int64_t due_ns = line_head(line, arrival_ns, now_ns);
            if (due_ns > now_ns)
                break;
            line_pop(line);
            n++;
            if (header->tp_snaplen < header->tp_len) {
                line_count(line, LINE_TRUNCATED, due_ns, now_ns, header->tp_len);
                continue;
            }
            if (status & TP_STATUS_CSUMNOTREADY)
                line->stats.partial_checksum++;
            struct iovec frame = frame_of(header, status);
            if (line_loses(line, frame.iov_base, frame.iov_len)) {
                line_count(line, LINE_LOST, due_ns, now_ns, header->tp_len);
                continue;
            }
            batch.frames[batch.n] = frame;
            batch.messages[batch.n].msg_hdr.msg_name = &port->out;
            batch.messages[batch.n].msg_hdr.msg_namelen = sizeof port->out;
            batch.messages[batch.n].msg_hdr.msg_iov = &batch.frames[batch.n];
            batch.messages[batch.n].msg_hdr.msg_iovlen = 1;
            batch.due_ns[batch.n] = due_ns;
            batch.n++;
        }
        if (n == 0)
            break;
        send_batch(port, line, &batch, now_ns);
        for (size_t i = 0; i < n; i++)
            give_back(slot(port, (unsigned)((first + i) % port->slots)));
        port->head = (unsigned)((first + n) % port->slots);
        taken += n;
    }
    /* Let the scheduler know of the frame at the head, whatever ended the loop. */
    struct tpacket2_hdr *header = slot(port, port->head);
    if (status_of(header) & TP_STATUS_USER)
        (void)line_head(line, (int64_t)header->tp_sec * 1000000000 + header->tp_nsec, now_ns);
    return taken;
}

void port_collect_drops(const struct port *port, struct line *line)
{
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;
    if (getsockopt(port->rx, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
        line->stats.ring_dropped += stats.tp_drops;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "port.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    BATCH = 64,
    /* Frames waiting in the outgoing interface's qdisc are charged to our socket: the qdisc's limit
     * must apply, not the socket's. */
    SEND_BUFFER_BYTES = 1 << 30
};

static int failed(char *error, size_t size, const char *interface, const char *what)
{
    snprintf(error, size, "%s: %s: %s", interface, what, strerror(errno));
    return -1;
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
    port->ring.fd = -1;
    port->tx = tx;
    unsigned out_index = if_nametoindex(out);
    if (out_index == 0)
        return failed(error, error_size, out, "interface");
    port->out = (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_ifindex = (int)out_index};
    return ring_open(&port->ring, in, slots, error, error_size);
}

void port_close(struct port *port)
{
    ring_close(&port->ring);
}

void port_clear_error(int fd)
{
    int error;
    socklen_t size = sizeof error;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
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
    /* At most one turn of the ring, so that a flooded line cannot starve the others. */
    while (taken < port->ring.slots) {
        size_t first = port->head;
        size_t n = 0;
        batch.n = 0;
        while (n < BATCH && taken + n < port->ring.slots) {
            struct tpacket2_hdr *header =
                ring_slot(&port->ring, (unsigned)((first + n) % port->ring.slots));
            uint32_t status = ring_status(header);
            if (!(status & TP_STATUS_USER))
                break;
            int64_t arrival_ns = ring_arrival_ns(header);
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
            struct iovec frame = ring_frame(header, status);
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
            ring_give_back(ring_slot(&port->ring, (unsigned)((first + i) % port->ring.slots)));
        port->head = (unsigned)((first + n) % port->ring.slots);
        taken += n;
    }
    /* Tell the scheduler about the frame at the head, however the loop ended. */
    struct tpacket2_hdr *header = ring_slot(&port->ring, port->head);
    if (ring_status(header) & TP_STATUS_USER)
        (void)line_head(line, ring_arrival_ns(header), now_ns);
    return taken;
}

void port_collect_drops(const struct port *port, struct line *line)
{
    struct tpacket_stats stats;
    socklen_t size = sizeof stats;
    if (getsockopt(port->ring.fd, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0)
        line->stats.ring_dropped += stats.tp_drops;
}

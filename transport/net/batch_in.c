/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_in.h"

#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

#include "sockets.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

enum {
    MESSAGES = 32,        /* per recvmmsg */
    MESSAGE_BYTES = 65536 /* the largest message, including a run of datagrams */
};

struct tp_batch_in {
    int fd;
    struct mmsghdr msgs[MESSAGES];
    struct iovec parts[MESSAGES];
    struct sockaddr_storage from[MESSAGES];
    struct {
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    } control[MESSAGES];
    uint8_t bytes[MESSAGES][MESSAGE_BYTES];
};

void tp_enable_gro(int fd)
{
    tp_set_option(fd, SOL_UDP, UDP_GRO, 1);
}

size_t tp_gro_segment_len(struct msghdr *h, size_t len)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c))
        if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            if (size > 0 && (size_t)size < len)
                return (size_t)size;
        }
    return len;
}

uint64_t tp_socket_drops(int fd)
{
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof info;

    return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) == 0 ? info[SK_MEMINFO_DROPS] : 0;
}

struct tp_batch_in *tp_batch_in_new(int fd)
{
    struct tp_batch_in *in = calloc(1, sizeof *in);

    if (!in)
        return NULL;
    in->fd = fd;
    tp_enable_gro(fd);
    return in;
}

void tp_batch_in_free(struct tp_batch_in *in)
{
    free(in);
}

static void prepare(struct tp_batch_in *in)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        in->parts[i] = (struct iovec){in->bytes[i], MESSAGE_BYTES};
        in->msgs[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &in->from[i],
                                                   .msg_namelen = sizeof in->from[i],
                                                   .msg_iov = &in->parts[i],
                                                   .msg_iovlen = 1,
                                                   .msg_control = in->control[i].room,
                                                   .msg_controllen = sizeof in->control[i].room}};
    }
}

unsigned tp_batch_in_read(struct tp_batch_in *in, tp_datagram_fn *give, void *ctx)
{
    unsigned datagrams = 0;

    prepare(in);
    int n = recvmmsg(in->fd, in->msgs, MESSAGES, MSG_DONTWAIT, NULL);
    for (int i = 0; i < n; i++) {
        size_t len = in->msgs[i].msg_len;
        size_t segment = tp_gro_segment_len(&in->msgs[i].msg_hdr, len), at = 0;
        do {
            give(ctx, in->bytes[i] + at, len - at < segment ? len - at : segment, &in->from[i]);
            at += segment;
            datagrams++;
        } while (at < len);
    }
    return datagrams;
}

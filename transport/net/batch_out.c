/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_out.h"

#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define SECOND_NS UINT64_C(1000000000)
/* A GSO run takes at most this long at the multicast rate: below 240 Mbit/s every datagram is sent
 * alone. */
#define GSO_BURST_NS UINT64_C(100000)
enum {
    BATCH_UNGROUPED = 32, /* datagrams per call without GSO */
    MAX_MESSAGES = 64,    /* per call */
    GSO_SEGMENTS = 64,    /* UDP_MAX_SEGMENTS of older kernels */
    GSO_BYTES = 65000,
};

struct messages {
    struct mmsghdr msgs[MAX_MESSAGES];
    unsigned datagrams[MAX_MESSAGES];
    struct {
        _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(uint16_t))];
    } control[MAX_MESSAGES];
    unsigned count;
};

unsigned tp_gso_limit(uint64_t rate_bps, size_t len, unsigned overhead)
{
    uint64_t n = GSO_SEGMENTS;

    if (n > GSO_BYTES / len)
        n = GSO_BYTES / len;
    if (rate_bps && n > rate_bps / 8 * GSO_BURST_NS / SECOND_NS / (len + overhead))
        n = rate_bps / 8 * GSO_BURST_NS / SECOND_NS / (len + overhead);
    return n < 1 ? 1 : (unsigned)n;
}

bool tp_batch_out_ready(struct tp_batch_out *o, uint64_t now_ns)
{
    if (o->full || now_ns < o->retry_ns)
        return false;
    tp_pace_forgive(&o->pace, now_ns);
    return !tp_pace_holds(&o->pace, now_ns);
}

unsigned tp_batch_out_most(const struct tp_batch_out *o, size_t len, unsigned n, uint64_t now_ns)
{
    unsigned whole = o->gso_max > 1        ? n - n % o->gso_max
                     : n < BATCH_UNGROUPED ? n
                                           : BATCH_UNGROUPED;

    return (unsigned)tp_pace_most(&o->pace, len, whole, now_ns);
}

/* How many of the datagrams the pace permits now. */
static unsigned paced(const struct tp_batch_out *o, const struct tp_datagrams *d, uint64_t now_ns)
{
    uint64_t at = o->pace.next_ns;
    unsigned i = 0;

    if (!o->pace.rate_bps)
        return d->count;
    for (; i < d->count && at <= now_ns + (i ? TP_PACE_BURST_NS : 0); i++)
        at += tp_pace_cost_ns(&o->pace, d->len(d->ctx, i));
    return i;
}

static void segment(struct messages *m, unsigned k, size_t size)
{
    struct msghdr *h = &m->msgs[k].msg_hdr;
    uint16_t bytes = (uint16_t)size;

    h->msg_control = m->control[k].room;
    h->msg_controllen = sizeof m->control[k].room;
    struct cmsghdr *c = CMSG_FIRSTHDR(h);
    c->cmsg_level = SOL_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof bytes);
    memcpy(CMSG_DATA(c), &bytes, sizeof bytes);
}

/* Packs the first n datagrams into messages: a run has equal lengths, except for a shorter last
 * one. */
static void pack(const struct tp_batch_out *o, const struct tp_datagrams *d, unsigned n,
                 struct iovec *parts, struct messages *m)
{
    size_t nparts = 0;

    m->count = 0;
    for (unsigned i = 0; i < n && m->count < MAX_MESSAGES;) {
        unsigned k = m->count, begin = i;
        size_t size = d->len(d->ctx, i), bytes = 0, first = nparts;
        bool last = false;
        while (i < n && !last && i - begin < o->gso_max) {
            size_t len = d->len(d->ctx, i);
            if ((i > begin && bytes + len > GSO_BYTES) || len > size)
                break;
            nparts += d->parts(d->ctx, i, parts + nparts);
            bytes += len;
            last = len < size;
            i++;
        }
        m->msgs[k] =
            (struct mmsghdr){.msg_hdr = {.msg_iov = parts + first, .msg_iovlen = nparts - first}};
        m->datagrams[k] = i - begin;
        if (i - begin > 1)
            segment(m, k, size);
        m->count++;
    }
}

/* Handles a first message that the system did not accept. Returns how many datagrams are lost with
 * it. */
static unsigned refused(struct tp_batch_out *o, const struct messages *m, int error,
                        uint64_t now_ns)
{
    if (error == EAGAIN) {
        o->full = true;
    } else if (error == ENOBUFS || error == ENOMEM) {
        o->retry_ns = now_ns + SECOND_NS / 1000;
    } else if (m->datagrams[0] > 1 &&
               (error == EINVAL || error == EIO || error == ENOPROTOOPT || error == EOPNOTSUPP)) {
        o->gso_max = 1; /* this kernel or device cannot segment */
    } else if (error != EINTR) {
        /* Interface down, no route, refused by a filter, over the MTU: it counts as lost in the
         * network. */
        o->send_errors += m->datagrams[0];
        if (error == EMSGSIZE)
            o->too_long += m->datagrams[0];
        return m->datagrams[0];
    }
    return 0;
}

unsigned tp_batch_out_send(struct tp_batch_out *o, const struct tp_datagrams *d,
                           struct iovec *parts, uint64_t now_ns)
{
    unsigned gone = 0;

    struct messages m;
    pack(o, d, paced(o, d, now_ns), parts, &m);
    if (!m.count)
        return 0;
    int sent = sendmmsg(o->fd, m.msgs, m.count, MSG_DONTWAIT);
    if (sent < 0) {
        gone = refused(o, &m, errno, now_ns);
    } else {
        o->messages += (unsigned)sent;
        for (int i = 0; i < sent; i++)
            gone += m.datagrams[i];
    }
    for (unsigned i = 0; i < gone; i++)
        o->pace.next_ns += tp_pace_cost_ns(&o->pace, d->len(d->ctx, i));
    o->datagrams += gone;
    return gone;
}

uint64_t tp_batch_out_waits_until(const struct tp_batch_out *o, uint64_t now_ns)
{
    uint64_t until = o->retry_ns > now_ns ? o->retry_ns : 0;

    if (!o->full && tp_pace_holds(&o->pace, now_ns) && o->pace.next_ns > until)
        until = o->pace.next_ns;
    return o->full ? 0 : until;
}

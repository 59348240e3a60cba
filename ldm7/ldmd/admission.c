/* SPDX-License-Identifier: Apache-2.0 */
#include "admission.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ldmrpc.h"

#define CREDENTIALS_MAX 400u /* RFC 5531 8.2 */

struct candidate {
    struct candidate *older, *newer; /* by age; newer also links the free entries */
    struct admission *owner;
    struct loop_source src;
    struct in_addr from;
    uint64_t due_ns;
};

struct admission {
    struct loop *loop;
    struct admission_limits limits;
    void (*speaks)(void *ctx, int fd, struct in_addr from);
    void *ctx;
    struct candidate *oldest, *newest, *free;
    struct admission_stats stats;
    struct candidate candidates[];
};

bool admission_plausible(const uint8_t head[ADMISSION_HEAD_BYTES])
{
    struct xin x;
    xin_init(&x, head, ADMISSION_HEAD_BYTES);
    uint32_t bytes = xin_u32(&x) & 0x7fffffffu;
    if (bytes < ADMISSION_HEAD_BYTES - 4 || bytes > RPC_HEAD_MAX)
        return false;
    xin_u32(&x); /* xid */
    uint32_t type = xin_u32(&x);
    uint32_t version = xin_u32(&x);
    if (type != 0 || version != 2)
        return false; /* not a call, or another version of RPC */
    xin_u32(&x);      /* program, version, procedure: the child answers */
    xin_u32(&x);
    xin_u32(&x);
    xin_u32(&x); /* flavour */
    return xin_u32(&x) <= CREDENTIALS_MAX;
}

struct admission *admission_new(struct loop *loop, struct admission_limits limits,
                                void (*speaks)(void *ctx, int fd, struct in_addr from), void *ctx)
{
    struct admission *a = calloc(1, sizeof *a + limits.total * sizeof a->candidates[0]);

    if (!a)
        return NULL;
    a->loop = loop;
    a->limits = limits;
    a->speaks = speaks;
    a->ctx = ctx;
    for (unsigned i = 0; i < limits.total; i++) {
        a->candidates[i].owner = a;
        a->candidates[i].src.fd = -1;
        a->candidates[i].newer = a->free;
        a->free = &a->candidates[i];
    }
    return a;
}

/* Forgets a candidate and returns its descriptor, which the caller now owns. */
static int part(struct candidate *v)
{
    struct admission *a = v->owner;
    int fd = v->src.fd;

    loop_del(a->loop, &v->src);
    *(v->older ? &v->older->newer : &a->oldest) = v->newer;
    *(v->newer ? &v->newer->older : &a->newest) = v->older;
    v->newer = a->free;
    a->free = v;
    return fd;
}

static void on_guest(void *ctx, uint32_t events)
{
    struct candidate *v = ctx;
    struct admission *a = v->owner;
    struct in_addr from = v->from;
    uint8_t head[ADMISSION_HEAD_BYTES];
    ssize_t n = recv(v->src.fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    int one = 1;

    if (n >= 0 && n < (ssize_t)sizeof head && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0)
        return; /* the rest is in flight */
    int fd = part(v);
    if (n == (ssize_t)sizeof head && admission_plausible(head)) {
        a->stats.plausible++;
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
        a->speaks(a->ctx, fd, from);
        return;
    }
    a->stats.garbage++;
    close(fd);
}

static struct candidate *oldest_of(const struct admission *a, struct in_addr from, unsigned *count)
{
    struct candidate *first = NULL;

    *count = 0;
    for (struct candidate *v = a->oldest; v; v = v->newer)
        if (v->from.s_addr == from.s_addr && (*count)++ == 0)
            first = v;
    return first;
}

static void displace(struct candidate *v)
{
    v->owner->stats.displaced++;
    close(part(v));
}

bool admission_displace(struct admission *a)
{
    if (!a->oldest)
        return false;
    displace(a->oldest);
    return true;
}

void admission_take(struct admission *a, int fd, struct in_addr from, uint64_t now)
{
    unsigned count;
    struct candidate *leaves = oldest_of(a, from, &count);
    int wanted = ADMISSION_HEAD_BYTES;

    a->stats.accepted++;
    if (count < a->limits.per_address)
        leaves = !a->free ? a->oldest : NULL;
    if (leaves)
        displace(leaves);
    struct candidate *v = a->free;
    /* Readable only when the whole header has arrived, or at the end: a peer that sends single
     * bytes wakes no process. */
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
    if (!v ||
        loop_add(a->loop, &v->src, fd, (uint32_t)EPOLLIN | (uint32_t)EPOLLRDHUP, on_guest, v) < 0) {
        close(fd);
        return;
    }
    a->free = v->newer;
    v->from = from;
    v->due_ns = now + ADMISSION_WAIT_S * NS_PER_S;
    v->newer = NULL;
    v->older = a->newest;
    *(a->newest ? &a->newest->newer : &a->oldest) = v;
    a->newest = v;
}

uint64_t admission_tend(struct admission *a, uint64_t now)
{
    while (a->oldest && now >= a->oldest->due_ns) {
        a->stats.silent++;
        close(part(a->oldest));
    }
    return a->oldest ? a->oldest->due_ns : LOOP_FOREVER;
}

void admission_get_stats(const struct admission *a, struct admission_stats *out)
{
    *out = a->stats;
}

void admission_free(struct admission *a)
{
    if (!a)
        return;
    for (struct candidate *v = a->oldest; v; v = v->newer)
        close(v->src.fd);
    free(a);
}

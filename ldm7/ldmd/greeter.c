/* SPDX-License-Identifier: Apache-2.0 */
#include "greeter.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ldmrpc.h"

#define CREDENTIALS_MAX 400u /* RFC 5531 8.2 */

struct guest {
    struct guest *older, *newer; /* by age; newer also links the free ones */
    struct greeter *owner;
    struct loop_source src;
    struct in_addr from;
    uint64_t due_ns;
};

struct greeter {
    struct loop *loop;
    struct greeter_limits limits;
    void (*speaks)(void *ctx, int fd, struct in_addr from);
    void *ctx;
    struct guest *oldest, *newest, *free;
    struct greeter_stats stats;
    struct guest guests[];
};

bool greeter_plausible(const uint8_t head[GREETER_HEAD_BYTES])
{
    struct xin x;
    xin_init(&x, head, GREETER_HEAD_BYTES);
    uint32_t bytes = xin_u32(&x) & 0x7fffffffu;
    if (bytes < GREETER_HEAD_BYTES - 4 || bytes > RPC_HEAD_MAX)
        return false;
    xin_u32(&x); /* xid */
    uint32_t type = xin_u32(&x);
    uint32_t version = xin_u32(&x);
    if (type != 0 || version != 2)
        return false; /* no call, or of another version of RPC */
    xin_u32(&x);      /* program, version, procedure: the child answers */
    xin_u32(&x);
    xin_u32(&x);
    xin_u32(&x); /* flavour */
    return xin_u32(&x) <= CREDENTIALS_MAX;
}

struct greeter *greeter_new(struct loop *loop, struct greeter_limits limits,
                            void (*speaks)(void *ctx, int fd, struct in_addr from), void *ctx)
{
    struct greeter *g = calloc(1, sizeof *g + limits.total * sizeof g->guests[0]);

    if (!g)
        return NULL;
    g->loop = loop;
    g->limits = limits;
    g->speaks = speaks;
    g->ctx = ctx;
    for (unsigned i = 0; i < limits.total; i++) {
        g->guests[i].owner = g;
        g->guests[i].src.fd = -1;
        g->guests[i].newer = g->free;
        g->free = &g->guests[i];
    }
    return g;
}

/* Forgets a guest; its descriptor is the caller's now. */
static int part(struct guest *v)
{
    struct greeter *g = v->owner;
    int fd = v->src.fd;

    loop_del(g->loop, &v->src);
    *(v->older ? &v->older->newer : &g->oldest) = v->newer;
    *(v->newer ? &v->newer->older : &g->newest) = v->older;
    v->newer = g->free;
    g->free = v;
    return fd;
}

static void on_guest(void *ctx, uint32_t events)
{
    struct guest *v = ctx;
    struct greeter *g = v->owner;
    struct in_addr from = v->from;
    uint8_t head[GREETER_HEAD_BYTES];
    ssize_t n = recv(v->src.fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    int one = 1;

    if (n >= 0 && n < (ssize_t)sizeof head && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0)
        return; /* the rest is on its way */
    int fd = part(v);
    if (n == (ssize_t)sizeof head && greeter_plausible(head)) {
        g->stats.plausible++;
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
        g->speaks(g->ctx, fd, from);
        return;
    }
    g->stats.garbage++;
    close(fd);
}

static struct guest *oldest_of(const struct greeter *g, struct in_addr from, unsigned *count)
{
    struct guest *first = NULL;

    *count = 0;
    for (struct guest *v = g->oldest; v; v = v->newer)
        if (v->from.s_addr == from.s_addr && (*count)++ == 0)
            first = v;
    return first;
}

static void displace(struct guest *v)
{
    v->owner->stats.displaced++;
    close(part(v));
}

bool greeter_displace(struct greeter *g)
{
    if (!g->oldest)
        return false;
    displace(g->oldest);
    return true;
}

void greeter_take(struct greeter *g, int fd, struct in_addr from, uint64_t now)
{
    unsigned count;
    struct guest *leaves = oldest_of(g, from, &count);
    int wanted = GREETER_HEAD_BYTES;

    g->stats.accepted++;
    if (count < g->limits.per_address)
        leaves = !g->free ? g->oldest : NULL;
    if (leaves)
        displace(leaves);
    struct guest *v = g->free;
    /* Readable only when the whole header is there, or the end: a peer that sends byte by byte
     * wakes nobody. */
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
    if (!v ||
        loop_add(g->loop, &v->src, fd, (uint32_t)EPOLLIN | (uint32_t)EPOLLRDHUP, on_guest, v) < 0) {
        close(fd);
        return;
    }
    g->free = v->newer;
    v->from = from;
    v->due_ns = now + GREETER_WAIT_S * NS_PER_S;
    v->newer = NULL;
    v->older = g->newest;
    *(g->newest ? &g->newest->newer : &g->oldest) = v;
    g->newest = v;
}

uint64_t greeter_tend(struct greeter *g, uint64_t now)
{
    while (g->oldest && now >= g->oldest->due_ns) {
        g->stats.silent++;
        close(part(g->oldest));
    }
    return g->oldest ? g->oldest->due_ns : LOOP_FOREVER;
}

void greeter_get_stats(const struct greeter *g, struct greeter_stats *out)
{
    *out = g->stats;
}

void greeter_free(struct greeter *g)
{
    if (!g)
        return;
    for (struct guest *v = g->oldest; v; v = v->newer)
        close(v->src.fd);
    free(g);
}

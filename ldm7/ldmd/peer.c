/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/alloc.h"

#define SMALL_MAX RPC_HEAD_MAX
#define PRODUCT_HEAD_MAX (44u + 4u + XDR_INFO_MAX + 8u)
#define IOV_BATCH 64
#define USER_TIMEOUT_MS 60000u

struct peer_msg {
    struct peer_msg *next;
    struct iovec iov[5]; /* head, data, [mark of a second fragment, data,] padding */
    int niov, at;
    struct pq *queue; /* not NULL: view is pinned */
    struct pq_view view;
    size_t bytes;
    uint8_t mark2[4];
    uint8_t head[];
};

static const uint8_t zeroes[4];

void peer_init(struct peer *p, int fd, const struct rpc_sink *sink, uint64_t now)
{
    struct sockaddr_in a = {0};
    socklen_t n = sizeof a;
    int one = 1;
    unsigned timeout = USER_TIMEOUT_MS;

    memset(p, 0, offsetof(struct peer, in));
    rpc_stream_init(&p->in, sink);
    p->fd = fd;
    p->first = NULL;
    p->last = &p->first;
    p->out_messages = p->out_bytes = 0;
    p->next_xid = (uint32_t)now;
    p->last_in_ns = p->last_out_ns = now;
    p->bytes_in = p->bytes_out = 0;
    p->reads_per_call = 16;
    if (getpeername(fd, (struct sockaddr *)&a, &n) == 0 && a.sin_family == AF_INET)
        p->addr = a.sin_addr;
    inet_ntop(AF_INET, &p->addr, p->host, sizeof p->host);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    /* A peer that vanished without FIN is detected by the next message, not after 15 minutes. */
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
}

static void set_tcp(int fd, int option, uint64_t value)
{
    int v = value < 1 ? 1 : (int)value;

    setsockopt(fd, IPPROTO_TCP, option, &v, sizeof v);
}

/* Silence is probed after a quarter of the time; sent data may wait for half of it, from the moment
 * it was sent: together no longer than the whole. */
void peer_watch(struct peer *p, uint64_t seconds)
{
    set_tcp(p->fd, TCP_KEEPIDLE, seconds / 4);
    set_tcp(p->fd, TCP_KEEPINTVL, seconds / 8);
    set_tcp(p->fd, TCP_USER_TIMEOUT, seconds * 500);
}

static void drop_first(struct peer *p)
{
    struct peer_msg *m = p->first;

    p->first = m->next;
    if (!p->first)
        p->last = &p->first;
    p->out_messages--;
    if (m->queue)
        pq_release(m->queue, &m->view);
    free(m);
}

void peer_close(struct peer *p)
{
    rpc_stream_end(&p->in);
    while (p->first)
        drop_first(p);
    p->out_bytes = 0;
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

static ssize_t read_some(struct peer *p, size_t *asked, char *why, size_t why_bytes)
{
    static uint8_t buf[PEER_READ_BYTES];
    size_t max = 0;
    uint8_t *direct = rpc_stream_direct(&p->in, &max);

    /* Small remainders go through the buffer, together with what follows them. */
    ssize_t n;
    int rc;
    if (direct && max >= PEER_READ_BYTES / 8) {
        *asked = max;
        n = recv(p->fd, direct, max, 0);
        rc = n > 0 ? rpc_stream_direct_done(&p->in, (size_t)n) : 0;
    } else {
        *asked = sizeof buf;
        n = recv(p->fd, buf, sizeof buf, 0);
        rc = n > 0 ? rpc_stream_feed(&p->in, buf, (size_t)n) : 0;
    }
    if (rc < 0) {
        snprintf(why, why_bytes, "%s", p->in.error);
        errno = EPROTO;
        return -2;
    }
    return n;
}

int peer_read(struct peer *p, uint64_t now, char *why, size_t why_bytes)
{
    for (int i = 0; i < p->reads_per_call; i++) {
        size_t asked = 0;
        ssize_t n = read_some(p, &asked, why, why_bytes);

        if (n == -2)
            return -1;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return 0;
        if (n < 0) {
            snprintf(why, why_bytes, "%s", strerror(errno));
            return -1;
        }
        if (n == 0) {
            snprintf(why, why_bytes, "closed by the other end");
            return 1;
        }
        p->last_in_ns = now;
        p->bytes_in += (uint64_t)n;
        if ((size_t)n < asked)
            return 0;
    }
    return 0;
}

static int gather(const struct peer *p, struct iovec *iov)
{
    int n = 0;

    for (const struct peer_msg *m = p->first; m && n < IOV_BATCH; m = m->next)
        for (int i = m->at; i < m->niov && n < IOV_BATCH; i++)
            iov[n++] = m->iov[i];
    return n;
}

static void written(struct peer *p, size_t n)
{
    p->out_bytes -= n;
    p->bytes_out += n;
    while (p->first) {
        struct peer_msg *m = p->first;

        while (m->at < m->niov && n >= m->iov[m->at].iov_len)
            n -= m->iov[m->at++].iov_len;
        if (m->at < m->niov) {
            m->iov[m->at].iov_base = (uint8_t *)m->iov[m->at].iov_base + n;
            m->iov[m->at].iov_len -= n;
            return;
        }
        drop_first(p);
    }
}

int peer_write(struct peer *p, uint64_t now)
{
    while (p->first) {
        struct iovec iov[IOV_BATCH];
        struct msghdr h = {.msg_iov = iov, .msg_iovlen = (size_t)gather(p, iov)};
        ssize_t n = sendmsg(p->fd, &h, MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            p->last_out_ns = now;
            written(p, (size_t)n);
        }
    }
    return 0;
}

bool peer_has_output(const struct peer *p)
{
    return p->first;
}

bool peer_keeps(const struct peer *p, uint64_t up_to)
{
    for (const struct peer_msg *m = p->first; m; m = m->next)
        if (m->queue && m->view.seq <= up_to)
            return true;
    return false;
}

bool peer_has_room(const struct peer *p)
{
    return p->out_messages < PEER_OUT_MESSAGES && p->out_bytes < PEER_OUT_BYTES;
}

static struct peer_msg *new_msg(size_t head_max)
{
    return xcalloc(1, sizeof(struct peer_msg) + head_max);
}

static void enqueue(struct peer *p, struct peer_msg *m)
{
    for (int i = 0; i < m->niov; i++)
        m->bytes += m->iov[i].iov_len;
    p->out_bytes += m->bytes;
    p->out_messages++;
    *p->last = m;
    p->last = &m->next;
}

/* Queues a message made in x: copied, so that short messages take little memory. */
static void enqueue_small(struct peer *p, struct xout *x)
{
    assert(!x->overflow); /* all types are bounded */
    rpc_finish(x, 0, true);
    struct peer_msg *m = new_msg(x->len);
    memcpy(m->head, x->buf, x->len);
    m->iov[m->niov++] = (struct iovec){m->head, x->len};
    enqueue(p, m);
}

uint32_t peer_call(struct peer *p, uint32_t vers, uint32_t proc,
                   void (*args)(struct xout *x, const void *arg), const void *arg)
{
    struct xout x;

    uint8_t buf[SMALL_MAX];
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, p->next_xid, vers, proc);
    if (args)
        args(&x, arg);
    enqueue_small(p, &x);
    return p->next_xid++;
}

void peer_reply(struct peer *p, uint32_t xid, void (*body)(struct xout *x, const void *arg),
                const void *arg)
{
    struct xout x;

    uint8_t buf[SMALL_MAX];
    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, xid, RPC_SUCCESS);
    if (body)
        body(&x, arg);
    enqueue_small(p, &x);
}

static void put_u32(struct xout *x, const void *arg)
{
    xout_u32(x, *(const uint32_t *)arg);
}

void peer_reply_u32(struct peer *p, uint32_t xid, uint32_t value)
{
    peer_reply(p, xid, put_u32, &value);
}

void peer_reply_error(struct peer *p, uint32_t xid, enum rpc_accept stat)
{
    struct xout x;

    uint8_t buf[64];
    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, xid, stat);
    enqueue_small(p, &x);
}

void peer_deny(struct peer *p, uint32_t xid, enum rpc_auth why)
{
    struct xout x;

    uint8_t buf[64];
    xout_init(&x, buf, sizeof buf);
    rpc_begin_denied(&x, xid, why);
    enqueue_small(p, &x);
}

static struct iovec ro(const void *base, size_t n)
{
    return (struct iovec){.iov_base = (void *)(uintptr_t)base, .iov_len = n};
}

void peer_send_product(struct peer *p, uint32_t vers, uint32_t proc, bool with_index,
                       uint32_t index, struct pq *q, const struct pq_view *view)
{
    struct peer_msg *m = new_msg(PRODUCT_HEAD_MAX);
    size_t size = view->info.size, pad = xdr_pad(size), first = size;

    m->queue = q;
    m->view = *view;
    struct xout x;
    xout_init(&x, m->head, PRODUCT_HEAD_MAX);
    rpc_begin_call(&x, p->next_xid++, vers, proc);
    if (with_index)
        xout_u32(&x, index);
    if (vers == LDM_VERS6 && proc == LDM6_BLKDATA)
        xout_block(&x,
                   &(struct ldm_block){.signature = view->info.signature, .size = (uint32_t)size});
    else
        xout_info(&x, &view->info);
    assert(!x.overflow);
    if (x.len + size + pad > RPC_MAX_FRAGMENT)
        first = RPC_MAX_FRAGMENT - x.len;
    rpc_finish(&x, first == size ? size + pad : first, first == size);
    m->iov[m->niov++] = ro(m->head, x.len);
    if (first > 0)
        m->iov[m->niov++] = ro(view->data, first);
    if (first < size) {
        struct xout mark;
        xout_init(&mark, m->mark2, 4);
        xout_u32(&mark, 0);
        rpc_finish(&mark, size - first + pad, true);
        m->iov[m->niov++] = ro(m->mark2, 4);
        m->iov[m->niov++] = ro(view->data + first, size - first);
    }
    if (pad > 0)
        m->iov[m->niov++] = ro(zeroes, pad);
    enqueue(p, m);
}

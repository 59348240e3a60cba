/* SPDX-License-Identifier: Apache-2.0 */
#include "sockets.h"

#include <errno.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 512, NOTSENT_LOWAT = 128 * 1024, DEFAULT_MTU = 1500 };
#define DEAD_NS UINT64_C(60000000000)

#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

int tp_set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value);
}

void tp_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static const char *text_of(const struct sockaddr_storage *a, char *out)
{
    return tp_address_text((const struct sockaddr *)a, out);
}

static struct sockaddr_storage without_port(const struct sockaddr_storage *a)
{
    struct sockaddr_storage host = *a;

    tp_address_set_port(&host, 0);
    return host;
}

static int open_udp(sa_family_t family, struct tp_error *err)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    return fd < 0 ? tp_fail(err, "UDP socket: %s", strerror(errno)) : fd;
}

static int set_outgoing(int fd, sa_family_t family, const struct tp_interface *on, unsigned ttl)
{
    struct ip_mreqn m = {.imr_ifindex = (int)on->index};

    /* The loopback interface returns what is sent; others must loop it back for receivers on this
     * host. */
    if (family == AF_INET6)
        return (on->index ? tp_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, (int)on->index)
                          : 0) |
               tp_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, (int)ttl) |
               tp_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, !on->loopback) |
               tp_set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
    return (on->index ? setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m) : 0) |
           tp_set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, (int)ttl) |
           tp_set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, !on->loopback) |
           tp_set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
}

int tp_open_multicast_out(const struct sockaddr_storage *from, const struct sockaddr_storage *group,
                          unsigned ttl, unsigned *mtu_bytes, struct tp_error *err)
{
    const struct sockaddr_storage own = without_port(from);
    bool v6 = group->ss_family == AF_INET6;
    int mtu = 0;
    socklen_t len = sizeof mtu;

    struct tp_interface on;
    int fd;
    if (tp_interface_of(from, &on, err) < 0 || (fd = open_udp(group->ss_family, err)) < 0)
        return -1;
    char text[TP_ADDRESS_TEXT];
    if (set_outgoing(fd, group->ss_family, &on, ttl) < 0 ||
        bind(fd, (const struct sockaddr *)&own, tp_address_len(&own)) < 0) {
        tp_fail(err, "cannot multicast from %s with TTL %u: %s", text_of(&own, text), ttl,
                strerror(errno));
        tp_close_fd(&fd);
    } else if (connect(fd, (const struct sockaddr *)group, tp_address_len(group)) < 0) {
        tp_fail(err, "group %s: %s", text_of(group, text), strerror(errno));
        tp_close_fd(&fd);
    } else if (getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &len) <
                   0 ||
               mtu <= 0) {
        mtu = DEFAULT_MTU;
    }
    *mtu_bytes = (unsigned)mtu;
    return fd;
}

static int join(int fd, const struct sockaddr_storage *group, unsigned interface,
                const struct sockaddr_storage *source)
{
    int level = group->ss_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
    struct group_source_req s = {.gsr_interface = interface, .gsr_group = *group};
    struct group_req any = {.gr_interface = interface, .gr_group = *group};

    if (!source)
        return setsockopt(fd, level, MCAST_JOIN_GROUP, &any, sizeof any);
    s.gsr_source = *source;
    return setsockopt(fd, level, MCAST_JOIN_SOURCE_GROUP, &s, sizeof s);
}

int tp_open_multicast_in(const struct sockaddr_storage *group, const struct sockaddr_storage *on,
                         const struct sockaddr_storage *source, struct tp_error *err)
{
    struct sockaddr_storage host = without_port(on), at = *group;
    bool v6 = group->ss_family == AF_INET6;
    int fd;

    struct tp_interface interface;
    if (tp_interface_of(on, &interface, err) < 0 || (fd = open_udp(group->ss_family, err)) < 0)
        return -1;
    /* A group of link-local scope must be bound with its interface. */
    if (v6 && !((struct sockaddr_in6 *)&at)->sin6_scope_id)
        ((struct sockaddr_in6 *)&at)->sin6_scope_id = interface.index;
    tp_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    /* Receive only what this socket joined, not what others on this host joined. */
    if (v6)
        tp_set_option(fd, IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
    else
        tp_set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0);
    char group_text[TP_ADDRESS_TEXT], on_text[TP_ADDRESS_TEXT];
    if (bind(fd, (struct sockaddr *)&at, tp_address_len(&at)) < 0)
        tp_fail(err, "cannot bind to group %s: %s", text_of(group, group_text), strerror(errno));
    else if (join(fd, group, interface.index, source) < 0)
        tp_fail(err, "cannot join group %s on interface %s: %s", text_of(group, group_text),
                text_of(&host, on_text), strerror(errno));
    else
        return fd;
    tp_close_fd(&fd);
    return -1;
}

int tp_open_listener(const struct sockaddr_storage *at, struct tp_error *err)
{
    int fd = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return tp_fail(err, "TCP socket: %s", strerror(errno));
    tp_set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, (const struct sockaddr *)at, tp_address_len(at)) < 0 || listen(fd, BACKLOG) < 0) {
        char text[TP_ADDRESS_TEXT];
        tp_fail(err, "cannot listen on %s: %s", text_of(at, text), strerror(errno));
        tp_close_fd(&fd);
    }
    return fd;
}

int tp_open_connection(const struct sockaddr_storage *from, const struct sockaddr_storage *to,
                       const char *congestion_control, uint64_t dead_ns)
{
    const struct sockaddr_storage own = without_port(from);
    int fd = socket(to->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    tp_tune_tcp(fd, dead_ns);
    struct tp_error ignored;
    tp_set_congestion_control(fd, congestion_control, &ignored);
    if (bind(fd, (const struct sockaddr *)&own, tp_address_len(&own)) < 0 ||
        (connect(fd, (const struct sockaddr *)to, tp_address_len(to)) < 0 &&
         errno != EINPROGRESS)) {
        int error = errno;
        tp_close_fd(&fd);
        errno = error;
    }
    return fd;
}

static int at_least_1(uint64_t n)
{
    return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int)n;
}

void tp_tune_tcp(int fd, uint64_t dead_ns)
{
    uint64_t dead_ms = (dead_ns ? dead_ns : DEAD_NS) / 1000000;

    /* TCP_USER_TIMEOUT, not the number of probes, then ends an idle connection. */
    tp_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    tp_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, at_least_1(dead_ms / 4000));
    tp_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, at_least_1(dead_ms / 8000));
    tp_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, at_least_1(dead_ms));
    tp_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* The sender timer can no longer reject what waits unsent in the kernel, so little may wait
     * there. */
    tp_set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT);
}

int tp_set_congestion_control(int fd, const char *name, struct tp_error *err)
{
    if (!name || !*name ||
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0)
        return 0;
    return tp_fail(err,
                   "congestion control '%s': %s; valid: the names in "
                   "/proc/sys/net/ipv4/tcp_available_congestion_control",
                   name, errno == ENOENT ? "this kernel has no such name" : strerror(errno));
}

int tp_try_congestion_control(const char *name, struct tp_error *err)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return tp_fail(err, "TCP socket: %s", strerror(errno));
    int result = tp_set_congestion_control(fd, name, err);
    tp_close_fd(&fd);
    return result;
}

static void read_tcp_info(int fd, struct tcp_info *info)
{
    socklen_t len = sizeof *info;

    memset(info, 0, sizeof *info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) < 0)
        memset(info, 0, sizeof *info);
}

uint64_t tp_tcp_rtt_ns(int fd)
{
    struct tcp_info info;

    read_tcp_info(fd, &info);
    return tp_rtt_ns(info.tcpi_rtt, info.tcpi_min_rtt);
}

bool tp_tcp_established(int fd)
{
    struct tcp_info info;

    read_tcp_info(fd, &info);
    return info.tcpi_state == 1; /* TCP_ESTABLISHED, which linux/tcp.h does not name */
}

/* option: SO_RCVBUF or SO_SNDBUF; force: the variant beyond the system's limit, for privileged
 * processes. */
static size_t set_buffer(int fd, int option, int force, size_t bytes)
{
    size_t want = bytes > INT32_MAX / 2 ? INT32_MAX / 2 : bytes;
    int granted = 0;
    socklen_t len = sizeof granted;

    if (want && tp_set_option(fd, SOL_SOCKET, force, (int)want) < 0)
        tp_set_option(fd, SOL_SOCKET, option, (int)want);
    getsockopt(fd, SOL_SOCKET, option, &granted, &len);
    return (size_t)granted / 2;
}

size_t tp_set_rcvbuf(int fd, size_t bytes)
{
    return set_buffer(fd, SO_RCVBUF, SO_RCVBUFFORCE, bytes);
}

size_t tp_set_sndbuf(int fd, size_t bytes)
{
    return set_buffer(fd, SO_SNDBUF, SO_SNDBUFFORCE, bytes);
}

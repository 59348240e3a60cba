/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MLDM_MAGIC 0x6d6c646du

struct message {
    uint32_t magic;
    struct mldm_request request;
};

int mldm_subscribe(int control_fd, const struct mldm_request *request)
{
    struct message req = {MLDM_MAGIC, *request};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } cmsg = {0};
    struct iovec iov = {&req, sizeof req};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = cmsg.bytes,
                       .msg_controllen = sizeof cmsg.bytes};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
    CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
    CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &pair[1], sizeof(int));
    int rc = sendmsg(control_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
    close(pair[1]);
    if (rc == 0)
        return pair[0];
    close(pair[0]);
    errno = rc;
    return -1;
}

int mldm_accept(int control_fd, struct mldm_request *request)
{
    struct message req;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } cmsg;
    struct iovec iov = {&req, sizeof req};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = cmsg.bytes,
                       .msg_controllen = sizeof cmsg.bytes};
    int fd = -1;

    if (recvmsg(control_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof req)
        return -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (fd >= 0 && req.magic != MLDM_MAGIC) {
        close(fd);
        fd = -1;
    }
    *request = req.request;
    request->endpoint[sizeof request->endpoint - 1] = '\0';
    return fd;
}

static void read_line(const char *path, char *out, size_t out_bytes)
{
    FILE *f = fopen(path, "re");

    if (!f || !fgets(out, (int)out_bytes, f))
        snprintf(out, out_bytes, "not known");
    out[strcspn(out, "\n")] = '\0';
    if (f)
        fclose(f);
}

int congestion_control_set(int fd, const char *name, char *err, size_t err_bytes)
{
    if (name[0] == '\0' ||
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0)
        return 0;
    int e = errno;
    char available[200];
    read_line("/proc/sys/net/ipv4/tcp_available_congestion_control", available, sizeof available);
    snprintf(err, err_bytes, "the kernel refuses congestion control \"%s\": %s; available: %s",
             name,
             e == ENOENT  ? "unknown name (ctcp-load adds Circuit TCP to the kernel)"
             : e == EPERM ? "only root may use it"
                          : strerror(e),
             available);
    return -1;
}

static const char *dial_congestion = "";

/* If a name has several addresses, each attempt uses the next one. */
static const struct addrinfo *choose(const struct addrinfo *list)
{
    static unsigned tries;
    unsigned n = 1, skip;

    for (const struct addrinfo *i = list->ai_next; i; i = i->ai_next)
        n++;
    for (skip = tries++ % n; skip > 0; skip--)
        list = list->ai_next;
    return list;
}

void dial_congestion_control(const char *name)
{
    dial_congestion = name;
}

int dial(const char *host, uint16_t port, char *err, size_t err_bytes)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};

    char service[8];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo *list;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        snprintf(err, err_bytes, "cannot resolve %s: %s", host, gai_strerror(rc));
        return -1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && congestion_control_set(fd, dial_congestion, err, err_bytes) < 0) {
        close(fd);
        freeaddrinfo(list);
        return -1;
    }
    const struct addrinfo *to = choose(list);
    if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS) {
        rc = errno;
        close(fd);
        errno = rc;
        fd = -1;
    }
    if (fd < 0)
        snprintf(err, err_bytes, "cannot connect to %s:%u: %s", host, port, strerror(errno));
    freeaddrinfo(list);
    return fd;
}

int dial_result(int fd)
{
    int e = 0;
    socklen_t n = sizeof e;

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0 ? errno : e;
}

void retry_start(struct retry *r, uint64_t now)
{
    r->window_end_ns = now + 60 * NS_PER_S;
    r->established_ns = 0;
    r->immediate = false;
}

uint64_t retry_at(struct retry *r, uint64_t now, bool denied)
{
    bool at_once = r->immediate && !denied && now >= r->established_ns + 5 * NS_PER_S;

    r->immediate = false;
    if (at_once)
        return now;
    if (denied && r->denied_s > 0)
        return now + r->denied_s * NS_PER_S;
    return now + (denied || now >= r->window_end_ns ? 60 : 1) * NS_PER_S;
}

void retry_established(struct retry *r, uint64_t now)
{
    retry_start(r, now);
    r->established_ns = now;
    r->immediate = true;
}

// SPDX-License-Identifier: Apache-2.0
// Sends and receives datagrams whose times are known. `send` writes its wall clock into each;
// `receive` takes the kernel's arrival time of each (SO_TIMESTAMPNS) and prints "SEQUENCE SENT_NS
// ARRIVED_NS" lines. It prints "ready" first, and ends when nothing has arrived for IDLE_MS after
// the first datagram. With GROUP it joins that multicast group on the interface with ADDRESS.
// SIGTERM ends both cleanly and early; `send` prints how many it sent. A sender that the machine
// delayed does not catch up: that would be a burst, which a meter drops.
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define FIRST_MS 30000
#define BUFFER_BYTES (64 << 20)
#define LATE_NS (20 * INT64_C(1000000))

struct stamp {
    uint64_t sequence;
    int64_t sent_ns;
};

static volatile sig_atomic_t stop_asked;

static void on_term(int number)
{
    (void)number;
    stop_asked = 1;
}

static void die(const char *what)
{
    fprintf(stderr, "selftest-udp: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int usage(void)
{
    fputs("usage: selftest-udp send ADDRESS PORT COUNT SIZE INTERVAL_NS\n"
          "       selftest-udp receive PORT IDLE_MS [GROUP ADDRESS]\n",
          stderr);
    return 2;
}

static long long number(const char *text, long long least, long long most)
{
    errno = 0;
    char *end;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        fprintf(stderr, "selftest-udp: found '%s'; valid: %lld to %lld\n", text, least, most);
        exit(2);
    }
    return value;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;

    if (clock_gettime(clock, &t) != 0)
        die("clock_gettime");
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

// Makes room for all datagrams: a blocked sender would shape the traffic itself. Exceeds the
// system's limit if this process may (force), else goes up to it.
static void enlarge(int fd, int force, int option)
{
    const int bytes = BUFFER_BYTES;

    if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof bytes) != 0 &&
        setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes) != 0)
        die("socket buffer");
}

static struct in_addr address(const char *text)
{
    struct in_addr found;

    if (inet_pton(AF_INET, text, &found) != 1) {
        fprintf(stderr, "selftest-udp: found '%s'; valid: an IPv4 address\n", text);
        exit(2);
    }
    return found;
}

static int send_all(char **argv)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const long long count = number(argv[2], 1, 100000000);
    const size_t size = (size_t)number(argv[3], sizeof(struct stamp), 65507);
    const int64_t interval_ns = number(argv[4], 0, 10 * NS_PER_S);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char bytes[65507] = {0};

    to.sin_port = htons((uint16_t)number(argv[1], 1, 65535));
    to.sin_addr = address(argv[0]);
    if (fd < 0)
        die("socket");
    enlarge(fd, SO_SNDBUFFORCE, SO_SNDBUF);
    int64_t began = clock_ns(CLOCK_MONOTONIC);
    long long i;
    for (i = 0; i < count && !stop_asked; i++) {
        struct stamp stamp = {.sequence = (uint64_t)i};

        if (interval_ns > 0) {
            const int64_t due = began + i * interval_ns;
            const struct timespec t = {.tv_sec = due / NS_PER_S, .tv_nsec = due % NS_PER_S};

            if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
                break;
            const int64_t late_ns = clock_ns(CLOCK_MONOTONIC) - due;
            began += late_ns > LATE_NS ? late_ns : 0;
        }
        stamp.sent_ns = clock_ns(CLOCK_REALTIME);
        memcpy(bytes, &stamp, sizeof stamp);
        if (sendto(fd, bytes, size, 0, (struct sockaddr *)&to, sizeof to) < 0)
            die("sendto");
    }
    printf("%lld\n", i);
    close(fd);
    return 0;
}

static int64_t arrival_ns(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            struct timespec t;

            memcpy(&t, CMSG_DATA(c), sizeof t);
            return t.tv_sec * NS_PER_S + t.tv_nsec;
        }
    }
    return -1;
}

static void join(int fd, const char *group, const char *interface_address)
{
    const struct ip_mreq wanted = {.imr_multiaddr = address(group),
                                   .imr_interface = address(interface_address)};

    if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wanted, sizeof wanted) != 0)
        die("IP_ADD_MEMBERSHIP");
}

static int receive_all(char **argv, bool multicast)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    const int idle_ms = (int)number(argv[1], 1, 1000000);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int timeout_ms = FIRST_MS, ready = 0;

    at.sin_port = htons((uint16_t)number(argv[0], 1, 65535));
    if (fd < 0)
        die("socket");
    enlarge(fd, SO_RCVBUFFORCE, SO_RCVBUF);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
        die("SO_TIMESTAMPNS");
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0)
        die("bind");
    if (multicast)
        join(fd, argv[2], argv[3]);
    puts("ready");
    fflush(stdout);
    while (!stop_asked && (ready = poll(&waiting, 1, timeout_ms)) > 0) {
        union {
            struct cmsghdr align;
            char bytes[128];
        } control;
        struct stamp stamp;
        struct iovec piece = {.iov_base = &stamp, .iov_len = sizeof stamp};
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof control};

        if (recvmsg(fd, &message, 0) < (ssize_t)sizeof stamp)
            die("recvmsg");
        printf("%" PRIu64 " %" PRId64 " %" PRId64 "\n", stamp.sequence, stamp.sent_ns,
               arrival_ns(&message));
        timeout_ms = idle_ms;
    }
    if (ready < 0 && errno != EINTR)
        die("poll");
    close(fd);
    return 0;
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = on_term};

    if (sigaction(SIGTERM, &action, NULL) != 0)
        die("sigaction");
    if (argc == 7 && strcmp(argv[1], "send") == 0)
        return send_all(argv + 2);
    if ((argc == 4 || argc == 6) && strcmp(argv[1], "receive") == 0)
        return receive_all(argv + 2, argc == 6);
    return usage();
}

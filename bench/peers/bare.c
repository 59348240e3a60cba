/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-bare: the upper bound. Multicasts a file's bytes in datagrams of FMTP's size with sendmmsg
 * and receives them with recvmmsg; nothing is repaired, kept or checked.
 *
 *   bench-bare send group=IP:PORT interface=IP file=PATH datagram=1460 gso=0|1
 *                   progress=FILE receivers=N window=BYTES
 *   bench-bare recv group=IP:PORT interface=IP progress=FILE slot=I bytes=N gro=0|1 rcvbuf=BYTES
 *                   [keep=PATH]
 *
 * The receivers record in shared memory (`progress`) how much of the stream has reached them, and
 * the sender stays at most `window` bytes ahead of the slowest. This feedback costs no packets, so
 * no reliable transport can exceed the result. window=0: no feedback; whatever exceeds the
 * receivers' buffers is lost.
 *
 * With `keep` a receiver copies the bytes into a file, as a transfer does; otherwise it discards
 * them. A datagram begins with 12 bytes: its offset in the stream (8, big-endian) and 4 unused
 * ones.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

#define HEADER 12u
#define BATCH 44u /* datagrams of 1460 bytes that fit in a 64 kB packet */
#define BUFFER 65536u
#define MESSAGES 32u
#define STUCK_S 5.0

struct header {
    uint64_t offset;
    uint32_t unused;
} __attribute__((packed));

struct place {                /* one receiver's progress; each has its own cache line */
    _Atomic uint64_t reached; /* the receiver has the stream up to here */
    _Atomic uint64_t ready;
    uint8_t rest[48];
};

static struct sockaddr_in group, iface;
static const char *file_path, *progress_path, *keep_path;
static uint64_t datagram = 1460, gso, gro, receivers, window, slot, bytes, rcvbuf = 8000000;

static struct place *map_progress(uint64_t places)
{
    size_t size = places * sizeof(struct place);
    int fd = open(progress_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        die("'%s': %s", progress_path, strerror(errno));
    void *m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m == MAP_FAILED)
        die("'%s': %s", progress_path, strerror(errno));
    return m;
}

static uint8_t *map_keep(void)
{
    int fd = open(keep_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        die("'%s': %s", keep_path, strerror(errno));
    void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m == MAP_FAILED)
        die("'%s': %s", keep_path, strerror(errno));
    return m;
}

static int open_socket(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        die("socket: %s", strerror(errno));
    return fd;
}

static uint64_t slowest(const struct place *p)
{
    uint64_t least = UINT64_MAX;

    for (uint64_t i = 0; i < receivers; i++) {
        uint64_t reached = atomic_load_explicit(&p[i].reached, memory_order_relaxed);
        least = reached < least ? reached : least;
    }
    return least;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void wait_for_window(const struct place *p, uint64_t sent)
{
    uint64_t before = slowest(p);

    for (double since = now_s(); window && sent - before > window; nap()) {
        uint64_t now = slowest(p);
        if (now != before)
            since = now_s();
        before = now;
        if (now_s() - since > STUCK_S)
            die("a receiver is stuck at byte %llu of %llu", (unsigned long long)before,
                (unsigned long long)sent);
    }
}

/* Sends BATCH datagrams of the stream from `offset` on with one sendmmsg(); with gso, as one
 * packet. */
static uint64_t send_batch(int fd, const uint8_t *data, uint64_t size, uint64_t offset)
{
    static struct header headers[BATCH];
    static struct iovec parts[2 * BATCH];
    static struct mmsghdr messages[BATCH];
    size_t n = 0;
    uint64_t block = datagram - HEADER;

    for (; n < BATCH && offset < size && (!gso || (n + 1) * datagram <= 65507); n++) {
        uint64_t len = size - offset < block ? size - offset : block;
        headers[n] = (struct header){htobe64(offset), 0};
        parts[2 * n] = (struct iovec){&headers[n], HEADER};
        parts[2 * n + 1] = (struct iovec){(void *)(uintptr_t)(data + offset), len};
        messages[n].msg_hdr = (struct msghdr){.msg_iov = &parts[2 * n], .msg_iovlen = 2};
        offset += len;
    }
    if (gso) {
        messages[0].msg_hdr.msg_iovlen = 2 * n;
        n = 1;
    }
    for (size_t done = 0; done < n;) {
        int sent = sendmmsg(fd, messages + done, (unsigned)(n - done), 0);
        if (sent < 0 && errno != ENOBUFS && errno != EINTR)
            die("send: %s", strerror(errno));
        if (sent < 0)
            nap();
        done += sent > 0 ? (size_t)sent : 0;
    }
    return offset;
}

static int send_main(void)
{
    int one = (int)datagram, fd = open_socket(), in = open(file_path, O_RDONLY | O_CLOEXEC);
    struct place *p = map_progress(receivers);

    struct stat st;
    if (in < 0 || fstat(in, &st) < 0)
        die("'%s': %s", file_path, strerror(errno));
    uint64_t size = (uint64_t)st.st_size;
    uint8_t *data = mmap(NULL, size, PROT_READ, MAP_SHARED, in, 0);
    if (data == MAP_FAILED)
        die("'%s': %s", file_path, strerror(errno));
    close(in);
    if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &iface.sin_addr, sizeof iface.sin_addr) < 0 ||
        connect(fd, (struct sockaddr *)&group, sizeof group) < 0 ||
        (gso && setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &one, sizeof one) < 0))
        die("socket: %s", strerror(errno));
    for (uint64_t i = 0; i < receivers; i++)
        while (!atomic_load(&p[i].ready))
            nap();
    double begun = now_s();
    for (uint64_t offset = 0; offset < size;) {
        wait_for_window(p, offset);
        offset = send_batch(fd, data, size, offset);
    }
    /* Repeat the end until every receiver has it: a single datagram can get lost. */
    struct header end = {htobe64(size), 0};
    for (int i = 0; i < 1000 && slowest(p) < size; i++) {
        if (send(fd, &end, sizeof end, 0) < 0 && errno != ENOBUFS)
            die("send: %s", strerror(errno));
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    printf("seconds=%.6f bytes=%llu\n", now_s() - begun, (unsigned long long)size);
    return 0;
}

/* Processes a received packet, which may hold several datagrams of `segment` bytes. */
static void take(const uint8_t *packet, size_t len, size_t segment, uint8_t *keep,
                 uint64_t *reached, uint64_t *got)
{
    for (size_t at = 0; at + HEADER <= len; at += segment) {
        size_t part = len - at < segment ? len - at : segment;
        struct header h;
        memcpy(&h, packet + at, sizeof h);
        uint64_t from = be64toh(h.offset), to = from + part - HEADER;
        if (keep && from < bytes && to <= bytes)
            memcpy(keep + from, packet + at + HEADER, part - HEADER);
        *reached = to > *reached ? to : *reached;
        *got += part - HEADER;
    }
}

static size_t segment_of(struct msghdr *m, size_t len)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int segment;
            memcpy(&segment, CMSG_DATA(c), sizeof segment);
            return (size_t)segment;
        }
    return len;
}

static int recv_main(void)
{
    struct ip_mreqn join = {.imr_multiaddr = group.sin_addr, .imr_address = iface.sin_addr};
    int one = 1, room = (int)rcvbuf, fd = open_socket();
    struct place *p = map_progress(slot + 1 > receivers ? slot + 1 : receivers);
    uint8_t *buffers = malloc((size_t)MESSAGES * BUFFER);
    static struct mmsghdr messages[MESSAGES];
    static struct iovec parts[MESSAGES];
    static uint8_t control[MESSAGES][64];
    uint64_t reached = 0, got = 0;
    double first = 0, last = 0;
    uint8_t *keep = keep_path ? map_keep() : NULL;

    if (!buffers)
        die("out of memory");
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) < 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, (struct sockaddr *)&group, sizeof group) < 0 ||
        setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join) < 0 ||
        (gro && setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one) < 0))
        die("socket: %s", strerror(errno));
    atomic_store(&p[slot].ready, 1);
    while (reached < bytes) {
        for (unsigned i = 0; i < MESSAGES; i++) {
            parts[i] = (struct iovec){buffers + (size_t)i * BUFFER, BUFFER};
            messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
            if (gro) {
                messages[i].msg_hdr.msg_control = control[i];
                messages[i].msg_hdr.msg_controllen = sizeof control[i];
            }
        }
        int n = recvmmsg(fd, messages, MESSAGES, MSG_WAITFORONE, NULL);
        if (n < 0 && errno != EINTR)
            die("recv: %s", strerror(errno));
        if (first == 0)
            first = now_s();
        for (int i = 0; i < n; i++)
            take(parts[i].iov_base, messages[i].msg_len,
                 segment_of(&messages[i].msg_hdr, messages[i].msg_len), keep, &reached, &got);
        last = now_s();
        atomic_store_explicit(&p[slot].reached, reached, memory_order_relaxed);
    }
    free(buffers);
    printf("seconds=%.6f bytes=%llu\n", last - first, (unsigned long long)got);
    return got == 0;
}

int main(int argc, char **argv)
{
    const struct option_word words[] = {
        {"group", .endpoint = &group},     {"interface", .endpoint = &iface},
        {"file", .text = &file_path},      {"progress", .text = &progress_path},
        {"datagram", .number = &datagram}, {"gso", .number = &gso},
        {"gro", .number = &gro},           {"receivers", .number = &receivers},
        {"window", .number = &window},     {"slot", .number = &slot},
        {"keep", .text = &keep_path},      {"bytes", .number = &bytes},
        {"rcvbuf", .number = &rcvbuf},     {0}};

    program = "bench-bare";
    if (argc < 2 || (strcmp(argv[1], "send") != 0 && strcmp(argv[1], "recv") != 0))
        die_usage("found '%s'; valid: send, recv", argc < 2 ? "" : argv[1]);
    read_options(argc, argv, 2, words);
    if (!group.sin_port || !progress_path || datagram <= HEADER || datagram > 65507)
        die_usage("group=IP:PORT, progress=FILE and a datagram of 13 to 65507 bytes are needed");
    if (strcmp(argv[1], "recv") == 0 && !bytes)
        die_usage("bytes=N is needed");
    if (strcmp(argv[1], "recv") == 0)
        return recv_main();
    if (!file_path || !receivers)
        die_usage("file=PATH and receivers=N are needed");
    return send_main();
}

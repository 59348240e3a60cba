/* SPDX-License-Identifier: Apache-2.0
 *
 * cut-link: one end of links whose other end is in another guest of the same calendar.
 *
 *     cut-link WINDOW_NS OUT IN (INTERFACE DELAY_NS)...
 *
 * Both ends name their interfaces in the same order. INTERFACE may be PID/NAME: NAME in the network
 * namespace of a process. Frames that arrive at an interface leave at its counterpart, that end's
 * DELAY_NS later, at the same nanosecond in every run. LEAD_NS before each boundary between windows
 * this end writes what has arrived to OUT; at the boundary it reads from IN what the other end
 * wrote (batch.h). The calendar lets no guest into a window before all have ended the previous one,
 * so the batch is complete when it is read. A frame that arrives after the writing waits for the
 * next boundary, so DELAY_NS must be at least a window and LEAD_NS. The qdisc fq of the interface
 * then holds each frame until its time (SO_TXTIME): two wake-ups per window instead of one per
 * frame.
 *
 * Prints "ready" when the interfaces are open. On SIGTERM it notifies the other end at the next
 * boundary and ends. Exit code 1: a frame was lost or late, or the other end is gone; the run is
 * invalid.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "batch.h"
#include "ring.h"

enum {
    SLOTS = 2048, /* frames that may arrive at an interface in a window */
    BURST = 64,   /* frames per system call */
    WORDS = 2,    /* words of the command line per link */
    FIRST_AT = 4, /* where these begin on the command line */
    HEAD_BYTES = 4096,
    SEND_BUFFER_BYTES = 1 << 30
};
#define NS_PER_S INT64_C(1000000000)
/* Other programs that wake up in this time delay the writing by the clock readings that they make,
 * 256 ns each. */
#define LEAD_NS INT64_C(200000)
#define FILE_BYTES ((off_t)BATCH_SLOTS * BATCH_BYTES)

static volatile sig_atomic_t stop_asked;

/* The state of the other end. */
enum peer { PEER_AWAITED, PEER_THERE, PEER_CLOSED };

/* Frames of the other end, on their way into an interface. */
struct burst {
    unsigned n;
    struct mmsghdr messages[BURST];
    struct iovec pieces[BURST];
    struct {
        _Alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(uint64_t))];
    } times[BURST];
};

struct end {
    const char *name;
    int64_t delay_ns;
    struct ring ring;
    unsigned head; /* index in the ring */
    struct sockaddr_ll to;
    int tx;
    struct burst burst;
};

struct cut {
    int64_t window_ns;
    int64_t real_minus_monotonic_ns;
    int out;
    int in;
    enum peer peer;
    size_t n;
    struct end *ends;
    uint8_t *bytes; /* a batch */
};

static void on_term(int number)
{
    (void)number;
    stop_asked = 1;
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int fail(const char *name, const char *what)
{
    fprintf(stderr, "cut-link: %s: %s\n", name, what);
    return -1;
}

static int fail_errno(const char *name, const char *what)
{
    fprintf(stderr, "cut-link: %s: %s: %s\n", name, what, strerror(errno));
    return -1;
}

/* -- what the other end wrote --------------------------------------------------------------- */

static void burst_add(struct end *end, const struct batch_frame *frame, uint64_t due_ns)
{
    struct burst *burst = &end->burst;
    const unsigned i = burst->n++;
    struct msghdr *message = &burst->messages[i].msg_hdr;
    burst->pieces[i] =
        (struct iovec){.iov_base = (void *)(uintptr_t)frame->bytes, .iov_len = frame->n_bytes};
    *message = (struct msghdr){.msg_name = (void *)(uintptr_t)&end->to,
                               .msg_namelen = sizeof end->to,
                               .msg_iov = &burst->pieces[i],
                               .msg_iovlen = 1,
                               .msg_control = &burst->times[i],
                               .msg_controllen = sizeof burst->times[i]};
    struct cmsghdr *time = CMSG_FIRSTHDR(message);
    time->cmsg_level = SOL_SOCKET;
    time->cmsg_type = SCM_TXTIME;
    time->cmsg_len = CMSG_LEN(sizeof due_ns);
    memcpy(CMSG_DATA(time), &due_ns, sizeof due_ns);
}

static int burst_send(struct end *end)
{
    struct burst *burst = &end->burst;
    for (unsigned done = 0; done < burst->n;) {
        const int sent = sendmmsg(end->tx, &burst->messages[done], burst->n - done, 0);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return fail_errno(end->name, "send");
        done += (unsigned)sent;
    }
    burst->n = 0;
    return 0;
}

/* Passes the frames of a batch to the qdiscs, each with its time. */
static int release(const struct cut *cut, int64_t now_ns)
{
    struct batch_frame frame;
    size_t offset = 0;
    while (batch_next(cut->bytes, &offset, &frame)) {
        if (frame.link >= cut->n)
            return fail("the other end", "it has more interfaces");
        struct end *end = &cut->ends[frame.link];
        const int64_t due_ns = frame.sent_ns + end->delay_ns - cut->real_minus_monotonic_ns;
        if (due_ns < now_ns)
            return fail(end->name, "a frame is late");
        burst_add(end, &frame, (uint64_t)due_ns);
        if (end->burst.n == BURST && burst_send(end) != 0)
            return -1;
    }
    for (size_t i = 0; i < cut->n; i++)
        if (burst_send(&cut->ends[i]) != 0)
            return -1;
    return 0;
}

/* Reads batch `number` into cut->bytes. Returns 0: read, 1: not written yet, -1 after a message. */
static int read_batch(const struct cut *cut, uint64_t number)
{
    const off_t at = (off_t)(number % BATCH_SLOTS) * BATCH_BYTES;
    /* The guest's kernel may still cache the pages of the previous window. */
    if (posix_fadvise(cut->in, 0, 0, POSIX_FADV_DONTNEED) != 0)
        return fail("batch", "posix_fadvise");
    ssize_t had = pread(cut->in, cut->bytes, HEAD_BYTES, at);
    if (had != HEAD_BYTES)
        return fail_errno("batch", "read");
    struct batch_head head;
    memcpy(&head, cut->bytes, sizeof head);
    if (head.number != number || head.n_bytes > BATCH_BYTES - sizeof head)
        return 1;
    const size_t size = batch_size(cut->bytes);
    if (size > HEAD_BYTES) {
        const size_t rest = size - HEAD_BYTES;
        had = pread(cut->in, cut->bytes + HEAD_BYTES, rest, at + HEAD_BYTES);
        if (had != (ssize_t)rest)
            return fail_errno("batch", "read");
    }
    return batch_is(cut->bytes, size, number) ? 0 : 1;
}

static int receive(struct cut *cut, uint64_t number)
{
    if (cut->peer == PEER_CLOSED)
        return 0;
    const int found = read_batch(cut, number);
    if (found < 0)
        return -1;
    if (found > 0)
        return cut->peer == PEER_AWAITED ? 0 : fail("the other end", "it is gone");
    struct batch_head head;
    memcpy(&head, cut->bytes, sizeof head);
    cut->peer = head.is_last ? PEER_CLOSED : PEER_THERE;
    return release(cut, (int64_t)number * cut->window_ns);
}

/* -- what arrived here ---------------------------------------------------------------------- */

static int take(const struct cut *cut, size_t link, struct tpacket2_hdr *header, uint32_t status)
{
    const struct end *end = &cut->ends[link];
    if (status & TP_STATUS_LOSING)
        return fail(end->name, "more frames arrived in a window than the ring holds");
    if (header->tp_snaplen < header->tp_len)
        return fail(end->name, "a frame is longer than the interface's MTU");
    if (status & TP_STATUS_CSUMNOTREADY)
        return fail(end->name, "a frame without its checksum; valid: its sender with tx off");
    const int64_t sent_ns = ring_arrival_ns(header);
    const struct iovec frame = ring_frame(header, status);
    uint8_t *space = batch_add(cut->bytes, (uint32_t)link, sent_ns, frame.iov_len);
    if (!space)
        return fail(end->name, "more bytes arrived in a window than a batch holds");
    memcpy(space, frame.iov_base, frame.iov_len);
    return 0;
}

/* Adds what arrived at an interface to the batch. */
static int take_all(const struct cut *cut, size_t link)
{
    struct end *end = &cut->ends[link];
    for (;;) {
        struct tpacket2_hdr *header = ring_slot(&end->ring, end->head);
        const uint32_t status = ring_status(header);
        if (!(status & TP_STATUS_USER))
            return 0;
        if (take(cut, link, header, status) != 0)
            return -1;
        ring_give_back(header);
        end->head = (end->head + 1) % end->ring.slots;
    }
}

static int send_batch(const struct cut *cut, uint64_t number, bool is_last)
{
    batch_begin(cut->bytes, number);
    for (size_t i = 0; i < cut->n; i++)
        if (take_all(cut, i) != 0)
            return -1;
    if (is_last)
        batch_close(cut->bytes);
    const size_t size = batch_size(cut->bytes);
    const off_t at = (off_t)(number % BATCH_SLOTS) * BATCH_BYTES;
    if (pwrite(cut->out, cut->bytes, size, at) != (ssize_t)size)
        return fail_errno("batch", "write");
    /* Files of the host should be written through, but its file system decides. */
    if (sync_file_range(cut->out, at, (off_t)size,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) != 0)
        return fail_errno("batch", "sync_file_range");
    if (clock_ns(CLOCK_MONOTONIC) >= (int64_t)number * cut->window_ns)
        return fail("batch", "it was written too late");
    return 0;
}

static void sleep_until(int64_t at_ns)
{
    const struct timespec at = {.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

/* The calendar's windows begin at multiples of their length since the guest's boot, which is where
 * the monotonic clock begins. */
static int run(struct cut *cut)
{
    const int64_t begin_ns = clock_ns(CLOCK_MONOTONIC) + LEAD_NS;
    for (uint64_t number = (uint64_t)(begin_ns / cut->window_ns) + 1;; number++) {
        const int64_t boundary_ns = (int64_t)number * cut->window_ns;
        sleep_until(boundary_ns - LEAD_NS);
        const bool is_last = stop_asked;
        if (send_batch(cut, number, is_last) != 0)
            return 1;
        if (is_last)
            return 0;
        sleep_until(boundary_ns);
        if (receive(cut, number) != 0)
            return 1;
    }
}

/* -- start ---------------------------------------------------------------------------------- */

static int open_file(const char *path, int flags)
{
    struct stat found;
    const int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found) != 0)
        return fail_errno(path, "open");
    if (found.st_size == FILE_BYTES)
        return fd;
    fprintf(stderr, "cut-link: %s: found %lld bytes; valid: %lld\n", path, (long long)found.st_size,
            (long long)FILE_BYTES);
    return -1;
}

static int open_sender(struct end *end)
{
    const struct sock_txtime times = {.clockid = CLOCK_MONOTONIC};
    const int size = SEND_BUFFER_BYTES;
    end->tx = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0); /* protocol 0: receives nothing */
    if (end->tx < 0)
        return fail_errno(end->name, "packet socket");
    if (setsockopt(end->tx, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) != 0)
        return fail_errno(end->name, "SO_SNDBUFFORCE");
    if (setsockopt(end->tx, SOL_SOCKET, SO_TXTIME, &times, sizeof times) != 0)
        return fail_errno(end->name, "SO_TXTIME");
    end->to = (struct sockaddr_ll){.sll_family = AF_PACKET,
                                   .sll_ifindex = (int)if_nametoindex(end->name)};
    return 0;
}

/* Enters the network namespace of the process in `word`, PID/NAME, and returns NAME; without PID
 * stays. NULL after a message. */
static const char *enter_namespace(const char *word)
{
    char path[64];
    const char *slash = strchr(word, '/');
    if (!slash)
        return word;
    snprintf(path, sizeof path, "/proc/%.*s/ns/net", (int)(slash - word), word);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (!entered)
        fail_errno(word, "network namespace");
    if (fd >= 0)
        close(fd);
    return entered ? slash + 1 : NULL;
}

static int open_end(struct end *end, char **words, int64_t window_ns)
{
    char error[256];
    unsigned slots = SLOTS;
    char *rest;
    end->name = enter_namespace(words[0]);
    if (!end->name)
        return -1;
    end->delay_ns = strtoll(words[1], &rest, 10);
    if (*rest != '\0' || end->delay_ns < window_ns + LEAD_NS)
        return fail(words[1], "valid: a delay of a window and 0.2 ms or more, in ns");
    if (ring_open(&end->ring, end->name, &slots, error, sizeof error) != 0)
        return fail("interface", error);
    return open_sender(end);
}

static int open_all(struct cut *cut, char **argv)
{
    cut->ends = calloc(cut->n, sizeof *cut->ends);
    cut->bytes = malloc(BATCH_BYTES);
    if (!cut->ends || !cut->bytes)
        return fail("memory", "there is none");
    cut->out = open_file(argv[2], O_RDWR);
    cut->in = open_file(argv[3], O_RDONLY);
    if (cut->out < 0 || cut->in < 0)
        return -1;
    for (size_t i = 0; i < cut->n; i++)
        if (open_end(&cut->ends[i], argv + FIRST_AT + i * WORDS, cut->window_ns) != 0)
            return -1;
    /* In virtual time every clock reading takes equally long, so the second falls halfway. */
    const int64_t before_ns = clock_ns(CLOCK_REALTIME);
    const int64_t monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    const int64_t after_ns = clock_ns(CLOCK_REALTIME);
    cut->real_minus_monotonic_ns = before_ns + (after_ns - before_ns) / 2 - monotonic_ns;
    return 0;
}

static int serve(struct cut *cut, char **argv)
{
    if (open_all(cut, argv) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    return run(cut);
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = on_term};
    const int words = argc - FIRST_AT;
    struct cut cut = {.n = words > 0 ? (size_t)words / WORDS : 0};
    char *rest = NULL;
    if (cut.n > 0)
        cut.window_ns = strtoll(argv[1], &rest, 10);
    if (cut.n == 0 || words % WORDS != 0 || *rest != '\0' || cut.window_ns <= 0) {
        fputs("usage: cut-link WINDOW_NS OUT IN (INTERFACE DELAY_NS)...\n", stderr);
        return 2;
    }
    const struct sched_param first = {.sched_priority = 1};
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    if (sched_setscheduler(0, SCHED_FIFO, &first) != 0) {
        fail_errno("cut-link", "SCHED_FIFO");
        return 1;
    }
    const int rc = sigaction(SIGTERM, &action, NULL) == 0 ? serve(&cut, argv) : 1;
    /* Sockets and files end with the process. */
    free(cut.bytes);
    free(cut.ends);
    return rc;
}

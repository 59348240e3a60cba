/* SPDX-License-Identifier: Apache-2.0
 *
 * bench-norm: sends files by NORM (libnorm) at a fixed rate.
 *
 *   bench-norm send group=IP:PORT node=N rate=BPS parity=N proactive=N segment=1400 block=64
 *                   receivers=N first_node=N grtt_us=N       paths on standard input, one per line
 *   bench-norm recv group=IP:PORT node=N directory=DIR rcvbuf=BYTES unicast=0
 *
 * proactive: how many of a block's `parity` packets are sent with it; the others are for repair.
 * The interface is eth0, or interface=NAME. unicast: a receiver requests missing data only from the
 * sender, for networks that do not carry receivers' packets to a group. The sender ends when
 * standard input has ended and every receiver (nodes first_node ...) has acknowledged the last
 * file, or after asking ten times.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "norm_api.h"
#include "options.h"

static struct sockaddr_in group;
static const char *directory = ".", *interface = "eth0";
static uint64_t node = 1, rate = 20000000, parity = 32, proactive, segment = 1400, block = 64,
                receivers = 1, first_node = 2, rcvbuf = 8000000, grtt_us = 10000, unicast;

static NormSessionHandle open_session(NormInstanceHandle instance)
{
    char ip[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &group.sin_addr, ip, sizeof ip);
    NormSessionHandle s = NormCreateSession(instance, ip, ntohs(group.sin_port), (uint32_t)node);
    if (!s || !NormSetMulticastInterface(s, interface))
        die("cannot open the session");
    return s;
}

#define PATH_ROOM 512

struct sending {
    NormSessionHandle session;
    NormObjectHandle last;
    char (*waiting)[PATH_ROOM]; /* paths; the first `next` have been enqueued */
    size_t nwaiting, capacity, next;
    int rounds;
};

/* Enqueues waiting files as long as the queue accepts them. */
static void enqueue(struct sending *s)
{
    for (; s->next < s->nwaiting; s->next++) {
        const char *path = s->waiting[s->next];
        const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
        NormObjectHandle o = NormFileEnqueue(s->session, path, name, (unsigned)strlen(name));
        if (!o)
            return;
        s->last = o;
    }
}

static void add_path(struct sending *s, const char *path)
{
    if (s->nwaiting == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->waiting = reallocarray(s->waiting, s->capacity, sizeof *s->waiting);
    }
    if (!s->waiting)
        die("out of memory");
    if (strlen(path) >= PATH_ROOM)
        die_usage("found '%s'; valid: paths below %d bytes", path, PATH_ROOM);
    memcpy(s->waiting[s->nwaiting++], path, strlen(path) + 1);
}

/* Reads complete lines from standard input; false at its end. */
static bool read_paths(struct sending *s)
{
    static char text[8192];
    static size_t len;
    ssize_t n = read(STDIN_FILENO, text + len, sizeof text - 1 - len);

    if (n <= 0)
        return false;
    len += (size_t)n;
    char *end;
    while ((end = memchr(text, '\n', len))) {
        size_t used = (size_t)(end - text) + 1;
        *end = 0;
        add_path(s, text);
        len -= used;
        memmove(text, text + used, len);
    }
    return true;
}

static int send_main(NormInstanceHandle instance)
{
    struct sending s = {.session = open_session(instance)};
    bool open = true, asked = false;

    NormSetTxRate(s.session, (double)rate);
    NormSetGrttEstimate(s.session, (double)grtt_us / 1e6);
    NormSetGroupSize(s.session, (unsigned)receivers);
    NormSetTxCacheBounds(s.session, (off_t)4 << 30, 16, 32000);
    if (!NormStartSender(s.session, (uint16_t)getpid(), 64 << 20, (uint16_t)segment,
                         (uint16_t)block, (uint16_t)parity, 0))
        die("cannot start the sender");
    NormSetAutoParity(s.session, (unsigned char)proactive);
    NormSetTxSocketBuffer(s.session, 4 << 20);
    for (uint64_t i = 0; i < receivers; i++)
        NormAddAckingNode(s.session, (uint32_t)(first_node + i));
    fprintf(stderr, "bench-norm: ready\n");
    for (;;) {
        struct pollfd p[] = {{.fd = NormGetDescriptor(instance), .events = POLLIN},
                             {.fd = open ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            die("poll: %s", strerror(errno));
        if (p[1].revents)
            open = read_paths(&s);
        NormEvent event;
        while (p[0].revents && NormGetNextEvent(instance, &event, false))
            if (event.type == NORM_TX_WATERMARK_COMPLETED) {
                if (NormGetAckingStatus(s.session, UINT32_MAX) == NORM_ACK_SUCCESS ||
                    ++s.rounds == 10)
                    goto done;
                NormResetWatermark(s.session);
            }
        enqueue(&s);
        if (!open && s.next == s.nwaiting && !asked) {
            if (!s.last)
                goto done;
            asked = true;
            NormSetWatermark(s.session, s.last, true);
        }
    }
done:
    printf("files=%zu rounds=%d\n", s.nwaiting, s.rounds);
    NormStopSender(s.session);
    free(s.waiting);
    return 0;
}

/* libnorm writes into a file with a name of its choice; a complete file gets the sender's name. */
static void finish(NormObjectHandle object)
{
    char name[256] = "";
    uint16_t n = NormObjectHasInfo(object) ? NormObjectGetInfo(object, name, sizeof name - 1) : 0;

    name[n < sizeof name ? n : 0] = 0;
    char from[4096];
    if (!n || strchr(name, '/') || name[0] == '.' || !NormFileGetName(object, from, sizeof from))
        die("found a file named '%s'; valid: a plain file name", name);
    char to[4096];
    snprintf(to, sizeof to, "%s/%s", directory, name);
    if (rename(from, to) < 0)
        die("'%s': %s", to, strerror(errno));
}

static int recv_main(NormInstanceHandle instance)
{
    NormSessionHandle s = open_session(instance);

    NormSetCacheDirectory(instance, directory);
    NormSetDefaultSyncPolicy(s, NORM_SYNC_ALL);
    NormSetRxCacheLimit(s, 16000);
    NormSetDefaultUnicastNack(s, unicast != 0);
    if (!NormStartReceiver(s, 128 << 20))
        die("cannot start the receiver");
    NormSetRxSocketBuffer(s, (unsigned)rcvbuf);
    NormEvent event;
    while (NormGetNextEvent(instance, &event, true))
        if (event.type == NORM_RX_OBJECT_COMPLETED)
            finish(event.object);
    return 1;
}

int main(int argc, char **argv)
{
    const struct option_word words[] = {{"group", .endpoint = &group},
                                        {"directory", .text = &directory},
                                        {"interface", .text = &interface},
                                        {"node", .number = &node},
                                        {"rate", .number = &rate},
                                        {"parity", .number = &parity},
                                        {"proactive", .number = &proactive},
                                        {"segment", .number = &segment},
                                        {"block", .number = &block},
                                        {"receivers", .number = &receivers},
                                        {"first_node", .number = &first_node},
                                        {"rcvbuf", .number = &rcvbuf},
                                        {"grtt_us", .number = &grtt_us},
                                        {"unicast", .number = &unicast},
                                        {0}};

    program = "bench-norm";
    if (argc < 2 || (strcmp(argv[1], "send") != 0 && strcmp(argv[1], "recv") != 0))
        die_usage("found '%s'; valid: send, recv", argc < 2 ? "" : argv[1]);
    read_options(argc, argv, 2, words);
    if (!group.sin_port)
        die_usage("group=IP:PORT is needed");
    NormInstanceHandle instance = NormCreateInstance(false);
    if (!instance)
        die("cannot create a NORM instance");
    /* The library's thread starts in this time. Otherwise the next call spins until it has started.
     * On a single core whose clock stands still while any process runs (virtual time) that takes
     * forever. */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    int code = strcmp(argv[1], "recv") == 0 ? recv_main(instance) : send_main(instance);
    NormDestroyInstance(instance);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "outgoing.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "loop/loop.h"
#include "net/sockets.h"

#define NTP_EPOCH_S UINT64_C(2208988800)
#define TEN_YEARS_S (10 * UINT64_C(365) * 86400)

enum {
    HEADERS = FCAST_OVERHEAD_MAX,
    HEADERS_WITHOUT_MAC = 36,
    SYMBOL = 1436,
    CLOSE_DATAGRAMS = 3,
    FAST_BPS = 1000000000,
    FAST_RUNS = 4,
};

int outgoing_open(struct outgoing *o, const struct sockaddr_storage *from,
                  const struct sockaddr_storage *group, unsigned ttl, struct tp_error *err)
{
    const int fd = tp_open_multicast_out(from, group, ttl, &o->mtu_bytes, err);

    o->batch = (struct tp_batch_out){
        .fd = fd, .pace = {.rate_bps = o->rate_bps, .overhead = tp_udp_overhead(group->ss_family)}};
    if (fd < 0)
        return -1;
    tp_set_sndbuf(fd, 4 << 20);
    return 0;
}

unsigned outgoing_symbol_most(const struct outgoing *o, bool has_key)
{
    const unsigned headers = o->batch.pace.overhead + HEADERS;
    const unsigned room = o->mtu_bytes > headers ? o->mtu_bytes - headers : 0;
    const unsigned most = room < OUTGOING_SYMBOL_MAX ? room : OUTGOING_SYMBOL_MAX;

    return has_key ? most : most + HEADERS - HEADERS_WITHOUT_MAC;
}

uint16_t outgoing_symbol(const struct outgoing *o, bool has_key)
{
    const unsigned most = outgoing_symbol_most(o, has_key);

    return (uint16_t)(most > SYMBOL ? SYMBOL : most);
}

void outgoing_begin(struct outgoing *o, struct fcast_sender *sender, unsigned symbol_bytes,
                    uint64_t random)
{
    o->sender = sender;
    o->random = random;
    o->datagram_bytes = symbol_bytes + HEADERS_WITHOUT_MAC;
    /* At high rates the cost of each message dominates, so a run of datagrams may take longer. */
    o->batch.gso_max = tp_gso_limit(o->rate_bps < FAST_BPS ? o->rate_bps : FAST_RUNS * o->rate_bps,
                                    o->datagram_bytes, o->batch.pace.overhead);
    tp_pace_begin(&o->batch.pace, tp_now_ns());
}

static size_t len_of(void *ctx, unsigned i)
{
    return ((const struct outgoing *)ctx)->lens[i];
}

static size_t parts_of(void *ctx, unsigned i, struct iovec *parts)
{
    struct outgoing *o = ctx;

    *parts = (struct iovec){o->bytes[i], o->lens[i]};
    return 1;
}

bool outgoing_send(struct outgoing *o, uint64_t now_ns)
{
    if (!tp_batch_out_ready(&o->batch, now_ns))
        return true;
    fcast_sender_set_time(o->sender, tp_ntp_s());
    unsigned most =
        o->jitter ? 1 : tp_batch_out_most(&o->batch, o->datagram_bytes, OUTGOING_BATCH, now_ns);
    while (o->waiting < most &&
           (o->lens[o->waiting] = fcast_sender_next(o->sender, o->bytes[o->waiting])))
        o->waiting++;
    if (!o->waiting)
        return false;
    const struct tp_datagrams d = {.ctx = o, .count = o->waiting, .len = len_of, .parts = parts_of};
    unsigned gone = tp_batch_out_send(&o->batch, &d, o->parts, now_ns);
    if (o->jitter && gone) {
        uint64_t interval = tp_pace_cost_ns(&o->batch.pace, o->lens[0]);
        o->batch.pace.next_ns += fcast_jitter(interval, &o->random) - interval;
    }
    o->waiting -= gone;
    memmove(o->bytes, o->bytes + gone, o->waiting * sizeof *o->bytes);
    memmove(o->lens, o->lens + gone, o->waiting * sizeof *o->lens);
    return true;
}

void outgoing_wait(struct outgoing *o, uint64_t now_ns, int wake_fd)
{
    const uint64_t until = tp_batch_out_waits_until(&o->batch, now_ns);
    const uint64_t wait_ns = until > now_ns ? until - now_ns : 0;
    const struct timespec t = {.tv_sec = (time_t)(wait_ns / 1000000000),
                               .tv_nsec = (long)(wait_ns % 1000000000)};
    struct pollfd p[2] = {{.fd = o->batch.full ? o->batch.fd : -1, .events = POLLOUT},
                          {.fd = wake_fd, .events = POLLIN}};

    if (!o->batch.full && !wait_ns)
        return;
    if (ppoll(p, 2, o->batch.full ? NULL : &t, NULL) > 0 && p[0].revents)
        o->batch.full = false;
}

/* RFC 6726: the upper 32 bits of an NTP time, which wrap in 2036. */
uint32_t outgoing_expires(void)
{
    const uint64_t expires = (uint64_t)time(NULL) + NTP_EPOCH_S + TEN_YEARS_S;

    return expires < UINT32_MAX ? (uint32_t)expires : UINT32_MAX;
}

void outgoing_say_goodbye(struct outgoing *o)
{
    for (int i = 0; i < CLOSE_DATAGRAMS; i++) {
        size_t len = fcast_sender_close(o->sender, o->bytes[0]);
        struct timespec pause = {.tv_nsec = 20000000};
        if (len && send(o->batch.fd, o->bytes[0], len, 0) < 0 && errno != EAGAIN)
            break;
        nanosleep(&pause, NULL);
    }
}

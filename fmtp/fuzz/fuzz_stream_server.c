/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds receivers' streams to the sender core, during offers, timers and partial writes. Input: a
 * byte (bit 0 layout, 1 small blocks and FEC, 2 larger groups, 3 r_uc, 4 an ordinary peer, 5 the
 * peers report their progress), then records {operation, argument, bytes}.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "loop/timers.h"
#include "sender.h"

enum { PEERS = 3, PRODUCTS = 4, LARGEST = 20000 };

struct app {
    int retained;
};

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct app *app = ctx;

    (void)index;
    (void)why;
    free(cookie); /* the sanitizer detects a use after this */
    if (--app->retained < 0)
        abort();
}

static void offer(struct fmtp_sender *s, struct app *app, uint8_t argument)
{
    size_t size = (size_t)argument * LARGEST / 255;
    uint8_t *data = malloc(size ? size : 1);
    struct iovec parts[2] = {{data, size / 3}, {data + size / 3, size - size / 3}};

    memset(data, argument, size);
    struct tp_error err;
    if (fmtp_sender_offer(
            s,
            &(struct fmtp_offer){
                .parts = parts, .nparts = 2, .meta = "meta", .meta_len = 4, .cookie = data},
            NULL, &err) < 0)
        free(data);
    else
        app->retained++;
}

/* Takes up to n datagrams and reports some of them as sent. */
static void multicast(struct fmtp_sender *s, unsigned n, uint64_t now_ns)
{
    static struct fmtp_datagram d[256];
    volatile uint8_t sum = 0;
    unsigned filled = fmtp_sender_fill(s, d, n, now_ns);

    for (unsigned k = 0; k < filled; k++)
        for (int i = 0; i < d[k].niov; i++)
            for (size_t b = 0; b < d[k].iov[i].iov_len; b++)
                sum ^= ((uint8_t *)d[k].iov[i].iov_base)[b];
    (void)sum;
    fmtp_sender_sent(s, n % 3 ? filled : filled / 2, now_ns);
    fmtp_sender_held_until(s, 1000000, now_ns);
}

static void output(struct fmtp_sender *s, int peer, size_t n, uint64_t now_ns)
{
    volatile uint8_t sum = 0;
    size_t len = 0;

    struct fmtp_stream_out out;
    fmtp_sender_peer_peek(s, peer, &out, now_ns);
    for (int i = 0; i < out.niov; i++)
        for (size_t b = 0; b < out.iov[i].iov_len; b++, len++)
            sum ^= ((uint8_t *)out.iov[i].iov_base)[b];
    (void)sum;
    if (len != out.len)
        abort();
    fmtp_sender_peer_sent(s, peer, n < len ? n : len, now_ns);
}

/* Makes the sender that the first byte selects. */
static struct fmtp_sender *sender_of(uint8_t options, struct app *app)
{
    struct fmtp_sender_config cfg = {.layout = options & 1 ? FMTP_LAYOUT_2021 : FMTP_LAYOUT_2017,
                                     .f_snd = 1,
                                     .r_mc_bps = 1000000,
                                     .max_products = PRODUCTS,
                                     .max_peers = PEERS,
                                     .peer_queue_bytes = 2048,
                                     .first_index = UINT32_MAX,
                                     .ctx = app,
                                     .released = released};

    if (options & 2) {
        cfg.block_bytes = 64;
        cfg.fec_k = options & 4 ? 100 : 5;
    }
    if (options & 8)
        cfg.r_uc_bps = 10000;
    return fmtp_sender_new(&cfg);
}

static void connect_again(struct fmtp_sender *s, int *peer, bool extended)
{
    fmtp_sender_peer_remove(s, *peer);
    *peer = fmtp_sender_peer_add(s, extended, NULL);
}

static void block(struct fmtp_sender *s, int peer, bool blocked, uint64_t now_ns)
{
    fmtp_sender_peer_blocked(s, peer, blocked);
    int ready = fmtp_sender_next_ready(s, now_ns);
    if (ready >= 0 && !fmtp_sender_peer_pending(s, ready))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct app app = {0};
    uint64_t now_ns = 0;

    if (size < 1)
        return 0;
    bool ordinary = *data & 16; /* one of the peers */
    bool reports = *data & 32;
    struct fmtp_sender *s = sender_of(*data, &app);
    if (!s)
        return 0;
    int peers[PEERS];
    for (int i = 0; i < PEERS; i++) {
        peers[i] = fmtp_sender_peer_add(s, i || !ordinary, NULL);
        fmtp_sender_peer_rtt(s, peers[i], 40000000);
        if (reports)
            fmtp_sender_peer_reports(s, peers[i]);
    }
    for (data++, size--; size >= 2;) {
        int *peer = &peers[data[0] / 8 % PEERS];
        uint8_t argument = data[1];
        size_t n = 0;
        switch (data[0] % 8) {
        case 0: offer(s, &app, argument); break;
        case 1: multicast(s, argument, now_ns); break;
        case 2:
            now_ns += (uint64_t)argument * 1000000;
            fmtp_sender_timeout(s, now_ns);
            break;
        case 3:
        case 4: output(s, *peer, (size_t)argument * 20, now_ns); break;
        case 5:
            if (argument & 3)
                block(s, *peer, argument & 1, now_ns);
            else
                connect_again(s, peer, argument & 4);
            break;
        default:
            n = argument < size - 2 ? argument : size - 2;
            if (fmtp_sender_peer_input(s, *peer, data + 2, n, now_ns) < 0)
                connect_again(s, peer, true);
        }
        data += 2 + n;
        size -= 2 + n;
    }
    fmtp_sender_free(s);
    if (app.retained)
        abort();
    return 0;
}

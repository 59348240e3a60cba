/* SPDX-License-Identifier: Apache-2.0
 *
 * What the published senders did and ours does on request: the timer by the hand-over time, and one
 * blocking thread for each receiver. Times are worked out by hand.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "addresses.h"
#include "fmtp.h"
#include "sender_kit.h"
#include "sim.h"

static struct fmtp_server_stats stats_of(const struct sim *s)
{
    struct fmtp_server_stats stats;

    fmtp_sender_get_stats(s->sender, &stats);
    return stats;
}

/* ---- the timer: five datagrams, of which one leaves in each millisecond; f_snd is 50 */
static struct fmtp_sender *handed_over(uint64_t handover_ns, uint64_t begun_ns, uint64_t sent_ns,
                                       uint64_t each_ns)
{
    struct fmtp_sender_config cfg = common;

    cfg.fec_k = 0;
    cfg.f_snd = 50;
    cfg.timer_by_handover = true;
    cfg.handover_ns = handover_ns;
    struct fmtp_sender *s = make(&cfg);
    peer(s, false);
    offer(s, 2 * BLOCK + 1);
    struct fmtp_datagram d;
    assert_int_equal(fmtp_sender_fill(s, &d, 1, begun_ns), 1); /* the system has no room yet */
    fmtp_sender_sent(s, 0, begun_ns);
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    for (uint64_t i = 0; i < 5; i++)
        assert_true(next(s, sent_ns + i * each_ns, &h, payload));
    assert_int_equal(h.flags, FMTP_EOP);
    return s;
}

static void assert_expires(struct fmtp_sender *s, uint64_t at_ns)
{
    fmtp_sender_timeout(s, at_ns - 1);
    assert_int_equal(nreleased, 0);
    fmtp_sender_timeout(s, at_ns);
    assert_int_equal(nreleased, 1);
    fmtp_sender_free(s);
}

static void test_handover(void **state)
{
    (void)state;
    /* From 10 to 14 ms; by the rate it would be 50 x 201 x 8 / 1.12 Mbit/s = 71.8 ms. */
    assert_expires(handed_over(0, 10 * MS, 10 * MS, MS), (14 + 50 * 4) * MS);
    /* The first call waited for 20 ms. */
    assert_expires(handed_over(0, 10 * MS, 30 * MS, MS), (34 + 50 * 24) * MS);
    /* Five datagrams count at least 2 ms each; or 0.5 ms, which they exceed. */
    assert_expires(handed_over(2 * MS, 10 * MS, 10 * MS, MS), (14 + 50 * 10) * MS);
    assert_expires(handed_over(MS / 2, 10 * MS, 10 * MS, MS), (14 + 50 * 4) * MS);
    /* As in virtual time, where handing over takes none; then the round trip of 8 ms is longer. */
    assert_expires(handed_over(MS, 10 * MS, 10 * MS, 0), (10 + 50 * 5) * MS);
    assert_expires(handed_over(0, 10 * MS, 10 * MS, 0), (10 + 8) * MS);
}

/* ---- blocking: product 0 has 50 blocks, of which the first 40 are lost; their repair by a stream
 * of 1 Mbit/s takes 40 x 1460 B x 8 us = 467.2 ms, from 44 to 511 ms. Product 1 loses a block;
 * its request arrives at 51 ms, and its timer ends 56 ms after 32.1 ms. Product 2 loses nothing;
 * its RETX_END arrives at 55 ms, and its timer ends at 34.9 + 56 ms. Product 0's ends at 608 ms. */
static bool lose(int rx, const struct fmtp_header *h)
{
    (void)rx;
    return h->flags == FMTP_MEM_DATA && ((h->index == 0 && h->seqnum < 40 * FMTP_DATA_LEN) ||
                                         (h->index & 1 && h->seqnum == FMTP_DATA_LEN));
}

static struct sim *slow_stream(bool blocking)
{
    struct sim_config cfg = {.layout = FMTP_LAYOUT_2021,
                             .rate_bps = 20000000,
                             .unicast_bps = 1000000,
                             .delay_ns = 10 * MS,
                             .f_snd = 20,
                             .f_rcv = 20,
                             .receivers = 1,
                             .drop = lose,
                             .blocking = blocking};
    struct sim *s = sim_new(&cfg);

    sim_product(s, 50 * FMTP_DATA_LEN, 0);
    sim_product(s, 7000, 0);
    sim_product(s, 7000, 0);
    sim_product(s, 7000, 1000 * MS);
    return s;
}

/* What both do: a request that was not answered when its product's timer ended is rejected. */
static void check_outcome(const struct sim *s)
{
    const struct sim_receiver *rx = &s->rx[0];

    assert_int_equal(rx->ended[0], 1);
    assert_in_range(rx->ended_ns[0], (511 + 10) * MS, (511 + 11) * MS);
    assert_int_equal(s->why[1], FMTP_RELEASE_TIMEOUT);
    assert_in_range(s->released_ns[1], 88 * MS, 89 * MS);
    assert_int_equal(sim_count(rx, FMTP_RETX_REJ, 1), 1);
    assert_in_range(sim_find(rx, FMTP_RETX_REJ, 1)->at_ns, (511 + 10) * MS, (511 + 11) * MS);
    assert_int_equal(rx->missed[1], 1);
    assert_int_equal(rx->ended[2], 1);
    assert_int_equal(rx->ended[3], 1); /* the stream is still in step */
    assert_int_equal(rx->retx_blocks[3], 1);
}

static void test_event_loop(void **state)
{
    (void)state;
    struct sim *s = slow_stream(false);
    sim_run(s, 300 * MS);
    uint64_t first = stats_of(s).retx_requests - 1;
    assert_int_equal(sim_count(&s->rx[0], FMTP_RETX_REQ, 0), first);
    assert_int_equal(stats_of(s).rejects, 1); /* at the end of its timer */
    assert_int_equal(s->why[2], FMTP_RELEASE_ALL_DONE);
    assert_in_range(s->released_ns[2], 54 * MS, 56 * MS);
    sim_run(s, TP_NEVER);
    check_outcome(s);
    assert_int_equal(s->why[0], FMTP_RELEASE_ALL_DONE);
    sim_free(s);
}

static void test_blocking(void **state)
{
    (void)state;
    struct sim *s = slow_stream(true);
    sim_run(s, 300 * MS);
    /* Neither the request for product 1 nor the end of product 2 is read. */
    assert_in_range(stats_of(s).retx_requests, 1, sim_count(&s->rx[0], FMTP_RETX_REQ, 0));
    assert_int_equal(stats_of(s).rejects, 0);
    assert_int_equal(stats_of(s).acks, 0);
    assert_int_equal(s->why[2], FMTP_RELEASE_TIMEOUT);
    assert_in_range(s->released_ns[2], 90 * MS, 91 * MS);
    sim_run(s, TP_NEVER);
    check_outcome(s);
    assert_int_equal(stats_of(s).rejects, 1);
    assert_int_equal(s->why[3], FMTP_RELEASE_ALL_DONE);
    sim_free(s);
}

/* ---- reminders: a busy thread sends none, not even of another product */
static uint64_t nudges_to_busy(bool blocking)
{
    struct fmtp_sender_config cfg = common;
    unsigned extra;

    cfg.fec_k = 0;
    cfg.blocking = blocking;
    struct fmtp_sender *s = make(&cfg);
    int p = peer(s, false);
    offer(s, 300);
    drain(s, 0, &extra);
    put(s, p, FMTP_RETX_REQ, latest, 0, BLOCK);
    offer(s, 300);
    drain(s, 0, &extra);
    fmtp_sender_timeout(s, 3000 * MS); /* after the 2 s that 256 KiB take */
    uint64_t nudges = fmtp_sender_counts(s)->nudges;
    uint8_t bytes[2 * BLOCK];
    assert_int_equal(stream(s, p, bytes, sizeof bytes, 3000 * MS),
                     FMTP_HEADER_LEN + BLOCK + nudges * FMTP_HEADER_LEN);
    fmtp_sender_timeout(s, 8000 * MS);
    assert_true(fmtp_sender_counts(s)->nudges > nudges);
    fmtp_sender_free(s);
    return nudges;
}

static void test_reminders(void **state)
{
    (void)state;
    assert_int_equal(nudges_to_busy(false), 1);
    assert_int_equal(nudges_to_busy(true), 0);
}

/* ---- the same over real sockets: 150 requests for 64 kB each, of which nothing is read */
enum { REQUESTS = 150, ASKED = 45 * FMTP_DATA_LEN };
static uint8_t content[REQUESTS * ASKED];

static void on_released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    (void)ctx;
    (void)index;
    (void)cookie;
    (void)why;
}

static void turn(struct fmtp_server *server, int timeout_ms)
{
    struct pollfd p = {fmtp_server_fd(server), POLLIN, 0};
    struct tp_error err;

    poll(&p, 1, timeout_ms);
    assert_int_equal(fmtp_server_service(server, &err), 0);
}

static struct fmtp_server_stats counts(const struct fmtp_server *server)
{
    struct fmtp_server_stats stats;

    fmtp_server_get_stats(server, &stats);
    return stats;
}

/* Returns a server that has multicast the content to one receiver, *fd, which then requested it. */
static struct fmtp_server *requested(bool blocking, uint64_t r_uc_bps, int *fd)
{
    const struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2017,
                                           .address = address("127.0.0.1", 0),
                                           .group = address("239.192.7.11", 38811),
                                           .f_snd = 5e7,
                                           .r_mc_bps = 1000000000,
                                           .r_uc_bps = r_uc_bps,
                                           .blocking = blocking,
                                           .released = on_released};
    struct tp_error err;
    struct fmtp_server *server = fmtp_server_open(&cfg, &err);
    assert_non_null(server);
    struct sockaddr_storage to = address("127.0.0.1", fmtp_server_tcp_port(server));
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &(int){65536}, sizeof(int));
    assert_int_equal(connect(*fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
    while (!fmtp_server_receivers(server))
        turn(server, 100);
    struct iovec part = {content, sizeof content};
    uint32_t index;
    assert_int_equal(fmtp_server_offer(server, &part, 1, NULL, 0, NULL, &index, &err), 0);
    while (!fmtp_server_ready(server))
        turn(server, 100);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct fmtp_header h = {index, i * ASKED, (uint16_t)ASKED, FMTP_RETX_REQ};
        uint8_t bytes[FMTP_HEADER_LEN];
        fmtp_header_put(bytes, &h);
        assert_int_equal(send(*fd, bytes, sizeof bytes, 0), sizeof bytes);
    }
    return server;
}

/* Serves until the server waits for the receiver, and returns how many requests it has read. */
static uint64_t served(struct fmtp_server *server)
{
    struct pollfd p = {fmtp_server_fd(server), POLLIN, 0};

    for (int quiet = 0; quiet < 5;) {
        quiet = poll(&p, 1, 50) ? 0 : quiet + 1;
        turn(server, 0);
    }
    return counts(server).retx_requests;
}

static void test_sockets(void **state)
{
    (void)state;
    int fd;
    struct fmtp_server *server = requested(false, 0, &fd);
    assert_int_equal(served(server), REQUESTS);
    close(fd);
    fmtp_server_close(server);

    server = requested(true, 0, &fd);
    uint64_t read = served(server);
    assert_in_range(read, 1, REQUESTS / 2);
    /* The last of them is in part with the connection, all before it are. */
    assert_in_range(counts(server).retx_blocks, (read - 1) * 45, read * 45);
    size_t want = sizeof content / FMTP_DATA_LEN * (FMTP_HEADER_LEN + FMTP_DATA_LEN), got = 0;
    static uint8_t bytes[1 << 16];
    while (got < want) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        got += n > 0 ? (size_t)n : 0;
        turn(server, n > 0 ? 0 : 10);
    }
    assert_in_range(got, want, want + 20 * FMTP_HEADER_LEN); /* with reminders */
    assert_int_equal(served(server), REQUESTS);
    assert_int_equal(counts(server).retx_blocks, REQUESTS * 45);
    assert_int_equal(counts(server).rejects, 0);
    close(fd);
    fmtp_server_close(server);
}

/* A receiver that ends while the server does not read from it is noticed, also if the server waits
 * for r_uc: at 1 kbit/s a block takes 11.7 s. */
static void check_end(uint64_t r_uc_bps)
{
    int fd;
    struct fmtp_server *server = requested(true, r_uc_bps, &fd);
    assert_in_range(served(server), 1, REQUESTS / 2);
    close(fd); /* with unread bytes, so it is a reset */
    for (int i = 0; i < 10 && fmtp_server_receivers(server); i++)
        turn(server, 100);
    assert_int_equal(fmtp_server_receivers(server), 0);
    fmtp_server_close(server);
}

static void test_end(void **state)
{
    (void)state;
    check_end(0);
    check_end(1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handover), cmocka_unit_test(test_event_loop),
        cmocka_unit_test(test_blocking), cmocka_unit_test(test_reminders),
        cmocka_unit_test(test_sockets),  cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

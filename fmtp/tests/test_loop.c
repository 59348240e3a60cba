/* SPDX-License-Identifier: Apache-2.0
 *
 * Server and clients over real sockets on the loopback interface.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "addresses.h"
#include "fmtp.h"
#include "loop/loop.h"
#include "wire.h"

enum { PRODUCTS = 6, CLIENTS = 3 };

/* Counts how often the loops ask epoll; replaces the C library's function. */
static int epoll_asked;

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout_ms)
{
    epoll_asked++;
    return (int)syscall(SYS_epoll_pwait, epfd, events, max, timeout_ms, NULL, 0);
}

static const uint32_t sizes[PRODUCTS] = {2, 1, 1448, 1449, 100000, 700001};

struct rx {
    struct fmtp_client *client;
    uint8_t *data[PRODUCTS];
    int begun[PRODUCTS], ended[PRODUCTS], missed[PRODUCTS];
    int total;
    double worst_delay_s;
    bool lost;
};

struct tx {
    int multicasted[PRODUCTS], released[PRODUCTS];
    enum fmtp_release why[PRODUCTS];
    int total, changes;
    bool refuse;
};

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct rx *rx = ctx;

    (void)start;
    assert_in_range(index, 0, PRODUCTS - 1);
    assert_int_equal(size, sizes[index]);
    char want[32];
    snprintf(want, sizeof want, "meta %u", index);
    assert_int_equal(meta_len, strlen(want));
    assert_memory_equal(meta, want, meta_len);
    rx->begun[index]++;
    rx->data[index] = malloc(size + 1);
    return rx->data[index];
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    struct rx *rx = ctx;

    (void)retx_blocks;
    rx->ended[index]++;
    rx->total++;
    if (delay_s > rx->worst_delay_s)
        rx->worst_delay_s = delay_s;
}

static void missed(void *ctx, uint32_t index)
{
    struct rx *rx = ctx;

    rx->missed[index]++;
}

static void multicasted(void *ctx, uint32_t index, void *cookie)
{
    struct tx *tx = ctx;

    assert_ptr_equal(cookie, (void *)(uintptr_t)(index + 100));
    tx->multicasted[index]++;
}

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct tx *tx = ctx;

    assert_ptr_equal(cookie, (void *)(uintptr_t)(index + 100));
    tx->released[index]++;
    tx->why[index] = why;
    tx->total++;
}

static void changed(void *ctx, const struct sockaddr *peer, int change, size_t count)
{
    struct tx *tx = ctx;
    char text[TP_ADDRESS_TEXT];

    tp_address_text(peer, text);
    assert_true(strncmp(text, "127.0.0.1:", 10) == 0 || strncmp(text, "[::1]:", 6) == 0);
    assert_true(change == 1 || change == -1);
    assert_true(count <= CLIENTS);
    tx->changes += change;
}

static bool authorize(void *ctx, const struct sockaddr *peer)
{
    struct tx *tx = ctx;

    (void)peer;
    return !tx->refuse;
}

static struct fmtp_server *open_server(struct tx *tx, enum fmtp_layout layout, uint16_t port,
                                       uint64_t pace_bps)
{
    struct tp_error err;
    struct fmtp_server_config cfg = {.layout = layout,
                                     .address = address("127.0.0.1", 0),
                                     .group = address("239.192.7.9", port),
                                     .f_snd = 5e7,
                                     .r_mc_bps = 100000000,
                                     .pace_bps = pace_bps,
                                     .ctx = tx,
                                     .authorize = authorize,
                                     .multicasted = multicasted,
                                     .released = released,
                                     .receivers_changed = changed};
    struct fmtp_server *s = fmtp_server_open(&cfg, &err);

    if (!s)
        fail_msg("%s", err.text);
    return s;
}

static void open_client(struct rx *rx, struct fmtp_server *s, enum fmtp_layout layout,
                        uint16_t port)
{
    struct fmtp_client_config cfg = {.layout = layout,
                                     .server = address("127.0.0.1", fmtp_server_tcp_port(s)),
                                     .group = address("239.192.7.9", port),
                                     .interface = address("127.0.0.1", 0),
                                     .f_rcv = 20,
                                     .r_mc_bps = 100000000,
                                     .rcvbuf_bytes = 1 << 20,
                                     .ctx = rx,
                                     .begun = begun,
                                     .ended = ended,
                                     .missed = missed};

    struct tp_error err;
    rx->client = fmtp_client_open(&cfg, &err);
    if (!rx->client)
        fail_msg("%s", err.text);
}

/* Waits until any of the descriptors is readable, like a caller's loop, and services them. */
static void turn(struct fmtp_server *s, struct rx *rx, int n, int timeout_ms)
{
    struct pollfd fds[1 + CLIENTS] = {{.fd = s ? fmtp_server_fd(s) : -1, .events = POLLIN}};

    for (int i = 0; i < n; i++)
        fds[1 + i] =
            (struct pollfd){.fd = rx[i].client && !rx[i].lost ? fmtp_client_fd(rx[i].client) : -1,
                            .events = POLLIN};
    poll(fds, 1 + (nfds_t)n, timeout_ms);
    struct tp_error err;
    if (s && fds[0].revents)
        assert_int_equal(fmtp_server_service(s, &err), 0);
    for (int i = 0; i < n; i++)
        if (fds[1 + i].revents && fmtp_client_service(rx[i].client, &err) < 0)
            rx[i].lost = true;
}

static void connect_all(struct fmtp_server *s, struct tx *tx, struct rx *rx)
{
    for (int turns = 0; fmtp_server_receivers(s) < CLIENTS && turns < 10000; turns++)
        turn(s, rx, CLIENTS, 100);
    assert_int_equal(fmtp_server_receivers(s), CLIENTS);
    assert_int_equal(tx->changes, CLIENTS);
}

static void offer_one(struct fmtp_server *s, uint8_t *data, int number)
{
    uint32_t size = sizes[number], cut = size / 3, index;
    struct iovec parts[3] = {{data, cut}, {data + cut, 0}, {data + cut, size - cut}};
    char meta[32];

    snprintf(meta, sizeof meta, "meta %d", number);
    struct tp_error err;
    assert_int_equal(fmtp_server_offer(s, parts, 3, meta, (uint16_t)strlen(meta),
                                       (void *)(uintptr_t)(number + 100), &index, &err),
                     0);
    assert_int_equal(index, number);
}

static void send_all(struct fmtp_server *s, struct tx *tx, struct rx *rx, uint8_t *data)
{
    int offered = 0;

    for (int turns = 0;
         (tx->total < PRODUCTS || rx[0].total + rx[1].total + rx[2].total < 3 * PRODUCTS) &&
         turns < 100000;
         turns++) {
        if (offered < PRODUCTS && fmtp_server_ready(s))
            offer_one(s, data, offered++);
        turn(s, rx, CLIENTS, 100);
    }
}

static void assert_all_arrived(const struct tx *tx, const struct rx *rx, const uint8_t *data)
{
    for (int p = 0; p < PRODUCTS; p++) {
        assert_int_equal(tx->multicasted[p], 1);
        assert_int_equal(tx->released[p], 1);
        assert_int_equal(tx->why[p], FMTP_RELEASE_ALL_DONE);
        for (int i = 0; i < CLIENTS; i++) {
            assert_int_equal(rx[i].begun[p], 1);
            assert_int_equal(rx[i].ended[p], 1);
            assert_int_equal(rx[i].missed[p], 0);
            assert_memory_equal(rx[i].data[p], data, sizes[p]);
        }
    }
}

static void assert_stats(const struct fmtp_server *s, const struct rx *rx, enum fmtp_layout layout)
{
    struct fmtp_server_stats stats;

    fmtp_server_get_stats(s, &stats);
    assert_int_equal(stats.products, PRODUCTS);
    assert_int_equal(stats.acks, PRODUCTS * CLIENTS);
    assert_int_equal(stats.unacknowledged, 0);
    /* 1+1+1+2+70+484 blocks, a BOP and an EOP each */
    assert_int_equal(stats.blocks, 559);
    assert_int_equal(stats.datagrams, 559 + 2 * PRODUCTS);
    for (int i = 0; i < CLIENTS; i++) {
        struct fmtp_client_stats c;
        fmtp_client_get_stats(rx[i].client, &c);
        assert_int_equal(c.products, PRODUCTS);
        assert_int_equal(c.blocks + c.retx_blocks, 559);
        assert_int_equal(c.bad_messages, 0);
        assert_true(c.rcvbuf_granted_bytes >= 1 << 20);
        if (layout == FMTP_LAYOUT_2021)
            assert_true(rx[i].worst_delay_s > 0 && rx[i].worst_delay_s < 60);
    }
}

static void transfer(enum fmtp_layout layout, uint64_t pace_bps)
{
    struct tx tx = {0};
    struct rx rx[CLIENTS] = {0};
    uint16_t port = free_port();
    struct fmtp_server *s = open_server(&tx, layout, port, pace_bps);
    uint8_t *data = malloc(700001);

    for (size_t i = 0; i < 700001; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int i = 0; i < CLIENTS; i++)
        open_client(&rx[i], s, layout, port);
    connect_all(s, &tx, rx);
    send_all(s, &tx, rx, data);
    assert_all_arrived(&tx, rx, data);
    assert_stats(s, rx, layout);
    fmtp_server_close(s);
    for (int turns = 0; turns < 100 && !(rx[0].lost && rx[1].lost && rx[2].lost); turns++)
        turn(NULL, rx, CLIENTS, 100);
    for (int i = 0; i < CLIENTS; i++) {
        assert_true(rx[i].lost);
        fmtp_client_close(rx[i].client);
        for (int p = 0; p < PRODUCTS; p++)
            free(rx[i].data[p]);
    }
    free(data);
}

static void test_2021(void **state)
{
    (void)state;
    transfer(FMTP_LAYOUT_2021, 0);
}

static void test_2017(void **state)
{
    (void)state;
    transfer(FMTP_LAYOUT_2017, 0);
}

static void test_paced(void **state)
{
    (void)state;
    struct timespec a;
    clock_gettime(CLOCK_MONOTONIC, &a);
    transfer(FMTP_LAYOUT_2017, 20000000);
    struct timespec b;
    clock_gettime(CLOCK_MONOTONIC, &b);
    /* 802 901 bytes of data alone take 0.321 s at 20 Mbit/s. */
    double s = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    assert_true(s >= 0.32);
}

static void test_not_authorized(void **state)
{
    struct tx tx = {.refuse = true};
    struct rx rx = {0};
    uint16_t port = free_port();
    struct fmtp_server *s = open_server(&tx, FMTP_LAYOUT_2021, port, 0);

    (void)state;
    open_client(&rx, s, FMTP_LAYOUT_2021, port);
    for (int i = 0; i < 100 && !rx.lost; i++)
        turn(s, &rx, 1, 100);
    assert_true(rx.lost);
    assert_int_equal(fmtp_server_receivers(s), 0);
    fmtp_client_close(rx.client);
    fmtp_server_close(s);
}

/* Garbage on the TCP port closes only that connection. */
static void test_garbage(void **state)
{
    struct tx tx = {0};
    uint16_t port = free_port();
    struct fmtp_server *s = open_server(&tx, FMTP_LAYOUT_2017, port, 0);
    struct sockaddr_storage to = address("127.0.0.1", fmtp_server_tcp_port(s));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t n = -1;

    (void)state;
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
    for (int i = 0; i < 20 && fmtp_server_receivers(s) == 0; i++)
        turn(s, NULL, 0, 100);
    assert_int_equal(fmtp_server_receivers(s), 1);
    assert_int_equal(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, 0), 18);
    char byte;
    for (int i = 0; i < 20 && n < 0; i++) {
        turn(s, NULL, 0, 100);
        n = recv(fd, &byte, 1, MSG_DONTWAIT);
    }
    assert_int_equal(n, 0);
    assert_int_equal(fmtp_server_receivers(s), 0);
    struct fmtp_server_stats stats;
    fmtp_server_get_stats(s, &stats);
    assert_int_equal(stats.bad_messages, 1);
    close(fd);
    fmtp_server_close(s);
}

/* The receiver starts before the sender: it retries. */
static void test_retry(void **state)
{
    struct tx tx = {0};
    struct rx rx = {0};
    uint16_t port = free_port();
    struct fmtp_server *s = open_server(&tx, FMTP_LAYOUT_2017, port, 0);
    struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2017,
                                     .address = address("127.0.0.1", fmtp_server_tcp_port(s)),
                                     .group = address("239.192.7.9", port),
                                     .f_snd = 1,
                                     .r_mc_bps = 1000000,
                                     .ctx = &tx,
                                     .receivers_changed = changed};

    (void)state;
    open_client(&rx, s, FMTP_LAYOUT_2017, port);
    fmtp_server_close(s);
    for (int i = 0; i < 5; i++)
        turn(NULL, &rx, 1, 50);
    assert_false(rx.lost);
    assert_false(fmtp_client_connected(rx.client));
    struct tp_error err;
    s = fmtp_server_open(&cfg, &err);
    assert_non_null(s);
    for (int i = 0; i < 100 && !fmtp_client_connected(rx.client); i++)
        turn(s, &rx, 1, 100);
    assert_true(fmtp_client_connected(rx.client));
    fmtp_client_close(rx.client);
    fmtp_server_close(s);
}

/* Makes a socket that sends to the group through the loopback interface. */
static int group_socket(uint16_t port)
{
    struct sockaddr_storage group = address("239.192.7.9", port);
    struct in_addr from = {.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&group, sizeof(struct sockaddr_in)), 0);
    return fd;
}

/* A datagram costs one system call, without asking epoll before and after; but a flood of
 * datagrams, one before each call, hides the connection's end for at most 16 calls. */
static void test_datagrams_first(void **state)
{
    struct tx tx = {0};
    struct rx rx = {0};
    uint16_t port = free_port();
    struct fmtp_server *s = open_server(&tx, FMTP_LAYOUT_2017, port, 0);
    int fd = group_socket(port), calls = 0;

    (void)state;
    open_client(&rx, s, FMTP_LAYOUT_2017, port);
    for (int i = 0; i < 100 && !fmtp_client_connected(rx.client); i++)
        turn(s, &rx, 1, 100);
    assert_true(fmtp_client_connected(rx.client));
    for (int i = 0; i < 3; i++)
        turn(s, &rx, 1, 0);
    epoll_asked = 0;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(send(fd, "abc", 3, 0), 3);
        turn(NULL, &rx, 1, 1000);
    }
    struct fmtp_client_stats stats;
    fmtp_client_get_stats(rx.client, &stats);
    assert_int_equal(stats.datagrams, 10);
    assert_int_equal(epoll_asked, 0);
    fmtp_server_close(s);
    for (; calls < 100 && !rx.lost; calls++) {
        assert_int_equal(send(fd, "abc", 3, 0), 3);
        turn(NULL, &rx, 1, 1000);
    }
    assert_in_range(calls, 1, 17);
    fmtp_client_close(rx.client);
    close(fd);
}

/* A receiver that lost a whole product requests it on its stream and reads as fast as it can: the
 * server must not sleep while it has something to send to a stream that accepts it. A stream whose
 * turn ends after 8 writes of 32 blocks would need 54 turns for 20 MB, and only nudges, at 0.1,
 * 0.3, 0.7, ... s, would wake it. Two waits of 50 ms are tolerated for a busy machine. */
enum { STREAMED = 20000000, PER_REQUEST = 45 * 1448 };

static int connect_raw(struct fmtp_server *s)
{
    struct sockaddr_storage to = address("127.0.0.1", fmtp_server_tcp_port(s));
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)), 0);
    for (int i = 0; i < 20 && fmtp_server_receivers(s) == 0; i++)
        turn(s, NULL, 0, 100);
    assert_int_equal(fmtp_server_receivers(s), 1);
    return fd;
}

static void request_all(int fd)
{
    uint8_t head[FMTP_HEADER_LEN];

    for (uint32_t at = 0; at < STREAMED; at += PER_REQUEST) {
        uint32_t len = STREAMED - at < PER_REQUEST ? STREAMED - at : PER_REQUEST;
        struct fmtp_header h = {0, at, (uint16_t)len, FMTP_RETX_REQ};
        fmtp_header_put(head, &h);
        assert_int_equal(send(fd, head, sizeof head, 0), sizeof head);
    }
}

static size_t drain(int fd)
{
    static uint8_t bytes[1 << 20];
    size_t all = 0;

    for (ssize_t n; (n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;)
        all += (size_t)n;
    return all;
}

static void test_stream_does_not_wait_for_a_timer(void **state)
{
    uint16_t port = free_port();
    struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2017,
                                     .address = address("127.0.0.1", 0),
                                     .group = address("239.192.7.9", port),
                                     .f_snd = 5e7,
                                     .r_mc_bps = 100000000};
    struct tp_error err;
    struct fmtp_server *s = fmtp_server_open(&cfg, &err);
    uint8_t *data = calloc(1, STREAMED);
    struct iovec whole = {data, STREAMED};
    /* 13 812 blocks, each with a header. */
    size_t want = STREAMED + 13812 * FMTP_HEADER_LEN, got = 0;
    int waits = 0;

    (void)state;
    assert_non_null(s);
    int fd = connect_raw(s);
    assert_int_equal(fmtp_server_offer(s, &whole, 1, "", 0, NULL, NULL, &err), 0);
    while (!fmtp_server_ready(s))
        turn(s, NULL, 0, 100);
    request_all(fd);
    while (got < want && waits <= 2) {
        struct pollfd at = {.fd = fmtp_server_fd(s), .events = POLLIN};
        if (poll(&at, 1, 50) == 0)
            waits++;
        else
            assert_int_equal(fmtp_server_service(s, &err), 0);
        got += drain(fd);
    }
    assert_in_range(waits, 0, 2);
    assert_true(got >= want);
    close(fd);
    fmtp_server_close(s);
    free(data);
}

/* 64 KiB is no kernel's default, and below every kernel's limit. */
static void test_send_buffer(void **state)
{
    (void)state;
    for (size_t asked = 0; asked <= 65536; asked += 65536) {
        struct tp_error err;
        struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2017,
                                         .address = address("127.0.0.1", 0),
                                         .group = address("239.192.7.9", 38800),
                                         .sndbuf_bytes = asked};
        struct fmtp_server *s = fmtp_server_open(&cfg, &err);
        if (!s)
            fail_msg("%s", err.text);
        struct fmtp_server_stats stats;
        fmtp_server_get_stats(s, &stats);
        assert_int_equal(stats.sndbuf_granted_bytes == 65536, asked == 65536);
        assert_true(stats.sndbuf_granted_bytes > 0);
        fmtp_server_close(s);
    }
}

/* A sender that adapts its rate does not fill the buffer of a receiver that does not read. */
static void test_waits_for_the_receiver(void **state)
{
    enum { LAST = PRODUCTS - 1 }; /* 484 blocks of 1448 bytes; half of 1 MiB holds 362 */
    uint16_t port = free_port();
    struct tx tx = {0};
    struct rx rx = {0};
    struct fmtp_server_config cfg = {.layout = FMTP_LAYOUT_2021,
                                     .address = address("127.0.0.1", 0),
                                     .group = address("239.192.7.9", port),
                                     .f_snd = 5e7,
                                     .r_mc_bps = 100000000,
                                     .adaptive_pace = true,
                                     .first_index = LAST,
                                     .ctx = &tx,
                                     .released = released};
    struct tp_error err;
    struct fmtp_server *s = fmtp_server_open(&cfg, &err);
    uint8_t *data = calloc(1, sizes[LAST]);
    struct fmtp_server_stats stats = {0};

    (void)state;
    open_client(&rx, s, FMTP_LAYOUT_2021, port);
    for (int i = 0; i < 1000 && !fmtp_client_connected(rx.client); i++)
        turn(s, &rx, 1, 10);
    turn(s, &rx, 1, 50); /* its first report */
    offer_one(s, data, LAST);
    /* It is waited for 200 ms at most. */
    for (uint64_t begin_ns = tp_now_ns(); tp_now_ns() - begin_ns < 150000000;) {
        fmtp_server_get_stats(s, &stats);
        turn(s, NULL, 0, 10);
    }
    assert_in_range(stats.blocks, 30, 440);
    for (int i = 0; i < 1000 && !tx.total; i++)
        turn(s, &rx, 1, 10);
    assert_int_equal(rx.ended[LAST], 1);
    fmtp_client_close(rx.client);
    fmtp_server_close(s);
    free(rx.data[LAST]);
    free(data);
}

static void test_bad_config(void **state)
{
    struct fmtp_server_config s = {.layout = FMTP_LAYOUT_2021,
                                   .f_snd = 1,
                                   .r_mc_bps = 1,
                                   .address = address("127.0.0.1", 0),
                                   .group = address("10.1.1.1", 38800)};
    struct fmtp_client_config c = {.layout = FMTP_LAYOUT_2021,
                                   .r_mc_bps = 1,
                                   .group = address("239.1.1.1", 38800),
                                   .server = address("127.0.0.1", 1),
                                   .interface = address("127.0.0.1", 0)};

    (void)state;
    struct tp_error err;
    assert_null(fmtp_server_open(&s, &err));
    assert_non_null(strstr(err.text, "10.1.1.1:38800"));
    assert_null(fmtp_client_open(&c, &err));
    assert_non_null(strstr(err.text, "f_rcv 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2021),
        cmocka_unit_test(test_2017),
        cmocka_unit_test(test_paced),
        cmocka_unit_test(test_not_authorized),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_retry),
        cmocka_unit_test(test_datagrams_first),
        cmocka_unit_test(test_stream_does_not_wait_for_a_timer),
        cmocka_unit_test(test_send_buffer),
        cmocka_unit_test(test_waits_for_the_receiver),
        cmocka_unit_test(test_bad_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

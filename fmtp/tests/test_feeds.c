/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds over real sockets: several in one process, receivers of both kinds, interruptions, floods.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "feeds_kit.h"

/* Three feeds of different kinds in one process, served by one loop. */
static void test_several_feeds(void **state)
{
    struct feed feeds[FEEDS] = {new_feed(false), new_feed(false), new_feed(has_ipv6())};

    (void)state;
    feeds[1].cfg.layout = feeds[1].rx.layout = FMTP_LAYOUT_2017;
    feeds[2].cfg.mac_level = 1;
    for (int i = 0; i < FEEDS; i++) {
        open_server(&feeds[i]);
        for (int k = 0; k < CLIENTS; k++)
            open_client(&feeds[i]);
    }
    transfer(feeds, FEEDS, PRODUCTS);
    for (int i = 0; i < FEEDS; i++) {
        check_all(&feeds[i], PRODUCTS);
        close_feed(&feeds[i]);
    }
}

/* Extended and ordinary receivers of the same sender. */
static void test_mixed(void **state)
{
    struct feed f = new_feed(false);

    (void)state;
    open_server(&f);
    for (int k = 0; k < CLIENTS; k++) {
        f.rx.unicast_repair = k % 2;
        open_client(&f);
    }
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    struct fmtp_server_stats st;
    fmtp_server_get_stats(f.server, &st);
    assert_int_equal(st.receivers, CLIENTS);
    assert_int_equal(st.extended, 2); /* the first and the third */
    assert_int_equal(st.parity_sent + st.repairs_sent, 0);
    close_feed(&f);
}

/* Drops all connections of a feed's server, like a reset of the path. */
static void cut(struct feed *f)
{
    uint16_t port = fmtp_server_tcp_port(f->server);

    for (int fd = 3; fd < 200; fd++) {
        struct sockaddr_storage at = {0}, peer = {0};
        socklen_t len = sizeof at, peer_len = sizeof peer;
        if (getsockname(fd, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_INET &&
            ((struct sockaddr_in *)&at)->sin_port == htons(port) &&
            getpeername(fd, (struct sockaddr *)&peer, &peer_len) == 0)
            shutdown(fd, SHUT_RDWR);
    }
}

/* The connection is lost during a product: the receiver reconnects and continues with it. */
static void test_reconnect(void **state)
{
    struct feed f = new_feed(false);

    (void)state;
    f.cfg.pace_bps = 5000000; /* product 6 takes 1.3 s */
    f.first = f.cfg.first_index = 6;
    f.rx.reconnect_ns = UINT64_C(20000000000);
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    offer_next(&f);
    while (!f.sinks[0].begun)
        turn(&f, 1, 100);
    cut(&f);
    for (int i = 0; i < 5000 && f.sinks[0].ended < 1 && !f.sinks[0].missed; i++)
        turn(&f, 1, 20);
    assert_int_equal(f.sinks[0].ended, 1);
    assert_int_equal(f.sinks[0].wrong, 0);
    struct fmtp_client_stats c;
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.connections, 2);
    transfer(&f, 1, 4);
    assert_int_equal(f.sinks[0].ended, 4);
    assert_int_equal(f.sinks[0].begun, 4);
    assert_int_equal(f.sinks[0].missed, 0);
    close_feed(&f);
}

/* The sender restarts on the same port: its receiver reconnects, misses what was incomplete, and
 * receives each new product once. */
static void test_sender_restart(void **state)
{
    struct feed f = new_feed(false);

    (void)state;
    f.cfg.pace_bps = 20000000;
    f.first = f.cfg.first_index = 5;
    f.rx.reconnect_ns = UINT64_C(20000000000);
    open_server(&f);
    open_client(&f);
    transfer(&f, 1, 1);
    offer_next(&f); /* product 6 is interrupted */
    while (f.sinks[0].begun < 2)
        turn(&f, 1, 100);
    f.cfg.address = f.rx.server;
    fmtp_server_close(f.server);
    f.first = f.cfg.first_index = 7;
    f.offered = f.released = 0;
    open_server(&f);
    for (int i = 0; i < 500 && !f.sinks[0].missed; i++)
        turn(&f, 1, 20);
    assert_int_equal(f.sinks[0].missed, 1);
    transfer(&f, 1, 3);
    assert_int_equal(f.sinks[0].begun, 5);
    assert_int_equal(f.sinks[0].ended, 4);
    assert_int_equal(f.sinks[0].wrong, 0);
    struct fmtp_client_stats c;
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.connections, 2);
    close_feed(&f);
}

/* No sender comes back: the connection is lost when the time limit is over. */
static void test_reconnect_ends(void **state)
{
    struct feed f = new_feed(false);

    (void)state;
    f.rx.reconnect_ns = 1500000000;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    fmtp_server_close(f.server);
    f.server = NULL;
    for (int i = 0; i < 20; i++)
        turn(&f, 1, 20);
    assert_false(f.sinks[0].lost);
    for (int i = 0; i < 200 && !f.sinks[0].lost; i++)
        turn(&f, 1, 50);
    assert_true(f.sinks[0].lost);
    close_feed(&f);
}

static int stranger(const struct feed *f)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (fd >= 0 &&
        connect(fd, (const struct sockaddr *)&f->rx.server, sizeof(struct sockaddr_in)) < 0 &&
        errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Many more connections than the bound that send nothing, little or garbage, while receivers
 * connect and are served. */
static void test_flood(void **state)
{
    enum { OPEN = 600, ROUNDS = 10 };
    struct feed f = new_feed(false);
    int more = 0;

    (void)state;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    f.cfg.max_handshakes = 64;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    int fds[OPEN];
    for (int i = 0; i < OPEN; i++)
        fds[i] = -1;
    struct fmtp_server_stats st;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < OPEN; i++) {
            static const struct iovec words[] = {{"", 0},
                                                 {"\x00\x00", 2},
                                                 {"\x00\x00\x01\xaa-----BEGIN", 14},
                                                 {"GET / HTTP/1.0\r\n\r\n", 18},
                                                 {"\xff\xff\xff\xff", 4}};
            if (fds[i] >= 0)
                close(fds[i]);
            fds[i] = stranger(&f);
            if (i % 32 == 0)
                turn(&f, 1, 1);
            if (fds[i] >= 0 && i % 5)
                (void)!send(fds[i], words[i % 5].iov_base, words[i % 5].iov_len, MSG_NOSIGNAL);
        }
        if (round == ROUNDS / 2)
            open_client(&f);
        if (f.offered < PRODUCTS && fmtp_server_ready(f.server))
            offer_next(&f);
        for (int i = 0; i < 20; i++)
            turn(&f, 1, 1);
        fmtp_server_get_stats(f.server, &st);
        assert_true(st.handshakes <= 64);
        more += st.handshakes > 0;
    }
    assert_true(more > 0);
    transfer(&f, 1, PRODUCTS);
    fmtp_server_get_stats(f.server, &st);
    assert_int_equal(st.receivers, 2);
    assert_true(st.bad_messages > 1000);
    assert_int_equal(f.sinks[0].ended, PRODUCTS);
    assert_int_equal(f.sinks[0].wrong + f.sinks[1].wrong, 0);
    assert_true(f.sinks[1].ended > 0);
    assert_int_equal(f.all_done, PRODUCTS);
    for (int i = 0; i < OPEN; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    close_feed(&f);
}

int main(int argc, char **argv)
{
    (void)argc;
    own_network(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_feeds),  cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_reconnect),      cmocka_unit_test(test_sender_restart),
        cmocka_unit_test(test_reconnect_ends), cmocka_unit_test(test_flood),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}

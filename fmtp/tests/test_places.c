/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets a place at a server that attackers try to fill: many connections of one host, many hosts
 * of one network, handshakes that are half finished, slow or too many. First decisions, then floods
 * over real sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "feeds_kit.h"
#include "places.h"

#define S UINT64_C(1000000000)

/* ------------------------------------------------------------------ decisions */

enum { HOSTS = 600 };
static struct conn conns[HOSTS];
static size_t nconns;

static struct fmtp_grant one_place(void *ctx, const struct sockaddr *host)
{
    const struct sockaddr_in *a = (const struct sockaddr_in *)host;
    const size_t *reserved = ctx; /* hosts whose last byte is below this */

    return (struct fmtp_grant){1, (ntohl(a->sin_addr.s_addr) & 255) < *reserved};
}

static struct fmtp_server server_of(size_t receivers, size_t per_address)
{
    nconns = 0;
    return (struct fmtp_server){.cfg = {.max_receivers = receivers,
                                        .max_handshakes = receivers,
                                        .max_per_address = per_address}};
}

static struct conn *arrive(struct fmtp_server *s, const char *host, uint64_t now_ns)
{
    struct conn *c = &conns[nconns++];

    *c = (struct conn){.fd = -1, .peer = -1, .addr = address(host, 4000), .heard_ns = now_ns};
    c->host = fmtp_hosts_of(&s->hosts, &c->addr);
    TAILQ_INSERT_TAIL(&s->handshakes, c, link);
    s->nhandshakes++;
    fmtp_host_count(c->host, FMTP_USE_HANDSHAKE, 1);
    return c;
}

static void leave(struct fmtp_server *s, struct conn *c, enum fmtp_use use)
{
    TAILQ_REMOVE(use == FMTP_USE_RECEIVER ? &s->established : &s->handshakes, c, link);
    fmtp_host_count(c->host, use, -1);
    *(use == FMTP_USE_RECEIVER ? &s->receivers : &s->nhandshakes) -= 1;
}

/* Requests a place and carries out the decision. */
static enum fmtp_place want(struct fmtp_server *s, const char *host, uint64_t now_ns,
                            struct conn **displaced)
{
    struct conn *c = arrive(s, host, now_ns);
    enum fmtp_place place = fmtp_places_receiver(s, c, now_ns, displaced);

    leave(s, c, FMTP_USE_HANDSHAKE);
    if (place != FMTP_PLACE_GRANTED) {
        assert_null(*displaced);
        return place;
    }
    if (*displaced)
        leave(s, *displaced, FMTP_USE_RECEIVER);
    TAILQ_INSERT_TAIL(&s->established, c, link);
    s->receivers++;
    fmtp_host_count(c->host, FMTP_USE_RECEIVER, 1);
    return place;
}

static void begin(struct fmtp_server *s)
{
    TAILQ_INIT(&s->handshakes);
    TAILQ_INIT(&s->established);
    fmtp_hosts_init(&s->hosts);
}

static void test_one_host(void **state)
{
    struct fmtp_server s = server_of(64, 8);
    struct conn *gone;

    (void)state;
    begin(&s);
    for (int i = 0; i < 8; i++)
        assert_int_equal(want(&s, "10.0.0.9", S, &gone), FMTP_PLACE_GRANTED);
    for (int i = 0; i < 20; i++)
        assert_int_equal(want(&s, "10.0.0.9", S, &gone), FMTP_PLACE_TOO_MANY);
    /* A silent connection of the same host may be dead: that one goes, not another host's. */
    conns[3].heard_ns = S / 2;
    assert_int_equal(want(&s, "10.0.0.9", 6 * S, &gone), FMTP_PLACE_GRANTED);
    assert_ptr_equal(gone, &conns[3]);
    assert_int_equal(want(&s, "10.0.0.8", 6 * S, &gone), FMTP_PLACE_GRANTED);
    assert_null(gone);
    assert_int_equal(s.receivers, 9);
    fmtp_hosts_free(&s.hosts);
}

/* All places are taken by hosts with several connections, then by many addresses of a network: a
 * host that has none gets one, and theirs stay below what others have. */
static void test_full(void **state)
{
    struct fmtp_server s = server_of(64, 8);
    struct conn *gone;
    char host[32];

    (void)state;
    begin(&s);
    assert_int_equal(want(&s, "10.0.0.1", S, &gone), FMTP_PLACE_GRANTED);
    for (int i = 0; i < 63; i++) {
        snprintf(host, sizeof host, "172.16.%d.1", i / 8);
        assert_int_equal(want(&s, host, 2 * S, &gone), FMTP_PLACE_GRANTED);
    }
    assert_int_equal(want(&s, "10.0.0.2", 3 * S, &gone), FMTP_PLACE_GRANTED);
    assert_int_equal(gone->host->key[2], 16);
    for (int i = 0; i < 200; i++) {
        snprintf(host, sizeof host, "192.168.7.%d", i + 1);
        want(&s, host, 4 * S, &gone);
    }
    assert_int_equal(s.receivers, 64);
    size_t honest = 0;
    struct conn *c;
    TAILQ_FOREACH (c, &s.established, link)
        honest += c->host->key[1] == 10;
    assert_int_equal(honest, 2);
    /* Now all have one or two; the network 192.168.7 has the most. */
    assert_int_equal(want(&s, "10.0.0.3", 5 * S, &gone), FMTP_PLACE_GRANTED);
    assert_int_equal(gone->host->key[1], 192);
    /* With another one it would have more than the others. */
    assert_int_equal(want(&s, "192.168.7.250", 5 * S, &gone), FMTP_PLACE_NONE);
    fmtp_hosts_free(&s.hosts);
}

/* A receiver that acknowledges keeps its place among attackers in its own network, even if these
 * acknowledge too, as long as one of them has a place. */
static void test_proven(void **state)
{
    struct fmtp_server s = server_of(32, 8);
    struct conn *gone;
    char host[32];

    (void)state;
    begin(&s);
    want(&s, "10.0.0.1", S, &gone);
    struct conn *honest = TAILQ_FIRST(&s.established);
    honest->acks = 1;
    for (int i = 2; i < 33; i++) {
        snprintf(host, sizeof host, "10.0.0.%d", i);
        assert_int_equal(want(&s, host, i * S, &gone), FMTP_PLACE_GRANTED);
        TAILQ_LAST(&s.established, conn_list)->acks = (uint64_t)i % 2;
    }
    for (int i = 0; i < 300; i++) {
        snprintf(host, sizeof host, "10.1.%d.1", i % 250);
        if (want(&s, host, 50 * S, &gone) == FMTP_PLACE_GRANTED)
            assert_ptr_not_equal(gone, honest);
    }
    assert_int_equal(s.receivers, 32);
    fmtp_hosts_free(&s.hosts);
}

static void test_ipv6_aliases(void **state)
{
    struct fmtp_server s = server_of(64, 8);
    unsigned granted = 0;
    struct conn *gone;
    char host[64];

    (void)state;
    begin(&s);
    for (int i = 0; i < 200; i++) {
        snprintf(host, sizeof host, "fd00:1:2:3:%x::%x", i, i);
        granted += want(&s, host, S, &gone) == FMTP_PLACE_GRANTED;
    }
    assert_int_equal(granted, 8);
    assert_int_equal(want(&s, "fd00:1:2:4::1", S, &gone), FMTP_PLACE_GRANTED);
    /* 10.0.0.1 is one host in either form. */
    for (int i = 0; i < 12; i++)
        want(&s, i % 2 ? "::ffff:10.0.0.1" : "10.0.0.1", S, &gone);
    assert_int_equal(s.receivers, 8 + 1 + 8);
    fmtp_hosts_free(&s.hosts);
}

/* Only a host with a subscription gets its place, even when all places are taken. */
static void test_reserved(void **state)
{
    size_t reserved = 10;
    struct fmtp_server s = server_of(20, 0);
    struct conn *gone;
    char host[32];

    (void)state;
    s.cfg.grant = one_place;
    s.cfg.ctx = &reserved;
    begin(&s);
    for (int i = 0; i < 40; i++) {
        snprintf(host, sizeof host, "10.%d.0.200", i);
        want(&s, host, S, &gone);
    }
    assert_int_equal(s.receivers, 20);
    for (int i = 0; i < 10; i++) {
        snprintf(host, sizeof host, "10.0.0.%d", i);
        assert_int_equal(want(&s, host, S, &gone), FMTP_PLACE_GRANTED);
        assert_int_equal(gone->host->key[4], 200);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(host, sizeof host, "11.%d.0.201", i);
        if (want(&s, host, S, &gone) == FMTP_PLACE_GRANTED)
            assert_true(gone->host->key[4] >= 200);
    }
    size_t kept = 0;
    struct conn *c;
    TAILQ_FOREACH (c, &s.established, link)
        kept += c->host->key[4] < 10;
    assert_int_equal(kept, 10);
    reserved = 0; /* the subscription ended during the key exchange */
    s.cfg.max_per_address = 0;
    s.cfg.grant = NULL;
    assert_int_equal(want(&s, "10.0.0.77", S, &gone), FMTP_PLACE_TOO_MANY);
    fmtp_hosts_free(&s.hosts);
}

static void test_handshakes(void **state)
{
    struct fmtp_server s = server_of(32, 8);
    char host[32];

    (void)state;
    begin(&s);
    struct conn *honest = arrive(&s, "10.0.0.1", S);
    for (int i = 0; i < 31; i++) {
        assert_null(fmtp_places_handshake(&s, honest->host));
        arrive(&s, "172.16.0.1", S);
    }
    for (int i = 0; i < 200; i++) {
        snprintf(host, sizeof host, "172.16.1.%d", i + 1);
        struct sockaddr_storage a = address(host, 1);
        struct conn *out = fmtp_places_handshake(&s, fmtp_hosts_of(&s.hosts, &a));
        assert_non_null(out);
        assert_ptr_not_equal(out, honest);
        leave(&s, out, FMTP_USE_HANDSHAKE);
        arrive(&s, host, S);
    }
    fmtp_hosts_free(&s.hosts);
}

static void test_exchanges(void **state)
{
    struct fmtp_server s = server_of(500, 100);
    struct conn *gone;
    unsigned fast = 0;

    (void)state;
    begin(&s);
    for (int i = 0; i < 300; i++) {
        enum fmtp_place p = want(&s, "10.0.0.1", S, &gone);
        fast += p == FMTP_PLACE_TOO_FAST;
        if (p == FMTP_PLACE_GRANTED)
            leave(&s, TAILQ_LAST(&s.established, conn_list), FMTP_USE_RECEIVER);
    }
    assert_int_equal(fast, 100); /* twice what it may use at once */
    assert_int_equal(want(&s, "10.0.0.2", S, &gone), FMTP_PLACE_GRANTED);
    assert_int_equal(want(&s, "10.0.0.1", 2 * S, &gone), FMTP_PLACE_GRANTED);
    fmtp_hosts_free(&s.hosts);
}

/* The memory for hosts is bounded, however many there are. */
static void test_hosts_are_forgotten(void **state)
{
    struct fmtp_hosts all;
    char host[48];

    (void)state;
    fmtp_hosts_init(&all);
    for (int i = 0; i < 20000; i++) {
        snprintf(host, sizeof host, "10.%d.%d.7", i / 250, i % 250);
        struct sockaddr_storage a = address(host, 1);
        struct fmtp_host *h = fmtp_hosts_of(&all, &a);
        assert_non_null(h);
        if (i % 100 == 0)
            fmtp_host_count(h, FMTP_USE_RECEIVER, 1);
    }
    assert_in_range(all.nhosts, 500, 520);
    assert_in_range(all.nnets, 500, 520);
    struct sockaddr_storage first = address("10.0.0.7", 9);
    assert_int_equal(fmtp_hosts_of(&all, &first)->count[FMTP_USE_RECEIVER], 1);
    fmtp_hosts_free(&all);
}

/* ------------------------------------------------------------------ floods */

static unsigned notices[FMTP_NOTICES];

static void on_notice(void *ctx, const struct sockaddr *peer, enum fmtp_notice what)
{
    (void)ctx;
    assert_non_null(peer);
    assert_true(strlen(fmtp_notice_text(what)) > 10);
    notices[what]++;
}

/* Connects from that address and sends these bytes. */
static int stranger(const struct feed *f, const char *from, const void *bytes, size_t len)
{
    struct sockaddr_storage own = address(from, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&own, sizeof(struct sockaddr_in)) < 0 ||
        (connect(fd, (const struct sockaddr *)&f->rx.server, sizeof(struct sockaddr_in)) < 0 &&
         errno != EINPROGRESS)) {
        close(fd);
        return -1;
    }
    if (len)
        (void)!send(fd, bytes, len, MSG_NOSIGNAL);
    return fd;
}

static struct feed flooded(enum fmtp_layout layout)
{
    struct feed f = new_feed(false);

    memset(notices, 0, sizeof notices);
    f.cfg.layout = f.rx.layout = layout;
    f.cfg.notice = on_notice;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    return f;
}

static struct fmtp_server_stats stats_of(const struct feed *f)
{
    struct fmtp_server_stats st;

    fmtp_server_get_stats(f->server, &st);
    return st;
}

static void close_all(int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* 1,000 connections of one host, which are receivers at once in layout 2017; 1,000 of 500 hosts in
 * two networks. Earlier receivers stay, and others get in. */
static void test_places_in_a_storm(void **state)
{
    enum { OPEN = 1000 };
    static int fds[2 * OPEN];
    struct feed f = flooded(FMTP_LAYOUT_2017);
    char from[32];

    (void)state;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    for (int i = 0; i < OPEN; i++) {
        fds[i] = stranger(&f, "127.0.5.1", NULL, 0);
        if (i % 50 == 0)
            turn(&f, 1, 1);
    }
    for (int i = 0; i < 10; i++)
        turn(&f, 1, 1);
    assert_int_equal(stats_of(&f).receivers, 1 + 32);
    assert_true(notices[FMTP_NOTICE_TOO_MANY] + notices[FMTP_NOTICE_TOO_FAST] > OPEN / 2);
    open_client(&f);
    wait_connected(&f, 1);
    for (int i = 0; i < OPEN; i++) {
        snprintf(from, sizeof from, "127.0.%d.%d", 6 + i % 2, 1 + i / 2 % 250);
        fds[OPEN + i] = stranger(&f, from, NULL, 0);
        if (i % 50 == 0)
            turn(&f, 1, 1);
    }
    for (int i = 0; i < 10; i++)
        turn(&f, 1, 1);
    assert_int_equal(stats_of(&f).receivers, 256);
    open_client(&f);
    wait_connected(&f, 1);
    for (int i = 0; i < 20; i++)
        turn(&f, 1, 1);
    for (int i = 0; i < 3; i++)
        assert_false(f.sinks[i].lost);
    assert_true(stats_of(&f).displaced > 0);
    assert_int_equal(notices[FMTP_NOTICE_DISPLACED], stats_of(&f).displaced);
    close_all(fds, 2 * OPEN);
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    close_feed(&f);
}

/* Handshakes that never end, a byte at a time, from one host and from many. */
static void test_slow_handshakes(void **state)
{
    enum { OPEN = 300, ROUNDS = 12 };
    static int fds[OPEN];
    struct feed f = flooded(FMTP_LAYOUT_2021);
    char from[32];

    (void)state;
    f.cfg.handshake_ns = 300000000;
    f.cfg.max_handshakes = 64;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    for (int i = 0; i < OPEN; i++) {
        snprintf(from, sizeof from, "127.0.%d.%d", 8 + i % 2, i % 2 ? 1 : 1 + i / 2);
        fds[i] = stranger(&f, from, "\x00\x00\x01", 3);
        if (i % 16 == 0)
            turn(&f, 1, 1);
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (round == 1)
            open_client(&f);
        for (int i = 0; i < OPEN; i++)
            if (fds[i] >= 0)
                (void)!send(fds[i], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct timespec begun, now;
        clock_gettime(CLOCK_MONOTONIC, &begun);
        do {
            turn(&f, 1, 10);
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < 50);
        assert_true(stats_of(&f).handshakes <= 64);
    }
    /* All began 600 ms ago, and each byte arrived within 50 ms. */
    assert_int_equal(stats_of(&f).handshakes, 0);
    assert_int_equal(notices[FMTP_NOTICE_HANDSHAKE], OPEN);
    wait_connected(&f, 1);
    close_all(fds, OPEN);
    transfer(&f, 1, PRODUCTS);
    assert_int_equal(stats_of(&f).receivers, 2);
    check_all(&f, PRODUCTS);
    close_feed(&f);
}

/* Repeated complete key exchanges: each costs the sender an RSA operation. */
static void test_exchanges_in_a_storm(void **state)
{
    enum { TIMES = 300 };
    struct feed f = flooded(FMTP_LAYOUT_2021);
    struct fmtp_keyx *keys = fmtp_keyx_new_receiver(true);

    (void)state;
    size_t len;
    const uint8_t *hello = fmtp_keyx_output(keys, &len);
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    for (int i = 0; i < TIMES; i++) {
        int fd = stranger(&f, "127.0.5.1", NULL, 0);
        turn(&f, 1, 10);
        (void)!send(fd, hello, len, MSG_NOSIGNAL);
        turn(&f, 1, 10);
        close(fd);
    }
    for (int i = 0; i < 10; i++)
        turn(&f, 1, 1);
    assert_true(notices[FMTP_NOTICE_TOO_FAST] > 0);
    assert_int_equal(stats_of(&f).receivers, 1);
    open_client(&f);
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    close_feed(&f);
    fmtp_keyx_free(keys);
}

int main(int argc, char **argv)
{
    (void)argc;
    own_network(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_proven),
        cmocka_unit_test(test_ipv6_aliases),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_handshakes),
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_hosts_are_forgotten),
        cmocka_unit_test(test_places_in_a_storm),
        cmocka_unit_test(test_slow_handshakes),
        cmocka_unit_test(test_exchanges_in_a_storm),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}

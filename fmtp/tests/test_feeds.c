/* SPDX-License-Identifier: Apache-2.0
 *
 * Servers and clients over real sockets: IPv4 and IPv6, MAC levels, packet sizes, extension 1
 * beside ordinary receivers, several feeds in one process, lost connections, restarts, floods.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fmtp.h"

enum { PRODUCTS = 8, CLIENTS = 3, FEEDS = 3 };
#define OWN_IPV6 "fd07::1"

static const uint32_t sizes[PRODUCTS] = {1, 1448, 1449, 0, 70000, 3, 800001, 14480};
static uint8_t content[PRODUCTS][800001];

struct sink {
    struct fmtp_client *client;
    uint8_t *data[PRODUCTS];
    unsigned begun, ended, missed, wrong;
    bool lost;
    char why[256];
};

struct feed {
    struct fmtp_server_config cfg;
    struct fmtp_client_config rx;
    struct fmtp_server *server;
    struct sink sinks[CLIENTS];
    int nsinks;
    unsigned offered, released, all_done, first;
};

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct sink *s = ctx;
    uint8_t n;

    (void)start;
    assert_int_equal(meta_len, 1);
    n = *(const uint8_t *)meta;
    assert_in_range(n, 0, PRODUCTS - 1);
    assert_int_equal(index % PRODUCTS, n);
    assert_int_equal(size, sizes[n]);
    free(s->data[n]);
    s->data[n] = malloc(size + 1);
    s->begun++;
    return s->data[n];
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, double delay_s)
{
    struct sink *s = ctx;
    unsigned n = index % PRODUCTS;

    (void)retx_blocks;
    (void)delay_s;
    s->ended++;
    if (memcmp(s->data[n], content[n], sizes[n]))
        s->wrong++;
}

static void missed(void *ctx, uint32_t index)
{
    struct sink *s = ctx;

    (void)index;
    s->missed++;
}

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    struct feed *f = ctx;

    (void)index;
    (void)cookie;
    f->released++;
    f->all_done += why == FMTP_RELEASE_ALL_DONE;
}

static struct sockaddr_storage address(const char *text, uint16_t port)
{
    struct sockaddr_storage a;

    assert_int_equal(fmtp_address_parse(text, false, &a), 0);
    if (a.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&a)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&a)->sin_port = htons(port);
    return a;
}

/* A UDP port nobody uses now. */
static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static struct feed new_feed(bool v6)
{
    const char *own = v6 ? OWN_IPV6 : "127.0.0.1";
    struct sockaddr_storage group = address(v6 ? "ff35::7:9" : "239.192.7.10", free_port());

    return (struct feed){
        .cfg = {.layout = FMTP_LAYOUT_2021, .address = address(own, 0), .group = group, .f_snd = 5e7,
                .r_mc_bps = 1000000000, .tau_snd_min_ns = UINT64_C(20000000000),
                .released = released},
        .rx = {.layout = FMTP_LAYOUT_2021, .group = group, .interface = address(own, 0), .f_rcv = 20,
               .r_mc_bps = 1000000000, .rcvbuf_bytes = 8 << 20, .begun = begun, .ended = ended,
               .missed = missed}};
}

static void open_server(struct feed *f)
{
    struct fmtp_error err;

    f->cfg.ctx = f;
    f->server = fmtp_server_open(&f->cfg, &err);
    if (!f->server)
        fail_msg("%s", err.text);
    f->rx.server = f->cfg.address;
    if (f->rx.server.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&f->rx.server)->sin6_port = htons(fmtp_server_tcp_port(f->server));
    else
        ((struct sockaddr_in *)&f->rx.server)->sin_port = htons(fmtp_server_tcp_port(f->server));
}

static struct sink *open_client(struct feed *f)
{
    struct sink *s = &f->sinks[f->nsinks++];
    struct fmtp_error err;

    f->rx.ctx = s;
    s->client = fmtp_client_open(&f->rx, &err);
    if (!s->client)
        fail_msg("%s", err.text);
    return s;
}

/* One turn of the caller's loop over all that the feeds have. */
static void turn(struct feed *feeds, int n, int timeout_ms)
{
    struct pollfd fds[FEEDS * (1 + CLIENTS)];
    struct fmtp_error err;
    int count = 0, at = 0;

    for (int i = 0; i < n; i++) {
        fds[count++] = (struct pollfd){
            .fd = feeds[i].server ? fmtp_server_fd(feeds[i].server) : -1, .events = POLLIN};
        for (int k = 0; k < feeds[i].nsinks; k++)
            fds[count++] = (struct pollfd){
                .fd = feeds[i].sinks[k].lost ? -1 : fmtp_client_fd(feeds[i].sinks[k].client),
                .events = POLLIN};
    }
    poll(fds, (nfds_t)count, timeout_ms);
    for (int i = 0; i < n; i++) {
        if (fds[at++].revents && feeds[i].server)
            assert_int_equal(fmtp_server_service(feeds[i].server, &err), 0);
        for (int k = 0; k < feeds[i].nsinks; k++) {
            struct sink *s = &feeds[i].sinks[k];
            if (fds[at++].revents && fmtp_client_service(s->client, &err) < 0) {
                s->lost = true;
                memcpy(s->why, err.text, sizeof s->why);
            }
        }
    }
}

static void offer_next(struct feed *f)
{
    uint32_t index;
    struct fmtp_error err;
    uint8_t n = (uint8_t)((f->first + f->offered) % PRODUCTS);
    struct iovec part = {content[n], sizes[n]};

    assert_int_equal(fmtp_server_offer(f->server, &part, 1, &n, 1, NULL, &index, &err), 0);
    assert_int_equal(index, f->first + f->offered);
    f->offered++;
}

static void wait_connected(struct feed *feeds, int n)
{
    for (int turns = 0; turns < 2000; turns++) {
        bool all = true;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < feeds[i].nsinks; k++)
                all = all && (feeds[i].sinks[k].lost ||
                              fmtp_client_connected(feeds[i].sinks[k].client));
        if (all)
            return;
        turn(feeds, n, 100);
    }
    fail_msg("not connected");
}

/* Sends `products` on each feed until all are released. */
static void transfer(struct feed *feeds, int n, unsigned products)
{
    wait_connected(feeds, n);
    for (int turns = 0; turns < 200000; turns++) {
        bool busy = false;
        for (int i = 0; i < n; i++) {
            if (feeds[i].offered < products && fmtp_server_ready(feeds[i].server))
                offer_next(&feeds[i]);
            busy = busy || feeds[i].released < products;
        }
        if (!busy)
            return;
        turn(feeds, n, 100);
    }
    fail_msg("not all released");
}

static void check_all(struct feed *f, unsigned products)
{
    assert_int_equal(f->released, products);
    assert_int_equal(f->all_done, products);
    for (int k = 0; k < f->nsinks; k++) {
        assert_int_equal(f->sinks[k].begun, products);
        assert_int_equal(f->sinks[k].ended, products);
        assert_int_equal(f->sinks[k].missed, 0);
        assert_int_equal(f->sinks[k].wrong, 0);
    }
}

static void close_feed(struct feed *f)
{
    if (f->server)
        fmtp_server_close(f->server);
    for (int k = 0; k < f->nsinks; k++) {
        fmtp_client_close(f->sinks[k].client);
        for (int p = 0; p < PRODUCTS; p++)
            free(f->sinks[k].data[p]);
    }
}

/* ------------------------------------------------------------------ what can be configured */

/* Blocks of all products at this size. */
static unsigned blocks(unsigned block_bytes)
{
    unsigned n = 0;

    for (int i = 0; i < PRODUCTS; i++)
        n += (sizes[i] + block_bytes - 1) / block_bytes;
    return n;
}

static void one_feed(bool v6, unsigned mac, unsigned pdu, bool unicast, unsigned want_block)
{
    struct feed f = new_feed(v6);
    struct fmtp_server_stats st;
    struct fmtp_client_stats c;
    struct fmtp_session session;
    unsigned level;

    f.cfg.mac_level = f.rx.mac_level = mac;
    f.cfg.pdu_bytes = f.rx.pdu_bytes = pdu;
    f.rx.unicast_repair = unicast;
    open_server(&f);
    open_client(&f);
    open_client(&f);
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    fmtp_server_get_stats(f.server, &st);
    assert_int_equal(st.blocks, blocks(want_block));
    assert_int_equal(st.extended, unicast ? 0 : 2);
    fmtp_client_get_session(f.sinks[0].client, &session, &level);
    assert_int_equal(level, mac);
    assert_int_equal(session.extended, !unicast);
    assert_int_equal(session.block_bytes, want_block);
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.bad_messages, 0);
    assert_int_equal(c.mac_failures, 0);
    assert_int_equal(c.connections, 1);
    /* The large product, after its first batches, lands where it stays; not when it is one batch. */
    if (!c.duplicate_blocks && !c.retx_blocks && want_block < 10000)
        assert_true(c.in_place > c.blocks / 4);
    close_feed(&f);
}

/* The block sizes of the originals at the three MAC levels, to receivers of both kinds. */
static void test_mac_levels(void **state)
{
    (void)state;
    for (unsigned mac = 0; mac <= 2; mac++)
        one_feed(false, mac, 0, false, 1448 - 32 * mac);
    one_feed(false, 2, 0, true, 1384);
}

static void test_packet_sizes(void **state)
{
    (void)state;
    one_feed(false, 0, 600, false, 588);
    one_feed(false, 1, 600, true, 556);
    one_feed(false, 2, 60000, false, 59924);
}

/* The loopback interface carries no IPv6 multicast; own_network() has one that does. */
static bool has_ipv6(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    bool has = fd >= 0 && inet_pton(AF_INET6, OWN_IPV6, &a.sin6_addr) == 1 &&
               bind(fd, (struct sockaddr *)&a, sizeof a) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

static void test_ipv6(void **state)
{
    (void)state;
    if (!has_ipv6())
        skip();
    /* 1500 bytes less 48 of IPv6 and UDP, 12 of FMTP, and the MAC */
    one_feed(true, 0, 0, false, 1440);
    one_feed(true, 1, 1000, true, 956);
}

/* A receiver that asks for signatures refuses a sender without. */
static void test_mac_too_low(void **state)
{
    struct feed f = new_feed(false);

    (void)state;
    f.cfg.mac_level = 1;
    f.rx.mac_level = 2;
    open_server(&f);
    open_client(&f);
    for (int i = 0; i < 100 && !f.sinks[0].lost; i++)
        turn(&f, 1, 100);
    assert_true(f.sinks[0].lost);
    assert_non_null(strstr(f.sinks[0].why, "MAC level 1"));
    close_feed(&f);
}

/* Datagrams of a stranger to the group are seen as forged. */
static void test_forged(void **state)
{
    struct feed f = new_feed(false);
    struct in_addr from = {.s_addr = htonl(INADDR_LOOPBACK)};
    struct fmtp_client_stats c;
    uint8_t eop[12 + 32] = {[11] = 2};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    (void)state;
    f.cfg.mac_level = 1;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&(struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr = from}, sizeof(struct sockaddr_in)), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sendto(fd, eop, sizeof eop, 0, (struct sockaddr *)&f.rx.group,
                                sizeof(struct sockaddr_in)), sizeof eop);
    assert_int_equal(sendto(fd, eop, 12, 0, (struct sockaddr *)&f.rx.group,
                            sizeof(struct sockaddr_in)), 12);
    for (int i = 0; i < 5; i++)
        turn(&f, 1, 20);
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.mac_failures, 3);
    assert_int_equal(c.bad_messages, 4);
    close(fd);
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    close_feed(&f);
}

static void test_bad_configurations(void **state)
{
    struct feed f = new_feed(false);
    struct fmtp_error err;
    struct fmtp_server_config cfg = f.cfg;

    (void)state;
    cfg.pdu_bytes = 100;
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "100 bytes"));
    cfg = f.cfg;
    cfg.mac_level = 3;
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "MAC level 3"));
    cfg = f.cfg;
    cfg.layout = FMTP_LAYOUT_2017;
    cfg.mac_level = 1;
    assert_null(fmtp_server_open(&cfg, &err));
    cfg = f.cfg;
    cfg.address = address("::1", 0);
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "not of one family"));
    cfg = f.cfg;
    cfg.address = address("192.0.2.77", 0);
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "192.0.2.77"));
    cfg = f.cfg;
    cfg.congestion_control = "no_such_cc";
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "no_such_cc"));
    f.rx.server = address("127.0.0.1", 9);
    f.rx.congestion_control = "no_such_cc";
    assert_null(fmtp_client_open(&f.rx, &err));
    assert_non_null(strstr(err.text, "no_such_cc"));
}

static void test_addresses(void **state)
{
    static const char *const good[] = {"10.0.0.1:38800", "[ff3e::1]:5", "[::1]:65535"};
    static const char *const bad[] = {"10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "1.2.3:4", "::1:5",
                                      "[::1]", "[::1:5", "[::1]x:5", ":5", "[]:5", "10.0.0.1:5x", ""};
    struct sockaddr_storage a;
    char text[FMTP_ADDRESS_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(fmtp_address_parse(good[i], true, &a), 0);
        assert_string_equal(fmtp_address_text((struct sockaddr *)&a, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(fmtp_address_parse(bad[i], true, &a), -1);
    assert_int_equal(fmtp_address_parse("fd00::2", false, &a), 0);
    assert_string_equal(fmtp_address_text((struct sockaddr *)&a, text), "fd00::2");
    assert_int_equal(fmtp_address_parse("fe80::2%no-such-interface", false, &a), -1);
    assert_int_equal(fmtp_address_parse("fe80::2%lo", false, &a), 0);
    assert_string_equal(fmtp_address_text((struct sockaddr *)&a, text), "fe80::2%lo");
}

/* ------------------------------------------------------------------ together */

/* Three feeds of different kinds in one process, a loop over them all. */
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

/* Extended and ordinary receivers of one sender. */
static void test_mixed(void **state)
{
    struct feed f = new_feed(false);
    struct fmtp_server_stats st;

    (void)state;
    open_server(&f);
    for (int k = 0; k < CLIENTS; k++) {
        f.rx.unicast_repair = k % 2;
        open_client(&f);
    }
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    fmtp_server_get_stats(f.server, &st);
    assert_int_equal(st.receivers, CLIENTS);
    assert_int_equal(st.extended, 2);      /* the first and the third */
    assert_int_equal(st.parity_sent + st.repairs_sent, 0);
    close_feed(&f);
}

/* ------------------------------------------------------------------ interruptions */

/* Drops all connections of a feed's server, as a reset of the path would. */
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

/* The connection is lost amid a product: the receiver connects again and goes on with it. */
static void test_reconnect(void **state)
{
    struct feed f = new_feed(false);
    struct fmtp_client_stats c;

    (void)state;
    f.cfg.pace_bps = 5000000;              /* product 6 takes 1.3 s */
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
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.connections, 2);
    transfer(&f, 1, 4);
    assert_int_equal(f.sinks[0].ended, 4);
    assert_int_equal(f.sinks[0].begun, 4);
    assert_int_equal(f.sinks[0].missed, 0);
    close_feed(&f);
}

/* The sender is started again at the same port: its receiver comes back, misses what it had not
 * got, and takes what is new, once. */
static void test_sender_restart(void **state)
{
    struct feed f = new_feed(false);
    struct fmtp_client_stats c;

    (void)state;
    f.cfg.pace_bps = 20000000;
    f.first = f.cfg.first_index = 5;
    f.rx.reconnect_ns = UINT64_C(20000000000);
    open_server(&f);
    open_client(&f);
    transfer(&f, 1, 1);
    offer_next(&f);                        /* product 6 is cut off */
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
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.connections, 2);
    close_feed(&f);
}

/* Nobody comes back: the connection is lost when the time for it is over. */
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

/* ------------------------------------------------------------------ floods */

static int stranger(const struct feed *f)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&f->rx.server, sizeof(struct sockaddr_in)) < 0 &&
        errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Connections that say nothing, little or garbage, many more than the bound, while receivers come
 * and are served. */
static void test_flood(void **state)
{
    enum { OPEN = 600, ROUNDS = 10 };
    struct feed f = new_feed(false);
    struct fmtp_server_stats st;
    struct rlimit files;
    int fds[OPEN], more = 0;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max < 4096 ? files.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    f.cfg.max_handshakes = 64;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    for (int i = 0; i < OPEN; i++)
        fds[i] = -1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < OPEN; i++) {
            static const struct iovec words[] = {{"", 0}, {"\x00\x00", 2},
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

static int fill(void **state)
{
    uint32_t x = 1;

    (void)state;
    for (int p = 0; p < PRODUCTS; p++)
        for (uint32_t i = 0; i < sizes[p]; i++) {
            x = x * 1664525 + 1013904223;
            content[p][i] = (uint8_t)(x >> 24);
        }
    return 0;
}

/* A network namespace of this test's own; without the means for that, the test runs where it is. */
static void own_network(char **argv)
{
    const char *unshare = geteuid() == 0 ? "unshare -n" : "unshare -rn";
    char line[64];

    if (getenv("TEST_FEEDS_NETWORK")) {
        (void)!system("ip link set lo up && ip link add v0 type veth peer name v1 && "
                       "ip addr add " OWN_IPV6 "/64 dev v0 nodad && ip link set v0 up && "
                       "ip link set v1 up");
        return;
    }
    snprintf(line, sizeof line, "%s true 2>/dev/null", unshare);
    if (setenv("TEST_FEEDS_NETWORK", "1", 1) == 0 && system(line) == 0)
        execlp("unshare", "unshare", geteuid() == 0 ? "-n" : "-rn", argv[0], NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    own_network(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mac_levels), cmocka_unit_test(test_packet_sizes),
        cmocka_unit_test(test_ipv6), cmocka_unit_test(test_mac_too_low),
        cmocka_unit_test(test_forged), cmocka_unit_test(test_bad_configurations),
        cmocka_unit_test(test_addresses), cmocka_unit_test(test_several_feeds),
        cmocka_unit_test(test_mixed), cmocka_unit_test(test_reconnect),
        cmocka_unit_test(test_sender_restart), cmocka_unit_test(test_reconnect_ends),
        cmocka_unit_test(test_flood),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}

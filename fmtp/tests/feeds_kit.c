/* SPDX-License-Identifier: Apache-2.0 */
#include "feeds_kit.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/sockets.h"

const uint32_t sizes[PRODUCTS] = {1, 1448, 1449, 0, 70000, 3, 800001, 14480};
uint8_t content[PRODUCTS][800001];

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    struct sink *s = ctx;

    (void)start;
    assert_int_equal(meta_len, 1);
    uint8_t n = *(const uint8_t *)meta;
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

struct feed new_feed(bool v6)
{
    const char *own = v6 ? OWN_IPV6 : "127.0.0.1";
    struct sockaddr_storage group = address(v6 ? "ff35::7:9" : "239.192.7.10", free_port());

    return (struct feed){.cfg = {.layout = FMTP_LAYOUT_2021,
                                 .address = address(own, 0),
                                 .group = group,
                                 .f_snd = 5e7,
                                 .r_mc_bps = 1000000000,
                                 .tau_snd_min_ns = UINT64_C(20000000000),
                                 .released = released},
                         .rx = {.layout = FMTP_LAYOUT_2021,
                                .group = group,
                                .interface = address(own, 0),
                                .f_rcv = 20,
                                .r_mc_bps = 1000000000,
                                .rcvbuf_bytes = 8 << 20,
                                .begun = begun,
                                .ended = ended,
                                .missed = missed}};
}

void open_server(struct feed *f)
{
    f->cfg.ctx = f;
    struct tp_error err;
    f->server = fmtp_server_open(&f->cfg, &err);
    if (!f->server)
        fail_msg("%s", err.text);
    f->rx.server = f->cfg.address;
    if (f->rx.server.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&f->rx.server)->sin6_port = htons(fmtp_server_tcp_port(f->server));
    else
        ((struct sockaddr_in *)&f->rx.server)->sin_port = htons(fmtp_server_tcp_port(f->server));
}

struct sink *open_client(struct feed *f)
{
    struct sink *s = &f->sinks[f->nsinks++];

    f->rx.ctx = s;
    struct tp_error err;
    s->client = fmtp_client_open(&f->rx, &err);
    if (!s->client)
        fail_msg("%s", err.text);
    return s;
}

void turn(struct feed *feeds, int n, int timeout_ms)
{
    int count = 0, at = 0;

    struct pollfd fds[FEEDS * (1 + CLIENTS)];
    for (int i = 0; i < n; i++) {
        fds[count++] = (struct pollfd){.fd = feeds[i].server ? fmtp_server_fd(feeds[i].server) : -1,
                                       .events = POLLIN};
        for (int k = 0; k < feeds[i].nsinks; k++)
            fds[count++] = (struct pollfd){
                .fd = feeds[i].sinks[k].lost ? -1 : fmtp_client_fd(feeds[i].sinks[k].client),
                .events = POLLIN};
    }
    poll(fds, (nfds_t)count, timeout_ms);
    struct tp_error err;
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

void offer_next(struct feed *f)
{
    uint8_t n = (uint8_t)((f->first + f->offered) % PRODUCTS);
    struct iovec part = {content[n], sizes[n]};

    uint32_t index;
    struct tp_error err;
    assert_int_equal(fmtp_server_offer(f->server, &part, 1, &n, 1, NULL, &index, &err), 0);
    assert_int_equal(index, f->first + f->offered);
    f->offered++;
}

void wait_connected(struct feed *feeds, int n)
{
    for (int turns = 0; turns < 2000; turns++) {
        bool all = true;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < feeds[i].nsinks; k++)
                all = all &&
                      (feeds[i].sinks[k].lost || fmtp_client_connected(feeds[i].sinks[k].client));
        if (all)
            return;
        turn(feeds, n, 100);
    }
    fail_msg("not connected");
}

void transfer(struct feed *feeds, int n, unsigned products)
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

void check_all(struct feed *f, unsigned products)
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

void close_feed(struct feed *f)
{
    if (f->server)
        fmtp_server_close(f->server);
    for (int k = 0; k < f->nsinks; k++) {
        fmtp_client_close(f->sinks[k].client);
        for (int p = 0; p < PRODUCTS; p++)
            free(f->sinks[k].data[p]);
    }
}

int fill(void **state)
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

/* Returns whether a datagram can leave OWN_IPV6 for a group. */
static bool has_group_route(void)
{
    const struct sockaddr_storage own = address(OWN_IPV6, 0), group = address("ff35::7:9", 7);
    struct tp_error err;
    unsigned mtu_bytes;
    int fd = tp_open_multicast_out(&own, &group, 1, &mtu_bytes, &err);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

void own_network(char **argv)
{
    const char *unshare = geteuid() == 0 ? "unshare -n" : "unshare -rn";

    if (getenv("TEST_FEEDS_NETWORK")) {
        if (system("ip link set lo up && ip link add v0 type veth peer name v1 && "
                   "ip addr add " OWN_IPV6 "/64 dev v0 nodad && ip link set v0 up && "
                   "ip link set v1 up") != 0)
            return;
        /* The kernel adds the route to groups when it sees the carrier, some time after "up":
         * 77 ms were seen beside other programs that make interfaces. */
        for (int i = 0; i < 10000 && !has_group_route(); i++)
            usleep(1000);
        return;
    }
    char line[64];
    snprintf(line, sizeof line, "%s true 2>/dev/null", unshare);
    if (setenv("TEST_FEEDS_NETWORK", "1", 1) == 0 && system(line) == 0)
        execlp("unshare", "unshare", geteuid() == 0 ? "-n" : "-rn", argv[0], NULL);
}

bool has_ipv6(void)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    bool has = fd >= 0 && inet_pton(AF_INET6, OWN_IPV6, &a.sin6_addr) == 1 &&
               bind(fd, (struct sockaddr *)&a, sizeof a) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

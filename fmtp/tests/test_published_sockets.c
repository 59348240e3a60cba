/* SPDX-License-Identifier: Apache-2.0
 *
 * The published senders' blocking threads over real sockets: 150 requests for 64 kB each, of which
 * the receiver reads nothing.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "addresses.h"
#include "fmtp.h"
#include "wire.h"

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
        cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

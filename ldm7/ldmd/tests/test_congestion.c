/* SPDX-License-Identifier: Apache-2.0
 *
 * The congestion control that SET ldm6.congestion_control names is used by both kinds of
 * connections.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "ldmd/process.h"

static char err[512];

static void assert_uses(int fd, const char *name)
{
    char found[16] = "";
    socklen_t n = sizeof found;

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, found, &n), 0);
    assert_string_equal(found, name);
}

/* reno is in every kernel and rarely its default. */
static void both_ends(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(congestion_control_set(listener, "reno", err, sizeof err), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    dial_congestion_control("reno");
    int out = dial("127.0.0.1", ntohs(at.sin_port), err, sizeof err);
    assert_true(out >= 0);
    assert_uses(out, "reno");
    int in = accept(listener, NULL, NULL);
    assert_true(in >= 0);
    assert_uses(in, "reno");
    close(in);
    close(out);
    dial_congestion_control("no_such_one");
    assert_int_equal(dial("127.0.0.1", ntohs(at.sin_port), err, sizeof err), -1);
    assert_non_null(strstr(err, "\"no_such_one\": unknown name"));
    dial_congestion_control("");
    close(listener);
}

static void default_stays(void **state)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char before[16] = "";
    socklen_t n = sizeof before;

    (void)state;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, before, &n), 0);
    assert_int_equal(congestion_control_set(fd, "", err, sizeof err), 0);
    assert_uses(fd, before);
    assert_int_equal(congestion_control_set(fd, "no_such_one", err, sizeof err), -1);
    assert_non_null(strstr(err, "available: reno"));
    assert_uses(fd, before);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_ends),
                                       cmocka_unit_test(default_stays)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

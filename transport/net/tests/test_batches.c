/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of datagrams over the loopback interface: each datagram that goes in comes out, at the
 * rate that the pace sets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/batch_in.h"
#include "net/batch_out.h"
#include "net/sockets.h"

enum { DATAGRAMS = 100, SIZE = 1000, SHORT = 300 };

static uint8_t sent[DATAGRAMS][SIZE];
static struct iovec room[2 * DATAGRAMS];
static unsigned made;

static size_t len_of(void *ctx, unsigned i)
{
    (void)ctx;
    return i % 10 == 9 ? SHORT : SIZE; /* which ends a run */
}

static size_t parts_of(void *ctx, unsigned i, struct iovec *parts)
{
    made++;
    parts[0] = (struct iovec){sent[i], 100};
    parts[1] = (struct iovec){sent[i] + 100, len_of(ctx, i) - 100};
    return 2;
}

/* Opens two sockets on the loopback interface, the first connected to the second. */
static void open_pair(int fds[2])
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;

    assert_int_equal(tp_address_parse("127.0.0.1", false, &at), 0);
    fds[0] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    fds[1] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    tp_set_rcvbuf(fds[1], 4 << 20);
    assert_int_equal(bind(fds[1], (struct sockaddr *)&at, tp_address_len(&at)), 0);
    assert_int_equal(getsockname(fds[1], (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&at, len), 0);
}

static void check(void *ctx, const uint8_t *bytes, size_t len, const struct sockaddr_storage *from)
{
    unsigned *number = ctx;

    assert_int_equal(from->ss_family, AF_INET);
    assert_int_equal(len, len_of(NULL, *number));
    assert_memory_equal(bytes, sent[*number], len);
    ++*number;
}

static void through(unsigned gso_max)
{
    struct tp_batch_out out = {.gso_max = gso_max};
    int fds[2];
    unsigned received = 0;

    for (unsigned i = 0; i < DATAGRAMS; i++)
        memset(sent[i], (int)i + 1, SIZE);
    open_pair(fds);
    struct tp_batch_in *in = tp_batch_in_new(fds[1]);
    assert_non_null(in);
    out.fd = fds[0];
    const struct tp_datagrams batch = {.count = DATAGRAMS, .len = len_of, .parts = parts_of};
    assert_true(tp_batch_out_ready(&out, 1));
    unsigned gone = tp_batch_out_send(&out, &batch, room, 1);
    assert_true(gone >= 60); /* 64 messages at most */
    assert_int_equal(out.datagrams, gone);
    assert_true(gso_max == 1 ? out.messages == gone : out.messages <= gone);
    while (tp_batch_in_read(in, check, &received) > 0)
        ;
    assert_int_equal(received, gone);
    assert_int_equal(tp_socket_drops(fds[1]), 0);
    tp_batch_in_free(in);
    close(fds[0]);
    close(fds[1]);
}

static void test_one_by_one(void **state)
{
    (void)state;
    through(1);
}

static void test_in_runs(void **state)
{
    (void)state;
    through(tp_gso_limit(0, SIZE, 28));
}

/* 100 datagrams of 972 + 28 bytes at 8 Mbit/s: one per ms. */
static void test_pace(void **state)
{
    (void)state;
    struct tp_pace pace = {.rate_bps = 8000000, .overhead = 28, .next_ns = 5000000};
    assert_int_equal(tp_pace_cost_ns(&pace, 972), 1000000);
    assert_true(tp_pace_holds(&pace, 4999999));
    assert_false(tp_pace_holds(&pace, 5000000));
    assert_int_equal(tp_pace_most(&pace, 972, 100, 5000000), 2);
    tp_pace_forgive(&pace, 25000000); /* 20 ms late: 5 ms are caught up */
    assert_int_equal(pace.next_ns, 20000000);
    assert_int_equal(tp_pace_most(&pace, 972, 100, 25000000), 7);
    tp_pace_begin(&pace, 25000000);
    assert_int_equal(pace.next_ns, 25000000);
}

static void test_runs_are_short_at_low_rates(void **state)
{
    (void)state;
    assert_int_equal(tp_gso_limit(0, 1460, 28), 44); /* 64 KB */
    assert_int_equal(tp_gso_limit(10000000, 1460, 28), 1);
    assert_int_equal(tp_gso_limit(1000000000, 1460, 28), 8);
}

static void test_waits(void **state)
{
    (void)state;
    struct tp_batch_out out = {.fd = -1, .gso_max = 1, .pace = {.rate_bps = 8000000}};
    out.pace.next_ns = 100;
    assert_int_equal(tp_batch_out_waits_until(&out, 50), 100);
    out.retry_ns = 200;
    assert_int_equal(tp_batch_out_waits_until(&out, 50), 200);
    out.full = true;
    assert_int_equal(tp_batch_out_waits_until(&out, 50), 0);
    assert_false(tp_batch_out_ready(&out, 500));
    /* An invalid descriptor: the datagram counts as lost, not as waiting. */
    out.full = false;
    made = 0;
    const struct tp_datagrams batch = {.count = 1, .len = len_of, .parts = parts_of};
    assert_int_equal(tp_batch_out_send(&out, &batch, room, 500), 1);
    assert_int_equal(made, 1);
    assert_int_equal(out.send_errors, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_by_one),
                                       cmocka_unit_test(test_in_runs), cmocka_unit_test(test_pace),
                                       cmocka_unit_test(test_runs_are_short_at_low_rates),
                                       cmocka_unit_test(test_waits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

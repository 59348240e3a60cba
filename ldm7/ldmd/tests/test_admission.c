/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "ldmd/admission.h"

/* FEEDME as LDM-6.15.0 sends it, without its argument: mark, xid 0, CALL, RPC 2, 300029, 6, 4,
 * AUTH_NONE. */
static const uint8_t feedme[ADMISSION_HEAD_BYTES] = {
    0x80, 0, 0, 0x4c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 4, 0x93, 0xfd, 0, 0, 0, 6, 0, 0, 0, 4};

static int heard;
static struct in_addr heard_from;

static void speaks(void *ctx, int fd, struct in_addr from)
{
    (void)ctx;
    heard++;
    heard_from = from;
    close(fd);
}

static struct in_addr address(uint32_t last)
{
    return (struct in_addr){htonl(0x0a000000u + last)};
}

static int connects(struct admission *a, uint32_t last, uint64_t now)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    admission_take(a, pair[0], address(last), now);
    return pair[1];
}

static bool cut_off(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void headers(void **state)
{
    static const struct {
        int at, value;
        bool ok;
    } cases[] = {
        {3, 40, true},                  /* NULLPROC: no more than the header */
        {3, 39, false},   {0, 0, true}, /* first fragment of several */
        {0, 0x7f, false},               /* 2 GB */
        {2, 0x40, false},               /* 0x404c bytes: beyond any first call */
        {11, 1, false},                 /* a reply */
        {15, 3, false},                 /* RPC 3 */
        {19, 0, true},                  /* another program: the child answers that */
        {23, 9, true},                  /* another version: the same */
        {34, 1, true},                  /* 256 bytes of credentials */
        {34, 2, false},                 /* 512: RFC 5531 allows 400 */
    };

    (void)state;
    assert_true(admission_plausible(feedme));
    uint8_t h[ADMISSION_HEAD_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(h, feedme, sizeof h);
        h[cases[i].at] = (uint8_t)cases[i].value;
        if (admission_plausible(h) != cases[i].ok)
            fail_msg("case %zu", i);
    }
}

static void limits(void **state)
{
    (void)state;
    struct loop loop;
    assert_int_equal(loop_open(&loop), 0);
    struct admission *a =
        admission_new(&loop, (struct admission_limits){.total = 4, .per_address = 2}, speaks, NULL);
    assert_non_null(a);
    int fd[6];
    fd[0] = connects(a, 1, NS_PER_S);
    fd[1] = connects(a, 2, 2 * NS_PER_S);
    fd[2] = connects(a, 2, 2 * NS_PER_S);
    fd[3] = connects(a, 2,
                     2 * NS_PER_S); /* the third of 10.0.0.2 displaces the first of that address */
    assert_true(cut_off(fd[1]));
    assert_false(cut_off(fd[0]));
    fd[4] = connects(a, 3, 3 * NS_PER_S);
    fd[5] = connects(a, 4, 3 * NS_PER_S); /* the fifth of all displaces the oldest */
    assert_true(cut_off(fd[0]));
    assert_false(cut_off(fd[2]));
    assert_int_equal(admission_tend(a, 11 * NS_PER_S), 12 * NS_PER_S);
    assert_int_equal(admission_tend(a, 12 * NS_PER_S), 13 * NS_PER_S);
    assert_true(cut_off(fd[2]) && cut_off(fd[3]) && !cut_off(fd[4]));

    assert_int_equal(write(fd[4], feedme, 20), 20);
    loop_once(&loop, 0);
    assert_int_equal(heard, 0);
    assert_int_equal(write(fd[4], feedme + 20, sizeof feedme - 20), sizeof feedme - 20);
    loop_once(&loop, 0);
    assert_int_equal(heard, 1);
    assert_int_equal(heard_from.s_addr, address(3).s_addr);
    assert_int_equal(write(fd[5], "GET / HTTP/1.0\r\nHost: a.b.c.d.e.f.a.h\r\n\r\n..", 44), 44);
    loop_once(&loop, 0);
    assert_int_equal(heard, 1);
    struct admission_stats s;
    admission_get_stats(a, &s);
    assert_int_equal(s.accepted, 6);
    assert_int_equal(s.plausible, 1);
    assert_int_equal(s.garbage, 1);
    assert_int_equal(s.silent, 2);
    assert_int_equal(s.displaced, 2);
    assert_false(admission_displace(a));
    admission_free(a);
    loop_close(&loop);
    for (int i = 0; i < 6; i++)
        close(fd[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(headers), cmocka_unit_test(limits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

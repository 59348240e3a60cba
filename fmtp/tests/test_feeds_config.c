/* SPDX-License-Identifier: Apache-2.0
 *
 * What can be configured for a feed, over real sockets: MAC levels, packet sizes, IPv6, addresses,
 * and what is refused.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "feeds_kit.h"

/* Returns the number of blocks of all products at this size. */
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

    f.cfg.mac_level = f.rx.mac_level = mac;
    f.cfg.pdu_bytes = f.rx.pdu_bytes = pdu;
    f.rx.unicast_repair = unicast;
    open_server(&f);
    open_client(&f);
    open_client(&f);
    transfer(&f, 1, PRODUCTS);
    check_all(&f, PRODUCTS);
    struct fmtp_server_stats st;
    fmtp_server_get_stats(f.server, &st);
    assert_int_equal(st.blocks, blocks(want_block));
    assert_int_equal(st.extended, unicast ? 0 : 2);
    struct fmtp_session session;
    unsigned level;
    fmtp_client_get_session(f.sinks[0].client, &session, &level);
    assert_int_equal(level, mac);
    assert_int_equal(session.extended, !unicast);
    assert_int_equal(session.block_bytes, want_block);
    struct fmtp_client_stats c;
    fmtp_client_get_stats(f.sinks[0].client, &c);
    assert_int_equal(c.bad_messages, 0);
    assert_int_equal(c.mac_failures, 0);
    assert_int_equal(c.connections, 1);
    /* The large product, after its first batches, is written in place, unless it fits in one
     * batch. */
    if (!c.duplicate_blocks && !c.retx_blocks && want_block < 10000)
        assert_true(c.in_place > c.blocks / 4);
    close_feed(&f);
}

/* The block sizes of the originals at the three MAC levels, with receivers of both kinds. */
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

static void test_ipv6(void **state)
{
    (void)state;
    if (!has_ipv6())
        skip();
    /* 1500 bytes minus 48 for IPv6 and UDP, 12 for FMTP, and the MAC */
    one_feed(true, 0, 0, false, 1440);
    one_feed(true, 1, 1000, true, 956);
}

/* A receiver that requires signatures refuses a sender without them. */
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

/* Another program's datagrams to the group are recognized as forged. */
static void test_forged(void **state)
{
    struct feed f = new_feed(false);
    struct in_addr from = {.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t eop[12 + 32] = {[11] = 2};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    (void)state;
    f.cfg.mac_level = 1;
    open_server(&f);
    open_client(&f);
    wait_connected(&f, 1);
    assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof from), 0);
    assert_int_equal(
        bind(fd, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET, .sin_addr = from},
             sizeof(struct sockaddr_in)),
        0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sendto(fd, eop, sizeof eop, 0, (struct sockaddr *)&f.rx.group,
                                sizeof(struct sockaddr_in)),
                         sizeof eop);
    assert_int_equal(
        sendto(fd, eop, 12, 0, (struct sockaddr *)&f.rx.group, sizeof(struct sockaddr_in)), 12);
    for (int i = 0; i < 5; i++)
        turn(&f, 1, 20);
    struct fmtp_client_stats c;
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
    struct fmtp_server_config cfg = f.cfg;

    (void)state;
    cfg.pdu_bytes = 100;
    struct tp_error err;
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "100 bytes"));
    cfg = f.cfg;
    cfg.mac_level = FMTP_MAC_AUTO + 1;
    assert_null(fmtp_server_open(&cfg, &err));
    assert_non_null(strstr(err.text, "MAC level 4"));
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
    static const char *const bad[] = {"10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "1.2.3:4",
                                      "::1:5",    "[::1]",      "[::1:5",         "[::1]x:5",
                                      ":5",       "[]:5",       "10.0.0.1:5x",    ""};

    (void)state;
    struct sockaddr_storage a;
    char text[TP_ADDRESS_TEXT];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(tp_address_parse(good[i], true, &a), 0);
        assert_string_equal(tp_address_text((struct sockaddr *)&a, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(tp_address_parse(bad[i], true, &a), -1);
    assert_int_equal(tp_address_parse("fd00::2", false, &a), 0);
    assert_string_equal(tp_address_text((struct sockaddr *)&a, text), "fd00::2");
    assert_int_equal(tp_address_parse("fe80::2%no-such-interface", false, &a), -1);
    assert_int_equal(tp_address_parse("fe80::2%lo", false, &a), 0);
    assert_string_equal(tp_address_text((struct sockaddr *)&a, text), "fe80::2%lo");
}

int main(int argc, char **argv)
{
    (void)argc;
    own_network(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mac_levels), cmocka_unit_test(test_packet_sizes),
        cmocka_unit_test(test_ipv6),       cmocka_unit_test(test_mac_too_low),
        cmocka_unit_test(test_forged),     cmocka_unit_test(test_bad_configurations),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}

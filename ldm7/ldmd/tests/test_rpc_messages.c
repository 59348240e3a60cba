/* SPDX-License-Identifier: Apache-2.0
 *
 * Single messages of LDM6 and LDM7, encoded and decoded.
 */
#include <arpa/inet.h>
#include <string.h>

#include "rpc_kit.h"

static void encode_feedme(void **state)
{
    struct ldm_class c = {.from = {0x6b00c46f, 0xc6b2b}, .to = LDM_TIME_END, .n = 1};

    (void)state;
    c.specs[0].feedtype = 0xffffffff;
    strcpy(c.specs[0].pattern, ".*");
    uint8_t buf[512];
    struct xout x;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_FEEDME);
    xout_class(&x, &c);
    xout_u32(&x, LDM_PRIMARY_HEREIS);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, FEEDME);
}

static void encode_replies(void **state)
{
    struct ldm7_reply r = {.feed = 0x40000000, .prefix_len = 32};

    (void)state;
    uint8_t buf[512];
    struct xout x;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, 7, RPC_SUCCESS);
    xout_u32(&x, LDM6_OK);
    xout_u32(&x, 0x7b8f);
    rpc_finish(&x, 0, true);
    assert_bytes(
        &x, "80000020 00000007 00000001 00000000 00000000 00000000 00000000 00000000 00007b8f");

    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, 7, RPC_SUCCESS);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, "80000018 00000007 00000001 00000000 00000000 00000000 00000000");

    strcpy(r.group, "224.0.1.99:38800");
    strcpy(r.server, "10.99.7.1:46423");
    inet_pton(AF_INET, "10.99.7.2", &r.addr);
    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, 7, RPC_SUCCESS);
    xout_subscription_reply(&x, &r);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, "80000050 00000007 00000001 00000000 00000000 00000000 00000000"
                     "00000000 40000000 00000010 3232342e302e312e39393a3338383030"
                     "0000000f 31302e39392e372e313a343634323300 0207630a 00000020");

    /* RFC 5531: PROG_MISMATCH carries the lowest and highest version, here 6 and 7. */
    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, 7, RPC_PROG_MISMATCH);
    rpc_finish(&x, 0, true);
    assert_bytes(
        &x, "80000020 00000007 00000001 00000000 00000000 00000000 00000002 00000006 00000007");
}

static void encode_ldm7_calls(void **state)
{
    struct ldm7_subscription s = {.feed = 0x40000000, .switch_id = "dummy", .port_id = "dummy"};
    struct ldm7_backlog b = {.time_offset_s = 3600};

    (void)state;
    uint8_t buf[512];
    struct xout x;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS7, LDM7_SUBSCRIBE);
    xout_subscription(&x, &s);
    rpc_finish(&x, 0, true);
    assert_bytes(
        &x,
        CALL7("01", "48") "40000000 00000005 64756d6d79000000 00000005 64756d6d79000000 00000000");

    memset(b.before.bytes, 0xd6, 16);
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS7, LDM7_REQUEST_BACKLOG);
    xout_backlog(&x, &b);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, CALL7("03", "50") "00000000000000000000000000000000 00000000"
                                       "d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6 00000e10");

    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS7, LDM7_REQUEST_PRODUCT);
    xout_u32(&x, 1);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, CALL7("02", "2c") "00000001");
}

static void encode_hereis(void **state)
{
    (void)state;
    uint8_t buf[512];
    struct xout x;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_HEREIS);
    xout_info(&x, &hereis_info);
    rpc_finish(&x, 5000, true);
    assert_bytes(&x,
                 "800013f0 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000"
                 "00000000 00000000 6b00d282 000ca47c 9a0d7432000000000000000000000000"
                 "00000002 75700000 40000000 00000000 0000000e 746573742e70726f647563742e310000"
                 "00001388");
    assert_int_equal(xdr_info_size(&hereis_info), 64);
}

static void decode_reply_address(void **state)
{
    uint8_t bytes[256];
    size_t n = unhex("00000000 40000000 00000010 3232342e302e312e39393a3338383030"
                     "0000000f 31302e39392e372e313a343634323300 0207630a 00000020",
                     bytes);

    (void)state;
    struct xin x;
    xin_init(&x, bytes, n);
    struct ldm7_reply r;
    xin_subscription_reply(&x, &r);
    assert_true(xin_done(&x));
    assert_string_equal(r.group, "224.0.1.99:38800");
    assert_string_equal(r.server, "10.99.7.1:46423");
    char text[32];
    assert_string_equal(inet_ntop(AF_INET, &r.addr, text, sizeof text), "10.99.7.2");
    assert_int_equal(r.prefix_len, 32);
}

static void encode_blkdata(void **state)
{
    struct ldm_block b = {.signature = hereis_info.signature, .size = 5};

    (void)state;
    uint8_t buf[512];
    struct xout x;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_BLKDATA);
    xout_block(&x, &b);
    xout_opaque(&x, "abcde", 5);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, BLKDATA("48") "00000005 6162636465000000");
}

/* As captured from LDM-6.13.17, in both directions. */
static void decode_ldm7_calls(void **state)
{
    (void)state;
    uint8_t bytes[256];
    struct xin x;
    xin_init(&x, bytes,
             unhex("40000000 00000005 64756d6d79000000 00000002 70310000 000000cd", bytes));
    struct ldm7_subscription s;
    xin_subscription(&x, &s);
    assert_true(xin_done(&x));
    assert_int_equal(s.feed, 0x40000000);
    assert_string_equal(s.switch_id, "dummy");
    assert_string_equal(s.port_id, "p1");
    assert_int_equal(s.vlan, 205);
    xin_init(&x, bytes,
             unhex("40000000 00000000 00000000 00010000", bytes)); /* a VLAN id of 17 bits */
    xin_subscription(&x, &s);
    assert_int_equal(x.st, XIN_BAD);
    xin_init(&x, bytes,
             unhex("a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 00000001 d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6"
                   "00000e10",
                   bytes));
    struct ldm7_backlog b;
    xin_backlog(&x, &b);
    assert_true(xin_done(&x));
    assert_int_equal(b.after.bytes[15], 0xa1);
    assert_true(b.after_is_set);
    assert_int_equal(b.before.bytes[0], 0xd6);
    assert_int_equal(b.time_offset_s, 3600);
    assert_string_equal(ldm7_strstatus(LDM7_NOENT), "no such feed");
    assert_string_equal(ldm7_strstatus(17), "unknown status");
}

/* Seconds are unsigned: INT32_MIN and above mean times from January 2038 on. */
static void late_times(void **state)
{
    struct ldm_class c = {.from = {0x80000000, 5}, .to = LDM_TIME_END};
    uint8_t bytes[64];

    (void)state;
    struct xout o;
    xout_init(&o, bytes, sizeof bytes);
    xout_class(&o, &c);
    assert_memory_equal(bytes, "\x80\0\0\0\0\0\0\5\x7f\xff\xff\xff", 12);
    struct xin i;
    xin_init(&i, bytes, o.len);
    xin_class(&i, &c);
    char text[200];
    assert_string_equal(class_format(&c, text, sizeof text), "20380119031408.000005 TS_ENDT {}");
}

/* As uldbutil of LDM-6.15.0 prints it; and times that have names. */
static void format_class(void **state)
{
    struct ldm_class c = {
        .from = {1795219491, 418387}, .to = LDM_TIME_END, .n = 1, .specs = {{0xffffffff, ".*"}}};

    (void)state;
    char text[200];
    assert_string_equal(class_format(&c, text, sizeof text),
                        "20261121000451.418387 TS_ENDT {{ANY, \".*\"}}");
    c.from = LDM_TIME_ZERO;
    c.n = 2;
    c.specs[1] = (struct ldm_spec){0x40000000, "^a"};
    assert_string_equal(class_format(&c, text, sizeof text),
                        "TS_ZERO TS_ENDT {{ANY, \".*\"}, {EXP, \"^a\"}}");
    char small[12];
    assert_int_equal(strlen(class_format(&c, small, sizeof small)), sizeof small - 1);
}

/* LDM-6.15.0, ldm6.x: fornme_reply and hiya_reply; the class is inline, without the word of a
 * pointer. */
static void ldm6_replies(void **state)
{
    static const struct {
        bool of_hiya;
        struct ldm6_reply r;
        const char *hex;
    } list[] = {
        {false, {.code = LDM6_OK, .value = 0x7b8f}, "00000000 00007b8f"},
        {false, {.code = LDM6_BADPATTERN}, "00000002"},
        {true, {.code = LDM6_OK, .value = 0xffffffff}, "00000000 ffffffff"},
        {true, {.code = LDM6_DONT_SEND}, "00000003"},
        {false,
         {.code = LDM6_RECLASS, .cls = {.to = {0x7fffffff, 999999}, .n = 1, .specs = {{1, "a"}}}},
         "00000007 00000000 00000000 7fffffff 000f423f 00000001 00000001 00000001 61000000"},
        {true,
         {.code = LDM6_RECLASS,
          .value = 7,
          .cls = {.to = {0x7fffffff, 999999}, .n = 1, .specs = {{1, "a"}}}},
         "00000007 00000000 00000000 7fffffff 000f423f 00000001 00000001 00000001 61000000 00000007"},
    };

    (void)state;
    uint8_t buf[512];
    struct ldm6_reply got;
    struct xout x;
    struct xin in;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        xout_init(&x, buf, sizeof buf);
        xout_ldm6_reply(&x, list[i].of_hiya, &list[i].r);
        assert_bytes(&x, list[i].hex);
        xin_init(&in, buf, x.len);
        xin_ldm6_reply(&in, list[i].of_hiya, &got);
        assert_true(xin_done(&in));
        assert_int_equal(got.code, list[i].r.code);
        assert_int_equal(got.value, list[i].r.value);
        assert_int_equal(got.cls.n, list[i].r.cls.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_feedme),        cmocka_unit_test(encode_replies),
        cmocka_unit_test(encode_ldm7_calls),    cmocka_unit_test(encode_hereis),
        cmocka_unit_test(decode_reply_address), cmocka_unit_test(encode_blkdata),
        cmocka_unit_test(decode_ldm7_calls),    cmocka_unit_test(late_times),
        cmocka_unit_test(format_class),         cmocka_unit_test(ldm6_replies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

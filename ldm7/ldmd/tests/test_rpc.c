/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte vectors: reference 3.4 and 4.1, captured from the original programs. "xid" is 7 here.
 */
#include "match.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = 0;
    unsigned v;

    while (*hex != '\0') {
        if (*hex == ' ') {
            hex++;
            continue;
        }
        assert_int_equal(sscanf(hex, "%2x", &v), 1);
        out[n++] = (uint8_t)v;
        hex += 2;
    }
    return n;
}

static void assert_bytes(const struct xout *x, const char *hex)
{
    uint8_t want[512];
    size_t n = unhex(hex, want);

    assert_false(x->overflow);
    assert_int_equal(x->len, n);
    assert_memory_equal(x->buf, want, n);
}

#define CALL7(proc, len) "800000" len " 00000007 00000000 00000002 000493fd 00000007 000000" proc \
                         " 00000000 00000000 00000000 00000000 "
#define FEEDME_ARGS "6b00c46f 000c6b2b 7fffffff 000f423f 00000001 ffffffff 00000002 2e2a0000 ffffffff"
#define FEEDME "8000004c 00000007 00000000 00000002 000493fd 00000006 00000004 00000000 00000000 " \
               "00000000 00000000 " FEEDME_ARGS

static void encode_feedme(void **state)
{
    uint8_t buf[512];
    struct xout x;
    struct ldm_class c = {.from = {0x6b00c46f, 0xc6b2b}, .to = LDM_TIME_END, .n = 1};

    (void)state;
    c.specs[0].feedtype = 0xffffffff;
    strcpy(c.specs[0].pattern, ".*");
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_FEEDME);
    xout_class(&x, &c);
    xout_u32(&x, LDM_PRIMARY_HEREIS);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, FEEDME);
}

static void encode_replies(void **state)
{
    uint8_t buf[512];
    struct xout x;
    struct ldm7_reply r = {.feed = 0x40000000, .prefix_len = 32};

    (void)state;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_reply(&x, 7, RPC_SUCCESS);
    xout_u32(&x, LDM6_OK);
    xout_u32(&x, 0x7b8f);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, "80000020 00000007 00000001 00000000 00000000 00000000 00000000 00000000 00007b8f");

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
    assert_bytes(&x, "80000020 00000007 00000001 00000000 00000000 00000000 00000002 00000006 00000007");
}

static void encode_ldm7_calls(void **state)
{
    uint8_t buf[512];
    struct xout x;
    struct ldm7_subscription s = {.feed = 0x40000000, .switch_id = "dummy", .port_id = "dummy"};
    struct ldm7_backlog b = {.time_offset_s = 3600};

    (void)state;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS7, LDM7_SUBSCRIBE);
    xout_subscription(&x, &s);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, CALL7("01", "48") "40000000 00000005 64756d6d79000000 00000005 64756d6d79000000 00000000");

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

static const struct pq_info hereis_info = {
    .creation = {0x6b00d282, 0xca47c}, .signature = {{0x9a, 0x0d, 0x74, 0x32}}, .origin = "up",
    .feedtype = 0x40000000, .ident = "test.product.1", .size = 5000};

static void encode_hereis(void **state)
{
    uint8_t buf[512];
    struct xout x;

    (void)state;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_HEREIS);
    xout_info(&x, &hereis_info);
    rpc_finish(&x, 5000, true);
    assert_bytes(&x, "800013f0 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000"
                 "00000000 00000000 6b00d282 000ca47c 9a0d7432000000000000000000000000"
                 "00000002 75700000 40000000 00000000 0000000e 746573742e70726f647563742e310000"
                 "00001388");
    assert_int_equal(xdr_info_size(&hereis_info), 64);
}

/* ------------------------------------------------------------------ stream */

struct seen {
    int calls, replies, begins, ends, aborts;
    struct rpc_msg msg;
    struct pq_info info;
    struct ldm_class cls;
    struct ldm_block block;
    uint32_t index, code;
    bool want;
    uint8_t data[200000];
};

static bool on_call(void *ctx, const struct rpc_msg *m, struct xin *args)
{
    struct seen *s = ctx;

    s->calls++;
    s->msg = *m;
    if (m->vers == LDM_VERS6 && m->proc == LDM6_FEEDME) {
        xin_class(args, &s->cls);
        s->code = xin_u32(args);
        return xin_done(args);
    }
    return true;
}

static bool on_reply(void *ctx, const struct rpc_msg *m, struct xin *body)
{
    struct seen *s = ctx;

    s->replies++;
    s->msg = *m;
    s->code = xin_u32(body);
    return true;
}

static bool on_begin(void *ctx, const struct rpc_msg *m, uint32_t index, const struct pq_info *info,
                     uint8_t **region)
{
    struct seen *s = ctx;

    s->begins++;
    s->msg = *m;
    s->index = index;
    s->info = *info;
    assert_true(info->size <= sizeof s->data);
    *region = s->want ? s->data : NULL;
    return true;
}

static bool on_block(void *ctx, const struct ldm_block *b, uint8_t **region)
{
    struct seen *s = ctx;

    s->begins++;
    s->block = *b;
    *region = s->data;
    return b->size <= sizeof s->data;
}

static bool on_end(void *ctx)
{
    ((struct seen *)ctx)->ends++;
    return true;
}

static void on_abort(void *ctx)
{
    ((struct seen *)ctx)->aborts++;
}

struct fixture {
    struct seen seen;
    struct rpc_stream stream;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct rpc_sink sink = {&f->seen, on_call, on_reply, on_begin, on_end, on_abort, on_block};

    f->seen.want = true;
    rpc_stream_init(&f->stream, &sink);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static void stream_feedme_by_bytes(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[512];
    size_t n = unhex(FEEDME, bytes);

    for (size_t i = 0; i < n; i++)
        assert_int_equal(rpc_stream_feed(&f->stream, bytes + i, 1), 0);
    assert_int_equal(f->seen.calls, 1);
    assert_int_equal(f->seen.msg.xid, 7);
    assert_int_equal(f->seen.cls.from.sec, 0x6b00c46f);
    assert_int_equal(f->seen.cls.n, 1);
    assert_string_equal(f->seen.cls.specs[0].pattern, ".*");
    assert_int_equal(f->seen.code, 0xffffffff);
}

/* A HEREIS whose first fragment ends after cut bytes of the record (0: one fragment). */
static size_t make_hereis(uint8_t *out, size_t cut, size_t size)
{
    uint8_t head[512], *at = out;
    struct xout x;
    struct pq_info info = hereis_info;
    size_t total;
    uint8_t *record;

    info.size = (uint32_t)size;
    xout_init(&x, head, sizeof head);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_HEREIS);
    xout_info(&x, &info);
    rpc_finish(&x, size + xdr_pad(size), true);
    total = x.len - 4 + size + xdr_pad(size);
    record = calloc(1, total);
    memcpy(record, head + 4, x.len - 4);
    for (size_t i = 0; i < size; i++)
        record[x.len - 4 + i] = (uint8_t)(i * 7 + i / 251);
    if (cut > 0) {
        const uint8_t mark[4] = {0, (uint8_t)(cut >> 16), (uint8_t)(cut >> 8), (uint8_t)cut};
        size_t rest = total - cut;
        const uint8_t mark2[4] = {0x80, (uint8_t)(rest >> 16), (uint8_t)(rest >> 8), (uint8_t)rest};

        memcpy(at, mark, 4);
        memcpy(at + 4, record, cut);
        memcpy(at + 4 + cut, mark2, 4);
        memcpy(at + 8 + cut, record + cut, rest);
        at += 8 + total;
    } else {
        memcpy(at, head, 4);
        memcpy(at + 4, record, total);
        at += 4 + total;
    }
    free(record);
    return (size_t)(at - out);
}

static void assert_product(const struct fixture *f, int count, size_t size)
{
    assert_int_equal(f->seen.begins, count);
    assert_int_equal(f->seen.ends, count);
    assert_int_equal(f->seen.info.size, size);
    assert_string_equal(f->seen.info.ident, "test.product.1");
    for (size_t i = 0; i < size; i++)
        assert_int_equal(f->seen.data[i], (uint8_t)(i * 7 + i / 251));
}

static void stream_products(void **state)
{
    struct fixture *f = *state;
    static const size_t cuts[] = {0, 1, 39, 40, 50, 104, 105, 5001};
    static const size_t chunks[] = {1, 3, 100, 1024, 1 << 20};
    static uint8_t bytes[160000];
    int count = 0;

    for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++)
        for (size_t k = 0; k < sizeof chunks / sizeof chunks[0]; k++) {
            size_t n = make_hereis(bytes, cuts[c], 5001);

            memset(f->seen.data, 0xee, 6000);
            for (size_t i = 0; i < n; i += chunks[k])
                assert_int_equal(rpc_stream_feed(&f->stream, bytes + i,
                                                 n - i < chunks[k] ? n - i : chunks[k]), 0);
            assert_product(f, ++count, 5001);
            assert_int_equal(f->seen.data[5001], 0xee);
        }
    assert_int_equal(f->stream.records, count);
    f->seen.want = false;
    for (size_t n = make_hereis(bytes, 77, 20000), i = 0; i < n; i += 999)
        assert_int_equal(rpc_stream_feed(&f->stream, bytes + i, n - i < 999 ? n - i : 999), 0);
    assert_int_equal(f->seen.ends, count + 1);
}

static void stream_direct(void **state)
{
    struct fixture *f = *state;
    static uint8_t bytes[160000];
    size_t n = make_hereis(bytes, 60000, 150000), at = 200, max, directly = 0;
    uint8_t *to;

    assert_int_equal(rpc_stream_feed(&f->stream, bytes, at), 0);
    while (at < n) {
        to = rpc_stream_direct(&f->stream, &max);
        if (to == NULL) {
            assert_int_equal(rpc_stream_feed(&f->stream, bytes + at, 1), 0);
            at++;
            continue;
        }
        if (max > 40000)
            max = 40000;
        memcpy(to, bytes + at, max);
        assert_int_equal(rpc_stream_direct_done(&f->stream, max), 0);
        at += max;
        directly += max;
    }
    assert_product(f, 1, 150000);
    assert_true(directly > 149000);
}

static void stream_missed_product(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[256];
    size_t n = unhex(CALL7("05", "68") "00000001 6b00d86e 000941df 00112233445566778899aabbccddeeff"
                     "00000008 7570372e74657374 40000000 00000000 00000003 622e3200 00000003 61626300",
                     bytes);

    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), 0);
    assert_int_equal(f->seen.ends, 1);
    assert_int_equal(f->seen.index, 1);
    assert_string_equal(f->seen.info.origin, "up7.test");
    assert_string_equal(f->seen.info.ident, "b.2");
    assert_memory_equal(f->seen.data, "abc", 3);
}

/* BLKDATA of 5 bytes: signature, packet 0, length, data, padding; then one of no bytes. */
#define BLKDATA(len) "800000" len " 00000007 00000000 00000002 000493fd 00000006 0000000d 00000000 " \
                     "00000000 00000000 00000000 9a0d7432000000000000000000000000 00000000 "
static void stream_block(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[256];
    size_t n = unhex(BLKDATA("48") "00000005 6162636465000000 " BLKDATA("40") "00000000", bytes);

    for (size_t i = 0; i < n; i++)
        assert_int_equal(rpc_stream_feed(&f->stream, bytes + i, 1), 0);
    assert_int_equal(f->seen.begins, 2);
    assert_int_equal(f->seen.ends, 2);
    assert_int_equal(f->seen.calls, 0);
    assert_int_equal(f->seen.block.size, 0);
    assert_memory_equal(f->seen.data, "abcde", 5);
    assert_memory_equal(f->seen.block.signature.bytes, hereis_info.signature.bytes, 16);
    n = unhex(BLKDATA("44") "00000005 61626364", bytes);       /* one byte too few */
    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), -1);
}

static void encode_blkdata(void **state)
{
    uint8_t buf[512];
    struct xout x;
    struct ldm_block b = {.signature = hereis_info.signature, .size = 5};

    (void)state;
    xout_init(&x, buf, sizeof buf);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_BLKDATA);
    xout_block(&x, &b);
    xout_opaque(&x, "abcde", 5);
    rpc_finish(&x, 0, true);
    assert_bytes(&x, BLKDATA("48") "00000005 6162636465000000");
}

/* reference 3.3: fornme_reply and hiya_reply; the class is inline, without a pointer's word. */
static void ldm6_replies(void **state)
{
    static const struct { bool of_hiya; struct ldm6_reply r; const char *hex; } list[] = {
        {false, {.code = LDM6_OK, .value = 0x7b8f}, "00000000 00007b8f"},
        {false, {.code = LDM6_BADPATTERN}, "00000002"},
        {true, {.code = LDM6_OK, .value = 0xffffffff}, "00000000 ffffffff"},
        {true, {.code = LDM6_DONT_SEND}, "00000003"},
        {false, {.code = LDM6_RECLASS, .cls = {.to = {0x7fffffff, 999999}, .n = 1, .specs = {{1, "a"}}}},
         "00000007 00000000 00000000 7fffffff 000f423f 00000001 00000001 00000001 61000000"},
        {true, {.code = LDM6_RECLASS, .value = 7, .cls = {.to = {0x7fffffff, 999999}, .n = 1, .specs = {{1, "a"}}}},
         "00000007 00000000 00000000 7fffffff 000f423f 00000001 00000001 00000001 61000000 00000007"},
    };
    uint8_t buf[512];
    struct ldm6_reply got;
    struct xout x;
    struct xin in;

    (void)state;
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

/* reference 4.1, both ways */
static void decode_ldm7_calls(void **state)
{
    uint8_t bytes[256];
    struct ldm7_subscription s;
    struct ldm7_backlog b;
    struct xin x;

    (void)state;
    xin_init(&x, bytes, unhex("40000000 00000005 64756d6d79000000 00000002 70310000 000000cd", bytes));
    xin_subscription(&x, &s);
    assert_true(xin_done(&x));
    assert_int_equal(s.feed, 0x40000000);
    assert_string_equal(s.switch_id, "dummy");
    assert_string_equal(s.port_id, "p1");
    assert_int_equal(s.vlan, 205);
    xin_init(&x, bytes, unhex("40000000 00000000 00000000 00010000", bytes));   /* a VLAN id of 17 bits */
    xin_subscription(&x, &s);
    assert_int_equal(x.st, XIN_BAD);
    xin_init(&x, bytes, unhex("a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 00000001 d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6"
                              "00000e10", bytes));
    xin_backlog(&x, &b);
    assert_true(xin_done(&x));
    assert_int_equal(b.after.bytes[15], 0xa1);
    assert_true(b.after_is_set);
    assert_int_equal(b.before.bytes[0], 0xd6);
    assert_int_equal(b.time_offset_s, 3600);
    assert_string_equal(ldm7_strstatus(LDM7_NOENT), "no such feed");
    assert_string_equal(ldm7_strstatus(17), "unknown status");
}

/* reference 3.8, as uldbutil prints it; and times that have names */
static void format_class(void **state)
{
    struct ldm_class c = {.from = {1795219491, 418387}, .to = LDM_TIME_END, .n = 1, .specs = {{0xffffffff, ".*"}}};
    char text[200], small[12];

    (void)state;
    assert_string_equal(class_format(&c, text, sizeof text),
                        "20261121000451.418387 TS_ENDT {{ANY, \".*\"}}");
    c.from = LDM_TIME_ZERO;
    c.n = 2;
    c.specs[1] = (struct ldm_spec){0x40000000, "^a"};
    assert_string_equal(class_format(&c, text, sizeof text),
                        "TS_ZERO TS_ENDT {{ANY, \".*\"}, {EXP, \"^a\"}}");
    assert_int_equal(strlen(class_format(&c, small, sizeof small)), sizeof small - 1);
}

static void stream_reply(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[64];
    size_t n = unhex("8000001c 00000007 00000001 00000000 00000000 00000000 00000000 00000003", bytes);

    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), 0);
    assert_int_equal(f->seen.replies, 1);
    assert_int_equal(f->seen.code, LDM6_DONT_SEND);
    n = unhex("80000014 00000007 00000001 00000001 00000001 00000005", bytes);
    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), 0);
    assert_true(f->seen.msg.denied);
    assert_int_equal(f->seen.msg.auth_stat, 5);
}

static void stream_refuses(void **state)
{
    struct fixture *f = *state;
    static const char *const hostile[] = {
        "80000008 00000007 00000002",                                      /* neither call nor reply */
        "80000004 00000007",                                               /* only an xid */
        "80000000",                                                        /* empty record */
        "8000002c 00000007 00000000 00000003 000493fd 00000006 00000000 0 ", /* RPC version 3 */
        "80000028 00000007 00000000 00000002 000493fd 00000006 00000000 00000000 00001000 ",
        /* HEREIS with an origin of 65 bytes (maximum 64) */
        "80001000 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000 00000000"
        "00000000 6b00d282 000ca47c 9a0d7432000000000000000000000000 00000041",
        /* HEREIS with microseconds of 1000000 */
        "80001000 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000 00000000"
        "00000000 6b00d282 000f4240 9a0d7432000000000000000000000000 00000000 40000000 00000000"
        "00000000 00000000",
        /* HEREIS of size 5 in a record with 4 bytes of data, and with 12 */
        "80000058 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000 00000000"
        "00000000 6b00d282 000ca47c 9a0d7432000000000000000000000000 00000000 40000000 00000000"
        "00000000 00000005 61626364",
        "80000060 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000 00000000"
        "00000000 6b00d282 000ca47c 9a0d7432000000000000000000000000 00000000 40000000 00000000"
        "00000000 00000005 616263640000000000000000",
    };
    uint8_t bytes[512];

    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        struct rpc_sink sink = f->stream.sink;
        char text[1024];
        size_t n;

        snprintf(text, sizeof text, "%s", hostile[i]);
        if (strstr(text, " 0 ") != NULL)
            *strstr(text, " 0 ") = '\0';
        n = unhex(text, bytes);
        rpc_stream_init(&f->stream, &sink);
        if (rpc_stream_feed(&f->stream, bytes, n) == 0)
            fail_msg("vector %zu was accepted", i);
        assert_non_null(f->stream.error);
        rpc_stream_end(&f->stream);
    }
    assert_int_equal(f->seen.calls, 0);
    assert_int_equal(f->seen.ends, 0);
}

static void stream_bounds_memory(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[RPC_HEAD_MAX];
    size_t n = unhex("ffffffff 00000007 00000000 00000002 000493fd 00000006 00000004 00000000 00000000"
                     "00000000 00000000", bytes);

    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), 0);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(rpc_stream_feed(&f->stream, bytes, sizeof bytes), -1);
    assert_string_equal(f->stream.error, "record too long");
}

static void stream_server_takes_no_product(void **state)
{
    struct fixture *f = *state;
    struct rpc_sink sink = {&f->seen, on_call, on_reply, NULL, NULL, NULL, NULL};
    static uint8_t bytes[8000];
    size_t n = make_hereis(bytes, 0, 5001);

    rpc_stream_init(&f->stream, &sink);
    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), -1);
    assert_string_equal(f->stream.error, "unexpected product");
}

static void stream_ends_inside_product(void **state)
{
    struct fixture *f = *state;
    static uint8_t bytes[8000];

    make_hereis(bytes, 0, 5001);
    assert_int_equal(rpc_stream_feed(&f->stream, bytes, 3000), 0);
    rpc_stream_end(&f->stream);
    rpc_stream_end(&f->stream);
    assert_int_equal(f->seen.aborts, 1);
    assert_int_equal(f->seen.ends, 0);
}

static void decode_reply_address(void **state)
{
    uint8_t bytes[256];
    size_t n = unhex("00000000 40000000 00000010 3232342e302e312e39393a3338383030"
                     "0000000f 31302e39392e372e313a343634323300 0207630a 00000020", bytes);
    struct ldm7_reply r;
    struct xin x;
    char text[32];

    (void)state;
    xin_init(&x, bytes, n);
    xin_subscription_reply(&x, &r);
    assert_true(xin_done(&x));
    assert_string_equal(r.group, "224.0.1.99:38800");
    assert_string_equal(r.server, "10.99.7.1:46423");
    assert_string_equal(inet_ntop(AF_INET, &r.addr, text, sizeof text), "10.99.7.2");
    assert_int_equal(r.prefix_len, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_feedme),
        cmocka_unit_test(encode_replies),
        cmocka_unit_test(encode_ldm7_calls),
        cmocka_unit_test(encode_hereis),
        cmocka_unit_test(decode_reply_address),
        cmocka_unit_test(encode_blkdata),
        cmocka_unit_test(decode_ldm7_calls),
        cmocka_unit_test(format_class),
        cmocka_unit_test(ldm6_replies),
        cmocka_unit_test_setup_teardown(stream_block, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_feedme_by_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_products, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_direct, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_missed_product, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_reply, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_bounds_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_server_takes_no_product, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_ends_inside_product, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

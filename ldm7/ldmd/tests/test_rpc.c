/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of a connection: records in fragments and pieces, products into their places, what is
 * refused.
 */
#include <stdlib.h>
#include <string.h>

#include "rpc_kit.h"

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

/* Makes a HEREIS whose first fragment ends after `cut` bytes of the record (0: one fragment). */
static size_t make_hereis(uint8_t *out, size_t cut, size_t size)
{
    uint8_t *at = out;
    struct pq_info info = hereis_info;

    info.size = (uint32_t)size;
    uint8_t head[512];
    struct xout x;
    xout_init(&x, head, sizeof head);
    rpc_begin_call(&x, 7, LDM_VERS6, LDM6_HEREIS);
    xout_info(&x, &info);
    rpc_finish(&x, size + xdr_pad(size), true);
    size_t total = x.len - 4 + size + xdr_pad(size);
    uint8_t *record = calloc(1, total);
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
                assert_int_equal(
                    rpc_stream_feed(&f->stream, bytes + i, n - i < chunks[k] ? n - i : chunks[k]),
                    0);
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
    size_t n = make_hereis(bytes, 60000, 150000), at = 200, directly = 0;

    assert_int_equal(rpc_stream_feed(&f->stream, bytes, at), 0);
    size_t max;
    while (at < n) {
        uint8_t *to = rpc_stream_direct(&f->stream, &max);
        if (!to) {
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
    size_t n = unhex(
        CALL7(
            "05",
            "68") "00000001 6b00d86e 000941df 00112233445566778899aabbccddeeff"
                  "00000008 7570372e74657374 40000000 00000000 00000003 622e3200 00000003 61626300",
        bytes);

    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), 0);
    assert_int_equal(f->seen.ends, 1);
    assert_int_equal(f->seen.index, 1);
    assert_string_equal(f->seen.info.origin, "up7.test");
    assert_string_equal(f->seen.info.ident, "b.2");
    assert_memory_equal(f->seen.data, "abc", 3);
}

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
    n = unhex(BLKDATA("44") "00000005 61626364", bytes); /* one byte too few */
    assert_int_equal(rpc_stream_feed(&f->stream, bytes, n), -1);
}

static void stream_reply(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[64];
    size_t n =
        unhex("8000001c 00000007 00000001 00000000 00000000 00000000 00000000 00000003", bytes);

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
        "80000008 00000007 00000002", /* neither a call nor a reply */
        "80000004 00000007",          /* an xid only */
        "80000000",                   /* empty record */
        "8000002c 00000007 00000000 00000003 000493fd 00000006 00000000 0 ", /* RPC version 3 */
        "80000028 00000007 00000000 00000002 000493fd 00000006 00000000 00000000 00001000 ",
        /* HEREIS with an origin of 65 bytes (maximum 64) */
        "80001000 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000 00000000"
        "00000000 6b00d282 000ca47c 9a0d7432000000000000000000000000 00000041",
        /* HEREIS with microseconds of 1000000 */
        "80001000 00000007 00000000 00000002 000493fd 00000006 00000001 00000000 00000000 00000000"
        "00000000 6b00d282 000f4240 9a0d7432000000000000000000000000 00000000 40000000 00000000"
        "00000000 00000000",
        /* HEREIS of size 5 in a record with 4 bytes of data, and in one with 12 */
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
        snprintf(text, sizeof text, "%s", hostile[i]);
        if (strstr(text, " 0 "))
            *strstr(text, " 0 ") = '\0';
        size_t n = unhex(text, bytes);
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
    size_t n =
        unhex("ffffffff 00000007 00000000 00000002 000493fd 00000006 00000004 00000000 00000000"
              "00000000 00000000",
              bytes);

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stream_feedme_by_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_products, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_direct, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_missed_product, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_block, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_reply, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_bounds_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_server_takes_no_product, setup, teardown),
        cmocka_unit_test_setup_teardown(stream_ends_inside_product, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "receiver_kit.h"

#include <stdlib.h>
#include <string.h>

struct kit kit;

static void note(uint32_t *list, int *n, uint32_t index)
{
    if (*n < KIT_MISSED)
        list[*n] = index;
    ++*n;
}

static void *begun(void *ctx, uint32_t index, uint32_t size, const void *meta, uint16_t meta_len,
                   struct timespec start)
{
    (void)ctx;
    (void)meta;
    (void)meta_len;
    (void)start;
    note(kit.begun, &kit.nbegun, index);
    if (kit.refuse)
        return NULL;
    assert_true(size <= kit.bytes);
    return kit.data;
}

static void ended(void *ctx, uint32_t index, uint32_t retx_blocks, struct timespec start)
{
    (void)ctx;
    (void)start;
    note(kit.ended, &kit.nended, index);
    kit.retx = retx_blocks;
}

static void missed(void *ctx, uint32_t index)
{
    (void)ctx;
    note(kit.missed, &kit.nmissed, index);
}

void kit_reset(void)
{
    kit = (struct kit){.now_ns = 1000,
                       .bytes = 400000,
                       .cfg = {.layout = FMTP_LAYOUT_2017,
                               .f_rcv = 2,
                               .r_mc_bps = 8000000,
                               .max_products = KIT_PRODUCTS,
                               .parity_bytes = 1 << 20,
                               .reorder_blocks = 8,
                               .begun = begun,
                               .ended = ended,
                               .missed = missed}};
}

void kit_open(void)
{
    kit.data = calloc(1, kit.bytes);
    kit.r = fmtp_receiver_new(&kit.cfg);
    assert_non_null(kit.data);
    assert_non_null(kit.r);
}

void kit_session(bool extended, uint16_t block, uint16_t fec_k, uint32_t next_index, uint64_t id)
{
    struct fmtp_session s = {.extended = extended,
                             .block_bytes = block,
                             .fec_k = fec_k,
                             .next_index = next_index,
                             .id = id};

    assert_int_equal(fmtp_receiver_session(kit.r, &s, kit.now_ns), 0);
}

void kit_open_extended(uint16_t fec_k, uint32_t next_index)
{
    kit_reset();
    kit_open();
    kit_session(true, 100, fec_k, next_index, 77);
}

void kit_close(void)
{
    fmtp_receiver_free(kit.r);
    free(kit.data);
    kit.r = NULL;
    kit.data = NULL;
}

void kit_bytes(uint16_t flags, uint32_t index, uint32_t seq, const uint8_t *payload, size_t len)
{
    struct fmtp_header h = {index, seq, (uint16_t)len, flags};
    uint8_t head[FMTP_HEADER_LEN];

    fmtp_header_put(head, &h);
    fmtp_receiver_datagram(kit.r, head, payload, len, kit.now_ns);
}

void kit_datagram(uint16_t flags, uint32_t index, uint32_t seq, size_t len, uint8_t fill)
{
    uint8_t *payload = malloc(len + 1); /* exact size: the sanitizer detects reads past the end */

    memset(payload, fill, len);
    kit_bytes(flags, index, seq, payload, len);
    free(payload);
}

void kit_bop(uint32_t index, uint32_t size)
{
    struct fmtp_bop bop = {.size_bytes = size};
    uint8_t body[32];

    kit_bytes(FMTP_BOP, index, 0, body, fmtp_bop_put(kit.cfg.layout, body, &bop));
}

void kit_parity(uint32_t index, uint16_t group, uint8_t number, uint8_t end, const uint8_t *symbol,
                size_t len)
{
    kit_bytes(FMTP_PARITY, index, (uint32_t)group << 16 | (uint32_t)number << 8 | end, symbol, len);
}

int kit_stream(uint16_t flags, uint32_t index, uint32_t seq, size_t len, uint8_t fill)
{
    struct fmtp_header h = {index, seq, (uint16_t)len, flags};
    uint8_t *bytes = malloc(FMTP_HEADER_LEN + len);

    fmtp_header_put(bytes, &h);
    memset(bytes + FMTP_HEADER_LEN, fill, len);
    int rc = fmtp_receiver_stream(kit.r, bytes, FMTP_HEADER_LEN + len, kit.now_ns);
    free(bytes);
    return rc;
}

int kit_stream_bop(uint32_t index, uint32_t size)
{
    struct fmtp_bop bop = {.size_bytes = size};
    uint8_t bytes[64];
    size_t len = fmtp_bop_put(kit.cfg.layout, bytes + FMTP_HEADER_LEN, &bop);
    struct fmtp_header h = {index, 0, (uint16_t)len, FMTP_RETX_BOP};

    fmtp_header_put(bytes, &h);
    return fmtp_receiver_stream(kit.r, bytes, FMTP_HEADER_LEN + len, kit.now_ns);
}

void kit_expect(uint16_t flags, uint32_t index, uint32_t seq, uint16_t len)
{
    const uint8_t *bytes;
    assert_true(fmtp_receiver_output(kit.r, &bytes) >= FMTP_HEADER_LEN);
    struct fmtp_header h;
    fmtp_header_get(bytes, &h);
    assert_int_equal(h.flags, flags);
    assert_int_equal(h.index, index);
    assert_int_equal(h.seqnum, seq);
    assert_int_equal(h.payloadlen, len);
    fmtp_receiver_sent(kit.r, FMTP_HEADER_LEN);
}

void kit_expect_repair(uint32_t index, uint32_t group, unsigned k, uint8_t high, uint8_t round,
                       uint16_t need, uint32_t bits)
{
    size_t body = 4 + (k + 7) / 8;

    kit_expect(FMTP_REPAIR_REQ, index, group, (uint16_t)body);
    const uint8_t *bytes;
    assert_true(fmtp_receiver_output(kit.r, &bytes) >= body);
    assert_int_equal(bytes[0], high);
    assert_int_equal(bytes[1], round);
    assert_int_equal(bytes[2] << 8 | bytes[3], need);
    for (size_t i = 4; i < body && i < 8; i++)
        assert_int_equal(bytes[i], bits >> 8 * (i - 4) & 0xff);
    fmtp_receiver_sent(kit.r, body);
}

void kit_expect_nothing(void)
{
    const uint8_t *bytes;

    assert_int_equal(fmtp_receiver_output(kit.r, &bytes), 0);
}

size_t kit_drain(void)
{
    size_t n, all = 0;

    const uint8_t *bytes;
    while ((n = fmtp_receiver_output(kit.r, &bytes))) {
        fmtp_receiver_sent(kit.r, n);
        all += n;
    }
    return all;
}

void kit_advance(uint64_t ns)
{
    kit.now_ns += ns;
    fmtp_receiver_timeout(kit.r, kit.now_ns);
}

struct fmtp_client_stats kit_stats(void)
{
    struct fmtp_client_stats s;

    fmtp_receiver_get_stats(kit.r, &s);
    return s;
}

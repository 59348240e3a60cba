/* SPDX-License-Identifier: Apache-2.0 */
#include "sender_kit.h"

#include <string.h>

int nreleased;
uint32_t latest;
uint8_t product[30000];

static void released(void *ctx, uint32_t index, void *cookie, enum fmtp_release why)
{
    (void)ctx;
    (void)index;
    (void)cookie;
    (void)why;
    nreleased++;
}

const struct fmtp_sender_config common = {.layout = FMTP_LAYOUT_2021,
                                          .block_bytes = BLOCK,
                                          .overhead_bytes = 28,
                                          .fec_k = 10,
                                          .session_id = 77,
                                          .f_snd = 1e6,
                                          .r_mc_bps = 1120000,
                                          .max_products = 8,
                                          .max_peers = 4,
                                          .peer_queue_bytes = 4096,
                                          .released = released};

struct fmtp_sender *make(const struct fmtp_sender_config *cfg)
{
    nreleased = 0;
    for (size_t i = 0; i < sizeof product; i++)
        product[i] = (uint8_t)(i * 2654435761u >> 13);
    return fmtp_sender_new(cfg);
}

int peer(struct fmtp_sender *s, bool extended)
{
    int p = fmtp_sender_peer_add(s, extended, NULL);

    fmtp_sender_peer_rtt(s, p, 8 * MS);
    return p;
}

void offer(struct fmtp_sender *s, size_t size)
{
    struct iovec parts[2] = {{product, size / 3}, {product + size / 3, size - size / 3}};
    struct tp_error err;

    assert_int_equal(
        fmtp_sender_offer(
            s, &(struct fmtp_offer){.parts = parts, .nparts = 2, .meta = "m", .meta_len = 1},
            &latest, &err),
        0);
}

bool next(struct fmtp_sender *s, uint64_t now_ns, struct fmtp_header *h, uint8_t *payload)
{
    size_t len = 0;

    struct fmtp_datagram d;
    if (!fmtp_sender_has_output(s, now_ns)) {
        assert_int_equal(fmtp_sender_fill(s, &d, 1, now_ns), 0);
        return false;
    }
    assert_int_equal(fmtp_sender_fill(s, &d, 1, now_ns), 1);
    fmtp_header_get(d.head, h);
    for (int i = 1; i < d.niov; i++) {
        memcpy(payload + len, d.iov[i].iov_base, d.iov[i].iov_len);
        len += d.iov[i].iov_len;
    }
    assert_int_equal(len, h->payloadlen);
    fmtp_sender_sent(s, 1, now_ns);
    return true;
}

unsigned drain(struct fmtp_sender *s, uint64_t now_ns, unsigned *extra)
{
    unsigned n = 0;

    *extra = 0;
    struct fmtp_header h;
    uint8_t payload[BLOCK];
    for (; next(s, now_ns, &h, payload); n++)
        *extra += h.flags == FMTP_PARITY || h.flags == FMTP_REPAIR;
    return n;
}

void expect(struct fmtp_sender *s, uint64_t now_ns, uint16_t flags, uint32_t seqnum)
{
    uint8_t payload[BLOCK];

    struct fmtp_header h;
    assert_true(next(s, now_ns, &h, payload));
    assert_int_equal(h.flags, flags);
    assert_int_equal(h.seqnum, seqnum);
    if (flags == FMTP_REPAIR)
        assert_memory_equal(payload, product + seqnum, h.payloadlen);
}

void expect_none(struct fmtp_sender *s, uint64_t now_ns)
{
    assert_false(fmtp_sender_has_output(s, now_ns));
}

int put(struct fmtp_sender *s, int p, uint16_t flags, uint32_t index, uint32_t seq, uint16_t len)
{
    struct fmtp_header h = {index, seq, len, flags};
    uint8_t bytes[FMTP_HEADER_LEN];

    fmtp_header_put(bytes, &h);
    return fmtp_sender_peer_input(s, p, bytes, sizeof bytes, 0);
}

int ask_k(struct fmtp_sender *s, int p, uint32_t index, uint32_t group, unsigned k,
          struct fmtp_repair_req req, const void *bits, uint64_t now_ns)
{
    struct fmtp_header h = {index, group, (uint16_t)fmtp_repair_req_len(k), FMTP_REPAIR_REQ};

    req.bitmap = bits;
    uint8_t bytes[FMTP_HEADER_LEN + FMTP_REPAIR_REQ_MAX];
    fmtp_header_put(bytes, &h);
    fmtp_repair_req_put(bytes + FMTP_HEADER_LEN, &req, k);
    return fmtp_sender_peer_input(s, p, bytes, FMTP_HEADER_LEN + h.payloadlen, now_ns);
}

int ask(struct fmtp_sender *s, int p, uint32_t group, uint8_t high, uint8_t round, uint16_t need,
        uint16_t lost, uint64_t now_ns)
{
    uint8_t bits[2] = {(uint8_t)lost, (uint8_t)(lost >> 8)};

    return ask_k(s, p, latest, group, 10, (struct fmtp_repair_req){high, round, need, NULL}, bits,
                 now_ns);
}

void calm(struct fmtp_sender *s)
{
    offer(s, 30000);
    unsigned extra;
    assert_int_equal(drain(s, 0, &extra), 302);
    for (int p = 0; p < 4 && nreleased == 0; p++)
        put(s, p, FMTP_RETX_END, latest, 0, 0);
    assert_int_equal(nreleased, 1);
    nreleased = 0;
}

uint32_t parity(unsigned group, unsigned number, unsigned end)
{
    return group << 16 | number << 8 | end;
}

size_t stream(struct fmtp_sender *s, int p, uint8_t *bytes, size_t most, uint64_t now_ns)
{
    size_t len = 0;

    if (!fmtp_sender_peer_pending(s, p))
        return 0;
    struct fmtp_stream_out out;
    fmtp_sender_peer_peek(s, p, &out, now_ns);
    for (int i = 0; i < out.niov; i++)
        for (size_t b = 0; b < out.iov[i].iov_len && len < most; b++)
            bytes[len++] = ((uint8_t *)out.iov[i].iov_base)[b];
    fmtp_sender_peer_sent(s, p, len, now_ns);
    return len;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <string.h>

static void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)(v >> 16));
    put16(p + 2, (uint16_t)v);
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)get16(p) << 16 | get16(p + 2);
}

void fmtp_header_put(uint8_t out[FMTP_HEADER_LEN], const struct fmtp_header *h)
{
    put32(out, h->index);
    put32(out + 4, h->seqnum);
    put16(out + 8, h->payloadlen);
    put16(out + 10, h->flags);
}

void fmtp_header_get(const uint8_t in[FMTP_HEADER_LEN], struct fmtp_header *h)
{
    h->index = get32(in);
    h->seqnum = get32(in + 4);
    h->payloadlen = get16(in + 8);
    h->flags = get16(in + 10);
}

size_t fmtp_bop_fixed_len(enum fmtp_layout layout)
{
    return layout == FMTP_LAYOUT_2017 ? 6 : 18;
}

size_t fmtp_bop_put(enum fmtp_layout layout, uint8_t *out, const struct fmtp_bop *bop)
{
    uint8_t *p = out;

    if (layout == FMTP_LAYOUT_2021) {
        uint64_t seconds = (uint64_t)bop->start.tv_sec;
        put32(p, (uint32_t)(seconds >> 32));
        put32(p + 4, (uint32_t)seconds);
        put32(p + 8, (uint32_t)bop->start.tv_nsec);
        p += 12;
    }
    put32(p, bop->size_bytes);
    put16(p + 4, bop->meta_len);
    if (bop->meta_len)
        memcpy(p + 6, bop->meta, bop->meta_len);
    return (size_t)(p - out) + 6 + bop->meta_len;
}

int fmtp_bop_get(enum fmtp_layout layout, const uint8_t *body, size_t len, struct fmtp_bop *bop)
{
    const uint8_t *p = body;
    size_t fixed = fmtp_bop_fixed_len(layout);

    if (len < fixed)
        return -1;
    memset(bop, 0, sizeof *bop);
    if (layout == FMTP_LAYOUT_2021) {
        uint64_t seconds = (uint64_t)get32(p) << 32 | get32(p + 4);
        uint32_t ns = get32(p + 8);
        if (seconds > INT64_MAX || ns > 999999999u)
            return -1;
        bop->start.tv_sec = (time_t)seconds;
        bop->start.tv_nsec = (long)ns;
        p += 12;
    }
    bop->size_bytes = get32(p);
    bop->meta_len = get16(p + 4);
    bop->meta = p + 6;
    if (layout == FMTP_LAYOUT_2017 ? len != fixed + bop->meta_len : len < fixed + bop->meta_len)
        return -1;
    return 0;
}

size_t fmtp_repair_req_put(uint8_t *out, const struct fmtp_repair_req *req, unsigned k)
{
    out[0] = req->high;
    out[1] = req->round;
    put16(out + 2, req->need);
    memcpy(out + FMTP_REPAIR_REQ_FIXED, req->bitmap, (k + 7) / 8);
    return fmtp_repair_req_len(k);
}

int fmtp_repair_req_get(const uint8_t *body, size_t len, unsigned k, struct fmtp_repair_req *req)
{
    unsigned bits = 0;

    if (len != fmtp_repair_req_len(k))
        return -1;
    *req =
        (struct fmtp_repair_req){body[0], body[1], get16(body + 2), body + FMTP_REPAIR_REQ_FIXED};
    for (unsigned i = 0; i < (k + 7) / 8; i++)
        bits += (unsigned)__builtin_popcount(req->bitmap[i]);
    if (k % 8 && req->bitmap[k / 8] >> (k % 8))
        return -1;
    return req->need == 0 || req->need > bits ? -1 : 0;
}

uint64_t fmtp_scaled_ns(double factor, double ns)
{
    if (!(factor > 0))
        return 0;
    ns *= factor;
    return ns >= 9e18 ? UINT64_C(9000000000000000000) : (uint64_t)(ns + 0.5);
}

uint64_t fmtp_scaled_tx_ns(double factor, uint32_t size_bytes, uint64_t rate_bps)
{
    if (rate_bps == 0)
        return 0;
    return fmtp_scaled_ns(factor, (double)size_bytes * 8.0 * 1e9 / (double)rate_bps);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "ldmrpc.h"

#define CALL 0u
#define REPLY 1u
#define AUTH_BYTES_MAX 400u /* RFC 5531 8.2 */
#define HEAD_STEP 1024u     /* bytes collected between two attempts to decode a head */

static void xin_auth(struct xin *x)
{
    xin_u32(x);
    uint32_t n = xin_u32(x);
    if (x->st == XIN_OK && n > AUTH_BYTES_MAX)
        x->st = XIN_BAD;
    else
        xin_opaque(x, NULL, n);
}

static void xin_reply(struct xin *x, struct rpc_msg *out)
{
    uint32_t reply_stat = xin_u32(x);

    out->is_reply = true;
    if (x->st != XIN_OK)
        return;
    if (reply_stat > 1) {
        x->st = XIN_BAD;
        return;
    }
    out->denied = reply_stat == 1;
    if (!out->denied)
        xin_auth(x);
    out->stat = xin_u32(x);
    if (out->denied && out->stat == 1) {
        out->auth_stat = xin_u32(x);
    } else if (out->denied || out->stat == RPC_PROG_MISMATCH) {
        out->low = xin_u32(x);
        out->high = xin_u32(x);
    }
}

void xin_msg(struct xin *x, struct rpc_msg *out)
{
    memset(out, 0, sizeof *out);
    out->xid = xin_u32(x);
    uint32_t type = xin_u32(x);
    if (x->st != XIN_OK)
        return;
    if (type == REPLY) {
        xin_reply(x, out);
        return;
    }
    if (type != CALL || (xin_u32(x) != 2 && x->st == XIN_OK)) {
        x->st = XIN_BAD;
        return;
    }
    out->prog = xin_u32(x);
    out->vers = xin_u32(x);
    out->proc = xin_u32(x);
    xin_auth(x);
    xin_auth(x);
}

void rpc_begin_call(struct xout *x, uint32_t xid, uint32_t vers, uint32_t proc)
{
    const uint32_t words[] = {0, xid, CALL, 2, LDM_PROGRAM, vers, proc, 0, 0, 0, 0};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        xout_u32(x, words[i]);
}

void rpc_begin_reply(struct xout *x, uint32_t xid, enum rpc_accept stat)
{
    const uint32_t words[] = {0, xid, REPLY, 0, 0, 0, stat};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        xout_u32(x, words[i]);
    if (stat == RPC_PROG_MISMATCH) {
        xout_u32(x, LDM_VERS6);
        xout_u32(x, LDM_VERS7);
    }
}

void rpc_begin_denied(struct xout *x, uint32_t xid, enum rpc_auth why)
{
    const uint32_t words[] = {0, xid, REPLY, 1, 1, why};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        xout_u32(x, words[i]);
}

void rpc_finish(struct xout *x, size_t extra, bool last)
{
    struct xout mark;

    xout_init(&mark, x->buf, 4);
    xout_u32(&mark, (uint32_t)(x->len - 4 + extra) | (last ? 0x80000000u : 0));
}

/* ------------------------------------------------------------------ receiving */

void rpc_stream_init(struct rpc_stream *s, const struct rpc_sink *sink)
{
    memset(s, 0, offsetof(struct rpc_stream, head));
    s->sink = *sink;
}

static int fail(struct rpc_stream *s, const char *why)
{
    s->error = why;
    return -1;
}

static bool carries_product(const struct rpc_msg *m)
{
    if (m->is_reply || m->prog != LDM_PROGRAM)
        return false;
    if (m->vers == LDM_VERS6)
        return m->proc == LDM6_HEREIS || m->proc == LDM6_BLKDATA;
    return m->vers == LDM_VERS7 &&
           (m->proc == LDM7_DELIVER_MISSED || m->proc == LDM7_DELIVER_BACKLOG);
}

/* Handles bytes of the record that follow the head: product data, then padding. */
static int bulk_bytes(struct rpc_stream *s, const uint8_t *bytes, size_t n)
{
    size_t k = n < s->data_left ? n : s->data_left;

    if (s->region && k > 0) {
        if (bytes != s->region)
            memcpy(s->region, bytes, k);
        s->region += k;
    }
    s->data_left -= (uint32_t)k;
    n -= k;
    if (n > s->pad_left)
        return fail(s, "record longer than its product");
    s->pad_left -= (uint8_t)n;
    return 0;
}

/* From here on the record's bytes are data. x: those that were already read. */
static int begin_bulk(struct rpc_stream *s, uint32_t size, struct xin *x)
{
    s->bulk = true;
    s->data_left = size;
    s->pad_left = (uint8_t)xdr_pad(size);
    return bulk_bytes(s, x->p, xin_left(x));
}

static int try_block(struct rpc_stream *s, struct xin *x)
{
    if (!s->sink.block_begin)
        return fail(s, "unexpected block of a product");
    struct ldm_block b;
    xin_block(x, &b);
    if (x->st != XIN_OK)
        return 0;
    s->region = NULL;
    if (!s->sink.block_begin(s->sink.ctx, &b, &s->region))
        return fail(s, "block of a product refused");
    return begin_bulk(s, b.size, x);
}

static int try_product(struct rpc_stream *s, const struct rpc_msg *m, struct xin *x)
{
    uint32_t index = 0;

    if (m->vers == LDM_VERS6 && m->proc == LDM6_BLKDATA)
        return try_block(s, x);
    if (!s->sink.product_begin)
        return fail(s, "unexpected product");
    if (m->vers == LDM_VERS7 && m->proc == LDM7_DELIVER_MISSED)
        index = xin_u32(x);
    struct pq_info info;
    xin_info(x, &info);
    if (x->st == XIN_BAD)
        return fail(s, "malformed product information");
    if (x->st == XIN_SHORT)
        return 0;
    s->region = NULL;
    if (!s->sink.product_begin(s->sink.ctx, m, index, &info, &s->region))
        return fail(s, "product refused");
    return begin_bulk(s, info.size, x);
}

/* Examines what has been collected of the record. complete: it is the whole record. */
static int try_head(struct rpc_stream *s, bool complete)
{
    struct xin x;
    xin_init(&x, s->head, s->head_len);
    struct rpc_msg m;
    xin_msg(&x, &m);
    if (x.st == XIN_BAD)
        return fail(s, "malformed RPC header");
    if (x.st == XIN_OK && carries_product(&m)) {
        if (try_product(s, &m, &x) < 0)
            return -1;
        if (s->bulk || !complete)
            return 0;
    }
    if (!complete)
        return 0;
    if (x.st == XIN_SHORT)
        return fail(s, "record shorter than its header");
    xin_init(&x, x.p, xin_left(&x));
    bool ok = m.is_reply ? s->sink.reply(s->sink.ctx, &m, &x) : s->sink.call(s->sink.ctx, &m, &x);
    return ok ? 0 : fail(s, "call or reply refused");
}

static int end_of_record(struct rpc_stream *s)
{
    int rc = 0;

    s->records++;
    if (s->bulk) {
        if (s->data_left > 0 || s->pad_left > 0)
            return fail(s, "record shorter than its product");
        s->bulk = false;
        s->region = NULL;
        if (!s->sink.product_end(s->sink.ctx))
            rc = fail(s, "product refused at its end");
    }
    s->head_len = 0;
    s->mark_len = 0;
    return rc;
}

static int after_bytes(struct rpc_stream *s, size_t n)
{
    s->frag_left -= (uint32_t)n;
    if (s->frag_left > 0)
        return 0;
    if (s->last)
        return end_of_record(s);
    s->mark_len = 0;
    return 0;
}

static int take_mark(struct rpc_stream *s, uint8_t byte)
{
    s->mark[s->mark_len++] = byte;
    if (s->mark_len < 4)
        return 0;
    s->last = (s->mark[0] & 0x80) != 0;
    s->frag_left = (uint32_t)(s->mark[0] & 0x7f) << 24 | (uint32_t)s->mark[1] << 16 |
                   (uint32_t)s->mark[2] << 8 | s->mark[3];
    if (s->frag_left > 0)
        return 0;
    if (s->last && !s->bulk && try_head(s, true) < 0)
        return -1;
    return after_bytes(s, 0);
}

static int take_bytes(struct rpc_stream *s, const uint8_t *bytes, size_t n)
{
    if (s->bulk) {
        if (bulk_bytes(s, bytes, n) < 0)
            return -1;
        return after_bytes(s, n);
    }
    if (n > sizeof s->head - s->head_len)
        return fail(s, "record too long");
    memcpy(s->head + s->head_len, bytes, n);
    s->head_len += n;
    if (try_head(s, s->last && n == s->frag_left) < 0)
        return -1;
    return after_bytes(s, n);
}

int rpc_stream_feed(struct rpc_stream *s, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        size_t k = 1;
        int rc;

        if (s->mark_len < 4) {
            rc = take_mark(s, *bytes);
        } else {
            k = n < s->frag_left ? n : s->frag_left;
            if (!s->bulk && k > HEAD_STEP)
                k = HEAD_STEP;
            rc = take_bytes(s, bytes, k);
        }
        if (rc < 0)
            return -1;
        bytes += k;
        n -= k;
    }
    return 0;
}

uint8_t *rpc_stream_direct(struct rpc_stream *s, size_t *max)
{
    if (!s->bulk || !s->region || s->mark_len < 4 || s->data_left == 0)
        return NULL;
    *max = s->data_left < s->frag_left ? s->data_left : s->frag_left;
    return s->region;
}

int rpc_stream_direct_done(struct rpc_stream *s, size_t n)
{
    return take_bytes(s, s->region, n);
}

void rpc_stream_end(struct rpc_stream *s)
{
    if (!s->bulk)
        return;
    s->bulk = false;
    s->region = NULL;
    if (s->sink.product_abort)
        s->sink.product_abort(s->sink.ctx);
}

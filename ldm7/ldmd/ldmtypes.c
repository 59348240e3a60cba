/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>

#include "ldmrpc.h"

static const char *const status_names[LDM7_STATUS_COUNT] = {
    "OK",           "logic error",      "interrupted",     "timed out",
    "RPC error",    "invalid argument", "not authorized",  "IPv6 not supported",
    "refused",      "system error",     "multicast error", "shutting down",
    "no such feed", "duplicate",        "exists already",  "product-queue error",
    "no receivers"};

const char *ldm7_strstatus(uint32_t status)
{
    return status < LDM7_STATUS_COUNT ? status_names[status] : "unknown status";
}

int ldm_time_cmp(struct ldm_time a, struct ldm_time b)
{
    if (a.sec != b.sec)
        return a.sec < b.sec ? -1 : 1;
    return a.usec < b.usec ? -1 : a.usec > b.usec;
}

static struct ldm_time xin_time(struct xin *x)
{
    struct ldm_time t;

    t.sec = xin_u32(x);
    t.usec = (int32_t)xin_u32(x);
    return t;
}

static void xout_time(struct xout *x, struct ldm_time t)
{
    xout_u32(x, t.sec);
    xout_u32(x, (uint32_t)t.usec);
}

void xin_class(struct xin *x, struct ldm_class *out)
{
    out->from = xin_time(x);
    out->to = xin_time(x);
    out->n = xin_u32(x);
    if (out->n > LDM_MAX_SPECS) {
        x->st = XIN_BAD;
        out->n = 0;
    }
    for (uint32_t i = 0; i < out->n; i++) {
        out->specs[i].feedtype = xin_u32(x);
        xin_string(x, out->specs[i].pattern, LDM_PATTERN_MAX);
    }
    if (x->st != XIN_OK)
        out->n = 0;
}

void xout_class(struct xout *x, const struct ldm_class *c)
{
    xout_time(x, c->from);
    xout_time(x, c->to);
    xout_u32(x, c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        xout_u32(x, c->specs[i].feedtype);
        xout_string(x, c->specs[i].pattern);
    }
}

void xin_info(struct xin *x, struct pq_info *out)
{
    memset(out, 0, sizeof *out);
    struct ldm_time t = xin_time(x);
    out->creation.tv_sec = t.sec;
    out->creation.tv_usec = t.usec;
    xin_opaque(x, out->signature.bytes, sizeof out->signature.bytes);
    xin_string(x, out->origin, PQ_ORIGIN_MAX);
    out->feedtype = xin_u32(x);
    out->seqno = xin_u32(x);
    xin_string(x, out->ident, PQ_IDENT_MAX);
    out->size = xin_u32(x);
    if (x->st == XIN_OK && (t.usec < 0 || t.usec > 999999))
        x->st = XIN_BAD;
}

void xout_info(struct xout *x, const struct pq_info *info)
{
    xout_u32(x, (uint32_t)info->creation.tv_sec);
    xout_u32(x, (uint32_t)info->creation.tv_usec);
    xout_opaque(x, info->signature.bytes, sizeof info->signature.bytes);
    xout_string(x, info->origin);
    xout_u32(x, info->feedtype);
    xout_u32(x, info->seqno);
    xout_string(x, info->ident);
    xout_u32(x, info->size);
}

size_t xdr_info_size(const struct pq_info *info)
{
    size_t o = strlen(info->origin), i = strlen(info->ident);

    return 44 + o + xdr_pad(o) + i + xdr_pad(i);
}

void xin_block(struct xin *x, struct ldm_block *out)
{
    xin_opaque(x, out->signature.bytes, sizeof out->signature.bytes);
    out->pktnum = xin_u32(x);
    out->size = xin_u32(x);
}

void xout_block(struct xout *x, const struct ldm_block *b)
{
    xout_opaque(x, b->signature.bytes, sizeof b->signature.bytes);
    xout_u32(x, b->pktnum);
    xout_u32(x, b->size);
}

void xin_ldm6_reply(struct xin *x, bool of_hiya, struct ldm6_reply *out)
{
    out->value = 0;
    out->cls.n = 0;
    out->code = xin_u32(x);
    if (out->code == LDM6_RECLASS)
        xin_class(x, &out->cls);
    if (out->code == LDM6_OK || (out->code == LDM6_RECLASS && of_hiya))
        out->value = xin_u32(x);
}

void xout_ldm6_reply(struct xout *x, bool of_hiya, const struct ldm6_reply *r)
{
    xout_u32(x, r->code);
    if (r->code == LDM6_RECLASS)
        xout_class(x, &r->cls);
    if (r->code == LDM6_OK || (r->code == LDM6_RECLASS && of_hiya))
        xout_u32(x, r->value);
}

void xin_subscription(struct xin *x, struct ldm7_subscription *out)
{
    out->feed = xin_u32(x);
    xin_string(x, out->switch_id, LDM_ENDPOINT_MAX);
    xin_string(x, out->port_id, LDM_ENDPOINT_MAX);
    out->vlan = xin_u32(x);
    if (x->st == XIN_OK && out->vlan > 0xffff)
        x->st = XIN_BAD;
}

void xout_subscription(struct xout *x, const struct ldm7_subscription *s)
{
    xout_u32(x, s->feed);
    xout_string(x, s->switch_id);
    xout_string(x, s->port_id);
    xout_u32(x, s->vlan);
}

/* The original converts an in_addr through a 32-bit integer on little-endian machines: the
 * address's bytes appear reversed on the wire (LDM-6.13.17). */
static uint32_t reversed(struct in_addr a)
{
    return __builtin_bswap32(ntohl(a.s_addr));
}

void xin_subscription_reply(struct xin *x, struct ldm7_reply *out)
{
    memset(out, 0, sizeof *out);
    out->status = xin_u32(x);
    if (x->st != XIN_OK || out->status != LDM7_OK)
        return;
    out->feed = xin_u32(x);
    xin_string(x, out->group, sizeof out->group - 1);
    xin_string(x, out->server, sizeof out->server - 1);
    out->addr.s_addr = htonl(__builtin_bswap32(xin_u32(x)));
    out->prefix_len = xin_u32(x);
    if (x->st == XIN_OK && out->prefix_len > 32)
        x->st = XIN_BAD;
}

void xout_subscription_reply(struct xout *x, const struct ldm7_reply *r)
{
    xout_u32(x, r->status);
    if (r->status != LDM7_OK)
        return;
    xout_u32(x, r->feed);
    xout_string(x, r->group);
    xout_string(x, r->server);
    xout_u32(x, reversed(r->addr));
    xout_u32(x, r->prefix_len);
}

void xin_backlog(struct xin *x, struct ldm7_backlog *out)
{
    xin_opaque(x, out->after.bytes, sizeof out->after.bytes);
    out->after_is_set = xin_u32(x) != 0;
    xin_opaque(x, out->before.bytes, sizeof out->before.bytes);
    out->time_offset_s = xin_u32(x);
}

void xout_backlog(struct xout *x, const struct ldm7_backlog *b)
{
    xout_opaque(x, b->after.bytes, sizeof b->after.bytes);
    xout_u32(x, b->after_is_set);
    xout_opaque(x, b->before.bytes, sizeof b->before.bytes);
    xout_u32(x, b->time_offset_s);
}

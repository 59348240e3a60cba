/* SPDX-License-Identifier: Apache-2.0 */
#include "xdr.h"

#include <arpa/inet.h>

static bool xin_take(struct xin *x, size_t n)
{
    if (x->st != XIN_OK)
        return false;
    if (xin_left(x) < n) {
        x->st = XIN_SHORT;
        return false;
    }
    return true;
}

uint32_t xin_u32(struct xin *x)
{
    if (!xin_take(x, 4))
        return 0;
    uint32_t v;
    memcpy(&v, x->p, 4);
    x->p += 4;
    return ntohl(v);
}

void xin_opaque(struct xin *x, void *out, size_t n)
{
    if (!xin_take(x, n + xdr_pad(n))) {
        if (out)
            memset(out, 0, n);
        return;
    }
    if (out)
        memcpy(out, x->p, n);
    x->p += n + xdr_pad(n);
}

void xin_string(struct xin *x, char *out, uint32_t max)
{
    uint32_t n = xin_u32(x);

    out[0] = '\0';
    if (x->st != XIN_OK)
        return;
    if (n > max) {
        x->st = XIN_BAD;
        return;
    }
    xin_opaque(x, out, n);
    if (x->st != XIN_OK) {
        out[0] = '\0';
        return;
    }
    out[n] = '\0';
    if (memchr(out, '\0', n))
        x->st = XIN_BAD;
}

void xout_init(struct xout *x, void *buf, size_t cap)
{
    x->buf = buf;
    x->cap = cap;
    x->len = 0;
    x->overflow = false;
}

static uint8_t *xout_room(struct xout *x, size_t n)
{
    if (x->overflow || x->cap - x->len < n) {
        x->overflow = true;
        return NULL;
    }
    uint8_t *at = x->buf + x->len;
    x->len += n;
    return at;
}

void xout_u32(struct xout *x, uint32_t v)
{
    uint8_t *at = xout_room(x, 4);

    v = htonl(v);
    if (at)
        memcpy(at, &v, 4);
}

void xout_opaque(struct xout *x, const void *bytes, size_t n)
{
    uint8_t *at = xout_room(x, n + xdr_pad(n));

    if (!at)
        return;
    if (n > 0)
        memcpy(at, bytes, n);
    memset(at + n, 0, xdr_pad(n));
}

void xout_string(struct xout *x, const char *s)
{
    size_t n = strlen(s);

    xout_u32(x, (uint32_t)n);
    xout_opaque(x, s, n);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * XDR (RFC 4506) cursor for reading and writing, without allocation.
 *
 * Our own code instead of libtirpc's xdrmem: LDM encodes optional pointers inline (LDM-6.15.0), and
 * a streaming receiver must distinguish "not enough bytes yet" from "malformed", which xdrmem
 * cannot.
 */
#ifndef LDMD_XDR_H
#define LDMD_XDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum xin_status { XIN_OK = 0, XIN_SHORT /* more bytes needed */, XIN_BAD /* malformed */ };

/* Reading. After the first failure every further read returns zeroes and keeps the status. */
struct xin {
    const uint8_t *start, *p, *end;
    enum xin_status st;
};

/* Writing. Sets overflow instead of writing past cap. */
struct xout {
    uint8_t *buf;
    size_t cap, len;
    bool overflow;
};

/* Returns the bytes of padding after n bytes. */
static inline size_t xdr_pad(size_t n)
{
    return (4u - (n & 3u)) & 3u;
}

/* Reads n bytes, which must remain valid. */
static inline void xin_init(struct xin *x, const void *bytes, size_t n)
{
    x->start = x->p = bytes;
    x->end = x->p + n;
    x->st = XIN_OK;
}

/* Returns the number of bytes read so far. */
static inline size_t xin_used(const struct xin *x)
{
    return (size_t)(x->p - x->start);
}

/* Returns the number of bytes not yet read. */
static inline size_t xin_left(const struct xin *x)
{
    return (size_t)(x->end - x->p);
}

/* Returns whether everything was consumed without an error. */
static inline bool xin_done(const struct xin *x)
{
    return x->st == XIN_OK && x->p == x->end;
}

/* Reads an unsigned int, enum or bool. */
uint32_t xin_u32(struct xin *x);
/* Reads n bytes plus padding to a multiple of 4 (RFC 4506 4.9); out may be NULL to skip them. */
void xin_opaque(struct xin *x, void *out, size_t n);
/* Reads a length word, at most max bytes, and padding. out has max+1 bytes and gets a terminating
 * NUL. Strings that contain a NUL are malformed here. */
void xin_string(struct xin *x, char *out, uint32_t max);

/* Writes to buf, at most cap bytes. */
void xout_init(struct xout *x, void *buf, size_t cap);
/* Writes an unsigned int, enum or bool. */
void xout_u32(struct xout *x, uint32_t v);
/* Writes n bytes and their padding, without a length word. */
void xout_opaque(struct xout *x, const void *bytes, size_t n);
/* Writes a length word, bytes and padding. */
void xout_string(struct xout *x, const char *s);

#endif

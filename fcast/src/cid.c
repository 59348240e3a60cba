/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of a Carousel Instance Descriptor (RFC 6968).
 */
#include <stdio.h>
#include <string.h>

#include "object.h"

struct text {
    const uint8_t *at, *end;
};

static bool take(struct text *t, uint8_t c)
{
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_number(struct text *t, uint64_t *out)
{
    const uint8_t *begin = t->at;
    uint64_t n = 0;

    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        unsigned digit = *t->at - '0';
        if (n > (UINT64_MAX - digit) / 10)
            return false;
        n = 10 * n + digit;
    }
    *out = n;
    return t->at > begin;
}

/* `7`, `4-6` or `(100=10/2)`. */
static bool take_range(struct text *t, struct fcast_range *out)
{
    uint64_t first, instance;

    *out = (struct fcast_range){0};
    if (take(t, '(')) {
        bool good = take_number(t, &out->first) && take(t, '=') && take_number(t, &first) &&
                    take(t, '/') && take_number(t, &instance) && take(t, ')');
        out->last = out->first;
        return good;
    }
    if (!take_number(t, &out->first))
        return false;
    out->last = out->first;
    return !take(t, '-') || (take_number(t, &out->last) && out->last > out->first);
}

static void insert(struct fcast_cid *cid, struct fcast_range one)
{
    unsigned at = cid->count++;

    for (; at && cid->ranges[at - 1].first > one.first; at--)
        cid->ranges[at] = cid->ranges[at - 1];
    cid->ranges[at] = one;
}

bool fcast_cid_get(const uint8_t *bytes, size_t len, struct fcast_cid *out)
{
    struct text t = {bytes, bytes + len};

    out->count = 0;
    while (t.end > t.at && strchr(" \t\r\n", t.end[-1]) && t.end[-1])
        t.end--;
    if (t.at == t.end)
        return true;
    do {
        struct fcast_range one;
        if (out->count == FCAST_CID_RANGES_MAX || !take_range(&t, &one))
            return false;
        insert(out, one);
    } while (take(&t, ','));
    return t.at == t.end;
}

size_t fcast_cid_put(uint8_t *out, size_t room, const struct fcast_cid *cid)
{
    size_t used = 0;

    for (unsigned i = 0; i < cid->count; i++) {
        const struct fcast_range *r = &cid->ranges[i];
        char text[48];
        int n =
            r->first == r->last
                ? snprintf(text, sizeof text, "%s%llu", i ? "," : "", (unsigned long long)r->first)
                : snprintf(text, sizeof text, "%s%llu-%llu", i ? "," : "",
                           (unsigned long long)r->first, (unsigned long long)r->last);
        if (used + (size_t)n > room)
            return 0;
        memcpy(out + used, text, (size_t)n);
        used += (size_t)n;
    }
    return used;
}

bool fcast_cid_has(const struct fcast_cid *cid, uint64_t toi)
{
    for (unsigned i = 0; i < cid->count; i++)
        if (toi >= cid->ranges[i].first && toi <= cid->ranges[i].last)
            return true;
    return false;
}

bool fcast_cid_add(struct fcast_cid *cid, uint64_t toi)
{
    if (cid->count && cid->ranges[cid->count - 1].last + 1 == toi) {
        cid->ranges[cid->count - 1].last = toi;
        return true;
    }
    if (cid->count == FCAST_CID_RANGES_MAX)
        return false;
    cid->ranges[cid->count++] = (struct fcast_range){toi, toi};
    return true;
}

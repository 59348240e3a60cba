/* SPDX-License-Identifier: Apache-2.0 */
#include "autoshift.h"

static void restart(struct autoshift *a, uint64_t now)
{
    a->since_ns = now;
    a->accepted = a->rejected = 0;
}

void autoshift_init(struct autoshift *a, size_t upstreams, size_t place, uint64_t now)
{
    a->upstreams = upstreams;
    a->primary = place == 0;
    restart(a, now);
}

bool autoshift_product(struct autoshift *a, bool accepted, uint64_t now)
{
    if (a->upstreams <= 1)
        return false;
    if (accepted)
        a->accepted++;
    else
        a->rejected++;
    if (now < a->since_ns + AUTOSHIFT_S * 1000000000ull)
        return false;
    uint64_t others = a->upstreams - 1; /* to compare with rejected / (N - 1) */
    bool shift =
        a->primary ? a->accepted * others <= a->rejected : a->accepted * others >= a->rejected;
    if (shift)
        a->primary = !a->primary;
    restart(a, now);
    return shift;
}

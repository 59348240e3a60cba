/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <stdlib.h>
#include <string.h>

#include "process.h"

/* Processes for unknown addresses: rates for recent ones, for others, and for each address. */
#define PER_S 25u
#define BURST 32u
#define ONE_PER_S 1u
#define ONE_BURST 8u
#define ADDRESSES 512u

struct place {
    bool taken, known;
    struct in_addr from;
    uint64_t since_ns;
};

struct bucket {
    uint32_t addr;
    uint64_t due_ns;
};

struct places {
    struct places_limits limits;
    struct visitors *visitors;
    bool is_known; /* of the address checked last */
    uint64_t refused, due_ns, new_due_ns;
    struct bucket buckets[ADDRESSES]; /* of unknown addresses that connected recently */
    struct place places[];
};

struct places *places_new(const struct places_limits *limits)
{
    struct places *p = calloc(1, sizeof *p + limits->clients * sizeof p->places[0]);

    if (!p)
        return NULL;
    p->limits = *limits;
    p->visitors = visitors_new(limits->clients);
    if (p->visitors)
        return p;
    free(p);
    return NULL;
}

void places_free(struct places *p)
{
    if (p)
        visitors_free(p->visitors);
    free(p);
}

/* ------------------------------------------------------------------ how often */

static bool take(uint64_t *due_ns, uint64_t now, unsigned per_s, unsigned burst)
{
    uint64_t each_ns = NS_PER_S / per_s, saved_ns = (burst - 1) * each_ns;
    uint64_t earliest = now > saved_ns ? now - saved_ns : 0;

    if (*due_ns < earliest)
        *due_ns = earliest;
    if (*due_ns > now)
        return false;
    *due_ns += each_ns;
    return true;
}

static struct bucket *bucket_of(struct places *p, struct in_addr from)
{
    struct bucket *found = &p->buckets[0];

    for (size_t i = 0; i < ADDRESSES; i++) {
        struct bucket *b = &p->buckets[i];
        if (b->addr == from.s_addr)
            return b;
        if (b->due_ns < found->due_ns)
            found = b;
    }
    *found = (struct bucket){.addr = from.s_addr};
    return found;
}

/* Unknown addresses that come and go cause a bounded number of processes, only a few per address,
 * and frequent ones do not use up the share of a rare one. */
static bool is_slow(struct places *p, struct in_addr from, uint64_t now)
{
    struct bucket *b = bucket_of(p, from);
    bool is_new = b->due_ns + ONE_BURST * NS_PER_S / ONE_PER_S <= now;

    return take(&b->due_ns, now, ONE_PER_S, ONE_BURST) &&
           take(is_new ? &p->new_due_ns : &p->due_ns, now, PER_S, BURST);
}

/* ------------------------------------------------------------------ how many */

static bool is_unknown(const struct places *p, size_t i)
{
    return p->places[i].taken && !p->places[i].known && !visitors_is_in(p->visitors, i);
}

static unsigned unknown_of(const struct places *p, struct in_addr from)
{
    unsigned n = 0;

    for (size_t i = 0; i < p->limits.clients; i++)
        n += is_unknown(p, i) && p->places[i].from.s_addr == from.s_addr;
    return n;
}

/* Returns the connection to displace among the unknown ones: the oldest of the address that has the
 * most, counting one more for `from`. */
static size_t to_displace(const struct places *p, struct in_addr from)
{
    size_t found = PLACES_NONE;
    unsigned most = 0;

    for (size_t i = 0; i < p->limits.clients; i++) {
        const struct place *at = &p->places[i];
        if (!is_unknown(p, i))
            continue;
        unsigned n = unknown_of(p, at->from) + (at->from.s_addr == from.s_addr);
        if (n > most || (n == most && at->since_ns < p->places[found].since_ns)) {
            most = n;
            found = i;
        }
    }
    return found;
}

struct census {
    size_t room; /* PLACES_NONE: all are taken */
    unsigned same, unknown, same_unknown;
};

static struct census count(const struct places *p, struct in_addr from)
{
    struct census c = {.room = PLACES_NONE};

    for (size_t i = 0; i < p->limits.clients; i++) {
        const struct place *at = &p->places[i];
        bool same = at->taken && at->from.s_addr == from.s_addr;

        if (!at->taken)
            c.room = i;
        c.same += same;
        c.unknown += is_unknown(p, i);
        c.same_unknown += same && is_unknown(p, i);
    }
    return c;
}

static enum places_verdict decide(struct places *p, struct in_addr from, uint64_t now_ns,
                                  size_t *place, size_t *leaves)
{
    struct census c = count(p, from);
    unsigned each = (p->limits.unknown + 7) / 8;
    bool crowded = c.room == PLACES_NONE;

    if (c.same >= p->limits.per_address)
        return PLACES_TOO_MANY;
    if (!p->is_known) {
        if (c.same_unknown >= (each > 2 ? each : 2))
            return PLACES_TOO_MANY;
        if (!is_slow(p, from, now_ns))
            return PLACES_TOO_FAST;
        crowded = crowded || c.unknown >= p->limits.unknown;
    }
    *place = c.room;
    if (!crowded)
        return PLACES_TAKEN;
    *leaves = *place = to_displace(p, from);
    return *place != PLACES_NONE ? PLACES_TAKEN : PLACES_FULL;
}

enum places_verdict places_take(struct places *p, struct in_addr from, bool is_named,
                                uint64_t now_ns, size_t *place, size_t *leaves)
{
    *place = *leaves = PLACES_NONE;
    p->is_known = is_named || visitors_knows(p->visitors, from, now_ns / NS_PER_S);
    enum places_verdict v = decide(p, from, now_ns, place, leaves);
    p->refused += v != PLACES_TAKEN;
    return v;
}

const char *places_strverdict(enum places_verdict v)
{
    static const char *const text[] = {
        "accepted", "refused: its address already has the most connections allowed",
        "refused: too many connections from addresses that no entry names",
        "refused: all places are taken"};

    return text[v];
}

void places_enter(struct places *p, size_t place, struct in_addr from, uint64_t now_ns)
{
    p->places[place] =
        (struct place){.taken = true, .known = p->is_known, .from = from, .since_ns = now_ns};
    visitors_arrive(p->visitors, place);
}

void places_leave(struct places *p, size_t place)
{
    p->places[place].taken = false;
}

struct visitor places_visitor(const struct places *p, size_t place)
{
    return (struct visitor){p->visitors, place, p->places[place].known};
}

uint64_t places_refused(const struct places *p)
{
    return p->refused;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which connections get a place at the server when there are not enough: decided by host, so that
 * no host takes all places.
 */
#include "places.h"

/* A connection of the same host that has been silent this long may be dead. */
#define STALE_NS UINT64_C(5000000000)
enum {
    EXCHANGES_MIN = 64,
    SLACK = 4 /* a host with this many more than another has taken too many */
};

static struct fmtp_grant grant_of(const struct fmtp_server *s, const struct conn *c)
{
    if (s->cfg.grant)
        return s->cfg.grant(s->cfg.ctx, (const struct sockaddr *)&c->addr);
    return (struct fmtp_grant){.places = s->cfg.max_per_address};
}

/* Returns whether the connection belongs to a host or a network. */
static bool belongs(const struct conn *c, const struct fmtp_host *to)
{
    return !to || c->host == to || c->host->net == to;
}

struct conn *fmtp_places_handshake(const struct fmtp_server *s, const struct fmtp_host *host)
{
    const enum fmtp_use use = FMTP_USE_HANDSHAKE;

    if (s->nhandshakes < s->cfg.max_handshakes)
        return NULL;
    const struct fmtp_host *from = fmtp_hosts_heaviest(&s->hosts.hosts, use);
    if (host->count[use] >= from->count[use]) {
        from = host;
    } else if (from->count[use] <= host->count[use] + 1) {
        from = fmtp_hosts_heaviest(&s->hosts.nets, use);
        if (host->net->count[use] >= from->count[use])
            from = host->net;
    }
    struct conn *c;
    TAILQ_FOREACH (c, &s->handshakes, link)
        if (belongs(c, from))
            return c; /* it has had the most time */
    return TAILQ_FIRST(&s->handshakes);
}

/* Returns the host's receiver that has been silent longest. */
static struct conn *most_silent(const struct fmtp_server *s, const struct fmtp_host *of)
{
    struct conn *c, *found = NULL;

    TAILQ_FOREACH (c, &s->established, link)
        if (belongs(c, of) && (!found || c->heard_ns < found->heard_ns))
            found = c;
    return found;
}

/* Returns whether a is worth less than b, which connected earlier. */
static bool is_less(const struct conn *a, const struct conn *b)
{
    if (a->acks != b->acks)
        return a->acks < b->acks;
    return a->acks || a->heard_ns < b->heard_ns;
}

/* Finds the least valuable receiver of that host or network (NULL: of all) that is not reserved:
 * the one that acknowledged the fewest products; if none acknowledged any, the one silent longest;
 * else the latest, because an attacker can acknowledge products too. */
static struct conn *least_worth(const struct fmtp_server *s, const struct fmtp_host *of)
{
    struct conn *c, *found = NULL;

    TAILQ_FOREACH (c, &s->established, link)
        if (belongs(c, of) && (!found || is_less(c, found)) && !grant_of(s, c).reserved)
            found = c;
    return found;
}

/* Returns the receiver to displace if there is no room for one more of this host, or NULL. */
static struct conn *to_displace(const struct fmtp_server *s, const struct fmtp_host *host,
                                const struct fmtp_grant *grant)
{
    const enum fmtp_use use = FMTP_USE_RECEIVER;

    if (grant->reserved) {
        struct conn *c = least_worth(s, NULL);
        if (c)
            return c;
    }
    const struct fmtp_host *from = fmtp_hosts_heaviest(&s->hosts.hosts, use);
    if (from && from->count[use] > host->count[use] + SLACK)
        return least_worth(s, from);
    from = fmtp_hosts_heaviest(&s->hosts.nets, use);
    if (from && from->count[use] > host->net->count[use] + 1)
        return least_worth(s, from);
    return NULL;
}

enum fmtp_place fmtp_places_receiver(const struct fmtp_server *s, const struct conn *c,
                                     uint64_t now_ns, struct conn **leaves)
{
    struct fmtp_grant grant = grant_of(s, c);
    unsigned burst = 2 * (unsigned)grant.places;

    *leaves = NULL;
    if (!grant.places)
        return FMTP_PLACE_TOO_MANY;
    if (!fmtp_host_exchange(c->host, burst > EXCHANGES_MIN ? burst : EXCHANGES_MIN, now_ns))
        return FMTP_PLACE_TOO_FAST;
    if (c->host->count[FMTP_USE_RECEIVER] >= grant.places) {
        *leaves = most_silent(s, c->host);
        if (!*leaves || (*leaves)->heard_ns + STALE_NS > now_ns) {
            *leaves = NULL;
            return FMTP_PLACE_TOO_MANY;
        }
        return FMTP_PLACE_GRANTED;
    }
    if (s->receivers < s->cfg.max_receivers)
        return FMTP_PLACE_GRANTED;
    *leaves = to_displace(s, c->host, &grant);
    return *leaves ? FMTP_PLACE_GRANTED : FMTP_PLACE_NONE;
}

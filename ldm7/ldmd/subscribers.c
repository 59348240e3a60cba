/* SPDX-License-Identifier: Apache-2.0 */
#include "subscribers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/alloc.h"
#include "common/feedtype.h"
#include "common/log.h"
#include "common/log_peer.h"
#include "pathclient.h"

#define CHANNELS_MAX 1024u
#define LEASES_PART 4u
#define LEASES_MIN 2u
#define END_NS (3 * NS_PER_S) /* of the ten seconds that ldmd gives its children */

/* One per up7: its subscriber may connect as long as up7 runs. */
struct channel {
    struct channel *next;
    struct subscribers *owner;
    struct in_addr subscriber; /* source address of the subscription */
    struct in_addr addr;
    bool leased; /* addr is in our subnet */
    bool waits;  /* for the path service */
    struct loop_source src;
};

struct subscribers {
    struct loop *loop;
    const struct options *opt;
    const struct conf_multicast *entry;
    struct loop_source control_src;
    struct channel *channels;
    size_t nchannels;
    struct addresses *addresses;
    struct pathservice *path; /* NULL: no path service */
    struct pathclient *client;
    uint16_t tcp_port;
    void (*left)(void *ctx, struct in_addr addr, size_t others);
    void *left_ctx;
    char feed[FEEDTYPE_TEXT_MAX];
};

/* ------------------------------------------------------------------ who may connect */

/* DRFSM21 2.2.2: the address assigned to a subscriber (its own if it has no VLAN). Beyond the
 * paper: addresses that ALLOW entries grant the full feed, for hosts with a fixed address on the
 * path. */
static size_t subscriptions_of(const struct subscribers *s, struct in_addr peer)
{
    size_t n = 0;

    for (const struct channel *c = s->channels; c; c = c->next)
        n += c->addr.s_addr == peer.s_addr && !c->waits;
    return n;
}

struct fmtp_grant subscribers_grant(const struct subscribers *s, struct in_addr peer)
{
    struct fmtp_grant g = {.places = subscriptions_of(s, peer)};
    char text[INET_ADDRSTRLEN];
    const char *name = text;

    g.reserved = g.places > 0;
    inet_ntop(AF_INET, &peer, text, sizeof text);
    if (!g.places && conf_allowed(s->opt->conf, s->entry->feed, &name, 1) == s->entry->feed)
        g.places = 1;
    return g;
}

bool subscribers_authorize(struct subscribers *s, struct in_addr peer)
{
    char text[INET_ADDRSTRLEN];

    inet_ntop(AF_INET, &peer, text, sizeof text);
    if (subscribers_grant(s, peer).places > 0) {
        log_peer_served(text, "Host %s is authorized to connect", text);
        return true;
    }
    log_peer_warn(text, "Host %s is not authorized to connect", text);
    return false;
}

/* ------------------------------------------------------------------ channels */

static void close_channel(struct channel *c)
{
    struct subscribers *s = c->owner;
    int fd = c->src.fd;

    s->nchannels--;
    if (c->leased)
        addresses_give_back(s->addresses, c->addr);
    if (s->path)
        pathservice_unwant(s->path, c, s->loop->now_ns);
    loop_del(s->loop, &c->src);
    close(fd);
    free(c);
}

/* A leased address may also be a host's own, which ALLOW entries let connect without a lease. */
static void drop_channel(struct channel *c)
{
    struct channel **at = &c->owner->channels;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    struct subscribers *s = c->owner;
    struct in_addr addr = c->addr;
    bool waits = c->waits, leased = c->leased;
    close_channel(c);
    if (s->left && !waits)
        s->left(s->left_ctx, addr,
                leased ? subscribers_grant(s, addr).places : subscriptions_of(s, addr));
}

static void on_channel(void *ctx, uint32_t events)
{
    struct channel *c = ctx;
    char ignored[16];

    if ((events & (EPOLLHUP | EPOLLERR)) != 0 ||
        recv(c->src.fd, ignored, sizeof ignored, MSG_DONTWAIT) == 0)
        drop_channel(c);
}

static void answer(struct channel *c)
{
    const struct subscribers *s = c->owner;
    struct mldm_answer a = {.status = LDM7_OK,
                            .tcp_port = s->tcp_port,
                            .addr = c->addr,
                            .prefix_len = c->leased ? s->entry->subnet_len : 32};

    c->waits = false;
    (void)!send(c->src.fd, &a, sizeof a, MSG_NOSIGNAL);
}

static void refuse(int fd, uint32_t status)
{
    struct mldm_answer a = {.status = status};

    (void)!send(fd, &a, sizeof a, MSG_NOSIGNAL);
}

static void on_verdict(void *ctx, void *user, enum path_verdict v)
{
    struct channel *c = user;

    (void)ctx;
    if (v == PATH_CONFIRMED) {
        answer(c);
        return;
    }
    refuse(c->src.fd, v == PATH_REFUSED ? LDM7_REFUSED : LDM7_TIMEDOUT);
    drop_channel(c);
}

/* A host may have at most a quarter of the subnet's addresses, to leave some for the others. */
static bool may_lease(const struct subscribers *s, struct in_addr subscriber)
{
    size_t n = 0, most = addresses_count(s->addresses) / LEASES_PART;

    for (const struct channel *c = s->channels; c; c = c->next)
        n += c->leased && c->subscriber.s_addr == subscriber.s_addr;
    return n < (most > LEASES_MIN ? most : LEASES_MIN);
}

/* Returns the status for the subscriber; LDM7_OK: the channel exists, and answers when it can. */
static uint32_t new_channel(struct subscribers *s, int fd, const struct mldm_request *req)
{
    struct channel *c = calloc(1, sizeof *c);

    if (!c)
        return LDM7_SYSTEM;
    *c = (struct channel){.owner = s,
                          .subscriber = req->subscriber,
                          .addr = req->subscriber,
                          .leased = req->wants_address,
                          .waits = req->wants_leaf && s->path};
    if (s->nchannels >= CHANNELS_MAX ||
        (c->leased && (!may_lease(s, req->subscriber) ||
                       !addresses_take(s->addresses, req->endpoint, &c->addr)))) {
        char text[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &req->subscriber, text, sizeof text);
        log_peer_warn(text, "no address left for another subscriber of %s: %s", s->feed,
                      req->endpoint);
        free(c);
        return LDM7_REFUSED;
    }
    if (loop_add(s->loop, &c->src, fd, EPOLLIN, on_channel, c) < 0) {
        if (c->leased)
            addresses_give_back(s->addresses, c->addr);
        free(c);
        return LDM7_SYSTEM;
    }
    c->next = s->channels;
    s->channels = c;
    s->nchannels++;
    if (!c->waits) {
        answer(c);
    } else if (!pathservice_want(s->path, &req->leaf, c, s->loop->now_ns)) {
        refuse(fd, LDM7_SYSTEM);
        drop_channel(c);
    }
    return LDM7_OK;
}

static void on_control(void *ctx, uint32_t events)
{
    struct subscribers *s = ctx;
    struct mldm_request req;
    int fd = mldm_accept(s->control_src.fd, &req);

    (void)events;
    if (fd < 0)
        return;
    uint32_t status = new_channel(s, fd, &req);
    if (status == LDM7_OK)
        return;
    refuse(fd, status);
    close(fd);
}

void subscribers_refuse_waiting(int control_fd)
{
    int fd;

    struct mldm_request req;
    while ((fd = mldm_accept(control_fd, &req)) >= 0) {
        refuse(fd, LDM7_MCAST);
        close(fd);
    }
}

/* ------------------------------------------------------------------ beginning and end */

static bool open_path(struct subscribers *s)
{
    const struct conf_settings *set = &s->opt->conf->set;
    const struct conf_multicast *m = s->entry;
    struct path_config cfg = {.rate_bps = m->path_rate_bps,
                              .timeout_ns = set->path_timeout_s * NS_PER_S,
                              .grace_ns = set->path_grace_s * NS_PER_S,
                              .ctx = s,
                              .verdict = on_verdict};

    if (!conf_has_path(s->opt->conf, m))
        return true;
    conf_path_name(set, m->feed, cfg.name);
    const char *why;
    if (!path_endpoint_set(&cfg.root, m->switch_id, m->port_id, m->vlan, &why)) {
        log_error("endpoint %s/%s vlan %u: %s", m->switch_id, m->port_id, m->vlan, why);
        return false;
    }
    log_note("Path service: %s: path=%s, rate_bps=%" PRIu64, set->path_service, cfg.name,
             cfg.rate_bps);
    s->path = pathservice_new(&cfg, s->loop->now_ns);
    s->client = !s->path ? NULL : pathclient_open(s->loop, set, s->path);
    return s->client;
}

struct subscribers *subscribers_open(struct loop *loop, const struct options *opt,
                                     const struct conf_multicast *entry, uint16_t tcp_port,
                                     int control_fd)
{
    struct subscribers *s = xcalloc(1, sizeof *s);

    *s = (struct subscribers){.loop = loop,
                              .opt = opt,
                              .entry = entry,
                              .tcp_port = tcp_port,
                              .control_src = {.fd = -1},
                              .addresses = addresses_new(entry->fmtp_addr, entry->subnet_len)};
    feedtype_format(entry->feed, s->feed, sizeof s->feed);
    if (s->addresses && open_path(s) &&
        loop_add(loop, &s->control_src, control_fd, EPOLLIN, on_control, s) == 0)
        return s;
    log_error("cannot serve the subscribers of %s", s->feed);
    subscribers_close(s);
    return NULL;
}

void subscribers_on_leave(struct subscribers *s,
                          void (*left)(void *ctx, struct in_addr addr, size_t others), void *ctx)
{
    s->left = left;
    s->left_ctx = ctx;
}

uint64_t subscribers_tend(struct subscribers *s, uint64_t now)
{
    return !s->client ? LOOP_FOREVER : pathclient_tend(s->client, now);
}

static void end_path(struct subscribers *s)
{
    uint64_t end = now_ns() + END_NS;

    pathservice_finish(s->path, now_ns());
    while (!pathservice_is_finished(s->path) && s->loop->now_ns < end) {
        uint64_t due = pathclient_tend(s->client, now_ns());

        if (!pathservice_is_finished(s->path))
            loop_once(s->loop, due < end ? due : end);
    }
    if (!pathservice_is_finished(s->path))
        log_warn("Path service: no answer: the path of %s remains there", s->feed);
}

void subscribers_close(struct subscribers *s)
{
    loop_del(s->loop, &s->control_src);
    for (struct channel *c = s->channels, *next; c; c = next) {
        next = c->next;
        close_channel(c);
    }
    if (s->client)
        end_path(s);
    pathclient_close(s->client);
    pathservice_free(s->path);
    addresses_free(s->addresses);
    free(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "hosts.h"

#include <stdlib.h>
#include <string.h>

enum {
    REMEMBERED = 512, /* most hosts, and most networks, including those without a connection */
    IPV4_HOST = 4,
    IPV4_NET = 3,
    IPV6_HOST = 8,
    IPV6_NET = 6
};
#define EXCHANGE_NS (UINT64_C(1000000000) / FMTP_EXCHANGES_PER_S)

void fmtp_hosts_init(struct fmtp_hosts *h)
{
    *h = (struct fmtp_hosts){0};
    TAILQ_INIT(&h->hosts);
    TAILQ_INIT(&h->nets);
}

static void free_list(struct fmtp_host_list *list)
{
    struct fmtp_host *h;

    while ((h = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, h, link);
        free(h);
    }
}

void fmtp_hosts_free(struct fmtp_hosts *h)
{
    free_list(&h->hosts);
    free_list(&h->nets);
}

static void key_of(const struct sockaddr_storage *address, bool net, uint8_t key[9])
{
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)address;
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)address;

    memset(key, 0, 9);
    key[0] = (uint8_t)address->ss_family;
    if (address->ss_family != AF_INET6)
        memcpy(key + 1, &a4->sin_addr, net ? IPV4_NET : IPV4_HOST);
    else if (IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr)) {
        key[0] = AF_INET;
        memcpy(key + 1, a6->sin6_addr.s6_addr + 12, net ? IPV4_NET : IPV4_HOST);
    } else {
        memcpy(key + 1, &a6->sin6_addr, net ? IPV6_NET : IPV6_HOST);
    }
}

/* FNV-1a */
static uint64_t number_of(const uint8_t key[9])
{
    uint64_t n = UINT64_C(14695981039346656037);

    for (int i = 0; i < 9; i++)
        n = (n ^ key[i]) * UINT64_C(1099511628211);
    return n;
}

static bool is_idle(const struct fmtp_host *h)
{
    return !h->count[FMTP_USE_HANDSHAKE] && !h->count[FMTP_USE_RECEIVER];
}

static bool is_used(const struct fmtp_hosts *all, const struct fmtp_host *net)
{
    const struct fmtp_host *h;

    TAILQ_FOREACH (h, &all->hosts, link)
        if (h->net == net)
            return true;
    return false;
}

/* Forgets the least recently used entry to which nothing refers. */
static void forget_one(struct fmtp_hosts *all, struct fmtp_host_list *list, size_t *n)
{
    struct fmtp_host *h;

    TAILQ_FOREACH_REVERSE (h, list, fmtp_host_list, link)
        if (is_idle(h) && (h->net || !is_used(all, h))) {
            TAILQ_REMOVE(list, h, link);
            free(h);
            --*n;
            return;
        }
}

static struct fmtp_host *find(struct fmtp_hosts *all, struct fmtp_host_list *list, size_t *n,
                              const uint8_t key[9])
{
    struct fmtp_host *h;

    TAILQ_FOREACH (h, list, link)
        if (memcmp(h->key, key, sizeof h->key) == 0)
            break;
    if (h) {
        TAILQ_REMOVE(list, h, link);
    } else {
        if (*n >= REMEMBERED)
            forget_one(all, list, n);
        if (!(h = calloc(1, sizeof *h)))
            return NULL;
        memcpy(h->key, key, sizeof h->key);
        h->id = number_of(key);
        ++*n;
    }
    TAILQ_INSERT_HEAD(list, h, link);
    return h;
}

struct fmtp_host *fmtp_hosts_of(struct fmtp_hosts *all, const struct sockaddr_storage *address)
{
    uint8_t key[9];
    key_of(address, false, key);
    struct fmtp_host *host = find(all, &all->hosts, &all->nhosts, key);
    if (!host || host->net)
        return host;
    key_of(address, true, key);
    host->net = find(all, &all->nets, &all->nnets, key);
    if (host->net)
        return host;
    TAILQ_REMOVE(&all->hosts, host, link);
    all->nhosts--;
    free(host);
    return NULL;
}

void fmtp_host_count(struct fmtp_host *h, enum fmtp_use use, int change)
{
    h->count[use] += (size_t)change;
    h->net->count[use] += (size_t)change;
}

struct fmtp_host *fmtp_hosts_heaviest(const struct fmtp_host_list *list, enum fmtp_use use)
{
    struct fmtp_host *h, *heaviest = NULL;

    TAILQ_FOREACH (h, list, link)
        if (h->count[use] && (!heaviest || h->count[use] > heaviest->count[use]))
            heaviest = h;
    return heaviest;
}

bool fmtp_host_exchange(struct fmtp_host *h, unsigned burst, uint64_t now_ns)
{
    if (h->exchanges_ns < now_ns)
        h->exchanges_ns = now_ns;
    if (h->exchanges_ns - now_ns > (burst - 1) * EXCHANGE_NS)
        return false;
    h->exchanges_ns += EXCHANGE_NS;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "addresses.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lease {
    char key[ADDRESSES_KEY];
    uint32_t addr;
    unsigned users;
    uint64_t left; /* when its last user left, in events */
};

struct addresses {
    uint32_t first, n, server; /* host byte order; n usable addresses from first on */
    uint64_t events;
    size_t count;
    struct lease leases[ADDRESSES_REMEMBERED];
};

struct addresses *addresses_new(struct in_addr server, unsigned prefix_len)
{
    struct addresses *a = calloc(1, sizeof *a);
    uint32_t mask = prefix_len == 0 || prefix_len > 32 ? 0 : UINT32_MAX << (32 - prefix_len);

    if (!a)
        return NULL;
    a->server = ntohl(server.s_addr);
    a->first = a->server & mask;
    a->n = mask == 0 ? 0 : ~mask + 1;
    if (prefix_len <= 30 && a->n > 0) {
        a->first++; /* the network address */
        a->n -= 2;  /* ... and the broadcast address */
    }
    return a;
}

size_t addresses_count(const struct addresses *a)
{
    return a->n > 0 ? a->n - 1 : 0; /* one is the server's */
}

/* FNV-1a */
static uint32_t hash(const char *key)
{
    uint32_t h = 2166136261u;

    for (; *key != '\0'; key++)
        h = (h ^ (uint8_t)*key) * 16777619u;
    return h ^ h >> 16;
}

static struct lease *by_address(struct addresses *a, uint32_t addr)
{
    for (size_t i = 0; i < a->count; i++)
        if (a->leases[i].addr == addr)
            return &a->leases[i];
    return NULL;
}

/* Returns the lease that has been unused longest. */
static struct lease *longest_away(struct addresses *a)
{
    struct lease *found = NULL;

    for (size_t i = 0; i < a->count; i++)
        if (a->leases[i].users == 0 && (!found || a->leases[i].left < found->left))
            found = &a->leases[i];
    return found;
}

/* Returns a lease that no subscriber has: of an address never assigned, or of the endpoint that has
 * been away longest. */
static struct lease *unused_lease(struct addresses *a, uint32_t start)
{
    /* At most one more than the leases and the server can be taken. */
    uint32_t tries = a->n < ADDRESSES_REMEMBERED + 2 ? a->n : ADDRESSES_REMEMBERED + 2;

    for (uint32_t i = 0; i < tries && a->count < ADDRESSES_REMEMBERED; i++) {
        uint32_t at = a->first + (uint32_t)(((uint64_t)start + i) % a->n);

        if (at == a->server || by_address(a, at))
            continue;
        a->leases[a->count] = (struct lease){.addr = at};
        return &a->leases[a->count++];
    }
    return longest_away(a);
}

static struct lease *new_lease(struct addresses *a, const char *key)
{
    struct lease *l = unused_lease(a, hash(key) % a->n);

    if (l)
        snprintf(l->key, sizeof l->key, "%s", key);
    return l;
}

bool addresses_take(struct addresses *a, const char *key, struct in_addr *out)
{
    struct lease *l = NULL;

    for (size_t i = 0; i < a->count && !l; i++)
        if (strcmp(a->leases[i].key, key) == 0)
            l = &a->leases[i];
    if (!l && a->n > 0)
        l = new_lease(a, key);
    if (!l)
        return false;
    l->users++;
    out->s_addr = htonl(l->addr);
    return true;
}

void addresses_give_back(struct addresses *a, struct in_addr addr)
{
    struct lease *l = by_address(a, ntohl(addr.s_addr));

    if (!l || l->users == 0)
        return;
    l->users--;
    l->left = ++a->events;
}

void addresses_free(struct addresses *a)
{
    free(a);
}

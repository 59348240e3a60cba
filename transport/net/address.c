/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sockaddr_storage tp_ipv4(struct in_addr addr, uint16_t port)
{
    struct sockaddr_storage out = {0};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = addr, .sin_port = htons(port)};

    memcpy(&out, &a, sizeof a);
    return out;
}

static const struct sockaddr_in *as4(const struct sockaddr_storage *a)
{
    return (const struct sockaddr_in *)a;
}

static const struct sockaddr_in6 *as6(const struct sockaddr_storage *a)
{
    return (const struct sockaddr_in6 *)a;
}

uint16_t tp_address_port(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6 ? as6(a)->sin6_port : as4(a)->sin_port);
}

void tp_address_set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons(port);
}

socklen_t tp_address_len(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

bool tp_address_is_any(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&as6(a)->sin6_addr)
                                    : as4(a)->sin_addr.s_addr == htonl(INADDR_ANY);
}

bool tp_address_is_multicast(const struct sockaddr_storage *a)
{
    if (a->ss_family == AF_INET6)
        return IN6_IS_ADDR_MULTICAST(&as6(a)->sin6_addr);
    return a->ss_family == AF_INET && IN_MULTICAST(ntohl(as4(a)->sin_addr.s_addr));
}

bool tp_address_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6)
        return IN6_ARE_ADDR_EQUAL(&as6(a)->sin6_addr, &as6(b)->sin6_addr);
    return as4(a)->sin_addr.s_addr == as4(b)->sin_addr.s_addr;
}

const char *tp_address_text(const struct sockaddr *address, char *out)
{
    struct sockaddr_storage a = {0};
    char zone[1 + IF_NAMESIZE] = "";

    memcpy(&a, address,
           address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in));
    char host[INET6_ADDRSTRLEN];
    if (a.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &as6(&a)->sin6_addr, host, sizeof host);
        zone[0] = '%';
        if (!as6(&a)->sin6_scope_id || !if_indextoname(as6(&a)->sin6_scope_id, zone + 1))
            zone[0] = 0;
    } else {
        inet_ntop(AF_INET, &as4(&a)->sin_addr, host, sizeof host);
    }
    if (!tp_address_port(&a))
        snprintf(out, TP_ADDRESS_TEXT, "%s%s", host, zone);
    else if (a.ss_family == AF_INET6)
        snprintf(out, TP_ADDRESS_TEXT, "[%s%s]:%u", host, zone, tp_address_port(&a));
    else
        snprintf(out, TP_ADDRESS_TEXT, "%s:%u", host, tp_address_port(&a));
    return out;
}

/* An address without port; IPv6 with an optional %interface. */
static int parse_host(char *host, struct sockaddr_storage *out)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
    char *zone = strchr(host, '%');

    *out = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, host, &a4.sin_addr) == 1) {
        memcpy(out, &a4, sizeof a4);
        return 0;
    }
    if (zone) {
        *zone = 0;
        a6.sin6_scope_id = if_nametoindex(zone + 1);
        if (!a6.sin6_scope_id)
            return -1;
    }
    if (inet_pton(AF_INET6, host, &a6.sin6_addr) != 1)
        return -1;
    memcpy(out, &a6, sizeof a6);
    return 0;
}

int tp_address_parse(const char *text, bool with_port, struct sockaddr_storage *out)
{
    char *port = NULL;
    unsigned long n = 0;

    size_t len = strlen(text);

    char host[TP_ADDRESS_TEXT];
    if (len >= sizeof host)
        return -1;
    memcpy(host, text, len + 1);
    if (with_port) {
        char *colon = strrchr(host, ':');
        if (!colon)
            return -1;
        *colon = 0;
        port = colon + 1;
        char *end;
        n = strtoul(port, &end, 10);
        if (*port < '0' || *port > '9' || *end || n == 0 || n > 65535)
            return -1;
        if (host[0] == '[') {
            if (colon == host + 1 || colon[-1] != ']')
                return -1;
            colon[-1] = 0;
            memmove(host, host + 1, strlen(host));
        } else if (strchr(host, ':')) {
            return -1; /* IPv6 needs brackets before a port */
        }
    }
    if (parse_host(host, out) < 0)
        return -1;
    tp_address_set_port(out, (uint16_t)n);
    return 0;
}

uint64_t tp_address_number(const struct sockaddr_storage *a)
{
    const uint8_t *bytes = (const uint8_t *)a;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t len = a->ss_family == AF_INET6 ? 24 : 8; /* without scope and padding */

    for (size_t i = 0; i < len; i++)
        if (a->ss_family != AF_INET6 || i < 4 || i >= 8) /* skips the flow label */
            hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

int tp_interface_of(const struct sockaddr_storage *a, struct tp_interface *out,
                    struct tp_error *err)
{
    struct ifaddrs *list = NULL;
    /* Every address 127.x.y.z belongs to the loopback interface, though only one is listed. */
    bool loopback = a->ss_family == AF_INET && ntohl(as4(a)->sin_addr.s_addr) >> 24 == 127;

    *out = (struct tp_interface){0};
    if (tp_address_is_any(a))
        return 0;
    if (getifaddrs(&list) < 0)
        return tp_fail(err, "list of interfaces: %s", strerror(errno));
    for (const struct ifaddrs *i = list; i && !out->index; i = i->ifa_next) {
        struct sockaddr_storage own = {0};
        if (!i->ifa_addr || i->ifa_addr->sa_family != a->ss_family)
            continue;
        memcpy(&own, i->ifa_addr, tp_address_len(a));
        if (a->ss_family == AF_INET6 && as6(a)->sin6_scope_id &&
            as6(a)->sin6_scope_id != as6(&own)->sin6_scope_id)
            continue;
        if (tp_address_same_host(a, &own) || (loopback && i->ifa_flags & IFF_LOOPBACK)) {
            out->index = if_nametoindex(i->ifa_name);
            out->loopback = i->ifa_flags & IFF_LOOPBACK;
        }
    }
    freeifaddrs(list);
    if (!out->index) {
        struct sockaddr_storage host = *a;
        tp_address_set_port(&host, 0);
        char text[TP_ADDRESS_TEXT];
        return tp_fail(err, "no interface has the address %s",
                       tp_address_text((struct sockaddr *)&host, text));
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* glibc: per question and server. Two questions and three servers take at most 12 s. */
#define RESOLVER_OPTIONS "timeout:2 attempts:1"

static bool name_of(struct in_addr addr, char *name, size_t name_bytes)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = addr};

    setenv("RES_OPTIONS", RESOLVER_OPTIONS, 0);
    return getnameinfo((struct sockaddr *)&a, sizeof a, name, (socklen_t)name_bytes, NULL, 0,
                       NI_NAMEREQD) == 0;
}

static size_t addresses_of(const char *name, struct in_addr *out, size_t most)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list;
    size_t n = 0;

    setenv("RES_OPTIONS", RESOLVER_OPTIONS, 0);
    if (getaddrinfo(name, NULL, &hints, &list) != 0)
        return 0;
    for (const struct addrinfo *i = list; i && n < most; i = i->ai_next)
        out[n++] = ((const struct sockaddr_in *)i->ai_addr)->sin_addr;
    freeaddrinfo(list);
    return n;
}

const struct names_source names_of_system = {name_of, addresses_of};

/* Letters, digits, '-' and '_' with dots in between. An address in digits is not a name, because it
 * would match entries for addresses. */
static bool is_name(const char *name)
{
    static const char valid[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789-_.";
    struct in_addr ignored;

    return *name != '\0' && *name != '.' && name[strspn(name, valid)] == '\0' &&
           !strstr(name, "..") &&
           strpbrk(name, "abcdefghijklmnopqrstuvwxyz"
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ") &&
           inet_aton(name, &ignored) == 0;
}

enum names_verdict names_look_up(const struct names_source *from, struct in_addr addr, char *name,
                                 size_t name_bytes)
{
    name[0] = '\0';
    if (!from->name_of(addr, name, name_bytes))
        return NAMES_NONE;
    if (!is_name(name))
        return NAMES_INVALID;
    struct in_addr has[NAME_ADDRESSES];
    size_t n = from->addresses_of(name, has, NAME_ADDRESSES);
    for (size_t i = 0; i < n; i++)
        if (has[i].s_addr == addr.s_addr)
            return NAMES_CONFIRMED;
    return NAMES_FOREIGN;
}

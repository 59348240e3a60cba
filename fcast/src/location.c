/* SPDX-License-Identifier: Apache-2.0 */
#include "location.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static int digit(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* Returns where the path begins: after `scheme:` and `//host/`. */
static const char *path_of(const char *location)
{
    size_t n =
        strspn(location, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

    if (n && location[n] == ':' && location[n + 1] == '/') {
        location += n + 1;
        if (location[1] == '/') {
            const char *slash = strchr(location + 2, '/');
            location = slash ? slash : location + strlen(location);
        }
        location += strspn(location, "/");
    }
    return location;
}

bool fcast_location_get(const char *location, char *out, size_t room)
{
    size_t used = 0;

    for (const char *p = path_of(location); *p; p++) {
        char c = *p;
        if (c == '%') {
            if (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2]))
                return false;
            c = (char)(digit(p[1]) << 4 | digit(p[2]));
            p += 2;
        }
        if (!c || used + 1 >= room)
            return false;
        out[used++] = c;
    }
    out[used] = '\0';
    return used > 0;
}

bool fcast_location_put(const char *path, char *out, size_t room)
{
    size_t used = 0;

    for (; *path; path++) {
        bool plain = isalnum((unsigned char)*path) || strchr("-._~/", *path);
        if (used + 4 > room)
            return false;
        if (plain)
            out[used++] = *path;
        else
            used += (size_t)snprintf(out + used, 4, "%%%02X", (unsigned char)*path);
    }
    if (used >= room)
        return false;
    out[used] = '\0';
    return true;
}

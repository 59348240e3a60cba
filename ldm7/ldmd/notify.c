/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "loop.h"

/* Takes "/path", or "@name" for the abstract namespace. */
static bool set_address(struct notify *n, const char *name)
{
    size_t bytes = strlen(name);

    if ((name[0] != '/' && name[0] != '@') || bytes < 2 || bytes >= sizeof n->to.sun_path)
        return false;
    n->to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(n->to.sun_path, name, bytes);
    if (name[0] == '@')
        n->to.sun_path[0] = '\0';
    n->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes + (name[0] == '/'));
    return true;
}

/* Returns 0 if the text is not such a number. */
static uint64_t number(const char *text)
{
    errno = 0;
    char *end;
    unsigned long long v = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;

    return v != 0 && *end == '\0' && errno == 0 ? v : 0;
}

/* Returns whether the watchdog is meant for this process, as it is without WATCHDOG_PID. */
static bool is_watched(void)
{
    const char *pid = getenv("WATCHDOG_PID");

    return !pid || number(pid) == (uint64_t)getpid();
}

void notify_open(struct notify *n, uint64_t now)
{
    const char *name = getenv("NOTIFY_SOCKET");

    *n = (struct notify){.fd = -1, .due_ns = now};
    if (name && !set_address(n, name))
        log_warn("NOTIFY_SOCKET: found \"%s\"; valid: an absolute path or @NAME", name);
    else if (name && (n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        log_warn("cannot notify the service manager: %s", strerror(errno));
    uint64_t usec = number(getenv("WATCHDOG_USEC"));
    if (n->fd >= 0 && usec <= UINT64_MAX / 1000 && is_watched())
        n->interval_ns = usec * 1000 / 2;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void notify_say(const struct notify *n, const char *state)
{
    if (n->fd >= 0 && sendto(n->fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                             (const struct sockaddr *)&n->to, n->to_bytes) < 0)
        log_debug("the service manager is not listening: %s", strerror(errno));
}

uint64_t notify_tend(struct notify *n, uint64_t now)
{
    if (n->interval_ns == 0)
        return LOOP_FOREVER;
    if (now >= n->due_ns) {
        notify_say(n, "WATCHDOG=1");
        n->due_ns = now + n->interval_ns;
    }
    return n->due_ns;
}

void notify_close(struct notify *n)
{
    if (n->fd >= 0)
        close(n->fd);
    n->fd = -1;
    n->interval_ns = 0;
}

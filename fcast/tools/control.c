/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int control_why(char why[FCAST_CONTROL_WHY], const char *text)
{
    snprintf(why, FCAST_CONTROL_WHY, "%s", text);
    return -1;
}

int control_init(struct control *c, const char *address, uint16_t port,
                 const char *interface_address, char why[FCAST_CONTROL_WHY])
{
    *c = (struct control){.wake_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    if (tp_address_parse(address, false, &c->group) < 0 || !tp_address_is_multicast(&c->group) ||
        !port) {
        snprintf(why, FCAST_CONTROL_WHY,
                 "'%s' port %u; valid: a multicast group such as 239.99.99.99 port 1711", address,
                 port);
        return -1;
    }
    tp_address_set_port(&c->group, port);
    const char *any = c->group.ss_family == AF_INET6 ? "::" : "0.0.0.0";
    if (tp_address_parse(interface_address ? interface_address : any, false, &c->interface) < 0 ||
        c->interface.ss_family != c->group.ss_family) {
        snprintf(why, FCAST_CONTROL_WHY,
                 "interface '%s'; valid: an address of this host, of the group's family",
                 interface_address);
        return -1;
    }
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c->wake_fd < 0 ? control_why(why, strerror(errno)) : 0;
}

int control_start(struct control *c, void *(*run)(void *), void *arg, char why[FCAST_CONTROL_WHY])
{
    sigset_t all, before;
    uint64_t count;

    while (read(c->wake_fd, &count, sizeof count) > 0)
        continue;
    /* The program's signals must not be delivered to this thread. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&c->thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->is_running = !error;
    return error ? control_why(why, strerror(error)) : 0;
}

bool control_is_ending(const struct control *c)
{
    struct pollfd p = {.fd = c->wake_fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

void control_stop(struct control *c)
{
    const uint64_t one = 1;

    if (!c->is_running)
        return;
    while (write(c->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(c->thread, NULL);
    c->is_running = false;
}

void control_free(struct control *c)
{
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    pthread_mutex_destroy(&c->lock);
}

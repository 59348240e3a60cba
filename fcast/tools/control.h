/* SPDX-License-Identifier: Apache-2.0
 *
 * What both sides of the control library share: addresses, and a thread that can be woken.
 */
#ifndef FCAST_TOOLS_CONTROL_H
#define FCAST_TOOLS_CONTROL_H

#include <pthread.h>

#include "fcast_control.h"
#include "net/address.h"

struct control {
    struct sockaddr_storage group, interface;
    pthread_t thread;
    pthread_mutex_t lock; /* for the statistics */
    bool is_running;      /* there is a thread to join */
    int wake_fd;          /* readable: the thread must end */
};

/* Returns -1 with why. */
int control_init(struct control *c, const char *address, uint16_t port,
                 const char *interface_address, char why[FCAST_CONTROL_WHY]);
/* Starts the thread. Returns -1 with why. */
int control_start(struct control *c, void *(*run)(void *), void *arg, char why[FCAST_CONTROL_WHY]);
/* Returns whether the thread must end. */
bool control_is_ending(const struct control *c);
/* Wakes the thread and waits until it has ended. */
void control_stop(struct control *c);
void control_free(struct control *c);
/* Copies a text, cutting it if necessary. Returns -1. */
int control_why(char why[FCAST_CONTROL_WHY], const char *text);

#endif

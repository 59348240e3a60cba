/* SPDX-License-Identifier: Apache-2.0 */
#include "vlan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "loop.h"

#define LONGEST_MS 30000

bool vlan_is_ours(const struct conf_receive *rcv)
{
    return rcv->iface_name[0] != '\0' && rcv->vlan != 0;
}

void vlan_interface(const struct conf_receive *rcv, char *out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s.%u", rcv->iface_name, rcv->vlan);
}

/* No shell: the arguments are what they are. */
static int run(char *const argv[])
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        loop_unblock_signals();
        execvp(argv[0], argv);
        log_error("cannot execute %s: %s", argv[0], strerror(errno));
        _exit(127);
    }
    if (pid < 0) {
        log_error("cannot fork: %s", strerror(errno));
        return -1;
    }
    for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0; ms += 5) {
        if (ms == LONGEST_MS) {
            log_error("%s %s takes too long", argv[0], argv[1]);
            kill(pid, SIGKILL);
        }
        poll(NULL, 0, 5);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    log_error("%s %s %s failed", argv[0], argv[1], argv[2]);
    return -1;
}

int vlan_create(const char *vlanutil, const char *interface, const struct ldm7_reply *reply,
                struct in_addr server)
{
    char cidr[INET_ADDRSTRLEN + 4], route[INET_ADDRSTRLEN];
    char *argv[] = {(char *)(uintptr_t)vlanutil,
                    (char *)(uintptr_t) "create",
                    (char *)(uintptr_t)interface,
                    cidr,
                    route,
                    NULL};

    char addr[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reply->addr, addr, sizeof addr);
    inet_ntop(AF_INET, &server, route, sizeof route);
    snprintf(cidr, sizeof cidr, "%s/%u", addr, reply->prefix_len);
    return run(argv);
}

void vlan_destroy(const char *vlanutil, const char *interface)
{
    char *argv[] = {(char *)(uintptr_t)vlanutil, (char *)(uintptr_t) "destroy",
                    (char *)(uintptr_t)interface, NULL};

    (void)run(argv);
}

bool vlan_address_of(const char *interface, struct in_addr *out)
{
    bool found = false;

    struct ifaddrs *list;
    if (getifaddrs(&list) < 0)
        return false;
    for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
            strcmp(i->ifa_name, interface) == 0) {
            memcpy(out, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, sizeof *out);
            found = true;
        }
    freeifaddrs(list);
    return found;
}

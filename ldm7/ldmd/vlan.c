/* SPDX-License-Identifier: Apache-2.0 */
#include "vlan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
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

static int helper_fd = -1;

/* Reads what a program complained about, as one line. */
static void read_complaint(int fd, char *out, size_t out_bytes)
{
    ssize_t n = read(fd, out, out_bytes - 1);

    while (n > 0 && out[n - 1] == '\n')
        n--;
    out[n < 0 ? 0 : n] = '\0';
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '\n' ? '|' : *c;
}

/* No shell: nothing expands the arguments. */
int vlan_execute(char *const argv[])
{
    int status = 0, fds[2];

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
        log_error("cannot execute %s: %s", argv[0], strerror(errno));
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        loop_unblock_signals();
        dup2(fds[1], STDERR_FILENO);
        execvp(argv[0], argv);
        fprintf(stderr, "%s\n", strerror(errno));
        _exit(127);
    }
    close(fds[1]);
    if (pid < 0) {
        log_error("cannot fork: %s", strerror(errno));
        close(fds[0]);
        return -1;
    }
    for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0; ms += 5) {
        if (ms == LONGEST_MS) {
            log_error("%s %s takes too long", argv[0], argv[1]);
            kill(pid, SIGKILL);
        }
        poll(NULL, 0, 5);
    }
    char why[512];
    read_complaint(fds[0], why, sizeof why);
    close(fds[0]);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    log_error("%s %s %s failed: %s", argv[0], argv[1], argv[2], why);
    return -1;
}

/* A request to the helper: the words of the command line, each with its NUL. */
struct request {
    char words[1024];
};
enum { WORDS_MAX = 6 };

/* The requesting process may be under a peer's control: it gets this program and this interface,
 * nothing else. */
static int run_request(const struct conf_receive *rcv, const char *vlanutil, struct request *r,
                       size_t bytes)
{
    char *argv[WORDS_MAX + 1], own[64];
    unsigned n = 0;

    for (size_t at = 0; at < bytes && n < WORDS_MAX; at += strlen(r->words + at) + 1)
        argv[n++] = r->words + at;
    argv[n] = NULL;
    vlan_interface(rcv, own, sizeof own);
    if (n < 3 ||
        (strcmp(argv[1], "create") != 0 && strcmp(argv[1], "attach") != 0 &&
         strcmp(argv[1], "destroy") != 0) ||
        strcmp(argv[2], own) != 0)
        return -1;
    for (unsigned i = 3; i < n; i++)
        if (argv[i][strspn(argv[i], "0123456789./")] != '\0')
            return -1;
    argv[0] = (char *)(uintptr_t)vlanutil;
    return vlan_execute(argv);
}

static void serve_requests(const struct conf_receive *rcv, const char *vlanutil, int fd)
{
    struct request r;
    ssize_t n;

    log_set_prog("vlan");
    while ((n = recv(fd, r.words, sizeof r.words - 1, 0)) > 0) {
        r.words[n] = '\0';
        int rc = run_request(rcv, vlanutil, &r, (size_t)n);
        if (send(fd, &rc, sizeof rc, MSG_NOSIGNAL) < 0)
            break;
    }
}

int vlan_start_helper(const struct conf_receive *rcv, const char *vlanutil)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        log_error("cannot start the helper for VLANs: %s", strerror(errno));
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        serve_requests(rcv, vlanutil, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    if (pid < 0) {
        log_error("cannot start the helper for VLANs: %s", strerror(errno));
        close(pair[0]);
        return -1;
    }
    helper_fd = pair[0];
    return 0;
}

static int run(char *const argv[])
{
    struct request r;
    size_t used = 0;
    int rc = -1;

    if (helper_fd < 0)
        return vlan_execute(argv);
    for (unsigned i = 0; argv[i]; i++) {
        size_t n = strlen(argv[i]) + 1;

        if (n > sizeof r.words - 1 - used)
            return -1;
        memcpy(r.words + used, argv[i], n);
        used += n;
    }
    if (send(helper_fd, r.words, used, MSG_NOSIGNAL) < 0 ||
        recv(helper_fd, &rc, sizeof rc, 0) != (ssize_t)sizeof rc) {
        log_error("the helper for VLANs has ended: %s", strerror(errno));
        return -1;
    }
    return rc;
}

int vlan_create(const char *vlanutil, bool tags, const char *interface,
                const struct ldm7_reply *reply, struct in_addr server)
{
    char cidr[INET_ADDRSTRLEN + 4], route[INET_ADDRSTRLEN];
    char *argv[] = {(char *)(uintptr_t)vlanutil,
                    (char *)(uintptr_t)(tags ? "create" : "attach"),
                    (char *)(uintptr_t)interface,
                    cidr,
                    route,
                    NULL};

    char addr[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &reply->addr, addr, sizeof addr);
    inet_ntop(AF_INET, &server, route, sizeof route);
    snprintf(cidr, sizeof cidr, "%s/%u", addr, reply->prefix_len);
    if (run(argv) < 0)
        return -1;
    log_note("Interface %s made: %s %s %s %s", interface, vlanutil, argv[1], cidr, route);
    return 0;
}

void vlan_destroy(const char *vlanutil, const char *interface)
{
    char *argv[] = {(char *)(uintptr_t)vlanutil, (char *)(uintptr_t) "destroy",
                    (char *)(uintptr_t)interface, NULL};

    if (run(argv) == 0)
        log_note("Interface %s removed", interface);
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
